//! Headers and payloads as nobody should write them: whatever stands in them, reading never
//! panics, never lets a record run early, and never lets it go round for ever.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use redrive_core::headers::{
    self, Dialect, Due, Failed, Header, HeaderBlock, Owner, Place, ReadContext, Reading, Stamp,
    Stop,
};
use redrive_core::{
    Action, Backoff, Delayed, Delivery, Draw, Failure, Flow, InMemory, InPlace, Incident,
    MAX_TIMESTAMP, Origin, Policy, Reason, RecordView, RetryState, Strategy as Layout, Tier,
    Timestamp,
};
use serde_json::{Map, Value};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const YEAR_200000: i64 = 6_249_223_180_800_000;
const ORIGIN: Origin<'_> = Origin { topic: "orders", partition: 3, offset: 42 };

/// Every name that any format reads or writes.
const NAMES: [&str; 72] = [
    "redrive-version",
    "redrive-group",
    "redrive-origin-topic",
    "redrive-origin-partition",
    "redrive-origin-offset",
    "redrive-origin-timestamp",
    "redrive-due",
    "redrive-overall-attempts",
    "redrive-policy",
    "redrive-policy-attempts",
    "redrive-tier",
    "redrive-tier-attempts",
    "redrive-hop",
    "redrive-epoch",
    "redrive-redriven",
    "redrive-first-failed-at",
    "redrive-failed-at",
    "redrive-error",
    "redrive-error-message",
    "redrive-error-detail",
    "redrive-status",
    "redrive-response",
    "redrive-reason",
    "redrive-follows",
    "x-retry-attempt",
    "x-process-after",
    "x-original-topic",
    "x-first-attempt-timestamp",
    "x-last-error-type",
    "x-last-error-message",
    "x-api-status-code",
    "x-api-response",
    "retry-topic-index",
    "retry-attempts-in-topic",
    "retry-total-attempts",
    "retry-timestamp",
    "X-RetryAttempts",
    "X-OverallRetryAttempts",
    "X-RetryPolicyIdentifier",
    "X-OriginalTopic",
    "X-OriginalPartition",
    "X-OriginalOffset",
    "X-OriginalPublishedAt",
    "X-FromTopicPartitionOffset",
    "X-Exception",
    "X-ExceptionDetail",
    "X-ExceptionAt",
    "X-PublishedAt",
    "X-ForwardingTopic",
    "X-DelaySeconds",
    "X-DelayStrategy",
    "X-DelayPublishedAt",
    "retry_topic-attempts",
    "retry_topic-backoff-timestamp",
    "retry_topic-original-timestamp",
    "kafka_original-topic",
    "kafka_original-partition",
    "kafka_original-offset",
    "kafka_original-timestamp",
    "kafka_original-timestamp-type",
    "kafka_exception-fqcn",
    "kafka_exception-message",
    "kafka_exception-stacktrace",
    "kafka_dlt-original-topic",
    "kafka_dlt-original-partition",
    "kafka_dlt-original-offset",
    "kafka_dlt-original-timestamp",
    "kafka_dlt-original-timestamp-type",
    "kafka_dlt-original-consumer-group",
    "kafka_dlt-exception-fqcn",
    "",
    "trace",
];

type Bytes = Option<Vec<u8>>;
type Owned = Vec<(String, Bytes)>;

fn owned(block: &HeaderBlock<'_>) -> Owned {
    block.iter().map(|it| (it.name.to_owned(), it.value.map(<[u8]>::to_vec))).collect()
}

fn view(headers: &Owned) -> Vec<Header<'_>> {
    headers.iter().map(|(name, value)| Header { name, value: value.as_deref() }).collect()
}

fn text<'a>(name: &'a str, value: &'a str) -> Header<'a> {
    Header::new(name, value.as_bytes())
}

fn context(place: Place<'_>, dialect: Dialect) -> ReadContext<'_> {
    ReadContext { group: "billing", place, dialect, timestamp: NOW }
}

fn tier(delay: Duration) -> Place<'static> {
    Place::Tier { index: 0, delay: Some(delay) }
}

fn read_tier<'a>(headers: &[Header<'a>], dialect: Dialect) -> Reading<'a> {
    headers::read(headers, None, &context(Place::Tier { index: 0, delay: None }, dialect))
}

fn stamp<'a>(state: &'a RetryState<'a>, due: Timestamp) -> Stamp<'a> {
    Stamp {
        group: "billing",
        origin: ORIGIN,
        produced_at: None,
        from: ("orders", 3, 42),
        state,
        hop: 1,
        epoch: None,
        redriven: 0,
        failure: None,
        stop: Stop::Tier { due, delay: None, forward_to: None },
        now: NOW,
    }
}

/// Bytes that come close to what a header should hold, and bytes that do not.
fn any_bytes() -> impl Strategy<Value = Bytes> {
    let close = select(vec![
        "1",
        "0",
        "-1",
        "+1",
        "1.5",
        "1e3",
        " 7 ",
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "18446744073709551616",
        "1700000030",
        "1700000030250",
        "99999999999",
        "100000000000",
        "253402300799999",
        "6249223180800000",
        "2023-11-14T22:13:20Z",
        "9999-12-31T23:59:59.9999999Z",
        "+200000-01-01T00:00:00Z",
        "2023-11-14T22:13:60+23:59",
        "0000-01-01T00:00:00-23:59",
        "billing",
        "orders",
        "N/A",
        "NaN",
        "null",
        "٣",
        "1\0",
    ]);
    prop_oneof![
        1 => Just(None),
        6 => close.prop_map(|it| Some(it.as_bytes().to_vec())),
        2 => any::<u64>().prop_map(|it| Some(it.to_string().into_bytes())),
        2 => any::<i64>().prop_map(|it| Some(it.to_be_bytes().to_vec())),
        1 => any::<i32>().prop_map(|it| Some(it.to_be_bytes().to_vec())),
        1 => (1..300usize).prop_map(|length| Some(vec![b'9'; length])),
        3 => vec(any::<u8>(), 0..12).prop_map(Some),
    ]
}

