//! Brokers that want to know who one is, and brokers that are away.

use std::time::{Duration, Instant};

use anyhow::Result;
use redrive::config::{Config, FlowConfig};
use redrive::{Context, Failure, Record, RunError};
use redrive_suite::broker::Broker;
use redrive_suite::own::{OwnBroker, free_port};
use redrive_suite::trial::Trial;

use super::single;

/// Runs a record to the dead-letter topic with these properties.
async fn works(
    name: &str,
    properties: impl Fn(&OwnBroker, Config) -> Result<Config>,
) -> Result<()> {
    let secure = OwnBroker::secure()?;
    let trial = Trial::on(secure.broker()?, name, 1).await?;
    let config = properties(&secure, trial.config(FlowConfig::new(single(&trial))))?;
    let member = trial
        .start_with(config, |_: Record, context: Context| async move {
            let status = if context.overall_attempts() == 0 { 503 } else { 404 };
            Err::<(), _>(Failure::of_status(status))
        })
        .await?;
    trial.produce(["order"])?;
    assert_eq!(trial.letters(1).await?.len(), 1);
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    member.stop().await?;
    Ok(())
}

fn login(config: Config, mechanism: &str, password: &str) -> Config {
    config
        .with_kafka("sasl.mechanism", mechanism)
        .with_kafka("sasl.username", "orders")
        .with_kafka("sasl.password", password)
}

#[tokio::test(flavor = "multi_thread")]
async fn it_logs_in_with_scram() -> Result<()> {
    works("scram", |broker, config| {
        let config = config
            .with_kafka("bootstrap.servers", broker.get("KAFKA_SASL")?)
            .with_kafka("security.protocol", "SASL_PLAINTEXT");
        Ok(login(config, "SCRAM-SHA-512", "orders-secret"))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn it_speaks_tls() -> Result<()> {
    works("tls", |broker, config| {
        Ok(config
            .with_kafka("bootstrap.servers", broker.get("KAFKA_SSL")?)
            .with_kafka("security.protocol", "SSL")
            .with_kafka("ssl.ca.location", broker.get("KAFKA_CA")?))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn it_logs_in_with_scram_over_tls() -> Result<()> {
    works("scram-tls", |broker, config| {
        let config = config
            .with_kafka("bootstrap.servers", broker.get("KAFKA_SASL_SSL")?)
            .with_kafka("security.protocol", "SASL_SSL")
            .with_kafka("ssl.ca.location", broker.get("KAFKA_CA")?);
        Ok(login(config, "SCRAM-SHA-256", "orders-secret"))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_ends_the_run_soon() -> Result<()> {
    let secure = OwnBroker::secure()?;
    let trial = Trial::on(secure.broker()?, "refused", 1).await?;
    let config = trial
        .config(single(&trial))
        .with_kafka("bootstrap.servers", secure.get("KAFKA_SASL")?)
        .with_kafka("security.protocol", "SASL_PLAINTEXT");
    let began = Instant::now();
    let member =
        trial.spawn(login(config, "SCRAM-SHA-256", "wrong"), |_: Record, _: Context| async {});
    let error = member.ended().await?.unwrap_err();
    assert!(matches!(error, RunError::Refused(_)), "{error:?}");
    assert!(!error.to_string().contains("wrong"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(15), "it took {:?}", began.elapsed());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_waits_for_its_brokers_can_be_stopped() -> Result<()> {
    let broker = Broker::at(format!("127.0.0.1:{}", free_port()?));
    let trial = Trial::without_topic(broker, "nobody");
    let member = trial.spawn(trial.config(single(&trial)), |_: Record, _: Context| async {});
    let is_away = |it: &redrive::Event| matches!(it, redrive::Event::Client { .. });
    member.told("that nobody is there", is_away).await?;
    let began = Instant::now();
    member.stop().await?;
    assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_are_away_at_the_start_are_waited_for() -> Result<()> {
    let port = free_port()?.to_string();
    let address = format!("127.0.0.1:{port}");
    let trial = Trial::without_topic(Broker::at(address), "away");
    let own = tokio::task::spawn_blocking(move || OwnBroker::start(&["--port", &port]));
    let member = trial.spawn(trial.config(single(&trial)), |_: Record, _: Context| async {});
    let own = own.await??;
    // Without its source topic it ends; that it got so far shows that it has waited.
    let error = member.ended().await?.unwrap_err();
    assert!(
        matches!(&error, RunError::MissingTopics(it) if *it == [trial.topic.clone()]),
        "{error:?}"
    );
    trial.broker.make_topics(&[(&trial.topic, 1)], &[]).await?;
    own.kill()?;
    let member = trial.spawn(trial.config(single(&trial)), |_: Record, _: Context| async {});
    let own = tokio::task::spawn_blocking(move || own.restart().map(|()| own)).await??;
    member.joined().await?;
    trial.produce(["order"])?;
    trial.settled(&[&trial.topic]).await?;
    member.stop().await?;
    drop(own);
    Ok(())
}
