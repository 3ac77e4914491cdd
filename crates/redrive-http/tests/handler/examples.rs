//! The example services of docs/http.md, each run by its own language.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redrive::config::{HttpConfig, Secret};
use redrive::{Ask, Outcome, Record};
use redrive_http::HttpHandler;
use serde_json::{Value, json};

use super::{context, failure, send};

/// An example that runs. It ends with this.
struct Example {
    child: Child,
    url: String,
}

impl Example {
    fn start(program: &str, file: &str) -> Self {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/http/");
        let mut child = Command::new(program)
            .arg(format!("{directory}{file}"))
            .arg("0")
            .env("SECRET", "s3cr3t")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{program} is needed for this test: {error}"));
        let mut line = String::new();
        let errors = child.stderr.take().unwrap();
        BufReader::new(errors).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("listening on ");
        let port = port.unwrap_or_else(|| panic!("{file} does not listen: {line}"));
        Self { url: format!("http://127.0.0.1:{port}/orders"), child }
    }

    /// Ends it, and gives what it printed.
    fn end(mut self) -> Vec<Value> {
        self.child.kill().unwrap();
        let mut text = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        text.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

async fn try_out(program: &str, file: &str) {
    let example = Example::start(program, file);
    let signed = HttpConfig { sign: Some(Secret::new("s3cr3t")), ..HttpConfig::new(&example.url) };
    let handler = HttpHandler::new(&signed).unwrap();
    let record = |offset, value: &str| Record::made_up("orders", 0, offset).with_value(value);

    let first = record(0, "{}")
        .with_key("kund 1 ü")
        .with_header("trace", Some(b"1"))
        .with_header("Trace", Some("a, ü%".as_bytes()))
        .with_header("none", None);
    assert_eq!(send(&handler, &first).await, Outcome::Done);
    // The same record again is not done twice.
    assert_eq!(send(&handler, &first).await, Outcome::Done);
    let busy = failure(send(&handler, &record(1, r#"{"busy":1}"#)).await);
    assert_eq!((busy.status, busy.response.as_deref()), (Some(503), Some("busy")));
    assert_eq!(busy.retry_after, Some(Duration::from_secs(1)));
    let later = record(1, r#"{"busy":1}"#);
    let retried = context(&later).with_overall_attempts(1).with_policy("default", 1);
    let outcome = redrive::Handler::handle(&handler, later, retried).await;
    assert_eq!(outcome, Outcome::Done);
    let refused = failure(send(&handler, &record(2, "no JSON")).await);
    assert!(refused.status == Some(400) && !refused.is_retryable());
    let dropped = send(&handler, &record(3, r#"{"test":true}"#)).await;
    assert!(matches!(dropped, Outcome::Asked(_, Ask::Drop)), "{dropped:?}");
    let null = Record::made_up("orders", 0, 4);
    assert_eq!(send(&handler, &null).await, Outcome::Done);
    let binary = Record::made_up("orders", 0, 5).with_value([0, 0xFF, b'{']);
    assert_eq!(failure(send(&handler, &binary).await).status, Some(400));

    // Neither the wrong secret nor none is taken.
    for sign in [Some(Secret::new("wrong")), None] {
        let handler = HttpHandler::new(&HttpConfig { sign, ..signed.clone() }).unwrap();
        match send(&handler, &record(6, "{}")).await {
            Outcome::Held(failure, _) => assert_eq!(failure.status, Some(401)),
            other => panic!("{other:?}"),
        }
    }

    let printed = example.end();
    assert_eq!(
        printed[0],
        json!({
            "topic": "orders",
            "key": "kund 1 ü",
            "value": "{}",
            "delivery": 1,
            "is_last": false,
            "headers": { "trace": ["1", "a, ü%"], "none": [null] },
        })
    );
    let values: Vec<_> = printed.iter().map(|it| (&it["value"], &it["delivery"])).collect();
    let (first, second) = (json!(1), json!(2));
    assert_eq!(values[1..4].iter().map(|it| it.1).collect::<Vec<_>>(), [&first, &second, &first]);
    assert!(printed.iter().any(|it| it["value"].is_null()));
}

#[tokio::test]
async fn the_example_in_python_does_what_it_says() {
    try_out("python3", "server.py").await;
}

#[tokio::test]
async fn the_example_in_node_does_what_it_says() {
    try_out("node", "server.mjs").await;
}

/// A piece of code in docs/http.md.
fn snippet(language: &str) -> String {
    let docs = include_str!("../../../../docs/http.md");
    let start = docs.split_once(&format!("```{language}\n")).unwrap().1;
    start.split_once("```").unwrap().0.to_owned()
}

fn is_fine(program: &str, option: &str, code: &str) {
    let output = Command::new(program).args([option, code]).output();
    let output =
        output.unwrap_or_else(|error| panic!("{program} is needed for this test: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What a service gets, checked by the code that the docs show.
#[tokio::test]
async fn the_docs_check_signatures_as_they_are_made() {
    let server = super::server::Server::saying(200, &[], b"").await;
    let config = HttpConfig { sign: Some(Secret::new("s3cr3t")), ..HttpConfig::new(&server.url) };
    let record = Record::made_up("orders", 0, 0).with_value("ü\0{}");
    assert_eq!(send(&HttpHandler::new(&config).unwrap(), &record).await, Outcome::Done);
    let got = server.only();
    let header = got.get("redrive-signature").unwrap();
    let hex: String = got.body.iter().map(|it| format!("{it:02x}")).collect();
    let python = snippet("python");
    is_fine(
        "python3",
        "-c",
        &format!(
            "import hashlib, hmac, time\n{python}\nheader, body = '{header}', bytes.fromhex('{hex}')\n\
             assert is_signed(header, body, b's3cr3t', time.time())\n\
             assert not is_signed(header, body, b'other', time.time())\n\
             assert not is_signed(header, body + b' ', b's3cr3t', time.time())\n\
             assert not is_signed(header, body, b's3cr3t', time.time() + 1000)\n\
             assert not is_signed('', body, b's3cr3t', time.time())\n\
             assert not is_signed('t=x,v1=\u{e4}', body, b's3cr3t', time.time())\n"
        ),
    );
    let node = snippet("js");
    is_fine(
        "node",
        "-e",
        &format!(
            "const {{ createHmac, timingSafeEqual }} = require('node:crypto');\n\
             const assert = require('node:assert');\n{node}\n\
             const [header, body] = ['{header}', Buffer.from('{hex}', 'hex')];\n\
             const now = Date.now() / 1000;\n\
             assert(isSigned(header, body, 's3cr3t', now));\n\
             assert(!isSigned(header, body, 'other', now));\n\
             assert(!isSigned(header, Buffer.from('x'), 's3cr3t', now));\n\
             assert(!isSigned(header, body, 's3cr3t', now + 1000));\n\
             assert(!isSigned('', body, 's3cr3t', now));\n"
        ),
    );
}
