//! What is measured: from the first record to the last.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The wall clock in milliseconds.
pub(crate) fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}

/// A stop-watch that also knows the process's CPU time.
pub(crate) struct Watch {
    began: Instant,
    cpu: Duration,
}

/// What an engine took for its records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) records: u64,
    pub(crate) took: Duration,
    pub(crate) cpu: Duration,
    pub(crate) rss_kib: u64,
}

impl Watch {
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), cpu: cpu_time() }
    }

    pub(crate) fn stop(&self, records: u64) -> Measured {
        let cpu = cpu_time().saturating_sub(self.cpu);
        Measured { records, took: self.began.elapsed(), cpu, rss_kib: peak_rss() }
    }
}

/// All that this process's threads have used.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let own: u64 = text.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0);
    // That is the main thread's; the others have files of their own.
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let all: u64 = tasks
        .filter_map(|it| std::fs::read_to_string(it.path().join("schedstat")).ok())
        .filter_map(|it| it.split(' ').next()?.parse::<u64>().ok())
        .sum();
    Duration::from_nanos(all.max(own))
}

/// The most memory this process ever had.
fn peak_rss() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    line.and_then(|it| it.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

impl Measured {
    pub(crate) fn rate(&self) -> f64 {
        self.records as f64 / self.took.as_secs_f64()
    }

    pub(crate) fn cpu_nanos(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e9 / self.records as f64
    }

    pub(crate) fn rss_mib(&self) -> f64 {
        self.rss_kib as f64 / 1024.0
    }

    pub(crate) fn to_json(self) -> Value {
        let nanos = |it: Duration| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX);
        json!({ "records": self.records, "took": nanos(self.took), "cpu": nanos(self.cpu), "rss": self.rss_kib })
    }

    pub(crate) fn from_json(text: &[u8]) -> Result<Self> {
        let value: Value = serde_json::from_slice(text)?;
        let number =
            |key: &str| value.get(key).and_then(Value::as_u64).context("a number is missing");
        Ok(Self {
            records: number("records")?,
            took: Duration::from_nanos(number("took")?),
            cpu: Duration::from_nanos(number("cpu")?),
            rss_kib: number("rss")?,
        })
    }
}

fn sorted(all: &[Measured], value: fn(&Measured) -> f64) -> Vec<f64> {
    let mut values: Vec<_> = all.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values
}

pub(crate) fn median(all: &[Measured], value: fn(&Measured) -> f64) -> f64 {
    let values = sorted(all, value);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// How far apart the highest and the lowest are, against the median.
pub(crate) fn spread(all: &[Measured], value: fn(&Measured) -> f64) -> f64 {
    let values = sorted(all, value);
    let (first, last) = (values.first().copied(), values.last().copied());
    (last.unwrap_or(0.0) - first.unwrap_or(0.0)) / median(all, value)
}
