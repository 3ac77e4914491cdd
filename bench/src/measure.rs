//! What an engine measures of itself: from the first delivery to the last end.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use serde_json::Value;

use crate::stats;

/// The wall clock in microseconds.
pub(crate) fn micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// The numbers of one turn, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample(pub(crate) BTreeMap<String, f64>);

impl Sample {
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    pub(crate) fn set(&mut self, name: &str, value: f64) {
        self.0.insert(name.to_owned(), value);
    }

    /// Numbers, and nothing else.
    pub(crate) fn from_json(value: &Value) -> Result<Self> {
        let object = value.as_object().context("an object of numbers is expected")?;
        let number = |it: &Value| it.as_f64().with_context(|| format!("{it} is no number"));
        let numbers = object.iter().map(|(name, it)| Ok((name.clone(), number(it)?)));
        Ok(Self(numbers.collect::<Result<_>>()?))
    }

    pub(crate) fn to_json(&self) -> Value {
        self.0.iter().map(|(name, value)| (name.clone(), Value::from(*value))).collect()
    }
}

/// A stop-watch that also knows the process's CPU time.
struct Watch {
    began: Instant,
    cpu: Duration,
}

impl Watch {
    fn start() -> Self {
        Self { began: Instant::now(), cpu: cpu_time("self") }
    }
}

/// All the CPU time that a process has used, threads that have ended included.
pub(crate) fn cpu_time(process: &str) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name of the program is in brackets, and may have anything in it.
    let numbers = text.rsplit_once(')').map_or("", |it| it.1);
    let tick = |index: usize| numbers.split_whitespace().nth(index)?.parse::<u64>().ok();
    let ticks = tick(11).unwrap_or(0) + tick(12).unwrap_or(0);
    Duration::from_millis(ticks * 10)
}

/// How much memory a process has (`VmRSS`), or had at most (`VmHWM`), in MiB.
pub(crate) fn memory(process: &str, kind: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|it| it.strip_prefix(kind)?.strip_prefix(':'));
    let kib: Option<f64> = line.and_then(|it| it.trim().trim_end_matches(" kB").parse().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// What is counted while an engine works.
#[derive(Default)]
pub(crate) struct Tally {
    wanted: u64,
    watch: OnceLock<Watch>,
    /// When the first quarter had ended: how many had, and the CPU time by then.
    quarter: OnceLock<(u64, Duration)>,
    /// When each record had had its first run.
    main: OnceLock<Duration>,
    firsts: AtomicU64,
    ended: AtomicU64,
    twice: AtomicU64,
    /// A bit for each record that has ended.
    seen: Vec<AtomicU64>,
    late: Mutex<Vec<i64>>,
    /// Time within handlers.
    busy: AtomicU64,
    result: Mutex<Option<Sample>>,
}

impl Tally {
    /// Until so many records have ended. Without `numbered` it is not known which.
    pub(crate) fn new(wanted: u64, numbered: Option<u64>) -> Self {
        let words = numbered.unwrap_or(0).div_ceil(64);
        Self { wanted, seen: (0..words).map(|_| AtomicU64::new(0)).collect(), ..Self::default() }
    }

    /// A run begins.
    pub(crate) fn begin(&self) {
        self.watch.get_or_init(Watch::start);
    }

    /// The first run of a record.
    pub(crate) fn first(&self) {
        if self.firsts.fetch_add(1, Ordering::Relaxed) + 1 == self.wanted {
            _ = self.main.set(self.took());
        }
    }

    pub(crate) fn late(&self, micros: i64) {
        self.late.lock().push(micros);
    }

    pub(crate) fn busy(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.busy.fetch_add(nanos, Ordering::Relaxed);
    }

    fn took(&self) -> Duration {
        self.watch.get().map_or(Duration::ZERO, |it| it.began.elapsed())
    }

    /// So many records have ended, of which nobody asks which. True for the last.
    pub(crate) fn end(&self, count: u64) -> bool {
        let before = self.ended.fetch_add(count, Ordering::Relaxed);
        let after = before + count;
        if before < self.wanted / 4 && after >= self.wanted / 4 {
            _ = self.quarter.set((after, cpu_time("self")));
        }
        let is_last = before < self.wanted && after >= self.wanted;
        if is_last {
            self.finish();
        }
        is_last
    }

    /// A record has ended. True for the last, counting each once.
    pub(crate) fn end_of(&self, number: u64) -> bool {
        let word = usize::try_from(number / 64).ok().and_then(|it| self.seen.get(it));
        let bit = 1 << (number % 64);
        if word.is_some_and(|it| it.fetch_or(bit, Ordering::Relaxed) & bit != 0) {
            self.twice.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.end(1)
    }

    /// Writes down what there is up to now.
    pub(crate) fn finish(&self) {
        let took = self.took();
        let now = cpu_time("self");
        let cpu = self.watch.get().map_or(Duration::ZERO, |it| now.saturating_sub(it.cpu));
        let mut sample = Sample::default();
        let load = |it: &AtomicU64| it.load(Ordering::Relaxed) as f64;
        sample.set("records", load(&self.ended));
        sample.set("took", took.as_secs_f64());
        sample.set("cpu", cpu.as_secs_f64());
        if let Some((records, cpu)) = self.quarter.get() {
            let records = self.ended.load(Ordering::Relaxed).saturating_sub(*records);
            sample.set("later_records", records as f64);
            sample.set("later_cpu", now.saturating_sub(*cpu).as_secs_f64());
        }
        sample.set("rss", memory("self", "VmHWM"));
        sample.set("twice", load(&self.twice));
        if let Some(main) = self.main.get() {
            sample.set("main", main.as_secs_f64());
        }
        if self.busy.load(Ordering::Relaxed) > 0 {
            sample.set("busy", load(&self.busy) / 1e9);
        }
        let mut late = self.late.lock().clone();
        if !late.is_empty() {
            late.sort_unstable();
            let part = |share: f64| stats::part(&late, share) as f64 / 1000.0;
            sample.set("late_count", late.len() as f64);
            sample.set("late_p50", part(0.5));
            sample.set("late_p99", part(0.99));
            sample.set("late_max", part(1.0));
            sample.set("late_min", part(0.0));
            sample.set("early", late.iter().filter(|it| **it < 0).count() as f64);
        }
        *self.result.lock() = Some(sample);
    }

    /// What was measured, once it is over.
    pub(crate) fn sample(&self) -> Result<Sample> {
        self.result.lock().clone().context("it ended before its work was done")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_once_and_the_last_is_told() {
        let tally = Tally::new(2, Some(100));
        tally.begin();
        assert!(!tally.end_of(5) && !tally.end_of(5) && tally.end_of(99));
        let sample = tally.sample().unwrap();
        assert_eq!((sample.get("records"), sample.get("twice")), (Some(2.0), Some(1.0)));
        assert!(sample.get("rss").unwrap() > 0.0);
        assert_eq!(Sample::from_json(&sample.to_json()).unwrap(), sample);
    }
}
