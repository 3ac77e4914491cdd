//! The lane in a simulated cluster: crashes, rebalances, deposed owners, lost acknowledgements and clocks that jump, all from
//! a seed.
//!
//! `SIM_SEEDS=100000 SIM_FROM=0 cargo test --release -p redrive-core --test sim` runs as many as asked.

mod cluster;
mod ledger;
mod rng;
mod world;

use world::{Stats, World};

/// What must have happened in a run of some length: a path that is never taken is a hole in the simulation.
const RARE: [&str; 18] = [
    "block",
    "clock jump",
    "crash",
    "deleted block",
    "deposed unnoticed",
    "failed commit",
    "failed refetch",
    "folded",
    "held back by a breaker",
    "late publish",
    "lost acknowledgement",
    "pause",
    "re-append",
    "rebalance",
    "refetch",
    "refused commit",
    "relay",
    "stop",
];
const ENOUGH_SEEDS: u64 = 500;

#[expect(clippy::disallowed_methods, reason = "how many seeds to run is said from outside")]
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(default)
}

#[test]
fn no_promise_is_broken_whatever_happens() {
    let (from, seeds) = (number("SIM_FROM", 0), number("SIM_SEEDS", 1000));
    let mut stats = Stats::new();
    for seed in from..from + seeds {
        let mut world = World::new(seed);
        if let Err(broken) = world.run() {
            panic!(
                "seed {seed}: {broken}\nagain: SIM_FROM={seed} SIM_SEEDS=1 cargo test -p redrive-core --test sim"
            );
        }
        for (what, times) in world.stats {
            *stats.entry(what).or_default() += times;
        }
    }
    println!("{seeds} seeds: {stats:?}");
    if seeds >= ENOUGH_SEEDS {
        for what in RARE {
            assert!(stats.contains_key(what), "`{what}` never happened in {seeds} seeds");
        }
    }
}
