//! What answers mean, and what happens without one.

use std::time::{Duration, Instant};

use redrive::config::HttpConfig;
use redrive::{Ask, Failure, Handler, Kind, Outcome, Record};
use redrive_http::HttpHandler;

use super::server::{Part, Server, answer};
use super::{failure, handler, record, send};

const SECOND: Duration = Duration::from_secs(1);

/// Sends a record to a service that answers like this.
async fn answered(parts: Vec<Part>) -> Outcome {
    let server = Server::start(move |_| parts.clone()).await;
    send(&within(&server.url, SECOND), &record()).await
}

fn within(url: &str, timeout: Duration) -> HttpHandler {
    HttpHandler::new(&HttpConfig { timeout, ..HttpConfig::new(url) }).unwrap()
}

fn bytes(text: &str) -> Part {
    Part::Bytes(text.as_bytes().to_vec())
}

#[tokio::test]
async fn status_and_response_go_into_the_failure() {
    let failed = failure(answered(answer(503, &[("retry-after", "7")], b"busy \xff")).await);
    assert_eq!(failed.status, Some(503));
    assert_eq!(failed.response.as_deref(), Some("busy \u{fffd}"));
    assert_eq!(failed.retry_after, Some(7 * SECOND));
    assert_eq!(failed.message.as_deref(), Some("answered 503 Service Unavailable"));
    assert!(failed.is_retryable() && failed.kind.is_none());
}

#[tokio::test]
async fn a_response_that_must_not_be_kept_is_not() {
    let server = Server::saying(500, &[], b"Jane Doe").await;
    let config = HttpConfig { capture_response: false, ..HttpConfig::new(&server.url) };
    let failed = failure(send(&HttpHandler::new(&config).unwrap(), &record()).await);
    assert_eq!(failed.response, None);
    assert!(!format!("{failed:?}").contains("Jane"));
}

#[tokio::test]
async fn of_a_long_response_the_beginning_is_kept() {
    let text = "ä".repeat(2000);
    let failed = failure(answered(answer(500, &[], text.as_bytes())).await);
    assert_eq!(failed.response.unwrap(), "ä".repeat(512));
    let odd = format!("x{text}");
    let failed = failure(answered(answer(500, &[], odd.as_bytes())).await);
    assert_eq!(failed.response.unwrap(), format!("x{}", "ä".repeat(511)));
}

#[tokio::test]
async fn a_response_without_end_is_cut_off() {
    for (status, is_done) in [(200, true), (500, false)] {
        let head = bytes(&format!("HTTP/1.1 {status} X\r\nconnection: close\r\n\r\n"));
        let server = Server::start(move |_| {
            vec![head.clone(), Part::Endless(vec![b'x'; 16 * 1024], Duration::ZERO)]
        })
        .await;
        let (start, handler) = (Instant::now(), within(&server.url, 20 * SECOND));
        let outcome = send(&handler, &record()).await;
        assert_eq!(outcome == Outcome::Done, is_done, "{outcome:?}");
        assert!(start.elapsed() < 4 * SECOND);
        // It does not matter to the next one.
        assert_eq!(send(&handler, &record()).await == Outcome::Done, is_done);
    }
}

#[tokio::test]
async fn a_slow_response_is_waited_for_within_the_limit() {
    let slow = |status: u16| {
        vec![
            bytes(&format!("HTTP/1.1 {status} X\r\ncontent-length: 1000\r\n\r\n")),
            Part::Endless(b"x".to_vec(), Duration::from_millis(50)),
        ]
    };
    // It may not have been done: the service has not said so to the end.
    let start = Instant::now();
    let failed = failure(answered(slow(200)).await);
    assert_eq!(failed.kind, Some(Kind::TIMEOUT), "{failed:?}");
    assert!(start.elapsed() >= SECOND && start.elapsed() < 5 * SECOND);
    // That it was not done is known.
    let failed = failure(answered(slow(422)).await);
    assert_eq!(failed.status, Some(422), "{failed:?}");
    assert!(failed.response.unwrap().starts_with("xx"));
}

#[tokio::test]
async fn the_response_of_a_failure_is_not_waited_for_as_long_as_an_answer() {
    let parts = vec![bytes("HTTP/1.1 500 X\r\ncontent-length: 9\r\n\r\n"), Part::Wait(60 * SECOND)];
    let server = Server::start(move |_| parts.clone()).await;
    let start = Instant::now();
    let failed = failure(send(&within(&server.url, 60 * SECOND), &record()).await);
    assert_eq!((failed.status, failed.response), (Some(500), None));
    assert!(start.elapsed() < 20 * SECOND);
}

#[tokio::test]
async fn no_answer_in_time_is_a_timeout() {
    let server = Server::start(|_| vec![Part::Wait(60 * SECOND)]).await;
    let failed = failure(send(&within(&server.url, SECOND / 5), &record()).await);
    assert_eq!(failed.kind, Some(Kind::TIMEOUT));
    assert!(failed.is_retryable() && failed.status.is_none());
    assert_eq!(failed.message.as_deref(), Some("no answer within 200ms"));
}

