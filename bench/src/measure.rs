//! What an engine measures of itself: from the first delivery to the last end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
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

/// How many bytes a process had to read from disk, if it may be asked.
pub(crate) fn read_from_disk(process: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    text.lines().find_map(|it| it.strip_prefix("read_bytes: "))?.parse().ok()
}

/// How much memory a process has (`VmRSS`), or had at most (`VmHWM`), in MiB.
pub(crate) fn memory(process: &str, kind: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|it| it.strip_prefix(kind)?.strip_prefix(':'));
    let kib: Option<f64> = line.and_then(|it| it.trim().trim_end_matches(" kB").parse().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// When a turn is over: once so many records have ended, or after this time, whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Until {
    pub(crate) records: u64,
    pub(crate) time: Option<Duration>,
}

/// How often it is looked whether a turn is over.
const LOOK: Duration = Duration::from_millis(2);

/// How many threads count without waiting for each other.
const SHARDS: usize = 32;

/// What one thread counts. Nobody else writes to these lines of the cache: two that count in the same place would be measured, and not the engine.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    firsts: AtomicU64,
    ended: AtomicU64,
    /// Nanoseconds within handlers.
    busy: AtomicU64,
}

/// Which shard a thread has.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    SHARD.with(|it| *it)
}

/// The first quarter: how long it took, how many runs had begun and records had ended, and the CPU time by then.
struct Quarter {
    took: Duration,
    firsts: u64,
    ended: u64,
    cpu: Duration,
}

/// What is counted while an engine works.
pub(crate) struct Tally {
    until: Until,
    watch: OnceLock<Watch>,
    /// When the first quarter was over.
    quarter: OnceLock<Quarter>,
    shards: [Shard; SHARDS],
    twice: AtomicU64,
    /// A bit for each record that has ended, where each counts once.
    seen: Vec<AtomicU64>,
    late: Mutex<Vec<i64>>,
    is_over: AtomicBool,
    result: Mutex<Option<Sample>>,
}

impl Tally {
    /// With `numbered`, each of so many records counts once.
    pub(crate) fn new(until: Until, numbered: Option<u64>) -> Self {
        let words = numbered.unwrap_or(0).div_ceil(64);
        Self {
            until,
            watch: OnceLock::new(),
            quarter: OnceLock::new(),
            shards: std::array::from_fn(|_| Shard::default()),
            twice: AtomicU64::new(0),
            seen: (0..words).map(|_| AtomicU64::new(0)).collect(),
            late: Mutex::default(),
            is_over: AtomicBool::new(false),
            result: Mutex::default(),
        }
    }

    /// Lets a thread see when it is over. What was measured is then written down, and told to whoever wants to stop.
    pub(crate) fn follow(self: &Arc<Self>, then: impl FnOnce() + Send + 'static) {
        let tally = Arc::clone(self);
        std::thread::spawn(move || {
            while !tally.has_come_to_its_end() {
                std::thread::sleep(LOOK);
            }
            tally.finish();
            tally.is_over.store(true, Ordering::Relaxed);
            then();
        });
    }

    fn has_come_to_its_end(&self) -> bool {
        let Some(watch) = self.watch.get() else {
            return false;
        };
        let (passed, ended) = (watch.began.elapsed(), self.ended());
        let has_passed = |part: u32| self.until.time.is_some_and(|it| passed >= it / part);
        if has_passed(4) || ended >= self.until.records / 4 {
            let firsts = || self.sum(|it| &it.firsts);
            let cpu = || cpu_time("self");
            self.quarter.get_or_init(|| Quarter {
                took: passed,
                firsts: firsts(),
                ended,
                cpu: cpu(),
            });
        }
        has_passed(1) || ended >= self.until.records
    }

    /// Whether it is over, for those who go on until then.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// A run begins.
    pub(crate) fn begin(&self) {
        self.watch.get_or_init(Watch::start);
    }

