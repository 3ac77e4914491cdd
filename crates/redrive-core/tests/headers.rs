//! What each header format writes, byte for byte, and what it reads from records that this crate
//! or somebody else wrote.

use std::borrow::Cow;
use std::time::Duration;

use proptest::prelude::*;
use redrive_core::headers::{
    self, Dialect, Due, Failed, Header, HeaderBlock, MAX_DETAIL_BYTES, MAX_MESSAGE_BYTES,
    MAX_NAME_BYTES, Owner, Place, ReadContext, Reading, Stamp, Stop,
};
use redrive_core::{
    Action, Backoff, Delayed, Delivery, Draw, Exponential, Failure, Flow, InPlace, Incident, Kind,
    Origin, Policy, Reason, RecordView, RetryState, Strategy as Layout, Tier, Timestamp,
};

/// 2023-11-14T22:13:20.000Z.
const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const PRODUCED: Timestamp = Timestamp::from_millis(1_699_999_990_125);
const FIRST_FAILED: Timestamp = Timestamp::from_millis(1_699_999_995_500);
const DUE: Timestamp = Timestamp::from_millis(1_700_000_030_250);
const TIER_DELAY: Duration = Duration::from_secs(30);
const ORIGIN: Origin<'_> = Origin { topic: "orders", partition: 3, offset: 42 };

const DIALECTS: [Dialect; 5] =
    [Dialect::X, Dialect::Tiered, Dialect::Quafka, Dialect::Spring, Dialect::Payload];

/// A record's headers between two stops.
type Owned = Vec<(String, Option<Vec<u8>>)>;

fn owned(block: &HeaderBlock<'_>) -> Owned {
    block.iter().map(|it| (it.name.to_owned(), it.value.map(<[u8]>::to_vec))).collect()
}

fn view(headers: &Owned) -> Vec<Header<'_>> {
    headers.iter().map(|(name, value)| Header { name, value: value.as_deref() }).collect()
}

fn is_native(name: &str) -> bool {
    name.starts_with("redrive-")
}

/// The headers without Redrive's own, as a foreign system that knows only the dialect would leave
/// them.
fn without_native(headers: &Owned) -> Owned {
    headers.iter().filter(|it| !is_native(&it.0)).cloned().collect()
}

fn value_of<'a>(headers: &'a Owned, name: &str) -> Option<&'a [u8]> {
    let mut named = headers.iter().filter(|it| it.0 == name);
    let found = named.next()?;
    assert!(named.next().is_none(), "{name} is there twice");
    found.1.as_deref()
}

#[track_caller]
fn assert_headers(headers: &Owned, expected: &[(&str, &[u8])]) {
    let readable = |name: &str, value: &[u8]| format!("{name}: {}", value.escape_ascii());
    let written: Vec<_> =
        headers.iter().map(|it| readable(&it.0, it.1.as_deref().unwrap_or(b"<null>"))).collect();
    let expected: Vec<_> = expected.iter().map(|it| readable(it.0, it.1)).collect();
    assert_eq!(written, expected);
}

fn state() -> RetryState<'static> {
    RetryState {
        overall: 4,
        policy: Some(Cow::Borrowed("Slow")),
        policy_attempts: 2,
        tier: Some(1),
        tier_attempts: 3,
        first_failed_at: Some(FIRST_FAILED),
    }
}

fn failure() -> Failure {
    let mut failure = Failure::of_type("shop::PaymentTimeout").with_message("no answer");
    failure.status = Some(504);
    failure.detail = Some("no answer\n  at pay()".to_owned());
    failure.response = Some("<html>".to_owned());
    failure
}

fn to_tier<'a>(state: &'a RetryState<'a>, failure: Option<&'a Failure>) -> Stamp<'a> {
    Stamp {
        group: "billing",
        origin: ORIGIN,
        produced_at: Some(PRODUCED),
        from: ("orders.retry.30s", 3, 7),
        state,
        hop: 5,
        epoch: Some(8),
        redriven: 1,
        failure: failure.map(|failure| Failed { failure, at: NOW }),
        stop: Stop::Tier { due: DUE, delay: Some(TIER_DELAY), forward_to: None },
        now: NOW,
    }
}

fn to_dead_letter<'a>(state: &'a RetryState<'a>, failure: Option<&'a Failure>) -> Stamp<'a> {
    let stop = Stop::DeadLetter { reason: Reason::Attempts, follows: None };
    Stamp { stop, epoch: None, ..to_tier(state, failure) }
}

const TIER: Place<'_> = Place::Tier { index: 1, delay: Some(TIER_DELAY) };

fn context(place: Place<'_>, dialect: Dialect) -> ReadContext<'_> {
    ReadContext { group: "billing", place, dialect, timestamp: NOW }
}

/// Reads headers on a tier whose flow writes native headers alone.
fn read_tier<'a>(headers: &[Header<'a>]) -> Reading<'a> {
    headers::read(headers, None, &context(TIER, Dialect::Native))
}

fn text<'a>(name: &'a str, value: &'a str) -> Header<'a> {
    Header::new(name, value.as_bytes())
}

/// How much later than asked a due time may come back, in milliseconds.
fn granularity(dialect: Dialect) -> i64 {
    match dialect {
        Dialect::X | Dialect::Quafka | Dialect::Payload => 999,
        _ => 0,
    }
}

mod golden {
    use super::*;

    const NATIVE: [(&str, &[u8]); 21] = [
        ("redrive-version", b"1"),
        ("redrive-group", b"billing"),
        ("redrive-origin-topic", b"orders"),
        ("redrive-origin-partition", b"3"),
        ("redrive-origin-offset", b"42"),
        ("redrive-origin-timestamp", b"1699999990125"),
        ("redrive-due", b"1700000030250"),
        ("redrive-overall-attempts", b"4"),
        ("redrive-policy", b"Slow"),
        ("redrive-policy-attempts", b"2"),
        ("redrive-tier", b"1"),
        ("redrive-tier-attempts", b"3"),
        ("redrive-hop", b"5"),
        ("redrive-epoch", b"8"),
        ("redrive-redriven", b"1"),
        ("redrive-first-failed-at", b"1699999995500"),
        ("redrive-failed-at", b"1700000000000"),
        ("redrive-error", b"shop::PaymentTimeout"),
        ("redrive-error-message", b"no answer"),
        ("redrive-error-detail", b"no answer\n  at pay()"),
        ("redrive-status", b"504"),
    ];

    fn written(dialect: Dialect) -> Owned {
        let (state, failure) = (state(), failure());
        owned(&headers::write(&[], &to_tier(&state, Some(&failure)), dialect))
    }

    /// docs/headers.md, the table of native headers.
    #[test]
    fn native_headers_are_those_of_the_design() {
        let mut expected = NATIVE.to_vec();
        expected.push(("redrive-response", b"<html>"));
        assert_headers(&written(Dialect::Native), &expected);
    }

    /// docs/headers.md: a chosen dialect is written beside the native headers, never instead.
    #[test]
    fn a_dialect_stands_beside_the_native_headers() {
        for dialect in DIALECTS {
            let headers = written(dialect);
            assert_eq!(headers[..22], written(Dialect::Native), "{dialect}");
            assert_eq!(headers.iter().filter(|it| is_native(&it.0)).count(), 22, "{dialect}");
        }
    }

