//! Runs the simulation of `tests/sim` for as many seeds as asked, with a progress bar.
//!
//! ```sh
//! cargo run --release -p redrive-core --example sim -- --seeds 100000 --from 0
//! ```

#![expect(clippy::disallowed_methods, reason = "a progress bar looks at the clock")]

#[path = "../tests/sim/book.rs"]
mod book;
#[path = "../tests/sim/cluster.rs"]
mod cluster;
#[path = "../tests/sim/ledger.rs"]
mod ledger;
#[path = "../tests/sim/rng.rs"]
mod rng;
#[path = "../tests/sim/world.rs"]
mod world;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use world::{ENOUGH_SEEDS, RARE, Stats, World};

fn main() -> ExitCode {
    let Some((seeds, from)) = arguments() else {
        eprintln!("usage: sim [--seeds N] [--from K]");
        return ExitCode::from(2);
    };
    let (next, done) = (AtomicU64::new(from), AtomicU64::new(0));
    let stats = Mutex::new(Stats::new());
    let failed = Mutex::new(Vec::new());
    let start = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + seeds {
                        return;
                    }
                    let mut world = World::new(seed);
                    if let Err(broken) = world.run() {
                        failed.lock().unwrap_or_else(|it| it.into_inner()).push((seed, broken));
                    }
                    let mut sum = stats.lock().unwrap_or_else(|it| it.into_inner());
                    for (what, times) in &world.stats {
                        *sum.entry(what).or_default() += times;
                    }
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1, seeds, start);
                }
            });
        }
    });
    let stats = stats.into_inner().unwrap_or_default();
    let failed = failed.into_inner().unwrap_or_default();
    report(seeds, &stats, &failed, start)
}

fn arguments() -> Option<(u64, u64)> {
    let (mut seeds, mut from) = (1000, 0);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().and_then(|it| it.parse().ok())?;
        match name.as_str() {
            "--seeds" => seeds = value,
            "--from" => from = value,
            _ => return None,
        }
    }
    Some((seeds, from))
}

fn progress(done: u64, all: u64, start: Instant) {
    let step = (all / 200).max(1);
    if !std::io::stderr().is_terminal() || (!done.is_multiple_of(step) && done != all) {
        return;
    }
    let filled = usize::try_from(done * 40 / all.max(1)).unwrap_or(40);
    let rate = done as f64 / start.elapsed().as_secs_f64().max(0.001);
    let bar = format!("{}{}", "█".repeat(filled), "░".repeat(40 - filled));
    let _ = write!(std::io::stderr(), "\r{bar} {done}/{all} seeds, {rate:.0}/s ");
}

fn report(seeds: u64, stats: &Stats, failed: &[(u64, String)], start: Instant) -> ExitCode {
    println!("\n{seeds} seeds in {:.1} s", start.elapsed().as_secs_f64());
    for (what, times) in stats {
        println!("{times:>14}  {what}");
    }
    for (seed, broken) in failed {
        println!("seed {seed}: {broken}");
        println!(
            "  again: cargo run --release -p redrive-core --example sim -- --seeds 1 --from {seed}"
        );
    }
    let is_enough = seeds >= ENOUGH_SEEDS;
    let never: Vec<_> = RARE.iter().filter(|it| is_enough && !stats.contains_key(**it)).collect();
    if !never.is_empty() {
        println!("never happened: {never:?}");
    }
    if failed.is_empty() && never.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