fn any_headers() -> impl Strategy<Value = Owned> {
    vec((select(NAMES.to_vec()).prop_map(str::to_owned), any_bytes()), 0..12)
}

/// Values with the pieces of JSON in no good order.
fn json_like() -> impl Strategy<Value = Vec<u8>> {
    let pieces: Vec<&[u8]> = vec![
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\"",
        b"\\",
        b" ",
        b"\n",
        b"\"process_at\":",
        b"\"retry_count\":",
        b"\"\\u0070rocess_at\":",
        b"\"created_at\":",
        b"\"a\":",
        b"1620001000",
        b"-1",
        b"1.5e3",
        b"1e400",
        b"null",
        b"true",
        b"\"process_at\"",
        b"\xff",
        b"{\"process_at\":1,\"retry_count\":2}",
    ];
    let loose = vec(select(pieces.clone()), 0..12).prop_map(|it| it.concat());
    let within = vec(select(pieces), 0..8).prop_map(|it| {
        [&b"{\"process_at\":1620001000,\"a\":"[..], &it.concat(), b",\"retry_count\":3}"].concat()
    });
    let bytes = vec(any::<u8>(), 0..40);
    prop_oneof![loose, within, bytes]
}

fn any_value() -> impl Strategy<Value = Bytes> {
    proptest::option::of(json_like())
}

fn any_dialect() -> impl Strategy<Value = Dialect> {
    select(Dialect::ALL.to_vec())
}

fn any_place() -> impl Strategy<Value = Place<'static>> {
    prop_oneof![
        Just(Place::Source),
        Just(Place::ReturnedToSource { topic: "orders" }),
        Just(Place::Retry),
        (any::<u32>(), proptest::option::of(any::<u64>())).prop_map(|(index, delay)| {
            Place::Tier { index, delay: delay.map(Duration::from_millis) }
        }),
    ]
}

proptest! {
    #[test]
    fn nothing_panics_and_what_is_read_can_be_written(
        headers in any_headers(),
        value in any_value(),
        place in any_place(),
        dialect in any_dialect(),
        timestamp in prop_oneof![Just(-1), Just(NOW.as_millis()), -1..=i64::MAX],
    ) {
        let headers = view(&headers);
        let value = value.as_deref();
        let timestamp = Timestamp::from_millis(timestamp);
        let context = ReadContext { timestamp, ..context(place, dialect) };
        let reading = headers::read(&headers, value, &context);
        let due = match reading.due {
            Due::Now => NOW,
            Due::At(due) => {
                prop_assert!(due <= MAX_TIMESTAMP, "{:?} can never be written again", due);
                due
            }
            Due::Unreadable(name) => {
                let in_headers = headers.iter().any(|it| it.name == name);
                prop_assert!(in_headers || name == "process_at", "{} is not there", name);
                NOW
            }
        };
        if let Some(origin) = reading.origin {
            prop_assert!(origin.partition >= 0 && origin.offset >= 0);
        }
        let stamp = Stamp { produced_at: reading.produced_at, ..stamp(&reading.state, due) };
        let written = owned(&headers::write(&headers, &stamp, dialect));
        let written_value = headers::write_value(value, &stamp, dialect);
        let value = written_value.as_deref().or(value);
        let again = headers::read(&view(&written), value, &self::context(Place::Retry, dialect));
        prop_assert_eq!(again.format, Some(Dialect::Native));
        prop_assert_eq!(again.due, Due::At(due));
        prop_assert_eq!(again.state.overall, reading.state.overall);
        prop_assert_eq!(again.state.policy, reading.state.policy.clone());
        prop_assert_eq!(again.state.policy_attempts, reading.state.policy_attempts);
        prop_assert_eq!(again.owner, Owner::Us);
        prop_assert_eq!(again.unreadable, None);
    }

    /// Whatever a record brings to its source topic, it is fresh there.
    #[test]
    fn a_source_topic_is_not_impressed(
        headers in any_headers(),
        value in any_value(),
        dialect in any_dialect(),
    ) {
        let context = context(Place::Source, dialect);
        let reading = headers::read(&view(&headers), value.as_deref(), &context);
        prop_assert_eq!(reading, Reading::default());
    }
}

mod due_times {
    use super::*;

    const TIER_DELAY: Duration = Duration::from_secs(30);

