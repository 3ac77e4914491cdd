//! What a service gets.

use std::time::Duration;

use redrive::config::{Auth, HttpConfig, Secret};
use redrive::{
    Context, Delayed, Flow, Handler, Outcome, Policy, Record, Strategy, Tier, Timestamp,
};
use redrive_http::HttpHandler;

use super::server::{Got, Server};
use super::{context, handler, record, send};

/// What a service gets of a record.
async fn got(record: &Record, context: Context) -> Got {
    let server = Server::saying(200, &[], b"").await;
    assert_eq!(handler(&server.url).handle(record.clone(), context).await, Outcome::Done);
    server.only()
}

#[tokio::test]
async fn a_new_record_comes_with_all_that_is_known_of_it() {
    let record =
        record().with_key("kund/1 ü").with_timestamp(Timestamp::from_millis(1_700_000_000_123));
    let got = got(&record, context(&record)).await;
    assert_eq!(got.line, "POST /orders?token=s3cr3t HTTP/1.1");
    assert_eq!(got.body, b"{}");
    for (name, value) in [
        ("redrive-topic", Some("orders")),
        ("redrive-partition", Some("3")),
        ("redrive-offset", Some("17")),
        ("redrive-timestamp", Some("1700000000123")),
        ("redrive-key", Some("kund/1%20%C3%BC")),
        ("redrive-origin-topic", Some("orders")),
        ("redrive-origin-partition", Some("3")),
        ("redrive-origin-offset", Some("17")),
        ("redrive-delivery", Some("1")),
        ("redrive-overall-attempts", Some("0")),
        ("idempotency-key", Some("billing/orders/3/17/0")),
        ("content-type", Some("application/octet-stream")),
        ("content-length", Some("2")),
        ("redrive-null", None),
        ("redrive-policy", None),
        ("redrive-first-failed-at", None),
        ("redrive-last-attempt", None),
        ("redrive-signature", None),
        ("authorization", None),
    ] {
        assert_eq!(got.get(name), value, "{name}");
    }
    assert!(got.get("user-agent").unwrap().starts_with("redrive/"));
}

#[tokio::test]
async fn a_retried_record_tells_of_its_way_and_keeps_its_idempotency_key() {
    let record = Record::made_up("orders.retry", 1, 99)
        .with_value("{}")
        .with_header("redrive-due", Some(b"1"))
        .with_header("redrive-error-message", Some(b"no"))
        .with_header("redrive-mine", Some(b"2"));
    let flow = Flow::new("orders")
        .with_strategy(Strategy::Tiers(vec![Tier::new("orders.retry", Duration::from_secs(1))]))
        .with_default(Policy::named("Any").with_delayed(Delayed::attempts(2)));
    let context = Context::made_up("billing", flow, &record)
        .with_origin("orders", 3, 17)
        .with_overall_attempts(2)
        .with_policy("Büro 5", 1)
        .with_first_failed_at(Timestamp::from_millis(5))
        .with_redriven(1);
    let got = got(&record, context).await;
    for (name, value) in [
        ("redrive-topic", Some("orders.retry")),
        ("redrive-partition", Some("1")),
        ("redrive-offset", Some("99")),
        ("redrive-origin-topic", Some("orders")),
        ("redrive-origin-offset", Some("17")),
        ("redrive-delivery", Some("3")),
        ("redrive-overall-attempts", Some("2")),
        ("redrive-policy", Some("B%C3%BCro%205")),
        ("redrive-first-failed-at", Some("5")),
        ("idempotency-key", Some("billing/orders/3/17/1")),
        // What Redrive wrote is not the record's own, unless the name is.
        ("redrive-header-redrive-due", None),
        ("redrive-header-redrive-error-message", None),
        ("redrive-header-redrive-mine", Some("2")),
    ] {
        assert_eq!(got.get(name), value, "{name}");
    }
}

