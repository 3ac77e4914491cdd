//! Redrive's promises, tried on a real broker: written once, run on every broker there is.
//!
//! [`scenario`] says what happens: how many records, how many members, what is killed. Members are processes of their own
//! ([`member`]) that write what they do to a [`ledger`]. When all is over, the ledger and an independent read of the
//! topics say what was lost, early, out of order or run twice.
//!
//! They are tried on Apache Kafka (`tests/guarantees.rs`) and, as far as it goes, on the embedded broker (`tests/embedded`).
//!
//! Single behaviours are tried in `tests/behaviour`, by consumers in the test's own process ([`trial`]), some of them on a
//! broker of their own ([`own`]), or on one that they can lose sight of ([`wire`]).

pub mod broker;
pub mod foreign;
pub mod ledger;
pub mod member;
pub mod order;
pub mod own;
pub mod promise;
mod raw;
pub mod rng;
pub mod scenario;
pub mod trial;
pub mod wire;
pub mod work;