    /// What is not known is left out, not written as an empty value.
    #[test]
    fn what_is_not_known_is_left_out() {
        let state = RetryState::default();
        let stamp =
            Stamp { produced_at: None, epoch: None, redriven: 0, hop: 1, ..to_tier(&state, None) };
        assert_headers(
            &owned(&headers::write(&[], &stamp, Dialect::Native)),
            &[
                ("redrive-version", b"1"),
                ("redrive-group", b"billing"),
                ("redrive-origin-topic", b"orders"),
                ("redrive-origin-partition", b"3"),
                ("redrive-origin-offset", b"42"),
                ("redrive-due", b"1700000030250"),
                ("redrive-overall-attempts", b"0"),
                ("redrive-hop", b"1"),
            ],
        );
    }

    /// A failure without an error type is known by its kind.
    #[test]
    fn a_kind_stands_for_a_missing_error_type() {
        let (state, failure) = (state(), Failure::of_kind(Kind::TIMEOUT));
        let headers =
            owned(&headers::write(&[], &to_tier(&state, Some(&failure)), Dialect::Native));
        assert_eq!(value_of(&headers, "redrive-error"), Some(&b"timeout"[..]));
        assert_eq!(value_of(&headers, "redrive-status"), None);
    }

    /// The time-based document, "Message Failure Handling", step 4. The time is in seconds and
    /// rounded up, as docs/headers.md says.
    #[test]
    fn x_headers_are_those_of_the_time_based_document() {
        assert_headers(
            &without_native(&written(Dialect::X)),
            &[
                ("x-retry-attempt", b"4"),
                ("x-process-after", b"1700000031"),
                ("x-original-topic", b"orders"),
                ("x-first-attempt-timestamp", b"1699999995"),
                ("x-last-error-type", b"shop::PaymentTimeout"),
                ("x-last-error-message", b"no answer"),
                ("x-api-status-code", b"504"),
                ("x-api-response", b"<html>"),
            ],
        );
    }

    /// The tiered document, "Message Headers". The time is that of the last retry, such that the
    /// tier's delay later is when the record is due.
    #[test]
    fn tiered_headers_are_those_of_the_tiered_document() {
        assert_headers(
            &without_native(&written(Dialect::Tiered)),
            &[
                ("retry-topic-index", b"1"),
                ("retry-attempts-in-topic", b"3"),
                ("retry-total-attempts", b"4"),
                ("retry-timestamp", b"2023-11-14T22:13:20.250Z"),
            ],
        );
    }

    /// The names of docs/headers.md, with the values as Quafka 0.2.0 writes them: decimal text and
    /// `Instant.toString()`.
    #[test]
    fn quafka_headers_are_those_of_quafka() {
        let (state, failure) = (state(), failure());
        let mut stamp = to_tier(&state, Some(&failure));
        stamp.stop = Stop::Tier { due: DUE, delay: None, forward_to: Some("orders.retry") };
        let mut headers = without_native(&owned(&headers::write(&[], &stamp, Dialect::Quafka)));
        headers.sort();
        assert_headers(
            &headers,
            &[
                ("X-DelayPublishedAt", b"2023-11-14T22:13:20.000Z"),
                ("X-DelaySeconds", b"31"),
                ("X-DelayStrategy", b"UNTIL_TARGET_TIME"),
                ("X-Exception", b"no answer\n  at pay()"),
                ("X-ExceptionAt", b"2023-11-14T22:13:20.000Z"),
                ("X-ExceptionDetail", b"no answer"),
                ("X-ForwardingTopic", b"orders.retry"),
                ("X-FromTopicPartitionOffset", b"orders.retry.30s [3] @7"),
                ("X-OriginalOffset", b"42"),
                ("X-OriginalPartition", b"3"),
                ("X-OriginalPublishedAt", b"2023-11-14T22:13:10.125Z"),
                ("X-OriginalTopic", b"orders"),
                ("X-OverallRetryAttempts", b"4"),
                ("X-PublishedAt", b"2023-11-14T22:13:20.000Z"),
                ("X-RetryAttempts", b"2"),
                ("X-RetryPolicyIdentifier", b"Slow"),
            ],
        );
    }

    /// Quafka writes its delay headers only where there is a delay.
    #[test]
    fn quafka_has_no_delay_headers_for_what_is_due_at_once() {
        let state = state();
        let mut stamp = to_tier(&state, None);
        stamp.stop = Stop::Tier { due: NOW, delay: None, forward_to: None };
        let headers = owned(&headers::write(&[], &stamp, Dialect::Quafka));
        for (name, _) in &headers {
            assert!(!name.starts_with("X-Delay") && name != "X-ForwardingTopic", "{name}");
        }
    }

    /// docs/headers.md, row `spring`: attempts as four bytes counting deliveries, times as
    /// `BigInteger.toByteArray()`, the original record's numbers at their full width.
    #[test]
    fn spring_headers_are_those_of_springs_retryable_topics() {
        assert_headers(
            &without_native(&written(Dialect::Spring)),
            &[
                ("retry_topic-attempts", b"\0\0\0\x05"),
                ("retry_topic-backoff-timestamp", b"\x01\x8b\xcf\xe5\xde\x2a"),
                ("retry_topic-original-timestamp", b"\x01\x8b\xcf\xe5\x41\x6d"),
                ("kafka_dlt-original-consumer-group", b"billing"),
                ("kafka_original-topic", b"orders"),
                ("kafka_original-partition", b"\0\0\0\x03"),
                ("kafka_original-offset", b"\0\0\0\0\0\0\0\x2a"),
                ("kafka_original-timestamp", b"\0\0\x01\x8b\xcf\xe5\x41\x6d"),
                ("kafka_original-timestamp-type", b"CreateTime"),
                ("kafka_exception-fqcn", b"shop::PaymentTimeout"),
                ("kafka_exception-message", b"no answer"),
                ("kafka_exception-stacktrace", b"no answer\n  at pay()"),
            ],
        );
    }

    /// The PHP document, "Структура сообщения": its example without the comments.
    #[test]
    fn payload_changes_two_fields_of_the_php_documents_message() {
        let value = "{\n  \"id\": \"уникальный_идентификатор\",\n  \"message\": \"текст_сообщения\",\n  \
                     \"created_at\": 1620000000,\n  \"process_at\": 1620001000,\n  \
                     \"retry_count\": 0\n}\n";
        let expected = value
            .replace("\"process_at\": 1620001000", "\"process_at\": 1700000031")
            .replace("\"retry_count\": 0", "\"retry_count\": 4");
        let state = state();
        let stamp = to_tier(&state, None);
        let written = headers::write_value(Some(value.as_bytes()), &stamp, Dialect::Payload);
        assert_eq!(String::from_utf8(written.unwrap()).unwrap(), expected);
        assert_eq!(without_native(&self::written(Dialect::Payload)), []);
    }

    #[test]
    fn only_the_payload_dialect_touches_the_value_and_only_on_the_way_to_a_tier() {
        let value = Some(&b"{\"process_at\":1,\"retry_count\":0}"[..]);
        let state = state();
        for dialect in Dialect::ALL {
            let changed = headers::write_value(value, &to_tier(&state, None), dialect);
            assert_eq!(changed.is_some(), dialect == Dialect::Payload, "{dialect}");
            assert_eq!(headers::write_value(value, &to_dead_letter(&state, None), dialect), None);
        }
        assert_eq!(headers::write_value(None, &to_tier(&state, None), Dialect::Payload), None);
    }
}