#[tokio::test]
async fn the_last_attempt_is_told() {
    let tiers = vec![Tier::new("orders.retry", Duration::from_secs(1)).with_attempts(2)];
    let flow = Flow::new("orders")
        .with_strategy(Strategy::Tiers(tiers))
        .with_default(Policy::named("Any").with_delayed(Delayed::attempts(2)));
    let record = record();
    for (attempts, is_last) in [(0, None), (1, None), (2, Some("true"))] {
        let mut context = Context::made_up("billing", flow.clone(), &record);
        if attempts > 0 {
            context = context.with_overall_attempts(attempts).with_policy("Any", attempts);
        }
        let got = got(&record, context).await;
        assert_eq!(got.get("redrive-last-attempt"), is_last, "{attempts}");
    }
    // Three runs in place and no retry topic: the fourth is the last.
    for (runs, is_last) in [(0, None), (2, None), (3, Some("true"))] {
        let got = got(&record, context(&record).with_runs_in_place(runs)).await;
        assert_eq!(got.get("redrive-last-attempt"), is_last, "{runs}");
    }
}

#[tokio::test]
async fn a_null_value_is_told_from_an_empty_one() {
    let null = Record::made_up("orders", 0, 1);
    let first = got(&null, context(&null)).await;
    assert_eq!((first.get("redrive-null"), first.get("content-length")), (Some("true"), Some("0")));
    assert_eq!(first.get("content-type"), None);
    assert_eq!(first.get("redrive-key"), None);
    let empty = Record::made_up("orders", 0, 1).with_value("").with_key("");
    let second = got(&empty, context(&empty)).await;
    assert_eq!((second.get("redrive-null"), second.get("content-length")), (None, Some("0")));
    assert_eq!(second.get("redrive-key"), Some(""));
}

#[tokio::test]
async fn the_records_own_headers_follow_encoded_where_they_must_be() {
    let record = record()
        .with_header("trace", Some(b"1"))
        .with_header("Kunde Nr", Some("Müller & Söhne".as_bytes()))
        .with_header("trace", Some(b"a,b"))
        .with_header("none", None)
        .with_header("empty", Some(b""))
        .with_header(b"\xff", Some(b"\r\nx-evil: 1"))
        .with_header("", Some(b"nameless"))
        .with_header("percent%", Some(b"100%"))
        .with_header("redrive-due", Some(b"somebody else's"));
    let got = got(&record, context(&record)).await;
    assert_eq!(got.all("redrive-header-trace"), ["1", "a,b"]);
    for (name, value) in [
        ("redrive-header-kunde%20nr", Some("M%C3%BCller%20&%20S%C3%B6hne")),
        ("redrive-null-header", Some("none")),
        ("redrive-header-none", None),
        ("redrive-header-empty", Some("")),
        ("redrive-header-%ff", Some("%0D%0Ax-evil:%201")),
        ("redrive-header-", Some("nameless")),
        ("redrive-header-percent%25", Some("100%25")),
        ("redrive-header-redrive-due", Some("somebody%20else's")),
        ("x-evil", None),
    ] {
        assert_eq!(got.get(name), value, "{name}");
    }
}

#[tokio::test]
async fn a_cloud_event_is_one_over_http_too() {
    let record = record()
        .with_header("ce_specversion", Some(b"1.0"))
        .with_header("ce_type", Some(b"shop.order"))
        .with_header("ce_subject", Some("\"Euro € 😀\" 100%".as_bytes()))
        .with_header("ce_", Some(b"x"))
        .with_header("Content-Type", Some(b"application/json; charset=utf-8"));
    let got = got(&record, context(&record)).await;
    for (name, value) in [
        ("ce-specversion", Some("1.0")),
        ("ce-type", Some("shop.order")),
        ("ce-subject", Some("%22Euro%20%E2%82%AC%20%F0%9F%98%80%22%20100%25")),
        ("ce-", None),
        ("content-type", Some("application/json; charset=utf-8")),
        ("redrive-header-ce_type", Some("shop.order")),
    ] {
        assert_eq!(got.get(name), value, "{name}");
    }
}

