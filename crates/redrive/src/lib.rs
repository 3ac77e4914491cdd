//! The retry engine for Apache Kafka.
//!
//! So far this holds the decisions ([`redrive_core`], re-exported here) and the [`config`]: what can
//! be known without Kafka.

pub mod config;

pub use redrive_core::*;

/// The README's code, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