mod dead_letters {
    use super::*;

    /// docs/headers.md, `redrive-reason`: its ten words.
    #[test]
    fn every_reason_has_the_designs_word() {
        let words = [
            "attempts",
            "overall",
            "elapsed",
            "not-retryable",
            "policy",
            "undecodable",
            "header",
            "handler",
            "follower",
            "too-large",
        ];
        let state = state();
        for (reason, word) in Reason::ALL.into_iter().zip(words) {
            let stop = Stop::DeadLetter { reason, follows: None };
            let stamp = Stamp { stop, ..to_dead_letter(&state, None) };
            let headers = owned(&headers::write(&[], &stamp, Dialect::Native));
            assert_eq!(value_of(&headers, "redrive-reason"), Some(word.as_bytes()));
        }
    }

    #[test]
    fn a_dead_letter_says_no_due_and_keeps_its_counts() {
        let (state, failure) = (state(), failure());
        let on_tier = owned(&headers::write(&[], &to_tier(&state, None), Dialect::Native));
        let stamp = to_dead_letter(&state, Some(&failure));
        for dialect in Dialect::ALL {
            let headers = owned(&headers::write(&view(&on_tier), &stamp, dialect));
            for gone in ["redrive-due", "redrive-epoch", "x-process-after", "redrive-follows"] {
                assert_eq!(value_of(&headers, gone), None, "{dialect}: {gone}");
            }
            assert!(!headers.iter().any(|it| it.0.starts_with("X-Delay")), "{dialect}");
            let reading = read_tier(&view(&headers)).state;
            assert_eq!(reading, state, "{dialect}");
        }
    }

    #[test]
    fn a_follower_names_the_origin_of_its_head() {
        let state = state();
        let follows = Some(Origin { topic: "orders", partition: 3, offset: 41 });
        let stop = Stop::DeadLetter { reason: Reason::Follower, follows };
        let stamp = Stamp { stop, ..to_dead_letter(&state, None) };
        let headers = owned(&headers::write(&[], &stamp, Dialect::Native));
        assert_eq!(value_of(&headers, "redrive-follows"), Some(&b"orders/3/41"[..]));
        assert_eq!(value_of(&headers, "redrive-reason"), Some(&b"follower"[..]));
    }

    /// Re-appends carry the present epoch; dead letters carry none.
    #[test]
    fn a_dead_letter_carries_no_epoch_even_from_an_ordered_lane() {
        let state = state();
        let stamp = Stamp { epoch: Some(8), ..to_dead_letter(&state, None) };
        let headers = owned(&headers::write(&[], &stamp, Dialect::Native));
        assert_eq!(value_of(&headers, "redrive-epoch"), None);
    }

    /// On its way back a dead letter loses what it said about its end.
    #[test]
    fn the_reason_goes_when_the_record_is_sent_back_to_a_tier() {
        let state = state();
        let follows = Some(ORIGIN);
        let stop = Stop::DeadLetter { reason: Reason::Follower, follows };
        let stamp = Stamp { stop, ..to_dead_letter(&state, None) };
        let dead = owned(&headers::write(&[], &stamp, Dialect::Native));
        let back = owned(&headers::write(&view(&dead), &to_tier(&state, None), Dialect::Native));
        assert_eq!(value_of(&back, "redrive-reason"), None);
        assert_eq!(value_of(&back, "redrive-follows"), None);
        assert_eq!(value_of(&back, "redrive-due"), Some(&b"1700000030250"[..]));
    }

    /// Spring's plain recoverer names a dead letter's origin and error `kafka_dlt-…`; its retryable
    /// topics keep the other names. A dead letter has both, the retry topics only theirs.
    #[test]
    fn spring_dead_letters_have_both_sets_of_names() {
        let (state, failure) = (state(), failure());
        let stamp = to_dead_letter(&state, Some(&failure));
        let headers = owned(&headers::write(&[], &stamp, Dialect::Spring));
        for part in [
            "original-topic",
            "original-partition",
            "original-offset",
            "original-timestamp",
            "original-timestamp-type",
            "exception-fqcn",
            "exception-message",
            "exception-stacktrace",
        ] {
            let value = value_of(&headers, &format!("kafka_{part}"));
            assert!(value.is_some(), "{part}");
            assert_eq!(value_of(&headers, &format!("kafka_dlt-{part}")), value, "{part}");
        }
        let back = owned(&headers::write(&view(&headers), &to_tier(&state, None), Dialect::Spring));
        assert_eq!(value_of(&back, "kafka_dlt-original-topic"), None);
    }
}

mod hops {
    use super::*;

    /// Foreign headers that look like ours, twice the same, without value, without name.
    fn foreign() -> Owned {
        let some = |name: &str, value: &[u8]| (name.to_owned(), Some(value.to_vec()));
        vec![
            some("trace", b"\xff\x00\xfe"),
            ("trace".to_owned(), None),
            some("", b"no name"),
            (String::new(), None),
            some("redrive-custom", b"not ours"),
            some("redrive-", b""),
            some("Redrive-Due", b"1"),
            some("x-retry-attempts", b"plural"),
            some("X-Original-Topic", b"a user's own, from the Quafka document"),
            some("retry_topic", b"x"),
            some("trace", b"\xff\x00\xfe"),
        ]
    }

    #[test]
    fn headers_are_replaced_and_never_pile_up() {
        let failure = failure();
        for dialect in Dialect::ALL {
            let mut headers = foreign();
            let mut lengths = Vec::new();
            for hop in 1..=40 {
                let state = RetryState { overall: hop, ..state() };
                let stamp = Stamp { hop, ..to_tier(&state, Some(&failure)) };
                headers = owned(&headers::write(&view(&headers), &stamp, dialect));
                lengths.push(headers.len());
                let mut names: Vec<_> = headers[foreign().len()..].iter().map(|it| &it.0).collect();
                names.sort();
                names.dedup();
                assert_eq!(names.len(), headers.len() - foreign().len(), "{dialect}");
                assert_eq!(read_tier(&view(&headers)).hop, hop, "{dialect}");
            }
            assert!(lengths.iter().all(|it| *it == lengths[0]), "{dialect}: {lengths:?}");
        }
    }

    #[test]
    fn foreign_headers_stay_in_order_byte_for_byte() {
        let (state, failure) = (state(), failure());
        for dialect in Dialect::ALL {
            let mut headers = foreign();
            // Ours stand between them.
            headers.insert(3, ("redrive-due".to_owned(), Some(b"12".to_vec())));
            headers.insert(7, ("redrive-due".to_owned(), None));
            for stamp in [to_tier(&state, Some(&failure)), to_dead_letter(&state, None)] {
                headers = owned(&headers::write(&view(&headers), &stamp, dialect));
                assert_eq!(headers[..foreign().len()], foreign(), "{dialect}");
            }
        }
    }

    /// A flow that writes one dialect leaves the headers of the others alone.
    #[test]
    fn headers_of_other_dialects_are_foreign() {
        let (state, failure) = (state(), failure());
        for brought in DIALECTS {
            let stamp = to_tier(&state, Some(&failure));
            let brought_headers = without_native(&owned(&headers::write(&[], &stamp, brought)));
            for dialect in Dialect::ALL.into_iter().filter(|it| *it != brought) {
                let written = owned(&headers::write(&view(&brought_headers), &stamp, dialect));
                let kept = &written[..brought_headers.len()];
                assert_eq!(kept, brought_headers, "{brought} on a flow of {dialect}");
            }
        }
    }

