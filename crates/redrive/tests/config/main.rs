//! The config: what loads and what it means, what is told about the rest, and that no file does
//! harm.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
#![expect(clippy::panic, reason = "a test that cannot go on should say why")]

mod hostile;
mod http;
mod observing;
mod problems;
mod running;
mod sample;
mod schema;
mod seed_files;
mod support;
mod yaml_rules;