#[tokio::test]
async fn nobody_there_is_a_failed_connection() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x?token=s3cr3t", listener.local_addr().unwrap());
    drop(listener);
    let failed = failure(send(&handler(&url), &record()).await);
    assert_eq!(failed.kind, Some(Kind::CONNECT));
    let message = failed.message.unwrap();
    assert!(message.contains("refused") && !message.contains("s3cr3t"), "{message}");
}

#[tokio::test]
async fn a_connection_that_takes_too_long_is_a_failed_one() {
    // It accepts, and then never says anything that TLS could begin with.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let config = HttpConfig {
        connect_timeout: SECOND / 5,
        ..HttpConfig::new(format!("https://{}/", listener.local_addr().unwrap()))
    };
    let failed = failure(send(&HttpHandler::new(&config).unwrap(), &record()).await);
    assert_eq!(failed.kind, Some(Kind::CONNECT));
    assert_eq!(failed.message.as_deref(), Some("no connection: no connection within 200ms"));
}

#[tokio::test]
async fn a_connection_that_breaks_is_told_from_an_answer() {
    for parts in [
        vec![Part::Close],
        vec![bytes("HTTP/1.1 20"), Part::Close],
        vec![bytes("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"), Part::Close],
        vec![bytes("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhal"), Part::Close],
        vec![bytes("this is no HTTP at all\r\n\r\n"), Part::Close],
    ] {
        let failed = failure(answered(parts).await);
        assert_eq!(failed.kind, Some(Kind::NETWORK), "{failed:?}");
        assert!(failed.is_retryable() && failed.status.is_none());
    }
    let half = bytes("HTTP/1.1 500 X\r\ncontent-length: 10\r\n\r\nhalf");
    let failed = failure(answered(vec![half, Part::Close]).await);
    assert_eq!((failed.status, failed.response.as_deref()), (Some(500), Some("half")));
}

#[tokio::test]
async fn hints_before_an_answer_are_none() {
    let hint = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    let outcome =
        answered(vec![bytes(hint), bytes("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")]).await;
    assert_eq!(outcome, Outcome::Done);
}

/// A service of its own making may have no limit in mind.
#[tokio::test]
async fn a_limit_that_no_clock_can_hold_is_none() {
    let server = Server::saying(200, &[], b"").await;
    let handler = HttpHandler::new(&HttpConfig {
        timeout: Duration::MAX,
        connect_timeout: Duration::MAX,
        ..HttpConfig::new(&server.url)
    });
    assert_eq!(send(&handler.unwrap(), &record()).await, Outcome::Done);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        let server =
            Server::start(move |_| answer(status, &[("location", "/elsewhere")], b"")).await;
        let failed = failure(send(&handler(&server.url), &record()).await);
        assert_eq!(failed.status, Some(status));
        assert_eq!(server.only().line, "POST /orders?token=s3cr3t HTTP/1.1");
    }
}

#[tokio::test]
async fn a_service_says_itself_what_is_to_be_done() {
    for (action, ask) in [
        ("retry", Ask::Retry),
        ("dead_letter", Ask::DeadLetter),
        ("drop", Ask::Drop),
        ("stop", Ask::Stop { exit: false }),
    ] {
        let outcome = answered(answer(200, &[("Redrive-Action", action)], b"why")).await;
        let Outcome::Asked(failed, asked) = outcome else {
            panic!("{action}: {outcome:?}");
        };
        assert_eq!((asked, failed.response.as_deref()), (ask, Some("why")));
    }
}

/// Twenty different records that the service does not know: the address is wrong, not the records.
#[tokio::test]
async fn a_wrong_address_stops_the_flow_before_anything_is_dead_lettered() {
    let server = Server::saying(404, &[], b"no such page").await;
    let handler = handler(&server.url);
    let mut outcomes = Vec::new();
    for offset in 0..20 {
        let record = Record::made_up("orders", 0, offset).with_value("{}");
        outcomes.push(send(&handler, &record).await);
    }
    let stop = outcomes.pop();
    assert!(outcomes.iter().all(|it| matches!(it, Outcome::Held(..))), "{outcomes:?}");
    let Some(Outcome::Asked(failed, Ask::Stop { exit: false })) = stop else {
        panic!("{stop:?}");
    };
    let message = failed.message.unwrap();
    assert!(message.contains("404 (20 times)") && message.contains("/orders"), "{message}");
    assert!(!message.contains("s3cr3t"), "{message}");
    handler.resumed();
    assert!(matches!(send(&handler, &record()).await, Outcome::Held(..)));
}

#[tokio::test]
async fn once_the_service_is_known_to_be_right_its_word_counts() {
    let server = Server::start(|got| {
        let is_known = got.get("redrive-offset") == Some("0");
        answer(if is_known { 204 } else { 404 }, &[], b"")
    })
    .await;
    let handler = handler(&server.url);
    let record = |offset| Record::made_up("orders", 0, offset).with_value("{}");
    assert!(matches!(send(&handler, &record(1)).await, Outcome::Held(..)));
    assert_eq!(send(&handler, &record(0)).await, Outcome::Done);
    for offset in 1..50 {
        let expected = Failure::of_status(404).with_message("answered 404 Not Found");
        assert_eq!(send(&handler, &record(offset)).await, Outcome::Failed(expected));
    }
}