    /// A relay's move is no failure: what the last one was stays readable.
    #[test]
    fn a_hop_without_a_failure_leaves_the_last_one_on_the_record() {
        let (state, failure) = (state(), failure());
        let stamp = to_tier(&state, Some(&failure));
        let failed = owned(&headers::write(&[], &stamp, Dialect::Native));
        let moved = headers::write(&view(&failed), &to_tier(&state, None), Dialect::Native);
        let moved = owned(&moved);
        for name in ["", "-message", "-detail"].map(|part| format!("redrive-error{part}")) {
            assert_eq!(value_of(&moved, &name), value_of(&failed, &name), "{name}");
        }
        assert_eq!(value_of(&moved, "redrive-status"), Some(&b"504"[..]));
        assert_eq!(value_of(&moved, "redrive-response"), Some(&b"<html>"[..]));
        assert_eq!(value_of(&moved, "redrive-failed-at"), Some(&b"1700000000000"[..]));
        assert_eq!(moved.len(), failed.len());
    }

    #[test]
    fn a_hop_without_a_failure_leaves_the_dialects_error_headers() {
        let (state, failure) = (state(), failure());
        for (dialect, names) in [
            (Dialect::X, &["x-last-error-type", "x-last-error-message", "x-api-response"][..]),
            (Dialect::Quafka, &["X-Exception", "X-ExceptionDetail", "X-ExceptionAt"]),
            (Dialect::Spring, &["kafka_exception-fqcn", "kafka_exception-message"]),
        ] {
            let stamp = to_tier(&state, Some(&failure));
            let failed = owned(&headers::write(&[], &stamp, dialect));
            let moved = headers::write(&view(&failed), &to_tier(&state, None), dialect);
            let moved = owned(&moved);
            for name in names {
                assert_eq!(value_of(&moved, name), value_of(&failed, name), "{name}");
            }
        }
    }

    /// The next failure has no response: the earlier one's must not stand beside it.
    #[test]
    fn a_failure_replaces_all_of_the_one_before() {
        let (state, first) = (state(), failure());
        let second = Failure::of_kind(Kind::CONNECT);
        for dialect in Dialect::ALL {
            let stamp = to_tier(&state, Some(&first));
            let headers = owned(&headers::write(&[], &stamp, dialect));
            let stamp = to_tier(&state, Some(&second));
            let headers = owned(&headers::write(&view(&headers), &stamp, dialect));
            for (name, value) in &headers {
                let value = value.as_deref().unwrap_or_default().escape_ascii().to_string();
                let stale = ["PaymentTimeout", "no answer", "html", "504"];
                assert!(!stale.iter().any(|it| value.contains(it)), "{dialect}: {name}: {value}");
            }
        }
    }

    /// Spring replaces all its exception headers at each hop.
    #[test]
    fn springs_cause_of_an_earlier_failure_goes_with_it() {
        let (state, failure) = (state(), failure());
        for name in ["kafka_exception-cause-fqcn", "kafka_dlt-exception-cause-fqcn"] {
            let brought = [text(name, "java.io.IOException")];
            let stamp = to_tier(&state, Some(&failure));
            let headers = owned(&headers::write(&brought, &stamp, Dialect::Spring));
            assert_eq!(value_of(&headers, name), None);
        }
    }

    #[test]
    fn long_texts_are_cut_on_a_character_boundary() {
        let state = state();
        let limits = [
            ("redrive-error", MAX_NAME_BYTES, 255),
            ("redrive-error-message", MAX_MESSAGE_BYTES, 1024),
            ("redrive-error-detail", MAX_DETAIL_BYTES, 4096),
            ("redrive-response", MAX_MESSAGE_BYTES, 1024),
            ("x-last-error-type", MAX_NAME_BYTES, 255),
            ("x-last-error-message", MAX_MESSAGE_BYTES, 1024),
            ("x-api-response", MAX_MESSAGE_BYTES, 1024),
            ("X-Exception", MAX_DETAIL_BYTES, 4096),
            ("X-ExceptionDetail", MAX_MESSAGE_BYTES, 1024),
            ("kafka_exception-fqcn", MAX_NAME_BYTES, 255),
            ("kafka_exception-message", MAX_MESSAGE_BYTES, 1024),
            ("kafka_exception-stacktrace", MAX_DETAIL_BYTES, 4096),
        ];
        // Characters of one to four bytes, shifted so that limits fall on and within them.
        for (character, shift) in
            [('x', 0), ('ж', 0), ('ж', 1), ('€', 0), ('€', 1), ('€', 2), ('🦀', 0), ('🦀', 3)]
        {
            let long = "-".repeat(shift) + &character.to_string().repeat(5000);
            let mut failure = Failure::of_type(long.clone()).with_message(long.clone());
            failure.detail = Some(long.clone());
            failure.response = Some(long.clone());
            let mut written = Owned::new();
            for dialect in DIALECTS {
                let stamp = to_tier(&state, Some(&failure));
                let headers = owned(&headers::write(&[], &stamp, dialect));
                let fresh = headers.into_iter().filter(|it| value_of(&written, &it.0).is_none());
                written.extend(fresh.collect::<Vec<_>>());
            }
            for (name, limit, stated) in limits {
                assert_eq!(limit, stated);
                let value = value_of(&written, name).unwrap();
                assert!(value.len() <= limit, "{name}");
                assert!(value.len() + character.len_utf8() > limit, "{name} is cut too short");
                let value = std::str::from_utf8(value).unwrap();
                assert!(long.starts_with(value), "{name}");
            }
        }
    }

    #[test]
    fn a_text_of_just_the_limit_is_not_cut() {
        let state = state();
        let message = "m".repeat(MAX_MESSAGE_BYTES);
        let failure = Failure::default().with_message(message.clone());
        let headers = headers::write(&[], &to_tier(&state, Some(&failure)), Dialect::Native);
        let headers = owned(&headers);
        assert_eq!(value_of(&headers, "redrive-error-message"), Some(message.as_bytes()));
    }
}

mod round_trips {
    use super::*;

