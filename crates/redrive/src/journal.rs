//! The log: what happens is written once, and what happens over and over is summed up.
//!
//! Of each kind of event, and of each flow, the first few lines of a period are written. The rest is counted, and one line at
//! the end of the period tells how many there were, whether or not anything else happens then. Loud events are always written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::event::{Event, Level};

/// How long lines are counted before they are summed up.
const PERIOD: Duration = Duration::from_secs(10);
/// How many lines of a kind are written in a period.
const WRITTEN: u64 = 5;
/// How many kinds are told apart.
const KINDS: usize = 512;

pub(crate) struct Journal {
    period: Duration,
    tallies: Mutex<Tallies>,
    changed: Condvar,
}

impl Default for Journal {
    fn default() -> Self {
        Self { period: PERIOD, tallies: Mutex::default(), changed: Condvar::new() }
    }
}

#[derive(Default)]
struct Tallies {
    by_kind: BTreeMap<Kind, Tally>,
    is_over: bool,
}

/// What sort of line, and whose.
type Kind = (String, String);

struct Tally {
    since: Instant,
    lines: u64,
    level: Level,
}

impl Tally {
    fn left_out(&self) -> u64 {
        self.lines.saturating_sub(WRITTEN)
    }
}

/// Lines that were not written.
#[derive(Debug, PartialEq, Eq)]
struct Sum {
    kind: Kind,
    level: Level,
    count: u64,
    over: Duration,
}

impl Journal {
    fn lock(&self) -> MutexGuard<'_, Tallies> {
        self.tallies.lock()
    }

    /// Writes an event, unless there were many of its kind lately.
    pub(crate) fn write(&self, event: &Event, flow: Option<&str>) {
        let level = event.level();
        if !is_enabled(level) {
            return;
        }
        if event.is_loud() || self.admit(event.name(), flow.unwrap_or(""), level, Instant::now()) {
            emit(event, flow);
        }
    }

    /// Writes a line of librdkafka's, unless there were many of its kind lately.
    pub(crate) fn write_client(&self, level: Level, facility: &str, message: &str) {
        if is_enabled(level) && self.admit(facility, "librdkafka", level, Instant::now()) {
            match level {
                Level::Debug => tracing::debug!(target: "librdkafka", "{facility}: {message}"),
                Level::Info => tracing::info!(target: "librdkafka", "{facility}: {message}"),
                Level::Warning | Level::Error => {
                    tracing::warn!(target: "librdkafka", "{facility}: {message}");
                }
            }
        }
    }

    /// Whether a line is to be written. It is counted.
    fn admit(&self, kind: &str, whose: &str, level: Level, now: Instant) -> bool {
        let mut tallies = self.lock();
        let mut kind = (kind.to_owned(), whose.to_owned());
        if tallies.by_kind.len() >= KINDS && !tallies.by_kind.contains_key(&kind) {
            kind = ("other".to_owned(), String::new());
        }
        let tally =
            tallies.by_kind.entry(kind.clone()).or_insert(Tally { since: now, lines: 0, level });
        let mut sum = None;
        if now.saturating_duration_since(tally.since) >= self.period {
            // Whoever sums up has not come to it yet.
            sum = sum_up(kind, tally, now);
            *tally = Tally { since: now, lines: 0, level };
        }
        tally.lines += 1;
        let (is_written, is_first_left_out) = (tally.lines <= WRITTEN, tally.left_out() == 1);
        drop(tallies);
        if is_first_left_out {
            self.changed.notify_all();
        }
        if let Some(sum) = sum {
            emit_sum(&sum);
        }
        is_written
    }

    /// What is to be told of now, or of everything where it is over.
    fn take_sums(&self, tallies: &mut Tallies, now: Instant) -> Vec<Sum> {
        let is_over = tallies.is_over;
        let ended = tallies.by_kind.extract_if(.., |_, it| {
            is_over || now.saturating_duration_since(it.since) >= self.period
        });
        ended.filter_map(|(kind, tally)| sum_up(kind, &tally, now)).collect()
    }

    /// Sums up from time to time, until the guard is dropped. What is left then is told of.
    pub(crate) fn keep(self: &Arc<Self>) -> Keeping {
        self.lock().is_over = false;
        let journal = Arc::clone(self);
        // Without the thread, sums are told when the next line comes.
        let thread = thread::Builder::new().name("redrive-log".to_owned());
        Keeping { journal: Arc::clone(self), thread: thread.spawn(move || journal.sum_up()).ok() }
    }

    fn sum_up(&self) {
        let mut tallies = self.lock();
        loop {
            let now = Instant::now();
            let sums = self.take_sums(&mut tallies, now);
            let is_over = tallies.is_over;
            if !sums.is_empty() {
                drop(tallies);
                sums.iter().for_each(emit_sum);
                tallies = self.lock();
                continue;
            }
            if is_over {
                return;
            }
            let next = tallies.by_kind.values().filter(|it| it.left_out() > 0).map(|it| it.since);
            let wait = next
                .min()
                .map(|since| self.period.saturating_sub(now.saturating_duration_since(since)));
            match wait {
                None => self.changed.wait(&mut tallies),
                Some(wait) => {
                    self.changed.wait_for(&mut tallies, wait.max(Duration::from_millis(1)));
                }
            }
        }
    }
}

