//! Redrive's HTTP handler: each record as a POST request to a service in any language.
//!
//! The whole protocol, with its headers and what answers mean, is in `docs/http.md`.
//!
//! ```no_run
//! use redrive::config::{Config, FlowConfig, HttpConfig};
//! use redrive::{Consumer, Flow};
//! use redrive_http::HttpHandler;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::new("billing")
//!     .with_kafka("bootstrap.servers", "localhost:9092")
//!     .with_flow(FlowConfig::new(Flow::new("orders")));
//! let service = HttpHandler::new(&HttpConfig::new("http://localhost:8080/orders"))?;
//! Consumer::new(config).with_handler("orders", service).run().await?;
//! # Ok(())
//! # }
//! ```

mod answer;
mod connect;
mod encode;
mod guard;
mod handler;
mod request;
mod sign;
mod tls;

pub use handler::{HttpError, HttpHandler};