    fn any_state() -> impl Strategy<Value = RetryState<'static>> {
        let policy = proptest::option::of("[A-Za-zж-]{1,12}");
        let count = 0..2_000_000_000u32;
        let time = proptest::option::of(0..4_000_000_000_000i64);
        (count.clone(), policy, count.clone(), proptest::option::of(0..1000u32), count, time)
            .prop_map(|(overall, policy, policy_attempts, tier, tier_attempts, first)| RetryState {
                overall,
                policy: policy.map(Cow::Owned),
                policy_attempts,
                tier,
                tier_attempts: if tier.is_some() { tier_attempts } else { 0 },
                first_failed_at: first.map(Timestamp::from_millis),
            })
    }

    proptest! {
        #[test]
        fn native_headers_come_back_as_they_were_written(
            state in any_state(),
            due in 0..=redrive_core::MAX_TIMESTAMP.as_millis(),
            partition in 0..=i32::MAX,
            offset in 0..=i64::MAX,
            produced in proptest::option::of(0..4_000_000_000_000i64),
            hop in any::<u32>(),
            epoch in proptest::option::of(any::<u64>()),
            redriven in any::<u32>(),
            dialect in proptest::sample::select(Dialect::ALL.to_vec()),
        ) {
            let due = Timestamp::from_millis(due);
            let origin = Origin { topic: "orders", partition, offset };
            let produced_at = produced.map(Timestamp::from_millis);
            let stop = Stop::Tier { due, delay: Some(TIER_DELAY), forward_to: None };
            let stamp =
                Stamp { origin, produced_at, hop, epoch, redriven, stop, ..to_tier(&state, None) };
            let headers = owned(&headers::write(&[], &stamp, dialect));
            let headers = view(&headers);
            let reading = headers::read(&headers, None, &context(Place::Retry, dialect));
            prop_assert_eq!(
                reading,
                Reading {
                    state: state.clone(),
                    due: Due::At(due),
                    is_dated: true,
                    origin: Some(origin),
                    produced_at,
                    hop,
                    epoch,
                    redriven,
                    owner: Owner::Us,
                    format: Some(Dialect::Native),
                    unreadable: None,
                }
            );
        }

        /// As if Redrive's own headers had been lost, or another system had read the record.
        #[test]
        fn a_dialect_alone_brings_the_counts_back_and_never_an_earlier_due(
            state in any_state(),
            due in NOW.as_millis()..NOW.as_millis() + 31_557_600_000_000,
            tier_delay in 0..1_000_000_000_000u64,
            partition in 0..=i32::MAX,
            offset in 0..=i64::MAX,
            dialect in proptest::sample::select(DIALECTS.to_vec()),
        ) {
            let due = Timestamp::from_millis(due);
            let tier_delay = Some(Duration::from_millis(tier_delay));
            let origin = Origin { topic: "orders", partition, offset };
            let stop = Stop::Tier { due, delay: tier_delay, forward_to: None };
            let stamp = Stamp { origin, stop, ..to_tier(&state, None) };
            let headers = without_native(&owned(&headers::write(&[], &stamp, dialect)));
            let headers = view(&headers);
            let value = headers::write_value(Some(b"{}"), &stamp, dialect);
            let place = Place::Tier { index: 7, delay: tier_delay };
            for configured in [dialect, Dialect::Native] {
                let reading =
                    headers::read(&headers, value.as_deref(), &context(place, configured));
                prop_assert_eq!(reading.format, Some(dialect));
                prop_assert_eq!(reading.unreadable, None);
                prop_assert_eq!(reading.state.overall, state.overall);
                let Due::At(read) = reading.due else {
                    prop_assert_eq!(due, NOW, "no due time from {}", dialect);
                    continue;
                };
                let late = read.as_millis() - due.as_millis();
                prop_assert!((0..=granularity(dialect)).contains(&late), "{} ms late", late);
                let knows_origin = matches!(dialect, Dialect::Quafka | Dialect::Spring);
                prop_assert_eq!(reading.origin, knows_origin.then_some(origin));
                prop_assert_eq!(reading.produced_at, knows_origin.then_some(PRODUCED));
                match dialect {
                    Dialect::Quafka => {
                        prop_assert_eq!(&reading.state.policy, &state.policy);
                        prop_assert_eq!(reading.state.policy_attempts, state.policy_attempts);
                    }
                    Dialect::Tiered => {
                        prop_assert_eq!(reading.state.tier_attempts, state.tier_attempts);
                    }
                    _ => {}
                }
            }
            if dialect == Dialect::Tiered {
                let reading = headers::read(&headers, None, &context(Place::Retry, dialect));
                prop_assert_eq!(reading.state.tier, Some(state.tier.unwrap_or(0)));
            }
        }
    }

    /// Ten digits of seconds end in the year 2286, eleven in 5138; from there on the reader takes
    /// the number for milliseconds.
    #[test]
    fn a_due_time_after_the_year_5138_does_not_come_back_as_1973() {
        let state = state();
        for millis in [99_999_999_999_001, 100_000_000_000_000, 253_402_300_799_999] {
            let due = Timestamp::from_millis(millis);
            let stop = Stop::Tier { due, delay: None, forward_to: None };
            let stamp = Stamp { stop, ..to_tier(&state, None) };
            for dialect in [Dialect::X, Dialect::Payload] {
                let headers = without_native(&owned(&headers::write(&[], &stamp, dialect)));
                let value = headers::write_value(Some(b"{}"), &stamp, dialect);
                let reading =
                    headers::read(&view(&headers), value.as_deref(), &context(TIER, dialect));
                let held = match reading.due {
                    Due::At(read) => read >= due,
                    Due::Unreadable(_) => true,
                    Due::Now => false,
                };
                assert!(held, "{dialect}: {:?} for {millis}", reading.due);
            }
        }
    }

    /// A delay that the policy brought is not the tier's: the sum must still be the due time.
    #[test]
    fn tiered_headers_keep_a_policys_own_delay() {
        let state = state();
        for (policy_delay, tier_delay) in [(10, 30), (30, 30), (90, 30), (5, 3600)] {
            let due = NOW.after(Duration::from_secs(policy_delay));
            let delay = Some(Duration::from_secs(tier_delay));
            let stop = Stop::Tier { due, delay, forward_to: None };
            let stamp = Stamp { stop, ..to_tier(&state, None) };
            let headers = without_native(&owned(&headers::write(&[], &stamp, Dialect::Tiered)));
            let place = Place::Tier { index: 0, delay };
            let reading = headers::read(&view(&headers), None, &context(place, Dialect::Tiered));
            assert_eq!(reading.due, Due::At(due));
        }
    }
}

mod places {
    use super::*;

    fn on_tier(dialect: Dialect) -> Owned {
        let state = state();
        owned(&headers::write(&[], &to_tier(&state, None), dialect))
    }

    /// docs/headers.md: a handler that copies headers onward must not confuse the next flow.
    #[test]
    fn a_source_topic_ignores_every_header() {
        let value = b"{\"process_at\":9999999999,\"retry_count\":7}";
        for dialect in Dialect::ALL {
            for headers in [on_tier(dialect), without_native(&on_tier(dialect))] {
                let context = context(Place::Source, dialect);
                let reading = headers::read(&view(&headers), Some(value), &context);
                assert_eq!(reading, Reading::default(), "{dialect}");
            }
        }
    }

    #[test]
    fn a_record_without_headers_is_fresh_and_due_at_once() {
        for place in [TIER, Place::Retry, Place::ReturnedToSource { topic: "orders" }] {
            for dialect in Dialect::ALL {
                let reading = headers::read(&[], Some(b"{}"), &context(place, dialect));
                let tier = matches!(place, Place::Tier { .. }).then_some(1);
                let state = RetryState { tier, ..RetryState::default() };
                assert_eq!(reading, Reading { state, ..Reading::default() });
            }
        }
    }

    /// Configs change between two hops: a tier was put in front, and the index moved.
    #[test]
    fn the_tier_it_was_taken_from_wins_over_the_header() {
        for dialect in Dialect::ALL {
            for headers in [on_tier(dialect), without_native(&on_tier(dialect))] {
                let place = Place::Tier { index: 5, delay: None };
                let reading = headers::read(&view(&headers), None, &context(place, dialect));
                assert_eq!(reading.state.tier, Some(5), "{dialect}");
            }
        }
        let retry = on_tier(Dialect::Native);
        let reading = headers::read(&view(&retry), None, &context(Place::Retry, Dialect::Native));
        assert_eq!(reading.state.tier, Some(1), "the retry topic behind delay topics has no index");
    }

