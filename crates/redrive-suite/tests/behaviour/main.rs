//! What Redrive does on a real broker, one behaviour a test. They are one program, so that they run side by side.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what tests share is part of them")]

use std::time::Duration;

use redrive::{Backoff, Delayed, Flow, InMemory, Policy, Strategy, Tier};
use redrive_suite::trial::Trial;

mod deposed;
mod draining;
mod foreign;
mod holding;
mod metadata;
mod observing;
mod ordering;
mod outage;
mod outcomes;
mod payload;
mod publishing;
mod restart;
mod retention;
mod roles;
mod security;
mod sharing;
mod slow;
mod start;
mod strategies;
mod topics;
mod topics_access;
mod topics_command;
mod traces;
mod transactions;

/// A wait of so many milliseconds.
fn fixed(millis: u64) -> Backoff {
    Backoff::Fixed(Duration::from_millis(millis))
}

/// Two runs in place and two over one retry topic, with short waits.
fn single(trial: &Trial) -> Flow {
    let policy = Policy::default()
        .with_in_memory(InMemory::attempts(2).with_backoff(fixed(10)))
        .with_delayed(Delayed::attempts(2).with_backoff(fixed(200)));
    trial.flow().with_strategy(Strategy::Single(Tier::endless(trial.retry()))).with_default(policy)
}
