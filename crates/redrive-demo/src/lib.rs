//! `redrive demo`: Redrive at work, with nothing else needed.
//!
//! An orders flow with three short retry topics runs in front of an HTTP service that is flaky on purpose, on a broker within the
//! process or on a real one. The terminal shows the life of it. In the end two witnesses are heard that know nothing of Redrive,
//! the service's own ledger and the topics, read whole: was anything lost, did anything run early?
//!
//! ```text
//!  producer ──► orders ──► Redrive ──► HTTP service ──► ledger ──┐
//!                 │   ◄── retry topics ◄──┘                      ├──► judge ──► summary
//!                 └───────── read whole in the end ──────────────┘
//!           everybody ──► board ──► screen, or plain lines
//! ```
//!
//! What the screen draws (`board`) comes from Redrive's events, too. What the summary says (`judge`) never does.

mod board;
mod clock;
mod dice;
mod flow;
mod history;
mod judge;
mod options;
mod orders;
mod picture;
mod plain;
mod produce;
mod read;
mod run;
mod screen;
mod service;
mod site;
mod story;
mod summary;
mod terminal;

pub use options::{Life, Options, OptionsError, Share};
pub use picture::picture;
pub use run::{DemoError, Outcome, run};