    #[test]
    fn a_record_of_another_group_is_told_apart_on_a_tier() {
        let headers = on_tier(Dialect::Native);
        for (group, owner) in [
            ("billing", Owner::Us),
            ("billing-5m", Owner::AnotherGroup),
            ("Billing", Owner::AnotherGroup),
            ("", Owner::AnotherGroup),
        ] {
            for place in [TIER, Place::Retry] {
                let context = ReadContext { group, ..context(place, Dialect::Native) };
                assert_eq!(headers::read(&view(&headers), None, &context).owner, owner, "{group}");
            }
        }
    }

    #[test]
    fn a_foreign_hop_does_not_change_whose_record_it_is() {
        let mut headers = on_tier(Dialect::X);
        headers.push(("x-retry-attempt".to_owned(), Some(b"9".to_vec())));
        let context = ReadContext { group: "shipping", ..context(TIER, Dialect::X) };
        let reading = headers::read(&view(&headers), None, &context);
        assert_eq!((reading.format, reading.owner), (Some(Dialect::X), Owner::AnotherGroup));
    }

    #[test]
    fn a_record_that_names_no_group_is_ours() {
        let headers = [text("redrive-overall-attempts", "2")];
        assert_eq!(read_tier(&headers).owner, Owner::Us);
        assert_eq!(read_tier(&[]).owner, Owner::Us);
    }

    fn read_returned<'a>(headers: &[Header<'a>], topic: &str, dialect: Dialect) -> Reading<'a> {
        headers::read(headers, None, &context(Place::ReturnedToSource { topic }, dialect))
    }

    #[test]
    fn headers_of_a_returned_record_count_where_they_are_about_this_topic() {
        let headers = on_tier(Dialect::Native);
        let here = read_returned(&view(&headers), "orders", Dialect::Native).state;
        assert_eq!(here, state());
        let elsewhere = on_tier(Dialect::Native);
        let elsewhere = view(&elsewhere);
        let elsewhere = read_returned(&elsewhere, "invoices", Dialect::Native);
        assert_eq!(elsewhere, Reading::default());
    }

    #[test]
    fn headers_of_another_group_are_ignored_on_a_source_topic() {
        let headers = on_tier(Dialect::Native);
        let place = Place::ReturnedToSource { topic: "orders" };
        let context = ReadContext { group: "shipping", ..context(place, Dialect::Native) };
        assert_eq!(headers::read(&view(&headers), None, &context), Reading::default());
    }

    #[test]
    fn native_headers_without_an_origin_are_ignored_on_a_source_topic() {
        let headers = [text("redrive-overall-attempts", "3"), text("redrive-due", "1800000000000")];
        assert_eq!(read_returned(&headers, "orders", Dialect::Native), Reading::default());
    }

    /// On a source topic only the flow's own dialect counts, and only for this topic.
    #[test]
    fn a_returned_record_is_read_in_the_flows_dialect_alone() {
        for brought in [Dialect::X, Dialect::Quafka, Dialect::Spring] {
            let headers = without_native(&on_tier(brought));
            for configured in Dialect::ALL {
                let view = view(&headers);
                let reading = read_returned(&view, "orders", configured);
                let counts = if configured == brought { 4 } else { 0 };
                assert_eq!(reading.state.overall, counts, "{brought} read as {configured}");
                let reading = read_returned(&view, "invoices", configured);
                assert_eq!(reading, Reading::default(), "{brought} read as {configured}");
            }
        }
    }

    /// The PHP document: the relay returns the message to the main topic with its count in it.
    #[test]
    fn a_returned_payload_keeps_its_count() {
        let value = br#"{"created_at":1620000000,"process_at":1620001000,"retry_count":2}"#;
        let place = Place::ReturnedToSource { topic: "orders" };
        let reading = headers::read(&[], Some(value), &context(place, Dialect::Payload));
        assert_eq!(reading.state.overall, 2);
        assert_eq!(reading.due, Due::At(Timestamp::from_millis(1_620_001_000_000)));
        let reading = headers::read(&[], Some(value), &context(place, Dialect::Native));
        assert_eq!(reading, Reading::default());
    }
}

mod precedence {
    use super::*;

    const LATER: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn native() -> [Header<'static>; 5] {
        [
            text("redrive-overall-attempts", "2"),
            text("redrive-policy", "Slow"),
            text("redrive-policy-attempts", "2"),
            text("redrive-tier-attempts", "1"),
            text("redrive-due", "1700000030250"),
        ]
    }

    #[test]
    fn native_headers_come_before_the_dialect() {
        for attempt in ["0", "1", "2"] {
            let mut headers = native().to_vec();
            headers.push(text("x-retry-attempt", attempt));
            headers.push(text("x-process-after", "1800000000"));
            let reading = headers::read(&headers, None, &context(TIER, Dialect::X));
            assert_eq!(reading.format, Some(Dialect::Native));
            assert_eq!((reading.state.overall, reading.due), (2, Due::At(DUE)));
        }
    }

    #[test]
    fn the_flows_dialect_comes_before_the_others() {
        let headers = [
            text("x-retry-attempt", "1"),
            text("X-OverallRetryAttempts", "2"),
            Header::new("retry_topic-attempts", b"\0\0\0\x04"),
            text("retry-total-attempts", "4"),
        ];
        let value = b"{\"process_at\":1,\"retry_count\":5}";
        for (dialect, overall) in [
            (Dialect::X, 1),
            (Dialect::Quafka, 2),
            (Dialect::Spring, 3),
            (Dialect::Tiered, 4),
            (Dialect::Payload, 5),
        ] {
            let reading = headers::read(&headers, Some(value), &context(TIER, dialect));
            assert_eq!((reading.format, reading.state.overall), (Some(dialect), overall));
        }
    }

    #[test]
    fn the_others_are_read_where_the_flows_dialect_says_nothing() {
        let headers = [text("X-OverallRetryAttempts", "2"), text("X-RetryAttempts", "1")];
        for dialect in Dialect::ALL {
            let reading = headers::read(&headers, Some(b"{}"), &context(TIER, dialect));
            assert_eq!((reading.format, reading.state.overall), (Some(Dialect::Quafka), 2));
        }
    }