    /// Where each format says when a record may run.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Clock {
        Native,
        X,
        Tiered,
        QuafkaSeconds,
        QuafkaPublished,
        Spring,
    }

    impl Clock {
        const ALL: [Clock; 6] = [
            Clock::Native,
            Clock::X,
            Clock::Tiered,
            Clock::QuafkaSeconds,
            Clock::QuafkaPublished,
            Clock::Spring,
        ];

        fn name(self) -> &'static str {
            match self {
                Clock::Native => "redrive-due",
                Clock::X => "x-process-after",
                Clock::Tiered => "retry-timestamp",
                Clock::QuafkaSeconds => "X-DelaySeconds",
                Clock::QuafkaPublished => "X-DelayPublishedAt",
                Clock::Spring => "retry_topic-backoff-timestamp",
            }
        }

        fn dialect(self) -> Dialect {
            match self {
                Clock::Native => Dialect::Native,
                Clock::X => Dialect::X,
                Clock::Tiered => Dialect::Tiered,
                Clock::QuafkaSeconds | Clock::QuafkaPublished => Dialect::Quafka,
                Clock::Spring => Dialect::Spring,
            }
        }

        /// The header's value for a record that is due `seconds` after [`NOW`], and what else the
        /// format needs to be known by.
        fn encode(self, seconds: u32) -> Vec<u8> {
            let at = NOW.as_millis() + i64::from(seconds) * 1000;
            match self {
                Clock::Native => at.to_string().into_bytes(),
                Clock::X => (at / 1000).to_string().into_bytes(),
                Clock::Tiered | Clock::QuafkaPublished => {
                    let (minutes, seconds) = (13 + (seconds + 20) / 60 % 46, (seconds + 20) % 60);
                    format!("2023-11-14T22:{minutes:02}:{seconds:02}Z").into_bytes()
                }
                Clock::QuafkaSeconds => seconds.to_string().into_bytes(),
                Clock::Spring => at.to_be_bytes().to_vec(),
            }
        }

        /// What the format adds to the time in the header.
        fn extra(self) -> Duration {
            match self {
                Clock::Tiered | Clock::QuafkaPublished => TIER_DELAY,
                _ => Duration::ZERO,
            }
        }

        fn companions(self) -> Vec<Header<'static>> {
            match self {
                Clock::Tiered => vec![text("retry-total-attempts", "1")],
                Clock::QuafkaPublished => vec![text("X-DelaySeconds", "30")],
                _ => Vec::new(),
            }
        }

        /// Values that say a time, or try to, and cannot be read.
        fn garbage(self) -> Vec<Bytes> {
            let bytes = |list: &[&[u8]]| list.iter().map(|it| Some(it.to_vec())).collect();
            let mut garbage: Vec<Bytes> = match self {
                Clock::Native | Clock::X | Clock::QuafkaSeconds => bytes(&[
                    b"-1",
                    b"+1",
                    b"1.5",
                    b"1e10",
                    b"0x10",
                    b"soon",
                    b"1 2",
                    b"1\0",
                    "٣".as_bytes(),
                    b"99999999999999999999999999",
                    &[b'9'; 100],
                    YEAR_200000.to_string().as_bytes(),
                ]),
                Clock::Tiered | Clock::QuafkaPublished => bytes(&[
                    b"2023-11-14",
                    b"2023-11-14T22:13:20",
                    b"2023-13-14T22:13:20Z",
                    b"2023-11-31T22:13:20Z",
                    b"2023-11-14T24:13:20Z",
                    b"+200000-01-01T00:00:00Z",
                    b"200000-01-01T00:00:00Z",
                    b"-2023-11-14T22:13:20Z",
                    b"1969-12-31T23:59:59Z",
                    b"1700000030250",
                    b"tomorrow",
                ]),
                Clock::Spring => {
                    let mut list: Vec<Bytes> = bytes(&[&[0xFF], &[0; 9], b"\x80\0\0\0\0\0"]);
                    for number in [-1, i64::MAX, i64::MIN, YEAR_200000] {
                        list.push(Some(number.to_be_bytes().to_vec()));
                    }
                    list
                }
            };
            garbage.extend([None, Some(Vec::new()), Some(b"\xff\xfe\xfd\xff".to_vec())]);
            garbage
        }
    }

    fn due(clock: Clock, values: &[Bytes]) -> Due {
        let named = |it: &'_ Bytes| (clock.name().to_owned(), it.clone());
        let headers: Owned = values.iter().map(named).collect();
        let mut headers = view(&headers);
        headers.extend(clock.companions());
        let place = tier(TIER_DELAY);
        let configured = headers::read(&headers, None, &context(place, clock.dialect())).due;
        let other = headers::read(&headers, None, &context(place, Dialect::Native)).due;
        assert_eq!(configured, other, "which dialect the flow writes must not matter here");
        configured
    }

    #[test]
    fn one_that_cannot_be_read_is_told_by_its_name() {
        for clock in Clock::ALL {
            for value in clock.garbage() {
                let read = due(clock, std::slice::from_ref(&value));
                assert_eq!(read, Due::Unreadable(clock.name()), "{clock:?}: {value:?}");
            }
        }
    }

    /// Which of two is meant nobody knows: the later one is never early.
    #[test]
    fn of_several_the_latest_counts() {
        for clock in Clock::ALL {
            let values: Vec<_> = [60, 5, 600, 61].map(|it| Some(clock.encode(it))).into();
            let expected = NOW.after(Duration::from_secs(600)).after(clock.extra());
            assert_eq!(due(clock, &values), Due::At(expected), "{clock:?}");
        }
    }

    proptest! {
        #[test]
        fn one_that_cannot_be_read_is_not_outvoted(
            clock in select(Clock::ALL.to_vec()),
            seconds in vec(1..600u32, 0..4),
            garbage in any::<prop::sample::Index>(),
            at in any::<prop::sample::Index>(),
        ) {
            let mut values: Vec<_> = seconds.iter().map(|it| Some(clock.encode(*it))).collect();
            let garbage = garbage.get(&clock.garbage()).clone();
            values.insert(at.index(values.len() + 1), garbage);
            prop_assert_eq!(due(clock, &values), Due::Unreadable(clock.name()));
        }

        #[test]
        fn never_earlier_than_any_readable_header_says(
            clock in select(Clock::ALL.to_vec()),
            seconds in vec(1..600u32, 1..5),
            noise in any_headers(),
        ) {
            // Noise that is not about when to run: names of no format.
            let values: Vec<_> = seconds.iter().map(|it| Some(clock.encode(*it))).collect();
            let named = values.into_iter().map(|it| (clock.name().to_owned(), it));
            let noise = noise.into_iter().map(|(name, value)| (format!("my-{name}"), value));
            let headers: Owned = noise.chain(named).collect();
            let mut headers = view(&headers);
            headers.extend(clock.companions());
            let latest = seconds.iter().max().map_or(0, |it| u64::from(*it));
            let expected = NOW.after(Duration::from_secs(latest)).after(clock.extra());
            let context = context(tier(TIER_DELAY), clock.dialect());
            prop_assert_eq!(headers::read(&headers, None, &context).due, Due::At(expected));
        }

        /// Counts and all the rest may be as they like: they do not move the due time.
        #[test]
        fn no_other_native_header_lets_a_record_run_earlier(
            others in any_headers(),
            seconds in 1..1_000_000_000u64,
        ) {
            let at = NOW.after(Duration::from_secs(seconds));
            let mut headers: Owned =
                others.into_iter().filter(|it| it.0 != "redrive-due").collect();
            headers.push(("redrive-due".to_owned(), Some(at.to_string().into_bytes())));
            match read_tier(&view(&headers), Dialect::Native).due {
                Due::At(read) => prop_assert_eq!(read, at),
                Due::Unreadable(name) => prop_assert_eq!(name, "redrive-version"),
                Due::Now => prop_assert!(false, "{:?} runs at once", headers),
            }
        }
    }

    #[test]
    fn a_newer_or_broken_version_must_not_run() {
        for version in ["2", "0", "10", "-1", "", "1.0", "one", "99999999999999999999"] {
            let headers = [text("redrive-version", version), text("redrive-due", "1")];
            let reading = read_tier(&headers, Dialect::Native);
            assert_eq!(reading.due, Due::Unreadable("redrive-version"), "{version}");
            assert_eq!(reading.unreadable, Some("redrive-version"), "{version}");
        }
        let both = [text("redrive-version", "1"), text("redrive-version", "2")];
        let reading = read_tier(&both, Dialect::Native);
        assert_eq!(reading.due, Due::Unreadable("redrive-version"));
    }

    #[test]
    fn a_delay_of_more_than_a_thousand_years_cannot_be_read() {
        for (seconds, readable) in [
            ("31557600000", true),
            ("31557600001", false),
            ("18446744073709551615", false),
            ("18446744073709551616", false),
        ] {
            let headers = [text("X-RetryAttempts", "1"), text("X-DelaySeconds", seconds)];
            let due = read_tier(&headers, Dialect::Quafka).due;
            assert_eq!(matches!(due, Due::At(_)), readable, "{seconds}: {due:?}");
            assert_eq!(due == Due::Unreadable("X-DelaySeconds"), !readable, "{seconds}: {due:?}");
        }
    }

    #[test]
    fn the_last_moment_of_the_year_9999_plus_a_delay_is_still_readable() {
        let headers = [
            text("retry-total-attempts", "1"),
            text("retry-timestamp", "9999-12-31T23:59:59.999Z"),
        ];
        let context = context(tier(Duration::MAX), Dialect::Tiered);
        assert_eq!(headers::read(&headers, None, &context).due, Due::At(MAX_TIMESTAMP));
    }

    /// The reader of a dead-letter topic wants to know which header it was.
    #[test]
    fn an_unreadable_due_is_among_what_could_not_be_read() {
        for clock in Clock::ALL {
            let mut headers = vec![text(clock.name(), "not a time")];
            headers.extend(clock.companions());
            let reading =
                headers::read(&headers, None, &context(tier(TIER_DELAY), clock.dialect()));
            assert_eq!(reading.unreadable, Some(clock.name()));
        }
    }

    /// Kafka's word for a record without a timestamp is -1: nobody knows what the delay counts from.
    #[test]
    fn a_delay_that_counts_from_nowhere_must_not_run() {
        let headers = [text("X-RetryAttempts", "1"), text("X-DelaySeconds", "30")];
        let timestamp = Timestamp::from_millis(-1);
        let context = ReadContext { timestamp, ..context(tier(TIER_DELAY), Dialect::Quafka) };
        let due = headers::read(&headers, None, &context).due;
        assert!(matches!(due, Due::Unreadable(_)), "{due:?}");
    }

    /// A time alone is known by its name just as well as with counts beside it.
    #[test]
    fn a_tiered_time_without_counts_holds_the_record_back() {
        let headers = [text("retry-timestamp", "2023-11-14T22:13:20Z")];
        let context = context(tier(TIER_DELAY), Dialect::Tiered);
        assert_eq!(headers::read(&headers, None, &context).due, Due::At(NOW.after(TIER_DELAY)));
    }
}