fn sum_up(kind: Kind, tally: &Tally, now: Instant) -> Option<Sum> {
    let (count, level) = (tally.left_out(), tally.level);
    let over = now.saturating_duration_since(tally.since);
    (count > 0).then_some(Sum { kind, level, count, over })
}

/// While it is there, lines are summed up.
pub(crate) struct Keeping {
    journal: Arc<Journal>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.journal.lock().is_over = true;
        self.journal.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn is_enabled(level: Level) -> bool {
    match level {
        Level::Debug => tracing::enabled!(target: "redrive", tracing::Level::DEBUG),
        Level::Info => tracing::enabled!(target: "redrive", tracing::Level::INFO),
        Level::Warning => tracing::enabled!(target: "redrive", tracing::Level::WARN),
        Level::Error => tracing::enabled!(target: "redrive", tracing::Level::ERROR),
    }
}

/// Calls the macro of a level: each has a place of its own in the program.
macro_rules! at_level {
    ($level:expr, $($rest:tt)+) => {
        match $level {
            Level::Debug => tracing::debug!(target: "redrive", $($rest)+),
            Level::Info => tracing::info!(target: "redrive", $($rest)+),
            Level::Warning => tracing::warn!(target: "redrive", $($rest)+),
            Level::Error => tracing::error!(target: "redrive", $($rest)+),
        }
    };
}

fn emit(event: &Event, flow: Option<&str>) {
    let facts = event.facts();
    let delay_ms = facts.delay.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
    let by = facts.by.map(|it| it.as_str());
    let (due_ms, reason) = (facts.due.map(|it| it.as_millis()), facts.reason.map(|it| it.as_str()));
    at_level!(
        event.level(),
        event = event.name(),
        flow,
        topic = facts.topic,
        partition = facts.partition,
        offset = facts.offset,
        to = facts.to,
        tier = facts.tier,
        attempt = facts.attempt,
        attempts = facts.attempts,
        total = facts.total,
        policy = facts.policy,
        policy_attempts = facts.policy_attempts,
        delay_ms,
        delay_by = by,
        due_ms,
        reason,
        header = facts.header,
        entity = facts.entity,
        count = facts.count,
        error = facts.error,
        "{event}"
    );
}

fn emit_sum(sum: &Sum) {
    let (kind, whose) = &sum.kind;
    let flow = Some(whose.as_str()).filter(|it| !it.is_empty());
    let of = flow.map(|it| format!(" of {it}")).unwrap_or_default();
    let (count, seconds) = (sum.count, sum.over.as_secs_f64().round());
    let number = with_commas(count);
    at_level!(
        sum.level,
        event = "summed_up",
        flow,
        of = kind.as_str(),
        count,
        "{kind}{of}: … and {number} more in {seconds} s"
    );
}

/// 4812 as "4,812".
fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(journal: &Journal, kind: &str, flow: &str, count: u64, at: Instant) -> usize {
        (0..count).filter(|_| journal.admit(kind, flow, Level::Warning, at)).count()
    }

