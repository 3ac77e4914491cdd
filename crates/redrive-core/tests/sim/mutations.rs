//! The simulation can fail: each fault that is put into the lane on purpose is noticed by the unchanged checks.

mod book;
mod cluster;
mod ledger;
mod rng;
mod world;

use redrive_core::{Mutation, mutate};
use world::World;

/// No fault needs more worlds than this to show.
const SEEDS: u64 = 5000;

#[test]
fn every_fault_is_noticed() {
    let mut unnoticed = Vec::new();
    for mutation in Mutation::ALL {
        mutate(Some(mutation));
        let noticed =
            (0..SEEDS).find_map(|seed| World::new(seed).run().err().map(|broken| (seed, broken)));
        mutate(None);
        match noticed {
            Some((seed, broken)) => println!("{mutation:?}: seed {seed}: {broken}"),
            None => unnoticed.push(mutation),
        }
    }
    assert!(unnoticed.is_empty(), "not noticed in {SEEDS} seeds: {unnoticed:?}");
}