mod counts {
    use super::*;

    /// The counts of each format that can be read on their own.
    const COUNTS: [(&str, Dialect); 6] = [
        ("redrive-overall-attempts", Dialect::Native),
        ("x-retry-attempt", Dialect::X),
        ("retry-total-attempts", Dialect::Tiered),
        ("X-OverallRetryAttempts", Dialect::Quafka),
        ("X-RetryAttempts", Dialect::Quafka),
        ("retry_topic-attempts", Dialect::Spring),
    ];

    fn garbage() -> Vec<Bytes> {
        let texts = ["-1", "+1", "1.5", "", " ", "one", "0x1", "1e1", "1\0", "٣"];
        let mut garbage: Vec<_> = texts.map(|it| Some(it.as_bytes().to_vec())).into();
        // Spring's counts have one byte or four, and are positive.
        garbage.retain(|it| !it.as_ref().is_some_and(|it| matches!(it.len(), 1 | 4)));
        garbage.extend([None, Some(vec![0xFF; 4]), Some(vec![0; 4]), Some(vec![b'9'; 100])]);
        garbage
    }

    #[test]
    fn counts_that_cannot_be_read_are_a_first_attempt() {
        for (name, dialect) in COUNTS {
            for value in garbage() {
                let headers = [Header { name, value: value.as_deref() }];
                for configured in [dialect, Dialect::Native] {
                    let reading = read_tier(&headers, configured);
                    let first = RetryState { tier: Some(0), ..RetryState::default() };
                    assert_eq!(reading.state, first, "{name}: {value:?}");
                    assert_eq!(reading.unreadable, Some(name), "{name}: {value:?}");
                    assert_eq!(reading.due, Due::Now, "{name}: {value:?}");
                }
            }
        }
    }

