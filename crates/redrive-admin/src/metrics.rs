//! Everything that is counted, as Prometheus reads it.
//!
//! [`FAMILIES`] says once what there is. The page is made from it, and the docs, the dashboard and the alerts are checked by it.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::time::Duration;

use redrive::{FlowReport, FlowStatus, Histogram, PartitionReport, Report, Retried};

/// What sort of metric it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, until the process is started anew.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How many were up to which bound.
    Histogram,
}

impl Kind {
    /// Its name in the page.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What sort it is.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

macro_rules! families {
    ($($constant:ident: $name:literal, $kind:ident, [$($label:literal),*], $help:literal;)+) => {
        $(const $constant: Family = Family {
            name: $name,
            kind: Kind::$kind,
            labels: &[$($label),*],
            help: $help,
        };)+

        /// All metrics, in the order of the page.
        pub const FAMILIES: &[Family] = &[$($constant),+];
    };
}

families! {
    INFO: "redrive_info", Gauge, ["version"], "Always 1; the version of Redrive.";
    READY: "redrive_ready", Gauge, [], "1 if all is well: partitions were assigned and can be read, no flow has stopped, nothing is held because it cannot be published.";
    JOINED: "redrive_joined", Gauge, ["group"], "1 once the group has assigned partitions, be it none.";
    PARTITIONS: "redrive_assigned_partitions", Gauge, ["group"], "Partitions that this member of the group has.";
    REBALANCES: "redrive_rebalances_total", Counter, ["group"], "How often partitions were assigned or taken away.";
    RECORDS: "redrive_records_total", Counter, ["flow", "outcome"], "Records by what became of them: done, retried, dead_lettered, dropped, relayed, foreign.";
    RUNS: "redrive_runs_total", Counter, ["flow", "result"], "Runs of the handler that ended, by result: ok or failed.";
    RUN_TIME: "redrive_run_duration_seconds", Histogram, ["flow"], "How long runs took.";
    RUNNING: "redrive_running_records", Gauge, ["flow"], "Records that run now.";
    SLOTS: "redrive_concurrency", Gauge, ["flow"], "How many records may run at the same time.";
    FAILED_LATELY: "redrive_failed_last_minute", Gauge, ["flow"], "Runs that failed in the last minute.";
    IN_MEMORY: "redrive_in_memory_retries_total", Counter, ["flow", "topic", "tier", "policy"], "Runs again in place, by the topic where the record stands and the policy.";
    RETRIES: "redrive_retries_total", Counter, ["flow", "topic", "tier", "policy"], "Publishes to retry topics, by topic and policy.";
    DEAD_LETTERS: "redrive_dead_letters_total", Counter, ["flow", "reason"], "Records sent to the dead-letter topic, by reason.";
    DROPPED: "redrive_dropped_total", Counter, ["flow", "reason"], "Records dropped, by reason.";
    LATENESS: "redrive_retry_lateness_seconds", Histogram, ["flow"], "How long after their due time retried records ran.";
    WAITING: "redrive_waiting_records", Gauge, ["flow", "topic", "tier"], "Records that wait for their due time.";
    READY_RECORDS: "redrive_ready_records", Gauge, ["flow", "topic", "tier"], "Records that could run and wait for their turn.";
    OLDEST: "redrive_oldest_record_age_seconds", Gauge, ["flow", "topic", "tier"], "How long ago the oldest record that is not settled was appended to the topic; 0 if there is none.";
    OVERDUE: "redrive_overdue_seconds", Gauge, ["flow", "topic", "tier"], "For how long the record has been due that waits longest for its turn; 0 if there is none.";
    LAG: "redrive_lag_records", Gauge, ["flow", "topic", "partition", "group"], "Records that were not read yet: log end less position.";
    UNCOMMITTED: "redrive_uncommitted_records", Gauge, ["flow", "topic", "partition", "group"], "Log end less commit point: what outside tools call lag. A record that waits an hour holds it up.";
    UNPUBLISHED: "redrive_unpublished_records", Gauge, ["flow"], "Records that are held because they cannot be published.";
    PUBLISH_FAILURES: "redrive_publish_failures_total", Counter, ["flow"], "Publishes that failed; each is tried again.";
    COMMITS: "redrive_commits_total", Counter, ["flow"], "Commits of a partition's progress that were accepted.";
    COMMIT_FAILURES: "redrive_commit_failures_total", Counter, ["flow"], "Commits that were not accepted; each is tried again.";
    STATE_BLOCKS: "redrive_state_blocks_total", Counter, ["flow"], "Blocks of progress sent to the state topic because they did not fit commit metadata.";
    STATE_BLOCK_FAILURES: "redrive_state_block_failures_total", Counter, ["flow"], "Blocks that the state topic did not take; each is tried again.";
    REAPPENDS: "redrive_reappends_total", Counter, ["flow"], "Records appended to their topic again before retention could delete them.";
    PENDING_ENTITIES: "redrive_pending_entities", Gauge, ["flow"], "With `ordering: key`: entities of which a record runs, is retried or waits behind another one.";
    FOLLOWERS: "redrive_follower_records", Gauge, ["flow"], "With `ordering: key`: records that wait behind others of their entity.";
    CLOSED_ENTITIES: "redrive_closed_entities", Gauge, ["flow"], "With `ordering: key`: entities whose new records follow a dead letter, until somebody opens them.";
    VOID: "redrive_void_copies_total", Counter, ["flow"], "With `ordering: key`: copies that a former owner published too late, settled unrun.";
    SUPERSEDED: "redrive_superseded_copies_total", Counter, ["flow"], "With `ordering: key`: copies of a record of which there was another one, settled unrun.";
    LOST: "redrive_lost_records_total", Counter, ["flow"], "Offsets that were gone from a log before they were settled.";
    UNREADABLE: "redrive_unreadable_headers_total", Counter, ["flow"], "Headers that could not be read.";
    PAUSED: "redrive_paused", Gauge, ["flow"], "1 if the flow was told to pause.";
    STOPPED: "redrive_stopped", Gauge, ["flow"], "1 if the flow has stopped.";
    STOPS: "redrive_stops_total", Counter, ["flow"], "How often the flow has stopped.";
    BREAKER: "redrive_breaker_open", Gauge, ["flow"], "1 if the breaker holds records back, 0 if not or if there is none.";
}

/// The page that Prometheus reads.
pub fn render(report: &Report) -> String {
    let mut page = Page::default();
    page.put(&INFO, &[env!("CARGO_PKG_VERSION")], 1);
    page.put(&READY, &[], u8::from(report.state.is_ready()));
    for group in &report.groups {
        let labels = &[group.group.as_str()];
        page.put(&JOINED, labels, u8::from(group.is_joined));
        page.put(&PARTITIONS, labels, group.partitions);
        page.put(&REBALANCES, labels, group.rebalances);
    }
    for (flow, status) in report.flows.iter().zip(&report.state.flows) {
        put_flow(&mut page, flow, status);
    }
    page.text()
}

fn put_flow(page: &mut Page, flow: &FlowReport, status: &FlowStatus) {
    let topic = flow.topic.as_str();
    let of_flow = &[topic];
    let outcomes = [
        ("done", status.succeeded),
        ("retried", status.retried),
        ("dead_lettered", status.dead_lettered),
        ("dropped", status.dropped),
        ("relayed", flow.relayed),
        ("foreign", status.foreign),
    ];
    for (outcome, count) in outcomes {
        page.put(&RECORDS, &[topic, outcome], count);
    }
    page.put(&RUNS, &[topic, "ok"], status.succeeded);
    page.put(&RUNS, &[topic, "failed"], status.failed);
    page.put_histogram(&RUN_TIME, of_flow, &flow.run_time);
    page.put(&RUNNING, of_flow, status.running);
    page.put(&SLOTS, of_flow, flow.concurrency);
    page.put(&FAILED_LATELY, of_flow, status.failed_last_minute);
    let mut put_retried = |family, all: &[Retried]| {
        for it in all {
            page.put(family, &[topic, &it.topic, &it.tier, &it.policy], it.count);
        }
    };
    put_retried(&IN_MEMORY, &flow.in_memory_retries);
    put_retried(&RETRIES, &flow.retries);
    for (reason, count) in &flow.dead_letters {
        page.put(&DEAD_LETTERS, &[topic, reason.as_str()], count);
    }
    for (reason, count) in &flow.dropped {
        page.put(&DROPPED, &[topic, reason.as_str()], count);
    }
    page.put_histogram(&LATENESS, of_flow, &flow.lateness);
    put_topics(page, flow);
    for it in &flow.partitions {
        let partition = it.partition.to_string();
        let labels = &[topic, &it.topic, &partition, &it.group];
        if let (Some(unread), Some(uncommitted)) = (it.unread(), it.uncommitted()) {
            page.put(&LAG, labels, unread);
            page.put(&UNCOMMITTED, labels, uncommitted);
        }
    }
    page.put(&UNPUBLISHED, of_flow, status.unpublished);
    page.put(&PUBLISH_FAILURES, of_flow, flow.publish_failures);
    page.put(&COMMITS, of_flow, flow.commits);
    page.put(&COMMIT_FAILURES, of_flow, flow.commit_failures);
    page.put(&STATE_BLOCKS, of_flow, flow.state_blocks);
    page.put(&STATE_BLOCK_FAILURES, of_flow, flow.state_block_failures);
    page.put(&REAPPENDS, of_flow, flow.reappended);
    page.put(&PENDING_ENTITIES, of_flow, status.pending_entities);
    page.put(&FOLLOWERS, of_flow, status.followers);
    page.put(&CLOSED_ENTITIES, of_flow, status.closed_entities);
    page.put(&VOID, of_flow, flow.void);
    page.put(&SUPERSEDED, of_flow, flow.superseded);
    page.put(&LOST, of_flow, flow.lost);
    page.put(&UNREADABLE, of_flow, flow.unreadable);
    page.put(&PAUSED, of_flow, u8::from(status.is_paused));
    page.put(&STOPPED, of_flow, u8::from(status.stopped.is_some()));
    page.put(&STOPS, of_flow, flow.stops);
    page.put(&BREAKER, of_flow, u8::from(status.is_breaker_open));
}

/// What is told of a topic as a whole: sums, and the worst of its partitions.
fn put_topics(page: &mut Page, flow: &FlowReport) {
    let mut topics: BTreeMap<(&str, &str), Vec<&PartitionReport>> = BTreeMap::new();
    for it in &flow.partitions {
        topics.entry((&it.topic, &it.tier)).or_default().push(it);
    }
    for ((name, tier), partitions) in topics {
        let labels = &[flow.topic.as_str(), name, tier];
        let sum = |of: fn(&PartitionReport) -> u64| partitions.iter().map(|it| of(it)).sum::<u64>();
        let worst = |of: fn(&PartitionReport) -> Option<Duration>| {
            partitions.iter().filter_map(|it| of(it)).max().unwrap_or_default().as_secs_f64()
        };
        page.put(&WAITING, labels, sum(|it| it.waiting));
        page.put(&READY_RECORDS, labels, sum(|it| it.ready));
        page.put(&OLDEST, labels, worst(|it| it.oldest));
        page.put(&OVERDUE, labels, worst(|it| it.overdue));
    }
}

/// The samples of each metric, in whichever order they come.
#[derive(Default)]
struct Page(BTreeMap<&'static str, String>);

impl Page {
    fn put(&mut self, family: &Family, values: &[&str], value: impl Display) {
        let labels = family.labels.iter().copied().zip(values.iter().copied());
        self.line(family.name, "", labels, value);
    }

    fn put_histogram(&mut self, family: &Family, values: &[&str], histogram: &Histogram) {
        let labels = || family.labels.iter().copied().zip(values.iter().copied());
        let bounds = histogram.bounds.iter().map(|it| it.as_secs_f64().to_string());
        let mut sum = 0;
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(&histogram.counts) {
            sum += count;
            self.line(family.name, "_bucket", labels().chain([("le", bound.as_str())]), sum);
        }
        self.line(family.name, "_sum", labels(), histogram.sum.as_secs_f64());
        self.line(family.name, "_count", labels(), sum);
    }

    fn line<'a>(
        &mut self,
        name: &'static str,
        suffix: &str,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
        value: impl Display,
    ) {
        let text = self.0.entry(name).or_default();
        text.push_str(name);
        text.push_str(suffix);
        let mut has_labels = false;
        for (label, value) in labels {
            text.push(if has_labels { ',' } else { '{' });
            has_labels = true;
            text.push_str(label);
            text.push_str("=\"");
            escape(value, text);
            text.push('"');
        }
        if has_labels {
            text.push('}');
        }
        // Writing to a text never fails.
        _ = writeln!(text, " {value}");
    }

    fn text(self) -> String {
        let mut page = String::new();
        for family in FAMILIES {
            if let Some(samples) = self.0.get(family.name) {
                let (name, kind) = (family.name, family.kind.as_str());
                _ = writeln!(page, "# HELP {name} {}", family.help.replace('\\', "\\\\"));
                _ = writeln!(page, "# TYPE {name} {kind}");
                page.push_str(samples);
            }
        }
        page
    }
}

/// A label's value as the format wants it.
fn escape(value: &str, into: &mut String) {
    for it in value.chars() {
        match it {
            '\\' => into.push_str("\\\\"),
            '"' => into.push_str("\\\""),
            '\n' => into.push_str("\\n"),
            it => into.push(it),
        }
    }
}
