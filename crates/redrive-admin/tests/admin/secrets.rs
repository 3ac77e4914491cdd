//! Secrets are nowhere to be seen.

use redrive::config::{Admin, AdminToken, Config, Options, Syntax};

const SECRET: &str = "s3cr3t-s3cr3t-s3cr3t";

fn load(text: &str) -> redrive::config::Loaded {
    let env = |name: &str| (name == "TOKEN").then(|| SECRET.to_owned());
    Config::load(text, Syntax::Yaml, &Options { topic: None, group: None, env: &env }).unwrap()
}

#[test]
fn a_config_with_secrets_does_not_show_them() {
    let loaded = load(
        "flows: [{ topic: a }]\nkafka: { bootstrap.servers: b, sasl.password: s3cr3t-s3cr3t-s3cr3t }\nadmin: { token: \"${TOKEN}\" }\n",
    );
    let config = loaded.config.unwrap();
    assert_eq!(config.admin.as_ref().unwrap().token.as_ref().unwrap().reveal(), SECRET);
    assert!(!format!("{config:?}").contains(SECRET));
}

#[test]
fn a_token_that_is_refused_is_not_shown() {
    for token in ["\"s3cr3t with blanks in it\"", "s3cr3t", "[s3cr3t]"] {
        let loaded = load(&format!("flows: [{{ topic: a }}]\nadmin: {{ token: {token} }}\n"));
        assert!(loaded.config.is_none());
        let problems = format!("{:?}", loaded.problems);
        assert!(problems.contains("admin.token") && !problems.contains("s3cr3t"), "{problems}");
    }
}

#[test]
fn what_is_answered_has_no_token_in_it() {
    use std::io::{Read, Write};
    let admin = Admin { listen: "127.0.0.1:0".parse().unwrap(), token: AdminToken::new(SECRET) };
    let server = redrive_admin::serve(&admin, crate::Fake::with(crate::sample())).unwrap();
    for path in ["/", "/metrics", "/status", "/readyz", "/livez", "/pause"] {
        let method = if path == "/pause" { "POST" } else { "GET" };
        let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
        let host = server.address();
        write!(stream, "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.len() > 20 && !answer.contains(SECRET), "{path}: {answer}");
    }
    assert!(!format!("{server:?} {admin:?}").contains(SECRET));
}
