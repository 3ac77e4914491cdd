//! What a failed run costs before Kafka is asked for anything: headers read, verdict, headers
//! written. All of it together is to stay under 2 µs.

#![expect(clippy::unwrap_used, reason = "the sample flow's identifier is right")]

#[path = "../tests/sample/mod.rs"]
mod sample;

use std::hint::black_box;

use criterion::Criterion;
use redrive_core::headers::{self, Dialect, Header};
use redrive_core::{
    Action, Delivery, Draw, Failure, Flow, InPlace, Incident, Kind, RecordView, RetryState,
    Timestamp, Verdict,
};

fn decide<'a>(
    flow: &'a Flow,
    headers: &'a [Header<'a>],
    state: &'a RetryState<'a>,
    failure: &'a Failure,
    seed: u64,
) -> Verdict<'a> {
    let record = RecordView { topic: "orders.retry.30s", headers, ..RecordView::default() };
    let delivery = Delivery { record, state, in_place: InPlace::default() };
    flow.decide(&delivery, &Incident::from(failure), sample::NOW, Draw::Seed(seed))
}

fn due(verdict: &Verdict<'_>) -> Timestamp {
    match verdict.action {
        Action::Publish { due, .. } => due,
        _ => unreachable!("the sample's failures are published"),
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let flow = sample::flow();
    let context = sample::context();
    let timeout = Failure::of_kind(Kind::TIMEOUT).with_message("no answer within 10 s");
    let unavailable = Failure::of_status(503).with_message("upstream answered 503");
    for (name, policy, failure) in [
        ("walking the tiers", "Slow", timeout),
        ("made identifier and backoff", "ServerError-503", unavailable),
    ] {
        let headers = sample::headers(policy);
        let reading = headers::read(&headers, None, &context);
        let verdict = decide(&flow, &headers, &reading.state, &failure, 7);
        let mut group = criterion.benchmark_group(name);
        group.bench_function("read", |bencher| {
            bencher.iter(|| headers::read(black_box(&headers), None, &context));
        });
        group.bench_function("decide", |bencher| {
            bencher.iter(|| decide(&flow, &headers, black_box(&reading.state), &failure, 7));
        });
        group.bench_function("write", |bencher| {
            let stamp = sample::stamp(&verdict.state, &failure, due(&verdict));
            bencher.iter(|| headers::write(black_box(&headers), &stamp, Dialect::Native));
        });
        group.bench_function("read, decide, write", |bencher| {
            bencher.iter(|| {
                let reading = headers::read(black_box(&headers), None, &context);
                let verdict = decide(&flow, &headers, &reading.state, &failure, 7);
                let stamp = sample::stamp(&verdict.state, &failure, due(&verdict));
                headers::write(&headers, &stamp, Dialect::Native).len()
            });
        });
        group.finish();
    }
    criterion.final_summary();
}
