//! The listener as clients meet it, and what it says about a consumer that is made up.

#![expect(clippy::unwrap_used, reason = "what cannot be set up fails the test")]
#![expect(clippy::panic, reason = "what is not as expected fails the test")]

mod docs;
mod http;
mod page;
mod prometheus;
mod secrets;
mod traces;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::{
    FlowReport, FlowStatus, GroupReport, Histogram, PartitionReport, Reason, Report, Retried,
};
use redrive_admin::Watched;

/// A consumer that is made up.
#[derive(Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    report: Report,
    still: Vec<String>,
}

impl Fake {
    pub(crate) fn with(report: Report) -> Self {
        Self(Arc::new(Mutex::new(Inner { report, still: Vec::new() })))
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Report)) {
        change(&mut self.0.lock().unwrap().report);
    }

    pub(crate) fn stand_still(&self, groups: &[&str]) {
        self.0.lock().unwrap().still = groups.iter().map(|it| (*it).to_owned()).collect();
    }

    fn set(&self, flow: &str, is_paused: bool) -> bool {
        let mut inner = self.0.lock().unwrap();
        let found = inner.report.state.flows.iter_mut().find(|it| it.topic == flow);
        found.map(|it| it.is_paused = is_paused).is_some()
    }
}

impl Watched for Fake {
    fn report(&self) -> Report {
        self.0.lock().unwrap().report.clone()
    }

    fn standing_still(&self) -> Vec<String> {
        self.0.lock().unwrap().still.clone()
    }

    fn pause(&self, flow: &str) -> bool {
        self.set(flow, true)
    }

    fn resume(&self, flow: &str) -> bool {
        self.set(flow, false)
    }
}

fn histogram(counts: &[u64]) -> Histogram {
    let mut made = Histogram::default();
    made.bounds =
        vec![Duration::from_millis(1), Duration::from_millis(250), Duration::from_secs(60)];
    made.counts = counts.to_vec();
    made.sum = Duration::from_millis(1_500);
    made
}

fn partition(topic: &str, tier: &str, number: i32) -> PartitionReport {
    let mut made = PartitionReport::default();
    made.topic = topic.into();
    made.tier = tier.to_owned();
    made.partition = number;
    made.group = "billing".to_owned();
    (made.position, made.commit_point, made.end) = (70, 40, Some(100));
    (made.waiting, made.ready) = (5, 2);
    made.oldest = Some(Duration::from_secs(90 + u64::try_from(number).unwrap()));
    made.overdue = Some(Duration::from_millis(1_250));
    made
}

fn retried(topic: &str, tier: &str, policy: &str, count: u64) -> Retried {
    let mut made = Retried::default();
    (made.topic, made.policy) = (topic.into(), policy.into());
    (made.tier, made.count) = (tier.to_owned(), count);
    made
}

/// A report that has something of everything, with names that are hard on the format.
pub(crate) fn sample() -> Report {
    let mut report = Report::default();
    report.state.is_joined = true;
    report.state.partitions = 4;
    let mut group = GroupReport::default();
    (group.group, group.is_joined, group.partitions) = ("billing".to_owned(), true, 4);
    report.groups.push(group);
    for (index, topic) in ["orders", "refunds"].into_iter().enumerate() {
        let mut status = FlowStatus::default();
        status.topic = topic.to_owned();
        (status.runs, status.succeeded, status.failed) = (12, 7, 5);
        status.failed_last_minute = 3;
        let retry = format!("{topic}.retry");
        let mut flow = FlowReport::default();
        flow.topic = topic.to_owned();
        flow.concurrency = 16;
        flow.in_memory_retries = vec![retried(topic, "source", "Quick", 4)];
        flow.retries = vec![
            retried(&retry, "0", "back\\slash \"quoted\"\nline", 2),
            retried(&retry, "0", "größe", 1),
        ];
        flow.dead_letters =
            Reason::ALL.iter().map(|it| (*it, u64::try_from(index).unwrap())).collect();
        flow.dropped = Reason::ALL.iter().map(|it| (*it, 0)).collect();
        flow.run_time = histogram(&[4, 3, 0, 5]);
        flow.lateness = histogram(&[1, 0, 0, 0]);
        flow.partitions = vec![
            partition(topic, "source", 0),
            partition(topic, "source", 1),
            partition(&retry, "0", 0),
        ];
        report.state.flows.push(status);
        report.flows.push(flow);
    }
    report
}