    /// docs/headers.md: where a foreign hop raised a dialect's counts above the native ones, the dialect
    /// wins.
    #[test]
    fn a_dialect_that_a_foreign_hop_raised_wins() {
        let raised: [(Dialect, Vec<Header<'_>>); 4] = [
            (Dialect::X, vec![text("x-retry-attempt", "3"), text("x-process-after", "1800000000")]),
            (
                Dialect::Tiered,
                vec![
                    text("retry-total-attempts", "3"),
                    text("retry-attempts-in-topic", "2"),
                    text("retry-timestamp", "2027-01-15T07:59:30Z"),
                ],
            ),
            (
                Dialect::Quafka,
                vec![
                    text("X-OverallRetryAttempts", "3"),
                    text("X-DelaySeconds", "100000000"),
                    text("X-DelayPublishedAt", "2023-11-14T22:13:20Z"),
                ],
            ),
            (
                Dialect::Spring,
                vec![
                    Header::new("retry_topic-attempts", b"\0\0\0\x04"),
                    Header::new("retry_topic-backoff-timestamp", b"\x01\xa3\x18\x5c\x50\x00"),
                ],
            ),
        ];
        for (dialect, foreign) in raised {
            let headers = [&native()[..], &foreign].concat();
            let reading = headers::read(&headers, None, &context(TIER, dialect));
            assert_eq!(reading.format, Some(dialect));
            assert_eq!(reading.due, Due::At(LATER), "{dialect}");
            assert_eq!(reading.state.overall, 3, "{dialect}");
            assert_eq!(reading.state.policy.as_deref(), Some("Slow"), "{dialect}");
            assert_eq!(reading.state.policy_attempts, 3, "one more under the same policy");
            // A flow of another dialect does not look at it.
            let reading = headers::read(&headers, None, &context(TIER, Dialect::Native));
            assert_eq!((reading.format, reading.state.overall), (Some(Dialect::Native), 2));
        }
    }

    #[test]
    fn a_payload_that_a_foreign_hop_raised_wins() {
        let value = b"{\"process_at\":1800000000,\"retry_count\":3}";
        let reading = headers::read(&native(), Some(value), &context(TIER, Dialect::Payload));
        assert_eq!((reading.state.overall, reading.due), (3, Due::At(LATER)));
    }

    #[test]
    fn a_raised_dialect_brings_its_policy_but_not_another_identity() {
        let mut headers = native().to_vec();
        headers.extend([
            text("redrive-origin-topic", "orders"),
            text("redrive-origin-partition", "3"),
            text("redrive-origin-offset", "42"),
            text("redrive-hop", "6"),
            text("redrive-first-failed-at", "1699999995500"),
            text("X-OverallRetryAttempts", "5"),
            text("X-RetryAttempts", "1"),
            text("X-RetryPolicyIdentifier", "RateLimit"),
            text("X-OriginalTopic", "orders.retry"),
            text("X-OriginalPartition", "0"),
            text("X-OriginalOffset", "9"),
        ]);
        let reading = headers::read(&headers, None, &context(TIER, Dialect::Quafka));
        assert_eq!(reading.state.policy.as_deref(), Some("RateLimit"));
        assert_eq!((reading.state.overall, reading.state.policy_attempts), (5, 1));
        assert_eq!(reading.state.first_failed_at, Some(FIRST_FAILED));
        assert_eq!((reading.origin, reading.hop), (Some(ORIGIN), 6));
    }

    /// A hop of a system that raises the count and writes no time of its own leaves ours in place.
    #[test]
    fn a_raised_dialect_does_not_make_the_record_run_before_its_native_due() {
        for foreign in [
            &[text("x-retry-attempt", "3")][..],
            &[text("x-retry-attempt", "3"), text("x-process-after", "1")],
        ] {
            let headers = [&native()[..], foreign].concat();
            let reading = headers::read(&headers, None, &context(TIER, Dialect::X));
            assert_eq!(reading.due, Due::At(DUE));
        }
    }

    #[test]
    fn a_raised_dialect_does_not_hide_an_unreadable_native_due() {
        for (spoilt, name) in [
            (text("redrive-due", "soon"), "redrive-due"),
            (text("redrive-version", "2"), "redrive-version"),
        ] {
            let headers = [spoilt, text("x-retry-attempt", "3")];
            let reading = headers::read(&headers, None, &context(TIER, Dialect::X));
            assert_eq!(reading.due, Due::Unreadable(name));
        }
    }

    /// One stray header of ours, copied along by somebody, says nothing about when.
    #[test]
    fn native_headers_without_a_due_do_not_hide_the_dialects() {
        let headers = [text("redrive-hop", "1"), text("x-process-after", "1800000000")];
        let reading = headers::read(&headers, None, &context(TIER, Dialect::X));
        assert_eq!(reading.due, Due::At(LATER));
    }
}

mod in_flight {
    use super::*;

    fn millis(millis: i64) -> Due {
        Due::At(Timestamp::from_millis(millis))
    }

    /// Spring counts deliveries: 2 is written on the first retry.
    #[test]
    fn springs_first_retry_is_one_publish() {
        for (bytes, overall) in [
            (&[0, 0, 0, 1][..], 0),
            (&[0, 0, 0, 2], 1),
            (&[0, 0, 0, 4], 3),
            (&[0, 0, 1, 0], 255),
            // Before 2.8 it was one byte.
            (&[2], 1),
            (&[0x80], 127),
        ] {
            let headers = [
                Header::new("retry_topic-attempts", bytes),
                Header::new("retry_topic-backoff-timestamp", b"\x01\x8b\xcf\xe5\xde\x2a"),
            ];
            let reading = read_tier(&headers);
            assert_eq!(reading.state.overall, overall, "{bytes:?}");
            assert_eq!(reading.due, Due::At(DUE));
            assert_eq!(reading.unreadable, None);
        }
    }

    /// Spring adds one more value of each header at each hop and reads the last.
    #[test]
    fn springs_piled_up_headers_say_what_the_last_one_says() {
        let headers = [
            Header::new("retry_topic-original-timestamp", b"\x01\x8b\xcf\xe5\x41\x6d"),
            Header::new("kafka_original-topic", b"orders"),
            Header::new("kafka_original-partition", b"\0\0\0\x03"),
            Header::new("kafka_original-offset", b"\0\0\0\0\0\0\0\x2a"),
            Header::new("retry_topic-attempts", b"\0\0\0\x02"),
            Header::new("retry_topic-backoff-timestamp", b"\x01\x8b\xcf\xe5\x68\x00"),
            Header::new("retry_topic-attempts", b"\0\0\0\x03"),
            Header::new("retry_topic-backoff-timestamp", b"\x01\x8b\xcf\xe5\xde\x2a"),
        ];
        let reading = read_tier(&headers);
        assert_eq!((reading.state.overall, reading.due), (2, Due::At(DUE)));
        assert_eq!((reading.origin, reading.produced_at), (Some(ORIGIN), Some(PRODUCED)));
        let written = headers::write(&headers, &to_tier(&state(), None), Dialect::Spring);
        let attempts = written.iter().filter(|it| it.name == "retry_topic-attempts");
        assert_eq!(attempts.count(), 1, "our hop takes the pile away");
    }

    #[test]
    fn springs_time_of_production_falls_back_to_the_original_timestamp() {
        let headers = [
            Header::new("retry_topic-attempts", b"\0\0\0\x02"),
            Header::new("kafka_original-timestamp", b"\0\0\x01\x8b\xcf\xe5\x41\x6d"),
        ];
        let reading = read_tier(&headers);
        assert_eq!((reading.produced_at, reading.due), (Some(PRODUCED), Due::Now));
    }

    /// Quafka writes 1 on the first publish, and its times as `Instant.toString()` gives them.
    #[test]
    fn quafkas_first_publish_is_one() {
        let headers = [
            text("X-RetryAttempts", "1"),
            text("X-OverallRetryAttempts", "1"),
            text("X-RetryPolicyIdentifier", "RateLimit"),
            text("X-OriginalTopic", "orders"),
            text("X-OriginalPartition", "3"),
            text("X-OriginalOffset", "42"),
            text("X-OriginalPublishedAt", "2023-11-14T22:13:10.125Z"),
            text("X-DelaySeconds", "30"),
            text("X-DelayStrategy", "FOR_FIXED_DURATION"),
            text("X-DelayPublishedAt", "2023-11-14T22:13:20.123456Z"),
        ];
        let reading = read_tier(&headers);
        assert_eq!(
            reading.state,
            RetryState {
                overall: 1,
                policy: Some(Cow::Borrowed("RateLimit")),
                policy_attempts: 1,
                tier: Some(1),
                tier_attempts: 1,
                first_failed_at: None,
            }
        );
        assert_eq!(reading.due, millis(1_700_000_030_124), "the fraction is rounded up");
        assert_eq!((reading.origin, reading.produced_at), (Some(ORIGIN), Some(PRODUCED)));
    }

