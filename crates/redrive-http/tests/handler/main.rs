//! The handler against services that behave well, badly, or not at all.

#![expect(clippy::unwrap_used, clippy::panic, reason = "what tests share is part of them")]

mod answers;
mod examples;
mod requests;
mod secure;
mod server;

use redrive::config::HttpConfig;
use redrive::{Context, Failure, Flow, Handler, Outcome, Record};
use redrive_http::HttpHandler;

fn record() -> Record {
    Record::made_up("orders", 3, 17).with_value("{}")
}

fn context(record: &Record) -> Context {
    Context::made_up("billing", Flow::new("orders"), record)
}

/// Sends a record as it is.
async fn send(handler: &HttpHandler, record: &Record) -> Outcome {
    handler.handle(record.clone(), context(record)).await
}

fn handler(url: &str) -> HttpHandler {
    HttpHandler::new(&HttpConfig::new(url)).unwrap()
}

fn failure(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("a failure was expected, not {other:?}"),
    }
}
