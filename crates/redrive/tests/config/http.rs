//! What a config says about a service that gets records over HTTP.

use std::time::Duration;

use redrive::config::{Auth, Handler, HttpConfig, Secret, Tls};

use crate::support::{FROM_ENV, places, refused, told, valid_flow, warned, yaml};

/// A flow whose service has these keys, beside its address, from column 49 of line 3 on.
fn with(keys: &str) -> String {
    format!("flows:\n- topic: a\n  handler: {{ http: {{ url: 'https://h/x?y', {keys} }} }}\n")
}

fn service(text: &str) -> HttpConfig {
    match valid_flow(text).handler {
        Some(Handler::Http(service)) => service,
        other => panic!("an HTTP handler was expected, not {other:?}"),
    }
}

#[test]
fn what_is_not_said_has_a_default() {
    let service = service(&with(""));
    assert_eq!(service.url, "https://h/x?y");
    assert_eq!(service.timeout, Duration::from_secs(30));
    assert_eq!(service.connect_timeout, Duration::from_secs(5));
    assert!(service.headers.is_empty() && service.auth.is_none() && service.sign.is_none());
    assert_eq!(service.tls, Tls::default());
    assert!(service.capture_response);
}

#[test]
fn what_is_said_is_meant() {
    let service = service(&with(
        "timeout: 3s, connect_timeout: 1s, headers: { X-Api-Key: '${SECRET}', x-n: 7 }, auth: { bearer: t }, \
         sign: { secret: '${SECRET}' }, tls: { ca: ca.pem, cert: c.pem, key: k.pem }, capture_response: false",
    ));
    assert_eq!(service.timeout, Duration::from_secs(3));
    assert_eq!(service.connect_timeout, Duration::from_secs(1));
    let headers =
        [("x-api-key", FROM_ENV), ("x-n", "7")].map(|it| (it.0.to_owned(), Secret::new(it.1)));
    assert_eq!(service.headers, headers);
    assert_eq!(service.auth, Some(Auth::Bearer(Secret::new("t"))));
    assert_eq!(service.sign, Some(Secret::new(FROM_ENV)));
    let file = |it: &str| Some(it.into());
    let tls = Tls { ca: file("ca.pem"), cert: file("c.pem"), key: file("k.pem") };
    assert_eq!(service.tls, tls);
    assert!(!service.capture_response);
}

#[test]
fn a_name_and_a_password_are_read() {
    let service = service(&with("auth: { basic: { username: me, password: '12 3:ü' } }"));
    let password = Secret::new("12 3:ü");
    assert_eq!(service.auth, Some(Auth::Basic { username: "me".to_owned(), password }));
}

#[test]
fn what_cannot_be_sent_is_refused() {
    for (keys, path, words) in [
        ("headers: { 'x y': 1 }", "headers.x y", &["cannot be the name"][..]),
        ("headers: { Host: h }", "headers.Host", &["belongs to the connection"]),
        ("headers: { Content-Length: 1 }", "headers.Content-Length", &["cannot be set"]),
        ("headers: { Redrive-Topic: a }", "headers.Redrive-Topic", &["tells of the record"]),
        ("headers: { a: x, A: y }", "headers.A", &["twice"]),
        ("headers: { a: \"x\\ny\" }", "headers.a", &["characters"]),
        ("headers: { a: ü }", "headers.a", &["visible ASCII"]),
        ("headers: { a: [] }", "headers.a", &["single value"]),
        (
            "headers: { Authorization: x }, auth: { bearer: t }",
            "headers.authorization",
            &["keep one"],
        ),
        ("auth: {}", "auth", &["says nothing"]),
        ("auth: { bearer: t, basic: { username: u, password: p } }", "auth.basic", &["keep one"]),
        ("auth: { basic: { username: 'a:b', password: p } }", "auth.basic.username", &["`:`"]),
        ("auth: { basic: { username: a } }", "auth.basic.password", &["missing"]),
        ("auth: { bearer: \"a\\tb\" }", "auth.bearer", &["characters"]),
        ("sign: {}", "sign.secret", &["missing"]),
        ("sign: { secret: '' }", "sign.secret", &["empty"]),
        ("tls: { cert: c.pem }", "tls.cert", &["no `key`"]),
        ("tls: { key: k.pem }", "tls.key", &["no `cert`"]),
        ("timeout: 0s", "timeout", &["from 1ms"]),
        ("connect_timeout: 2d", "connect_timeout", &["to 1d"]),
        ("tsl: {}", "tsl", &["did you mean `tls`?"]),
    ] {
        let loaded = yaml(&with(keys));
        let told = told(&loaded);
        assert!(loaded.config.is_none(), "{keys}");
        assert_eq!(loaded.problems.len(), 1, "{keys}: {told}");
        assert_eq!(loaded.problems[0].path, format!("flows[0].handler.http.{path}"), "{keys}");
        assert!(words.iter().all(|it| told.contains(it)), "{keys}: {told}");
    }
}

#[test]
fn addresses_that_are_none_are_refused() {
    for (url, words) in [
        ("http://h:0/", "port"),
        ("http://h:99999/", "port"),
        ("http://h/a#b", "never sent"),
        ("http://h/ä", "percent-encoded"),
        ("http://h/{id}", "percent-encoded"),
        ("ftp://h/", "not the address"),
    ] {
        let text = format!("flows: [{{ topic: a, handler: {{ http: {{ url: '{url}' }} }} }}]");
        refused(&text, "flows[0].handler.http.url @1:45", &[words]);
    }
    let text =
        "flows:\n- topic: a\n  handler: { http: { url: 'http://me:p@h', auth: { bearer: t } } }\n";
    refused(text, "flows[0].handler.http.auth @3:50", &["take them out of the address"]);
}

#[test]
fn certificates_without_tls_have_no_effect() {
    let text = "flows:\n- topic: a\n  handler: { http: { url: 'http://h', tls: { ca: c.pem } } }\n";
    warned(text, "flows[0].handler.http.tls @3:44", &["no effect", "https://"]);
}

#[test]
fn nothing_that_is_secret_is_ever_shown() {
    for keys in [
        "headers: { X-Key: \"s3cr3t\\n\" }",
        "headers: { X-Key: 's3cr3t${' }",
        "headers: { X-Key: ['s3cr3t'] }",
        "headers: { X-Key: '${SECRET}\u{7f}' }",
        "auth: { bearer: 's3cr3t${' }",
        "auth: { bearer: \"s3cr3t\\n\" }",
        "auth: { basic: { username: 'a:b', password: s3cr3t } }",
        "auth: { bearer: s3cr3t, basic: { username: a, password: s3cr3t } }",
        "sign: { secret: 's3cr3t${' }",
        "sign: { secret: [s3cr3t] }",
        "sign: s3cr3t",
        "auth: s3cr3t",
    ] {
        let loaded = yaml(&with(keys));
        assert!(!places(&loaded).is_empty(), "{keys}");
        assert!(!told(&loaded).contains(FROM_ENV), "{keys}: {}", told(&loaded));
    }
    let service = service(&with("headers: { X-Key: s3cr3t }, auth: { bearer: s3cr3t }"));
    assert!(!format!("{service:?}").contains(FROM_ENV));
}
