//! A consumer that a Rust service embeds. The README shows it.

use std::time::Duration;

use redrive::config::{Config, FlowConfig};
use redrive::{
    Consumer, Context, Delayed, Exponential, Failure, Flow, Kind, Policy, Record, RunError,
    Strategy, Tier,
};

async fn bill(record: Record, context: Context) -> Result<(), Failure> {
    let Some(order) = record.value() else {
        // Trying again would not help: a dead letter at once.
        return Err(Failure::of_kind(Kind::VALIDATION).with_message("an order without a value"));
    };
    if context.overall_attempts() == 0 {
        // Comes again over the retry topic.
        return Err(Failure::of_status(503).with_message("the bank is busy"));
    }
    println!("billed {} as {}", String::from_utf8_lossy(order), context.idempotency_key());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), RunError> {
    let backoff = Exponential::new(Duration::from_secs(1)).with_jitter(0.1);
    let flow = Flow::new("payments")
        .with_strategy(Strategy::Single(Tier::endless("payments.retry")))
        .with_default(
            Policy::named("default").with_delayed(Delayed::attempts(5).with_backoff(backoff)),
        );
    let kafka = std::env::var("KAFKA").unwrap_or_else(|_| "localhost:9092".to_owned());
    let config = Config::new("bank")
        .with_kafka("bootstrap.servers", kafka)
        .with_flow(FlowConfig::new(flow).with_concurrency(64));
    let consumer = Consumer::new(config).with_handler("payments", bill).with_created_topics();
    consumer.handle().stop_on_signals();
    consumer.run().await
}
