//! Progress in a partition whose records settle out of order.
//!
//! Kafka keeps one number for a group and a partition: the offset below which everything is settled,
//! the *commit point*. What is settled above it must survive a restart too, or it would run twice. It
//! travels in the commit's metadata, as a [`SettledMap`]:
//!
//! - [`runs`](Runs): sets of offsets.
//! - [`map`](SettledMap): what is settled between the commit point and what was read, and its text.
//! - [`blocks`](Block): what of it does not fit the metadata.
//! - [`progress`](Progress): keeps both while records come and settle.
//!
//! Waiting records settle in the order of their due times, whatever their offsets are. So the map says
//! "everything due up to here is settled" and lists only what differs: a million records with mixed delays
//! fit in a handful of bytes. It speaks of due times that stand in the record's own header alone, never of
//! those that follow from a config, which may change between two starts.

mod ahead;
mod bits;
mod blocks;
mod map;
mod progress;
mod runs;
mod wire;

pub use blocks::{Block, BlockId};
pub use map::{Fence, MapError, Mark, SettledMap};
pub use progress::{Commit, Progress};
pub use runs::Runs;