    /// Too large to hold is as large as can be: caps are reached, not missed.
    #[test]
    fn huge_counts_saturate() {
        for (name, dialect) in COUNTS.into_iter().filter(|it| it.1 != Dialect::Spring) {
            for value in ["4294967295", "4294967296", "18446744073709551616", &"9".repeat(60)] {
                let headers = [text(name, value)];
                let reading = read_tier(&headers, dialect);
                assert_eq!(reading.state.overall, u32::MAX, "{name}: {value}");
            }
        }
        let headers = [Header::new("retry_topic-attempts", b"\x7f\xff\xff\xff")];
        assert_eq!(read_tier(&headers, Dialect::Spring).state.overall, 2_147_483_646);
    }

    #[test]
    fn of_several_the_highest_counts() {
        for (name, dialect) in COUNTS.into_iter().filter(|it| it.1 != Dialect::Spring) {
            let headers = [text(name, "3"), text(name, "7"), text(name, "5")];
            assert_eq!(read_tier(&headers, dialect).state.overall, 7, "{name}");
        }
    }

    #[test]
    fn what_is_broken_beside_the_counts_is_named_and_left_out() {
        for name in [
            "redrive-origin-partition",
            "redrive-origin-offset",
            "redrive-origin-timestamp",
            "redrive-origin-topic",
            "redrive-policy",
            "redrive-policy-attempts",
            "redrive-tier",
            "redrive-tier-attempts",
            "redrive-hop",
            "redrive-epoch",
            "redrive-redriven",
            "redrive-first-failed-at",
        ] {
            let headers = [
                text("redrive-overall-attempts", "3"),
                text("redrive-due", "1700000030250"),
                Header::new(name, b"\xff"),
            ];
            let reading = headers::read(&headers, None, &context(Place::Retry, Dialect::Native));
            let expected = Reading {
                state: RetryState { overall: 3, ..RetryState::default() },
                due: Due::At(Timestamp::from_millis(1_700_000_030_250)),
                is_dated: true,
                format: Some(Dialect::Native),
                unreadable: Some(name),
                ..Reading::default()
            };
            assert_eq!(reading, expected);
        }
    }

    /// Half of one origin and half of another is a third record that does not exist.
    #[test]
    fn two_origins_are_never_mixed_into_a_third() {
        let number = |number: i64| number.to_be_bytes();
        let (first, second) = (number(42), number(7));
        let native = vec![
            text("redrive-origin-topic", "orders"),
            text("redrive-origin-partition", "3"),
            text("redrive-origin-offset", "42"),
            text("redrive-origin-topic", "orders.retry"),
            text("redrive-origin-partition", "3"),
            text("redrive-origin-offset", "7"),
        ];
        let quafka = vec![
            text("X-RetryAttempts", "1"),
            text("X-OriginalTopic", "orders"),
            text("X-OriginalPartition", "3"),
            text("X-OriginalOffset", "42"),
            text("X-OriginalTopic", "orders.retry"),
            text("X-OriginalPartition", "3"),
            text("X-OriginalOffset", "7"),
        ];
        let spring = vec![
            Header::new("retry_topic-attempts", b"\0\0\0\x02"),
            text("kafka_original-topic", "orders"),
            Header::new("kafka_original-partition", b"\0\0\0\x03"),
            Header::new("kafka_original-offset", &first),
            text("kafka_original-topic", "orders.retry"),
            Header::new("kafka_original-partition", b"\0\0\0\x03"),
            Header::new("kafka_original-offset", &second),
        ];
        let other = Origin { topic: "orders.retry", partition: 3, offset: 7 };
        for headers in [native, quafka, spring] {
            let origin = read_tier(&headers, Dialect::Native).origin;
            let is_real = origin.is_none_or(|it| it == ORIGIN || it == other);
            assert!(is_real, "{origin:?} from {}", headers[0].name);
        }
    }

    /// As an epoch it would void every copy of every later owner.
    #[test]
    fn an_epoch_too_large_to_hold_cannot_be_read() {
        let headers = [text("redrive-epoch", "99999999999999999999999")];
        let reading = read_tier(&headers, Dialect::Native);
        assert_eq!((reading.epoch, reading.unreadable), (None, Some("redrive-epoch")));
    }

    /// A record that is settled as another group's is gone: what names no group must not be.
    #[test]
    fn a_group_header_without_a_value_names_no_other_group() {
        let headers =
            [Header { name: "redrive-group", value: None }, text("redrive-overall-attempts", "1")];
        assert_eq!(read_tier(&headers, Dialect::Native).owner, Owner::Us);
    }
}

mod never_for_ever {
    use super::*;

    const CAP: u32 = 12;

    fn flows() -> Vec<Flow> {
        let tiers =
            || vec![Tier::new("t1", Duration::from_secs(1)), Tier::new("t2", Duration::ZERO)];
        let endless = || Tier::endless("orders.retry");
        let layouts = [
            Layout::Single(endless()),
            Layout::Tiers(tiers()),
            Layout::DelayThenRetry { delays: tiers(), retry: "orders.retry".into() },
            Layout::BackToSource(endless()),
        ];
        // No policy has a cap of its own, so that only the overall one ends it.
        let walking = Policy::built_in();
        let backing_off = Policy::built_in()
            .with_in_memory(InMemory::attempts(1))
            .with_delayed(Delayed::default().with_backoff(Backoff::Fixed(Duration::ZERO)));
        let flow = |layout: &Layout, policy: &Policy| {
            Flow::new("orders")
                .with_strategy(layout.clone())
                .with_default(policy.clone())
                .with_max_overall_attempts(CAP)
        };
        let all = layouts.iter();
        all.flat_map(|it| [flow(it, &walking), flow(it, &backing_off)]).collect()
    }