    /// The first run of a record.
    pub(crate) fn first(&self) {
        self.shards[shard()].firsts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn late(&self, micros: i64) {
        self.late.lock().push(micros);
    }

    pub(crate) fn busy(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.shards[shard()].busy.fetch_add(nanos, Ordering::Relaxed);
    }

    /// So many records have ended, of which nobody asks which.
    pub(crate) fn end(&self, count: u64) {
        self.shards[shard()].ended.fetch_add(count, Ordering::Relaxed);
    }

    /// A record has ended.
    pub(crate) fn end_of(&self, number: u64) {
        let word = usize::try_from(number / 64).ok().and_then(|it| self.seen.get(it));
        let bit = 1 << (number % 64);
        if word.is_some_and(|it| it.fetch_or(bit, Ordering::Relaxed) & bit != 0) {
            self.twice.fetch_add(1, Ordering::Relaxed);
        } else {
            self.end(1);
        }
    }

    fn sum(&self, of: impl Fn(&Shard) -> &AtomicU64) -> u64 {
        self.shards.iter().map(|it| of(it).load(Ordering::Relaxed)).sum()
    }

    fn ended(&self) -> u64 {
        self.sum(|it| &it.ended)
    }

    /// Writes down what there is up to now.
    pub(crate) fn finish(&self) {
        let (took, now, ended) = match self.watch.get() {
            Some(it) => (it.began.elapsed(), cpu_time("self"), self.ended()),
            None => (Duration::ZERO, Duration::ZERO, 0),
        };
        let cpu = self.watch.get().map_or(Duration::ZERO, |it| now.saturating_sub(it.cpu));
        let firsts = self.sum(|it| &it.firsts);
        let mut sample = Sample::default();
        sample.set("records", ended as f64);
        if firsts > 0 {
            sample.set("firsts", firsts as f64);
        }
        sample.set("took", took.as_secs_f64());
        sample.set("cpu", cpu.as_secs_f64());
        if let Some(before) = self.quarter.get() {
            sample.set("later_took", took.saturating_sub(before.took).as_secs_f64());
            sample.set("later_records", ended.saturating_sub(before.ended) as f64);
            sample.set("later_cpu", now.saturating_sub(before.cpu).as_secs_f64());
            if firsts > 0 {
                sample.set("later_firsts", firsts.saturating_sub(before.firsts) as f64);
            }
        }
        sample.set("rss", memory("self", "VmHWM"));
        sample.set("twice", self.twice.load(Ordering::Relaxed) as f64);
        let busy = self.sum(|it| &it.busy);
        if busy > 0 {
            sample.set("busy", busy as f64 / 1e9);
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
    fn a_record_counts_once_and_the_end_is_told() {
        let until = Until { records: 2, time: None };
        let tally = Arc::new(Tally::new(until, Some(100)));
        let (told, over) = std::sync::mpsc::channel();
        tally.follow(move || told.send(()).unwrap());
        tally.begin();
        tally.end_of(5);
        tally.end_of(5);
        assert!(!tally.has_come_to_its_end() && !tally.is_over());
        tally.end_of(99);
        over.recv().unwrap();
        assert!(tally.is_over());
        let sample = tally.sample().unwrap();
        assert_eq!((sample.get("records"), sample.get("twice")), (Some(2.0), Some(1.0)));
        assert!(sample.get("rss").unwrap() > 0.0);
        assert_eq!(Sample::from_json(&sample.to_json()).unwrap(), sample);
    }

    #[test]
    fn it_is_over_when_its_time_is_and_all_threads_count() {
        let time = Duration::from_millis(20);
        let tally = Arc::new(Tally::new(Until { records: u64::MAX, time: Some(time) }, None));
        tally.follow(|| {});
        std::thread::sleep(2 * time);
        assert!(!tally.is_over(), "nothing was delivered yet");
        tally.begin();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    tally.first();
                    tally.end(3);
                });
            }
        });
        while !tally.is_over() {
            std::thread::sleep(LOOK);
        }
        let sample = tally.sample().unwrap();
        assert_eq!((sample.get("firsts"), sample.get("records")), (Some(2.0), Some(6.0)));
        assert!(sample.get("took").unwrap() >= time.as_secs_f64());
        assert!(sample.get("later_records").is_some());
    }
}
