//! The retry engine for Apache Kafka.
//!
//! A [`Consumer`] takes the flows of a [`Config`](config::Config) and a handler for each, and runs until it is told to stop.
//! What fails is retried by the flow's policies, in place or over retry topics, and ends in the dead-letter topic if nothing
//! helps. The decisions themselves are in [`redrive_core`], re-exported here.

mod clock;
pub mod config;
mod consumer;
pub mod embedded;
mod engine;
pub mod entities;
mod event;
mod handler;
mod journal;
mod kafka;
mod numbers;
mod order;
mod pack;
mod prefetch;
mod record;
mod report;
mod role;
pub mod topics;

pub use consumer::{Consumer, ConsumerHandle, RunError};
pub use engine::trace::RunSpan;
pub use event::{DelayBy, Event, Facts, Level, Spot};
pub use handler::{Context, Handler, IntoOutcome, Outcome};
pub use numbers::Histogram;
pub use record::Record;
pub use redrive_core::*;
pub use report::{FlowReport, FlowStatus, GroupReport, PartitionReport, Report, Retried, State};
pub use role::Role;

/// The README's code, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
