//! Configs that cannot be run are refused before anything is reached.

#![expect(clippy::unwrap_used, reason = "a test that cannot start fails")]

use redrive::config::{Config, FlowConfig};
use redrive::{Consumer, Context, Failure, Flow, Record, RunError};

/// What running it says. There is no broker, so whatever is not refused would wait for ever.
fn run(config: Config) -> RunError {
    let flow = FlowConfig::new(Flow::new("orders"));
    let consumer = Consumer::new(config.with_flow(flow))
        .with_handler("orders", |_: Record, _: Context| async { Ok::<(), Failure>(()) });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(consumer.run()).unwrap_err()
}

#[test]
fn properties_that_librdkafka_does_not_take_are_all_named_and_no_secret_is_shown() {
    let error = run(Config::new("billing")
        .with_kafka("bootstrap.server", "localhost:9")
        .with_kafka("linger.ms", "soon")
        .with_kafka("sasl.password", "s3cr3t")
        .with_kafka("sasl.pasword", "s3cr3t")
        .with_kafka("acks", "1"));
    assert!(matches!(&error, RunError::BadProperties(all) if all.len() == 4), "{error}");
    let text = error.to_string();
    for words in [
        "did you mean `bootstrap.servers`?",
        "`linger.ms` should be a whole number from 0 to 900000, but is `soon`",
        "did you mean `sasl.password`?",
        "Redrive sets `acks` itself",
    ] {
        assert!(text.contains(words), "`{words}` is not in: {text}");
    }
    assert!(!text.contains("s3cr3t"), "{text}");
}
