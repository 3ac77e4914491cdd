//! Where a process can be asked how it is, its log and its traces.

use redrive::config::{LogFormat, LogLevel, schema};

use crate::support::{json, valid, yaml};

const FLOW: &str = "flows: [{ topic: a }]\n";
const TOKEN: &str = "0123456789abcdef";

#[test]
fn nothing_is_listened_on_and_sent_to_unless_it_is_asked_for() {
    let config = valid(FLOW);
    assert!(config.admin.is_none() && config.otlp.is_none());
    assert_eq!((config.log.format, config.log.level), (LogFormat::Text, LogLevel::Info));
}

#[test]
fn sections_without_keys_stand_for_their_defaults() {
    let config = valid(&format!("{FLOW}admin: {{}}\nlog: {{}}\notlp: {{}}\n"));
    let admin = config.admin.unwrap();
    assert_eq!((admin.listen.to_string(), admin.token), ("127.0.0.1:9464".to_owned(), None));
    let otlp = config.otlp.unwrap();
    assert_eq!((otlp.host.as_str(), otlp.port, otlp.path.as_str()), ("127.0.0.1", 4318, ""));
}

#[test]
fn everything_can_be_set() {
    let config = valid(&format!(
        "{FLOW}admin: {{ listen: \"[::]:80\", token: {TOKEN} }}\nlog: {{ format: json, level: debug }}\notlp: {{ endpoint: \"http://collector:1/a\" }}\n"
    ));
    let admin = config.admin.unwrap();
    assert_eq!(
        (admin.listen.to_string().as_str(), admin.token.unwrap().reveal()),
        ("[::]:80", TOKEN)
    );
    assert_eq!((config.log.format, config.log.level), (LogFormat::Json, LogLevel::Debug));
    assert_eq!(config.otlp.unwrap().path, "/a");
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_its_cure_and_refused_by_the_schema_too() {
    let schema = jsonschema::draft202012::new(&schema()).unwrap();
    for (section, path, cure) in [
        (r#""admin": { "listen": ":9464" }"#, "admin.listen", "127.0.0.1:9464"),
        (r#""admin": { "listen": "example.com:80" }"#, "admin.listen", "127.0.0.1:9464"),
        (r#""admin": { "listen": 9464 }"#, "admin.listen", ""),
        (r#""admin": { "token": "short" }"#, "admin.token", "at least 16"),
        (r#""admin": { "token": "with blanks in the middle" }"#, "admin.token", "at least 16"),
        (r#""admin": { "port": 9464 }"#, "admin.port", "listen"),
        (r#""admin": true"#, "admin", ""),
        (r#""log": { "format": "xml" }"#, "log.format", ""),
        (r#""log": { "level": "loud" }"#, "log.level", ""),
        (r#""otlp": { "endpoint": "https://collector:4318" }"#, "otlp.endpoint", "beside"),
        (r#""otlp": { "endpoint": "collector" }"#, "otlp.endpoint", "http://127.0.0.1:4318"),
    ] {
        let text = format!(r#"{{ "flows": [{{ "topic": "a" }}], {section} }}"#);
        let loaded = json(&text);
        let [problem] = loaded.problems.as_slice() else {
            panic!("{text}: {:?}", loaded.problems);
        };
        assert!(loaded.config.is_none() && problem.path == path, "{text}: {problem:?}");
        let hint = problem.hint.as_deref().unwrap_or_default();
        assert!(hint.contains(cure), "{text}: {hint}");
        assert!(!schema.is_valid(&serde_json::from_str(&text).unwrap()), "{text}");
    }
}

#[test]
fn the_schema_takes_what_the_reader_takes() {
    let schema = jsonschema::draft202012::new(&schema()).unwrap();
    for section in [
        r#""admin": {}"#,
        r#""admin": { "listen": "0.0.0.0:9464", "token": "${TOKEN}" }"#,
        r#""admin": { "listen": "localhost:80", "token": "0123456789abcdef" }"#,
        r#""admin": { "listen": "[::1]:9464" }"#,
        r#""log": { "format": "json", "level": "trace" }"#,
        r#""otlp": { "endpoint": "http://collector" }"#,
    ] {
        let text = format!(r#"{{ "flows": [{{ "topic": "a" }}], {section} }}"#);
        assert!(schema.is_valid(&serde_json::from_str(&text).unwrap()), "{text}");
    }
}

#[test]
fn credentials_in_an_address_are_not_shown() {
    let loaded = yaml(&format!("{FLOW}otlp: {{ endpoint: \"http://me:s3cr3t@collector\" }}\n"));
    assert!(loaded.config.is_none());
    assert!(!format!("{:?}", loaded.problems).contains("s3cr3t"), "{:?}", loaded.problems);
}
