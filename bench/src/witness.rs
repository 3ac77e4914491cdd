//! What the machine did meanwhile: a thread that wants nothing but to be woken in time, before all others, the time that the host took away, and what the broker
//! had to read from disk.
//!
//! How late retries run, and how long a run takes from being handed over, depend on that. Where a virtual machine stands still for 30 ms, so do all
//! engines in it, and no engine is to blame for what happened to this thread as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::measure::{Sample, read_from_disk};
use crate::stats;

/// How long the thread sleeps each time.
const NAP: Duration = Duration::from_millis(1);

/// Watches the machine.
pub(crate) struct Witness {
    is_over: Arc<AtomicBool>,
    /// By how many milliseconds each nap was too long. Nothing where nobody may come before others.
    naps: JoinHandle<Option<Vec<f64>>>,
    began: Times,
    /// What the broker had read by then, where it is known which process that is.
    read: Option<u64>,
}

/// What the broker has read from disk.
fn read_by_broker() -> Option<u64> {
    read_from_disk(&std::env::var("KAFKA_PID").ok()?)
}

impl Witness {
    pub(crate) fn begin() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let naps = std::thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || comes_first().then(|| nap(&is_over))
        });
        Self { is_over, naps, began: Times::now(), read: read_by_broker() }
    }

    /// What it saw, to be told beside what an engine says of itself.
    pub(crate) fn end(self) -> Sample {
        let mut sample = Sample::default();
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(share) = self.began.stolen_until(Times::now()) {
            sample.set("stolen", share);
        }
        if let Some((before, after)) = self.read.zip(read_by_broker()) {
            sample.set("from_disk", after.saturating_sub(before) as f64 / f64::from(1 << 20));
        }
        if let Ok(Some(mut naps)) = self.naps.join() {
            naps.sort_by(f64::total_cmp);
            sample.set("machine_p99", stats::part(&naps, 0.99));
        }
        sample
    }
}

/// One nap for each millisecond, as retries are due in each: while the machine stands still for 30 ms, thirty are late, and not one.
fn nap(is_over: &AtomicBool) -> Vec<f64> {
    let mut late = Vec::new();
    let mut due = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        due += NAP;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        late.push(due.elapsed().as_secs_f64() * 1000.0);
    }
    late
}

/// Lets this thread come before all others of the machine, so that it waits for none of them. Few may do that.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the standard library knows no priorities")]
fn comes_first() -> bool {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: it is the calling thread's own, and the parameter is there while it is looked at.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn comes_first() -> bool {
    false
}

/// The time of all processors so far, in ticks.
#[derive(Clone, Copy)]
struct Times {
    all: u64,
    stolen: u64,
}

impl Times {
    fn now() -> Self {
        Self::of(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// The first line: user, nice, system, idle, waiting, two kinds of interrupts, stolen; what follows is in the first two.
    fn of(text: &str) -> Self {
        let line = text.lines().next().unwrap_or_default();
        let ticks = line.split_whitespace().skip(1).take(8).map(|it| it.parse().unwrap_or(0));
        let ticks: Vec<u64> = ticks.collect();
        Self { all: ticks.iter().sum(), stolen: ticks.get(7).copied().unwrap_or(0) }
    }

    /// Which share of the time the host took away, in percent.
    fn stolen_until(self, end: Self) -> Option<f64> {
        let all = end.all.checked_sub(self.all).filter(|it| *it > 0)?;
        Some(end.stolen.saturating_sub(self.stolen) as f64 / all as f64 * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_that_was_stolen_is_of_all_time() {
        let before = Times::of("cpu  10 0 10 70 0 0 0 10 5 5\ncpu0 1 1 1 1 1 1 1 1 1 1");
        let after = Times::of("cpu  20 0 20 140 0 0 0 20 5 5");
        assert_eq!(before.stolen_until(after), Some(10.0));
        assert_eq!(before.stolen_until(before), None);
        assert_eq!(Times::of("").stolen_until(before), Some(10.0));
    }
}