    /// Where the record is taken from after a publish to this tier, and where a relay moved it
    /// first.
    fn next_place(flow: &Flow, index: u32) -> Place<'_> {
        match flow.strategy() {
            Layout::DelayThenRetry { .. } => Place::Retry,
            Layout::BackToSource(_) => Place::ReturnedToSource { topic: flow.source() },
            layout => {
                let tier = usize::try_from(index).ok().and_then(|it| layout.tiers().get(it));
                Place::Tier { index, delay: tier.and_then(|it| it.delay) }
            }
        }
    }

    /// The failed runs of one delivery until it is published or ends.
    fn decide<'a>(
        flow: &'a Flow,
        state: &'a RetryState<'a>,
        failure: &'a Failure,
        now: Timestamp,
    ) -> (RetryState<'a>, Action<'a>) {
        let mut in_place = InPlace::default();
        for _ in 0..=10 {
            let delivery = Delivery { record: RecordView::default(), state, in_place };
            let verdict = flow.decide(&delivery, &Incident::from(failure), now, Draw::Seed(1));
            match verdict.action {
                Action::RunAgain { in_place: next, .. } => in_place = next,
                action => return (verdict.state, action),
            }
        }
        unreachable!("runs in place never end");
    }

    /// Fails the record until it is a dead letter, with a new kind of failure each time, and says
    /// how many hops that took.
    fn hops_until_dead(
        flow: &Flow,
        dialect: Dialect,
        start: Place<'static>,
        mut headers: Owned,
        mut value: Bytes,
    ) -> Result<(u32, Reason), TestCaseError> {
        let mut place: Place<'_> = start;
        let mut last = None;
        for hop in 0..=CAP + 1 {
            let view = view(&headers);
            let reading = headers::read(&view, value.as_deref(), &context(place, dialect));
            if let Some(last) = last {
                prop_assert_eq!(reading.state.overall, last, "the count that was written");
            }
            let now = match reading.due {
                Due::Now => NOW,
                Due::At(due) => due.max(NOW),
                Due::Unreadable(_) => {
                    prop_assert_eq!(hop, 0, "what a hop wrote can be read");
                    return Ok((hop, Reason::Header));
                }
            };
            let failure = Failure::of_type(format!("shop::Error{hop}"));
            let (state, action) = decide(flow, &reading.state, &failure, now);
            let due = match action {
                Action::Publish { due, .. } => due,
                Action::DeadLetter { reason, .. } => return Ok((hop, reason)),
                other => return Err(TestCaseError::fail(format!("{other:?}"))),
            };
            prop_assert!(due >= now);
            prop_assert_eq!(state.overall, reading.state.overall + 1, "each hop counts");
            last = Some(state.overall);
            let index = state.tier.unwrap_or(0);
            let stamp = Stamp {
                hop: hop + 1,
                failure: Some(Failed { failure: &failure, at: now }),
                now,
                ..stamp(&state, due)
            };
            let written = owned(&headers::write(&view, &stamp, dialect));
            if let Some(changed) = headers::write_value(value.as_deref(), &stamp, dialect) {
                value = Some(changed);
            }
            headers = written;
            place = next_place(flow, index);
        }
        Err(TestCaseError::fail("the record is still under way"))
    }

    #[test]
    fn a_clean_record_takes_the_whole_cap_where_nothing_else_ends_it() {
        for (flow, backs_off) in flows().iter().zip([false, true].into_iter().cycle()) {
            for dialect in Dialect::ALL {
                let walks =
                    matches!(flow.strategy(), Layout::Tiers(_) | Layout::DelayThenRetry { .. });
                let expected = if walks && !backs_off {
                    (2, Reason::Attempts)
                } else {
                    (CAP, Reason::Overall)
                };
                let start = Place::Source;
                let end = hops_until_dead(flow, dialect, start, Owned::new(), None).unwrap();
                assert_eq!(end, expected, "{dialect}: {:?}", flow.strategy());
            }
        }
    }

    proptest! {
        #[test]
        fn hostile_headers_end_as_a_dead_letter_within_the_overall_cap(
            headers in any_headers(),
            value in any_value(),
            dialect in any_dialect(),
            start in any_place(),
            flow in select(flows()),
        ) {
            let (hops, _) = hops_until_dead(&flow, dialect, start, headers, value)?;
            prop_assert!(hops <= CAP);
        }
    }
}

mod payloads {
    use super::*;

    const DUE: Timestamp = Timestamp::from_millis(1_700_000_030_250);

    fn rewrite(value: &[u8]) -> Option<Vec<u8>> {
        let state = RetryState { overall: 4, ..RetryState::default() };
        headers::write_value(Some(value), &stamp(&state, DUE), Dialect::Payload)
    }