#[tokio::test]
async fn traces_go_through() {
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let record = record()
        .with_header("traceparent", Some(b"older"))
        .with_header("traceparent", Some(parent.as_bytes()))
        .with_header("tracestate", Some(b"a=1"))
        .with_header("tracestate", Some(b"b=2"))
        .with_header("content-type", Some(b"no\ntype"));
    let got = got(&record, context(&record)).await;
    assert_eq!(got.get("traceparent"), Some(parent));
    assert_eq!(got.all("tracestate"), ["a=1", "b=2"]);
    // One that cannot be sent as it is does not become another.
    assert_eq!(got.get("content-type"), Some("application/octet-stream"));
}

#[tokio::test]
async fn more_headers_than_a_request_can_carry_are_the_records_own_fault() {
    let server = Server::saying(200, &[], b"").await;
    let long = vec![b'n'; 70_000];
    let record = record().with_header(&long, Some(b"x"));
    let failure = super::failure(send(&handler(&server.url), &record).await);
    assert!(!failure.is_retryable(), "{failure:?}");
    assert!(server.got().is_empty());
}

#[tokio::test]
async fn settings_go_into_every_request_and_nowhere_else() {
    let server = Server::saying(200, &[], b"").await;
    let config = HttpConfig {
        headers: vec![
            ("x-api-key".to_owned(), Secret::new("k3y")),
            ("content-type".to_owned(), Secret::new("application/json")),
        ],
        auth: Some(Auth::Bearer(Secret::new("t0k3n"))),
        sign: Some(Secret::new("s3cr3t")),
        ..HttpConfig::new(&server.url)
    };
    let handler = HttpHandler::new(&config).unwrap();
    assert_eq!(send(&handler, &record()).await, Outcome::Done);
    let got = server.only();
    assert_eq!(got.get("x-api-key"), Some("k3y"));
    assert_eq!(got.get("authorization"), Some("Bearer t0k3n"));
    assert_eq!(got.get("content-type"), Some("application/json"));
    assert!(got.get("redrive-signature").unwrap().starts_with("t="));
    let shown = format!("{handler:?}");
    for secret in ["k3y", "t0k3n", "s3cr3t"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[tokio::test]
async fn a_name_and_a_password_are_sent_wherever_they_stand() {
    let server = Server::saying(200, &[], b"").await;
    let basic = Auth::Basic { username: "me".to_owned(), password: Secret::new("p@ss:ü") };
    let config = HttpConfig { auth: Some(basic), ..HttpConfig::new(&server.url) };
    send(&HttpHandler::new(&config).unwrap(), &record()).await;
    let in_url = server.url.replace("http://", "http://me:p%40ss:%C3%BC@");
    send(&handler(&in_url), &record()).await;
    for got in server.got() {
        assert_eq!(got.get("authorization"), Some("Basic bWU6cEBzczrDvA=="));
        assert!(!got.get("host").unwrap().contains('@'));
    }
    assert_eq!(server.got().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_kept_and_used_again() {
    let server = Server::saying(503, &[], b"busy").await;
    let handler = std::sync::Arc::new(handler(&server.url));
    for _ in 0..50 {
        send(&handler, &record()).await;
    }
    // One that has just been read to its end may not be back in time for the next request.
    assert!(server.connections() < 10, "{}", server.connections());
    let mut runs = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let handler = std::sync::Arc::clone(&handler);
        runs.spawn(async move { send(&handler, &record()).await });
    }
    assert_eq!(runs.join_all().await.len(), 200);
    assert_eq!(server.got().len(), 250);
    assert!(server.connections() <= 201);
}

/// The value may be large, and is sent from where it is.
#[tokio::test]
async fn a_large_value_arrives_whole() {
    let value: Vec<u8> = (0..5_000_000u32).map(|it| u8::try_from(it % 251).unwrap()).collect();
    let record = Record::made_up("orders", 0, 1).with_value(&value);
    let got = got(&record, context(&record)).await;
    assert!(got.body == value);
}
