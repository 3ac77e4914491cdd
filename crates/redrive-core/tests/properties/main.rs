//! What holds for every backoff, every flow and every failure.

mod arbitrary;
mod backoff;
mod decide;
mod journey;
mod oracle;
mod plan;
mod requests;