    #[test]
    fn the_first_few_lines_are_written_and_the_rest_is_counted_exactly() {
        let (journal, start) = (Journal::default(), Instant::now());
        assert_eq!(lines(&journal, "retries", "orders", 4817, start), 5);
        let mut tallies = journal.lock();
        assert_eq!(journal.take_sums(&mut tallies, start + PERIOD / 2), []);
        let sums = journal.take_sums(&mut tallies, start + PERIOD);
        assert_eq!(sums.iter().map(|it| it.count).collect::<Vec<_>>(), [4812]);
        assert_eq!(sums[0].kind, ("retries".to_owned(), "orders".to_owned()));
        assert!(tallies.by_kind.is_empty(), "nothing is kept of a period that is over");
    }

    #[test]
    fn kinds_and_flows_are_told_apart() {
        let (journal, start) = (Journal::default(), Instant::now());
        assert_eq!(lines(&journal, "retries", "orders", 9, start), 5);
        assert_eq!(lines(&journal, "retries", "refunds", 3, start), 3);
        assert_eq!(lines(&journal, "dropped", "orders", 6, start), 5);
        journal.lock().is_over = true;
        let sums = journal.take_sums(&mut journal.lock(), start);
        assert_eq!(sums.iter().map(|it| it.count).collect::<Vec<_>>(), [1, 4]);
    }

    #[test]
    fn a_new_period_begins_with_lines_again() {
        let (journal, start) = (Journal::default(), Instant::now());
        lines(&journal, "retries", "orders", 100, start);
        assert_eq!(lines(&journal, "retries", "orders", 7, start + PERIOD), 5);
        let sums = journal.take_sums(&mut journal.lock(), start + 2 * PERIOD);
        assert_eq!(sums.iter().map(|it| it.count).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn kinds_without_end_do_not_take_memory_without_end() {
        let (journal, start) = (Journal::default(), Instant::now());
        for number in 0..10 * KINDS {
            lines(&journal, &number.to_string(), "librdkafka", 1, start);
        }
        assert!(journal.lock().by_kind.len() <= KINDS + 1);
        journal.lock().is_over = true;
        let sums = journal.take_sums(&mut journal.lock(), start);
        let all: u64 = sums.iter().map(|it| it.count).sum();
        assert_eq!(all, (9 * KINDS) as u64 - WRITTEN, "none is forgotten");
    }

    /// Everything that is written, by whichever thread.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<String>>>);

    impl tracing::field::Visit for Written {
        fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
            if field.name() == "message" {
                self.0.lock().push(format!("{value:?}"));
            }
        }
    }

    impl tracing::Subscriber for Written {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            event.record(&mut self.clone());
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn sums_are_told_though_nothing_else_happens_and_the_rest_at_the_end() {
        let written = Written::default();
        tracing::subscriber::set_global_default(written.clone()).unwrap();
        let found = |flow: &str| -> Vec<String> {
            written.0.lock().iter().filter(|it| it.contains(flow)).cloned().collect()
        };
        let journal =
            Arc::new(Journal { period: Duration::from_millis(200), ..Journal::default() });
        let keeping = journal.keep();
        let record = |flow: &str| crate::Spot { topic: flow.into(), partition: 0, offset: 7 };
        for _ in 0..1005 {
            journal.write(&Event::MapCut(record("quiet")), Some("quiet"));
        }
        let until = Instant::now() + Duration::from_secs(20);
        while found("quiet").len() < 6 && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        let lines = found("quiet");
        assert_eq!(lines.len(), 6, "{lines:?}");
        assert!(lines[5].starts_with("map_cut of quiet: … and 1,000 more in "), "{lines:?}");

        drop(keeping);
        let journal = Arc::new(Journal::default());
        let keeping = journal.keep();
        for _ in 0..8 {
            journal.write(&Event::MapCut(record("last")), Some("last"));
            let offsets = 1..2;
            journal
                .write(&Event::Lost { topic: "loud".into(), partition: 0, offsets }, Some("loud"));
        }
        drop(keeping);
        let lines = found("last");
        assert!(lines.len() == 6 && lines[5].contains("and 3 more"), "{lines:?}");
        assert_eq!(found("loud").len(), 8, "each is written");
    }

    #[test]
    fn numbers_are_easy_to_read() {
        let known =
            [(0, "0"), (999, "999"), (1000, "1,000"), (4812, "4,812"), (1234567, "1,234,567")];
        for (number, text) in known {
            assert_eq!(with_commas(number), text);
        }
    }
}
