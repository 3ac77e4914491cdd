//! The embedded broker: the promises on it, where its limits are, and the binary with it. No Kafka is needed.

#![expect(clippy::unwrap_used, reason = "what tests share is part of them")]

mod binary;
mod limits;
mod promises;
mod sharing;
