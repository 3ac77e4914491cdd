//! A verdict allocates only for what it returns, and a success nothing at all.

#![expect(clippy::unwrap_used, reason = "the sample flow's identifier is right")]

mod sample;

use std::hint::black_box;
use std::time::Duration;

use allocation_counter::measure;
use redrive_core::headers::{self, Dialect, Due};
use redrive_core::lane::{
    Action as LaneAction, Assigned, Fate, Item, Lane, LaneConfig, LaneKind, Slots,
};
use redrive_core::{
    Action, Delivery, Draw, Failure, InPlace, Incident, Kind, Reason, RecordView, RetryState,
    Timestamp,
};

/// How many allocations `work` makes.
fn allocations(work: impl FnOnce()) -> u64 {
    measure(work).count_total
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(black_box(Vec::<u8>::with_capacity(8)))), 1);
    assert_eq!(allocations(|| ()), 0);
}

#[test]
fn reading_a_native_record_allocates_nothing() {
    let (headers, context) = (sample::headers("Slow"), sample::context());
    let mut reading = None;
    let count = allocations(|| reading = Some(headers::read(&headers, None, &context)));
    assert_eq!(count, 0);
    let reading = reading.unwrap();
    assert_eq!((reading.state.overall, reading.state.tier_attempts), (1, 1));
    assert!(matches!(reading.due, Due::At(_)));
}

#[test]
fn deciding_under_a_static_identifier_allocates_nothing() {
    let (flow, headers) = (sample::flow(), sample::headers("Slow"));
    let reading = headers::read(&headers, None, &sample::context());
    let record = RecordView { topic: "orders.retry.30s", headers: &headers, ..Default::default() };
    let delivery = Delivery { record, state: &reading.state, in_place: InPlace::default() };
    for failure in [
        Failure::of_kind(Kind::TIMEOUT),
        Failure::of_status(429).with_retry_after(Duration::from_secs(90)),
        Failure::of_status(404),
        Failure::of_type("billing::Unforeseen<u8>"),
        Failure::of_kind(Kind::DECODE),
    ] {
        let incident = Incident::from(&failure);
        let count = allocations(|| {
            black_box(flow.decide(&delivery, &incident, sample::NOW, Draw::Seed(5)));
        });
        assert_eq!(count, 0, "{failure:?}");
    }
}

#[test]
fn deciding_under_a_made_identifier_allocates_that_identifier_alone() {
    let flow = sample::flow();
    let state = RetryState::default();
    let record = RecordView::default();
    let delivery = Delivery { record, state: &state, in_place: InPlace::default() };
    let failure = Failure::of_status(503);
    let incident = Incident::from(&failure);
    let count = allocations(|| {
        black_box(flow.decide(&delivery, &incident, sample::NOW, Draw::Seed(5)));
    });
    assert_eq!(count, 1);
}

/// A list of headers and a buffer for their values.
#[test]
fn writing_allocates_twice() {
    let (flow, headers) = (sample::flow(), sample::headers("Slow"));
    let reading = headers::read(&headers, None, &sample::context());
    let record = RecordView { headers: &headers, ..Default::default() };
    let delivery = Delivery { record, state: &reading.state, in_place: InPlace::default() };
    let failure = Failure::of_kind(Kind::TIMEOUT).with_message("no answer within 10 s");
    let verdict = flow.decide(&delivery, &Incident::from(&failure), sample::NOW, Draw::Seed(5));
    let Action::Publish { due, .. } = verdict.action else { panic!("{:?}", verdict.action) };
    let stamp = sample::stamp(&verdict.state, &failure, due);
    for dialect in [Dialect::Native, Dialect::X, Dialect::Tiered, Dialect::Spring] {
        let mut block = None;
        let count = allocations(|| block = Some(headers::write(&headers, &stamp, dialect)));
        assert!(count <= 2, "{count} allocations for {dialect}");
        assert!(block.unwrap().len() > headers.len() - 3);
    }
}

#[test]
fn writing_a_dead_letter_allocates_twice() {
    let headers = sample::headers("Slow");
    let reading = headers::read(&headers, None, &sample::context());
    let failure = Failure::of_status(404).with_message("no such order");
    let mut stamp = sample::stamp(&reading.state, &failure, sample::NOW);
    stamp.stop = headers::Stop::DeadLetter { reason: Reason::Policy, follows: None };
    let count = allocations(|| {
        black_box(headers::write(&headers, &stamp, Dialect::Native));
    });
    assert!(count <= 2, "{count} allocations");
}

/// Records come and run; each succeeds when so many others have come.
#[test]
fn a_success_allocates_nothing() {
    for in_flight in [0, 100] {
        let config = LaneConfig::new(LaneKind::Source, "cluster-1");
        let start = Assigned { committed: None, metadata: "", log_start: 0, log_end: 0, start: 0 };
        let mut lane: Lane<i64, ()> =
            Lane::assigned(config, &start, sample::NOW, [], |_| None).unwrap();
        let mut slots = Slots::new(256);
        let mut run = |offset: i64| {
            let item = Item {
                offset,
                due: Timestamp::default(),
                is_dated: false,
                priority: 0,
                appended_at: sample::NOW,
                fate: Fate::Run,
                bytes: 100,
                payload: offset,
            };
            lane.fetched(item, sample::NOW, &mut slots);
            assert!(matches!(lane.next_action(), Some(LaneAction::Run { .. })));
            if offset >= in_flight {
                lane.succeeded(offset - in_flight, sample::NOW, &mut slots);
                assert_eq!(lane.next_action(), None);
            }
        };
        (0..1000).for_each(&mut run);
        assert_eq!(allocations(|| (1000..2000).for_each(&mut run)), 0, "{in_flight} in flight");
    }
}
