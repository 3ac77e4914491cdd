//! Spans, as a collector gets them.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant, UNIX_EPOCH};

use redrive::RunSpan;
use redrive::config::Otlp;
use redrive_admin::otlp::Exporter;
use serde_json::Value;

fn span(offset: i64, error: Option<&str>) -> RunSpan {
    RunSpan {
        trace: [0xAB; 16],
        id: [1; 8],
        parent: (offset > 0).then_some([2; 8]),
        group: "billing".to_owned(),
        topic: "orders".to_owned(),
        partition: 3,
        offset,
        record: "billing/orders/3/0/0".to_owned(),
        overall: 2,
        in_place: 1,
        policy: Some("Busy".to_owned()),
        began: UNIX_EPOCH + Duration::from_nanos(1_700_000_000_123_456_789),
        ended: UNIX_EPOCH + Duration::from_nanos(1_700_000_000_223_456_789),
        error: error.map(str::to_owned),
    }
}

fn collector() -> (TcpListener, Otlp) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/prefix", listener.local_addr().unwrap());
    (listener, Otlp::at(&address).unwrap())
}

/// Takes one request, answers it with this status, and gives its head and body.
fn take(listener: &TcpListener, status: u16) -> (String, Value) {
    let mut stream = listener.accept().unwrap().0;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut buffer).unwrap();
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
        let length = head
            .lines()
            .find_map(|it| it.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if count == 0 || length == Some(body.len()) {
            write!(stream, "HTTP/1.1 {status} Whatever\r\ncontent-length: 2\r\n\r\n{{}}").unwrap();
            return (head.to_owned(), serde_json::from_str(body).unwrap());
        }
    }
}

#[test]
fn a_collector_gets_spans_as_otlp_wants_them() {
    let (listener, otlp) = collector();
    let exporter = Exporter::start(&otlp).unwrap();
    let tracer = exporter.tracer();
    tracer(span(0, None));
    tracer(span(9_007_199_254_740_993, Some("Busy: no answer")));
    let (head, body) = take(&listener, 200);
    assert!(head.starts_with("POST /prefix/v1/traces HTTP/1.1"), "{head}");
    assert!(head.to_ascii_lowercase().contains("content-type: application/json"), "{head}");
    let resource = &body["resourceSpans"][0];
    assert_eq!(resource["resource"]["attributes"][0]["key"], "service.name");
    let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
    assert_eq!(spans.len(), 2);
    assert_eq!(spans[0]["traceId"], "ab".repeat(16));
    assert_eq!((&spans[0]["spanId"], &spans[0]["kind"]), (&"01".repeat(8).into(), &5.into()));
    assert_eq!(spans[0]["startTimeUnixNano"], "1700000000123456789");
    assert_eq!(spans[0]["endTimeUnixNano"], "1700000000223456789");
    assert!(spans[0].get("parentSpanId").is_none() && spans[0].get("status").is_none());
    assert_eq!(spans[1]["parentSpanId"], "02".repeat(8));
    assert_eq!(
        (&spans[1]["status"]["code"], &spans[1]["status"]["message"]),
        (&2.into(), &"Busy: no answer".into())
    );
    let attributes = spans[1]["attributes"].as_array().unwrap();
    let of = |key: &str| &attributes.iter().find(|it| it["key"] == key).unwrap()["value"];
    assert_eq!(of("messaging.kafka.offset")["intValue"], "9007199254740993");
    assert_eq!(of("redrive.policy")["stringValue"], "Busy");
}

#[test]
fn a_batch_that_is_refused_is_sent_again() {
    let (listener, otlp) = collector();
    let exporter = Exporter::start(&otlp).unwrap();
    exporter.tracer()(span(7, None));
    let first = take(&listener, 503).1;
    assert_eq!(take(&listener, 200).1, first);
}

#[test]
fn what_is_left_is_sent_at_the_end() {
    let (listener, otlp) = collector();
    let exporter = Exporter::start(&otlp).unwrap();
    let tracer = exporter.tracer();
    let taken = std::thread::spawn(move || take(&listener, 200).1);
    tracer(span(7, None));
    drop(exporter);
    let body = taken.join().unwrap();
    assert_eq!(body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().len(), 1);
    // Nobody takes it any more, and nobody waits for it.
    tracer(span(8, None));
}

#[test]
fn a_collector_that_is_away_or_silent_holds_nothing_up() {
    let (listener, otlp) = collector();
    for listener in [Some(listener), None] {
        let exporter = Exporter::start(&otlp).unwrap();
        let tracer = exporter.tracer();
        let began = Instant::now();
        for offset in 0..50_000 {
            tracer(span(offset, None));
        }
        assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
        let began = Instant::now();
        drop(exporter);
        assert!(began.elapsed() < Duration::from_secs(20), "it took {:?}", began.elapsed());
        drop(listener);
    }
}
