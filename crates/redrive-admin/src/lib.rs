//! How a Redrive process is looked at and told what to do while it runs.
//!
//! [`serve`] answers over HTTP, on a thread of its own that neither handlers nor Kafka can hold up: health, metrics for
//! Prometheus, a status in JSON, and commands. [`Client`] is the other end of it. [`log::init`] sets up the log.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /livez` | whether it lives; 503 only if a thread that polls stands still |
//! | `GET /readyz` | whether all is well; 503 with the reasons if not |
//! | `GET /metrics` | everything that is counted, for Prometheus |
//! | `GET /status` | the same for people and programs, in JSON |
//! | `POST /pause?flow=T`, `POST /resume?flow=T` | lets a flow take no more records, or go on; without `flow` all of them |
//!
//! ```no_run
//! use redrive::config::Config;
//! use redrive::{Consumer, Context, Record};
//! use redrive_admin::otlp::Exporter;
//!
//! # async fn example(config: Config) -> Result<(), Box<dyn std::error::Error>> {
//! redrive_admin::log::init(config.log)?;
//! let (admin, otlp) = (config.admin.clone(), config.otlp.clone());
//! let mut consumer = Consumer::new(config).with_handler("orders", |_: Record, _: Context| async {});
//! let exporter = otlp.map(|it| Exporter::start(&it)).transpose()?;
//! if let Some(exporter) = &exporter {
//!     consumer = consumer.with_tracer(exporter.tracer());
//! }
//! let _server = admin.map(|it| redrive_admin::serve(&it, consumer.handle())).transpose()?;
//! consumer.run().await?;
//! # Ok(())
//! # }
//! ```

mod answer;
mod client;
pub mod log;
pub mod metrics;
pub mod otlp;
mod server;
mod status;

pub use answer::Watched;
pub use client::{Client, ClientError, Command};
pub use server::{ServeError, Server, serve};