    /// "How Identifier Changes Affect Retry Counting" of the Quafka document: the policy's count
    /// starts again, the total never does.
    #[test]
    fn quafkas_total_goes_on_where_the_policys_count_starts_again() {
        let headers = [
            text("X-RetryAttempts", "1"),
            text("X-OverallRetryAttempts", "4"),
            text("X-RetryPolicyIdentifier", "Timeout"),
        ];
        let reading = read_tier(&headers);
        assert_eq!((reading.state.overall, reading.state.policy_attempts), (4, 1));
        assert_eq!(reading.due, Due::Now, "what its forwarder moved has no delay any more");
    }

    #[test]
    fn quafkas_delay_counts_from_the_record_where_its_own_time_is_missing() {
        let headers = [text("X-RetryAttempts", "1"), text("X-DelaySeconds", "30")];
        assert_eq!(read_tier(&headers).due, millis(1_700_000_030_000));
        let headers = [text("X-RetryAttempts", "1"), text("X-DelaySeconds", "0")];
        assert_eq!(read_tier(&headers).due, Due::Now);
    }

    /// What Quafka reads where there is no identifier counts for whichever policy is resolved.
    #[test]
    fn quafkas_missing_identifier_is_none() {
        for id in ["N/A", "", "  "] {
            let headers = [text("X-RetryAttempts", "2"), text("X-RetryPolicyIdentifier", id)];
            let state = read_tier(&headers).state;
            assert_eq!((state.policy.as_deref(), state.attempts_under("Anything")), (None, 2));
        }
    }

    /// The tiered document: `retry-timestamp` is the time of the last retry, so the record is due
    /// when the tier's delay has passed since.
    #[test]
    fn tiered_records_are_due_after_their_tiers_delay() {
        let headers = [
            text("retry-topic-index", "1"),
            text("retry-attempts-in-topic", "2"),
            text("retry-total-attempts", "5"),
            text("retry-timestamp", "2023-11-15T01:13:20.2500000+03:00"),
        ];
        let reading = read_tier(&headers);
        assert_eq!(reading.due, Due::At(DUE));
        assert_eq!((reading.state.overall, reading.state.tier_attempts), (5, 2));
        let place = Place::Tier { index: 1, delay: None };
        let reading = headers::read(&headers, None, &context(place, Dialect::Tiered));
        assert_eq!(reading.due, millis(1_700_000_000_250), "a tier without a delay adds none");
    }

    /// docs/headers.md: values of 10¹¹ and more are read as milliseconds.
    #[test]
    fn x_times_are_seconds_below_ten_to_the_eleventh_and_milliseconds_from_there() {
        for (value, due) in [
            ("0", 0),
            ("1620001000", 1_620_001_000_000),
            ("99999999999", 99_999_999_999_000),
            ("100000000000", 100_000_000_000),
            ("1620001000123", 1_620_001_000_123),
        ] {
            let headers = [text("x-retry-attempt", "2"), text("x-process-after", value)];
            let reading = read_tier(&headers);
            assert_eq!((reading.state.overall, reading.due), (2, millis(due)), "{value}");
        }
    }

    #[test]
    fn x_records_say_when_they_were_first_tried() {
        let headers = [
            text("x-retry-attempt", "1"),
            text("x-process-after", "1700000031"),
            text("x-first-attempt-timestamp", "1699999995"),
        ];
        let first = read_tier(&headers).state.first_failed_at;
        assert_eq!(first, Some(Timestamp::from_millis(1_699_999_995_000)));
    }

    /// The PHP document, "Структура сообщения".
    #[test]
    fn the_php_documents_message_is_scheduled_and_not_yet_tried() {
        let value = "{\"id\":\"уникальный_идентификатор\",\"message\":\"текст_сообщения\",\
                     \"created_at\":1620000000,\"process_at\":1620001000,\"retry_count\":0}";
        let reading = headers::read(&[], Some(value.as_bytes()), &context(TIER, Dialect::Payload));
        assert_eq!((reading.state.overall, reading.due), (0, millis(1_620_001_000_000)));
        assert_eq!(reading.produced_at, Some(Timestamp::from_millis(1_620_000_000_000)));
    }

    /// The PHP document, "Механизм повторной обработки": the count rises, and the new time is
    /// `30 * 2^(retry_count-1)` seconds from the failure, three times.
    #[test]
    fn the_php_documents_message_waits_30_60_and_120_seconds() {
        let backoff = Exponential::new(Duration::from_secs(30));
        let delayed = Delayed::attempts(3).with_backoff(Backoff::from(backoff));
        let flow = Flow::new("orders")
            .with_strategy(Layout::BackToSource(Tier::endless("orders.retry")))
            .with_default(Policy::named("Any").with_delayed(delayed));
        let failure = Failure::of_status(503);
        let mut value = b"{\"process_at\":1699999999,\"retry_count\":0}".to_vec();
        let mut now = NOW;
        for (count, wait) in [(1, 30), (2, 60), (3, 120)] {
            let place = Place::ReturnedToSource { topic: "orders" };
            let reading = headers::read(&[], Some(&value), &context(place, Dialect::Payload));
            let record = RecordView::default();
            let in_place = InPlace::default();
            let delivery = Delivery { record, state: &reading.state, in_place };
            let verdict = flow.decide(&delivery, &Incident::from(&failure), now, Draw::Lowest);
            let Action::Publish { due, .. } = verdict.action else {
                panic!("{:?} instead of retry {count}", verdict.action);
            };
            let stop = Stop::Tier { due, delay: None, forward_to: Some("orders") };
            let stamp = Stamp { stop, now, ..to_tier(&verdict.state, None) };
            value = headers::write_value(Some(&value), &stamp, Dialect::Payload).unwrap();
            let process_at = now.as_millis() / 1000 + wait;
            let expected = format!("{{\"process_at\":{process_at},\"retry_count\":{count}}}");
            assert_eq!(value.escape_ascii().to_string(), expected.escape_default().to_string());
            now = due;
        }
    }
}

#[test]
fn only_a_due_time_of_redrives_own_header_is_one_that_maps_may_speak_of() {
    let tier = context(Place::Tier { index: 0, delay: Some(TIER_DELAY) }, Dialect::X);
    let own = [Header::new("redrive-version", b"1"), Header::new("redrive-due", b"1800000000000")];
    assert!(headers::read(&own, None, &tier).is_dated);
    let foreign =
        [Header::new("x-process-after", b"1800000000"), Header::new("x-retry-attempt", b"1")];
    assert!(!headers::read(&foreign, None, &tier).is_dated);
    // A foreign hop has put it off since.
    let both = [
        own.as_slice(),
        &[Header::new("x-process-after", b"1900000000"), Header::new("x-retry-attempt", b"1")],
    ]
    .concat();
    let reading = headers::read(&both, None, &tier);
    assert_eq!(reading.due, Due::At(Timestamp::from_millis(1_900_000_000_000)));
    assert!(!reading.is_dated);
}
