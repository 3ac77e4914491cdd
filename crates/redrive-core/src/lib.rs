//! Redrive's decisions: what happens to a Kafka record that failed, where it goes and when it is
//! due there.
//!
//! This crate does no I/O, knows no async, asks no clock and draws no random numbers of its own:
//! time and seeds are arguments. So every decision can be replayed, in a test, in a simulation and
//! in `redrive plan`.
//!
//! - [`Flow::decide`] turns a failure into a [`Verdict`].
//! - [`headers`] carries a record's state from hop to hop, in Redrive's own format and in those of
//!   others.
//! - [`plan()`] tells the whole way of a record in advance.

mod backoff;
mod failure;
mod flow;
pub mod headers;
pub mod lane;
mod mutation;
pub mod offsets;
mod plan;
mod policy;
mod rule;
mod state;
mod strategy;
mod text;
mod time;
mod verdict;

pub use backoff::{Backoff, Custom, Draw, Exponential, ExponentialRandom, Linear, Random};
pub use failure::{Failure, IntoFailure, Kind, is_retryable_status, simple_name};
pub use flow::Flow;
#[cfg(feature = "mutations")]
pub use mutation::{Mutation, mutate};
pub use plan::{Span, Step, StepEnd, plan};
pub use policy::{Delayed, Identifier, IdentifierError, InMemory, Policy, Then};
pub use rule::{HeaderMatch, Match, On, Rank, RecordView, Rule, Rules};
pub use state::{Origin, RetryState};
pub use strategy::{Strategy, Tier};
pub use time::{MAX_DELAY, MAX_TIMESTAMP, Timestamp};
pub use verdict::{Action, Ask, Delivery, InPlace, Incident, Reason, Verdict};
