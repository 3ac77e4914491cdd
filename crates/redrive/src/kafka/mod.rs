//! What Redrive needs of Kafka, over librdkafka.
//!
//! All unsafe code of the project is below this module: reading in batches, with messages that stay where librdkafka put
//! them, and a few calls that the `rdkafka` crate does not have. What comes out is safe to use.

pub(crate) mod begin;
pub(crate) mod client;
pub(crate) mod commit;
pub(crate) mod ends;
pub(crate) mod follow;
pub(crate) mod group;
pub(crate) mod lifeline;
pub(crate) mod markers;
pub(crate) mod message;
pub(crate) mod mock;
pub(crate) mod offsets;
pub(crate) mod publish;
pub(crate) mod queue;
pub(crate) mod reread;
pub(crate) mod state;
pub(crate) mod tails;
pub(crate) mod transaction;
pub(crate) mod whole;