    fn read(value: &[u8]) -> Reading<'static> {
        headers::read(&[], Some(value), &context(tier(Duration::ZERO), Dialect::Payload))
    }

    #[track_caller]
    fn assert_rewritten(before: &str, after: &str) {
        let written =
            rewrite(before.as_bytes()).map(|it| String::from_utf8_lossy(&it).into_owned());
        assert_eq!(written.as_deref(), Some(after));
    }

    #[test]
    fn only_the_two_fields_change() {
        assert_rewritten(
            "\t{ \"a\" : 1.50 ,\r\n\"process_at\" :  1620001000  ,\"retry_count\":0 , \"b\":[ ] }\n",
            "\t{ \"a\" : 1.50 ,\r\n\"process_at\" :  1700000031  ,\"retry_count\":4 , \"b\":[ ] }\n",
        );
    }

    #[test]
    fn whatever_the_fields_held_is_replaced() {
        for held in ["null", "\"soon\"", "[1,{\"x\":\"]\"}]", "{\"y\":{}}", "-1.5e+10", "true"] {
            assert_rewritten(
                &format!("{{\"process_at\":{held},\"retry_count\":{held}}}"),
                "{\"process_at\":1700000031,\"retry_count\":4}",
            );
        }
    }

    #[test]
    fn missing_fields_are_added_after_the_last() {
        assert_rewritten("{}", "{\"process_at\":1700000031,\"retry_count\":4}");
        assert_rewritten("{ }\n", "{\"process_at\":1700000031,\"retry_count\":4 }\n");
        assert_rewritten("{\"a\":{} }", "{\"a\":{},\"process_at\":1700000031,\"retry_count\":4 }");
        assert_rewritten(
            "{\"retry_count\":0,\"a\":1}",
            "{\"retry_count\":4,\"a\":1,\"process_at\":1700000031}",
        );
        assert_rewritten("{\"process_at\":0}", "{\"process_at\":1700000031,\"retry_count\":4}");
    }

    #[test]
    fn the_same_names_elsewhere_are_not_touched() {
        let inner = "\"in\":{\"process_at\":1,\"retry_count\":9},\"list\":[{\"process_at\":1}],\
                     \"text\":\"\\\"process_at\\\":1\",\"Process_At\":1,\"process_at \":1,\"\":1";
        assert_rewritten(
            &format!("{{{inner},\"process_at\":1,\"retry_count\":9}}"),
            &format!("{{{inner},\"process_at\":1700000031,\"retry_count\":4}}"),
        );
        assert_rewritten(
            &format!("{{{inner}}}"),
            &format!("{{{inner},\"process_at\":1700000031,\"retry_count\":4}}"),
        );
        assert_eq!(read(format!("{{{inner}}}").as_bytes()).format, None);
    }

    #[test]
    fn escaped_keys_are_the_same_keys() {
        assert_rewritten(
            "{\"\\u0070rocess_at\":1,\"retry\\u005Fcount\":0}",
            "{\"\\u0070rocess_at\":1700000031,\"retry\\u005Fcount\":4}",
        );
        assert_rewritten(
            "{\"\\u0070\\u0072ocess\\u005fat\":1,\"retry_coun\\u0074\":0,\"\\\\u0070rocess_at\":1}",
            "{\"\\u0070\\u0072ocess\\u005fat\":1700000031,\"retry_coun\\u0074\":4,\
             \"\\\\u0070rocess_at\":1}",
        );
        let reading = read(b"{\"\\u0070rocess_at\":1620001000,\"retry\\u005Fcount\":2}");
        assert_eq!(reading.due, Due::At(Timestamp::from_millis(1_620_001_000_000)));
        assert_eq!(reading.state.overall, 2);
    }

    #[test]
    fn a_field_that_is_there_twice_is_rewritten_twice() {
        assert_rewritten(
            "{\"process_at\":1,\"retry_count\":0,\"process_at\":2}",
            "{\"process_at\":1700000031,\"retry_count\":4,\"process_at\":1700000031}",
        );
    }

    #[test]
    fn what_is_no_object_is_left_alone() {
        for value in [
            "",
            " ",
            "null",
            "7",
            "\"{}\"",
            "[]",
            "[{\"process_at\":1,\"retry_count\":0}]",
            "{",
            "{}}",
            "{}{}",
            "{} x",
            "{\"process_at\"}",
            "{\"process_at\":}",
            "{\"process_at\":1,}",
            "{,\"process_at\":1}",
            "{\"process_at\":1 \"retry_count\":0}",
            "{\"process_at\":1,\"retry_count\":0",
            "{process_at:1,retry_count:0}",
            "{'process_at':1,'retry_count':0}",
            "{\"process_at\":1,\"retry_count\":\"0}",
            "{\"process_at\":1,\"retry_count\":\"0\\",
            "{\"process_at\":1,\"retry_count\":[{]",
            "\u{feff}{\"process_at\":1,\"retry_count\":0}",
            "{/* why */\"process_at\":1,\"retry_count\":0}",
        ] {
            assert_eq!(rewrite(value.as_bytes()), None, "{value}");
            assert_eq!(read(value.as_bytes()).format, None, "{value}");
        }
    }

    #[test]
    fn deep_nesting_is_no_deep_recursion() {
        let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
        assert_rewritten(
            &format!("{{\"a\":{deep},\"retry_count\":0,\"process_at\":1}}"),
            &format!("{{\"a\":{deep},\"retry_count\":4,\"process_at\":1700000031}}"),
        );
    }

    #[test]
    fn a_time_that_is_no_time_must_not_run() {
        for held in [
            "-1",
            "-0.5",
            "\"1620001000\"",
            "\"\"",
            "true",
            "false",
            "[]",
            "{}",
            "1e400",
            "1e300",
            "6249223180800000",
            "99999999999999999999999",
            "12abc",
            "1..2",
            "nan",
            "inf",
        ] {
            let value = format!("{{\"process_at\":{held},\"retry_count\":1}}");
            let reading = read(value.as_bytes());
            assert_eq!(reading.due, Due::Unreadable("process_at"), "{held}");
            assert_eq!(reading.state.overall, 1, "{held}");
        }
    }

    #[test]
    fn fractions_of_a_second_are_rounded_up() {
        for (held, least) in [
            ("1620001000.0", 1_620_001_000_000),
            ("1620001000.001", 1_620_001_000_001),
            ("1620001000.999", 1_620_001_000_999),
            ("1.620001e9", 1_620_001_000_000),
            ("1620001000123.4", 1_620_001_000_124),
            ("0.5", 500),
        ] {
            let value = format!("{{\"process_at\":{held},\"retry_count\":1}}");
            let Due::At(due) = read(value.as_bytes()).due else { panic!("{held} is not read") };
            let late = due.as_millis() - least;
            assert!((0..1000).contains(&late), "{held}: {late} ms late");
        }
    }

    #[test]
    fn a_fraction_below_the_border_to_milliseconds_does_not_fall_back_to_1973() {
        let value = b"{\"process_at\":99999999999.5,\"retry_count\":1}";
        let late_enough = match read(value).due {
            Due::At(due) => due.as_millis() >= 99_999_999_999_500,
            Due::Unreadable(_) => true,
            Due::Now => false,
        };
        assert!(late_enough, "{:?}", read(value).due);
    }

    #[test]
    fn a_count_that_is_no_count_is_a_first_attempt() {
        for held in ["-1", "1.5", "\"3\"", "true", "[]", "{}", "1e2"] {
            let value = format!("{{\"process_at\":1620001000,\"retry_count\":{held}}}");
            let reading = read(value.as_bytes());
            assert_eq!(reading.state.overall, 0, "{held}");
            assert_eq!(reading.unreadable, Some("retry_count"), "{held}");
            assert_eq!(reading.due, Due::At(Timestamp::from_millis(1_620_001_000_000)), "{held}");
        }
        let huge = read(b"{\"process_at\":1,\"retry_count\":99999999999999999999999}");
        assert_eq!(huge.state.overall, u32::MAX);
    }

    /// A count of the wrong type is a first attempt; it must not take the time with it.
    #[test]
    fn a_missing_count_does_not_let_a_record_of_a_payload_flow_run_early() {
        for value in
            ["{\"process_at\":1800000000,\"retry_count\":null}", "{\"process_at\":1800000000}"]
        {
            let due = read(value.as_bytes()).due;
            assert_eq!(due, Due::At(Timestamp::from_millis(1_800_000_000_000)), "{value}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>()
                .prop_filter("JSON has no such number", |it| it.is_finite())
                .prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Value::from),
                vec((any_key(), inner), 0..4)
                    .prop_map(|it| Value::Object(it.into_iter().collect())),
            ]
        })
    }

    fn any_key() -> impl Strategy<Value = String> {
        prop_oneof![
            select(vec!["process_at", "retry_count", "created_at"]).prop_map(str::to_owned),
            ".{0,6}",
        ]
    }

    fn any_object() -> impl Strategy<Value = Map<String, Value>> {
        vec((any_key(), any_json()), 0..6).prop_map(|it| it.into_iter().collect())
    }

    proptest! {
        #[test]
        fn every_other_field_stays_as_it_was(object in any_object(), pretty in any::<bool>()) {
            let print = if pretty { serde_json::to_vec_pretty } else { serde_json::to_vec };
            let before = print(&object).unwrap();
            let after: Map<String, Value> =
                serde_json::from_slice(&rewrite(&before).unwrap()).unwrap();
            let mut expected: Map<String, Value> = serde_json::from_slice(&before).unwrap();
            expected.insert("process_at".to_owned(), Value::from(1_700_000_031));
            expected.insert("retry_count".to_owned(), Value::from(4));
            // In this order, too.
            prop_assert_eq!(
                serde_json::to_string(&after).unwrap(),
                serde_json::to_string(&expected).unwrap()
            );
        }

        #[test]
        fn every_other_byte_stays_as_it_was(
            before in any_object(),
            between in any_object(),
            space in "[ \t\r\n]{0,3}",
            held in any_json(),
            count_first in any::<bool>(),
        ) {
            let fields = |object: &Map<String, Value>| {
                let is_ours = |key: &str| ["process_at", "retry_count"].contains(&key);
                let others = object.iter().filter(|it| !is_ours(it.0));
                let field = |(key, value): (&String, &Value)| {
                    format!("{space}{}{space}:{value},", Value::from(key.as_str()))
                };
                others.map(field).collect::<String>()
            };
            let (first, second) = match count_first {
                true => ("retry_count", "process_at"),
                false => ("process_at", "retry_count"),
            };
            let build = |held: [&str; 2]| {
                format!(
                    "{space}{{{}\"{first}\"{space}:{space}{}{space},{}\"{second}\":{}{space}}}{space}",
                    fields(&before), held[0], fields(&between), held[1],
                )
            };
            let held = held.to_string();
            let written = if count_first { ["4", "1700000031"] } else { ["1700000031", "4"] };
            assert_rewritten(&build([&held, &held]), &build(written));
        }

        #[test]
        fn an_object_is_always_rewritten_and_what_was_written_is_read(value in json_like()) {
            let is_object = serde_json::from_slice::<Map<String, Value>>(&value).is_ok();
            let written = rewrite(&value);
            prop_assert!(written.is_some() || !is_object);
            if let Some(written) = written {
                let reading = read(&written);
                prop_assert_eq!(reading.due, Due::At(Timestamp::from_millis(1_700_000_031_000)));
                prop_assert_eq!((reading.state.overall, reading.unreadable), (4, None));
                prop_assert_eq!(rewrite(&written), Some(written), "a second time changes nothing");
            }
        }

        /// A rewritten object is an object again.
        #[test]
        fn json_stays_json(value in json_like()) {
            if serde_json::from_slice::<Map<String, Value>>(&value).is_ok() {
                let written = rewrite(&value).unwrap();
                prop_assert!(serde_json::from_slice::<Map<String, Value>>(&written).is_ok());
            }
        }
    }
}
