//! `redrive broker`: a broker in memory, until it is told to end.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use redrive::config::Config;
use redrive::embedded::{Broker, SOURCE_PARTITIONS};
use redrive::{Event, RunError};

use crate::input;
use crate::output::{self, Exit};
use crate::run::exit_of;
use crate::signals::Signals;

#[derive(Args, Debug)]
pub struct BrokerArgs {
    /// The port of 127.0.0.1 to listen on [default: a free one]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,

    /// A topic to make, with 3 partitions or as many as are said; may be given several times
    #[arg(long, value_name = "NAME[:PARTITIONS]")]
    pub topic: Vec<NewTopic>,

    /// Make all topics that this config needs, too; what it says of Kafka is not looked at
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// A topic that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    name: String,
    partitions: i32,
}

impl FromStr for NewTopic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, partitions) = match text.split_once(':') {
            None => (text, SOURCE_PARTITIONS),
            Some((name, partitions)) => {
                let count = partitions.parse().map_err(|_| {
                    format!("`{partitions}` is no number of partitions: write it like `orders:6`")
                })?;
                (name, count)
            }
        };
        Ok(Self { name: name.to_owned(), partitions })
    }
}

pub fn run(args: &BrokerArgs) -> anyhow::Result<Exit> {
    let config = match &args.config {
        None => None,
        Some(file) => {
            let input = input::load(file, None, None)?;
            output::tell(&output::problems(&input.name, &input.loaded.problems));
            match input.loaded.config {
                Some(config) => Some(config),
                None => return Ok(Exit::Problems),
            }
        }
    };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build();
    let runtime = runtime.context("threads cannot be started")?;
    runtime.block_on(serve(args, config.as_ref()))
}

async fn serve(args: &BrokerArgs, config: Option<&Config>) -> anyhow::Result<Exit> {
    // Before anything is told, so that whoever has heard of it can end it.
    let mut signals = Signals::listen()?;
    let broker = match start(args, config).await {
        Ok(broker) => broker,
        Err(error) => {
            let exit = exit_of(&error);
            output::fail(&error.into());
            return Ok(exit);
        }
    };
    let address = broker.bootstrap();
    output::tell(&format!("{}\n", Event::Embedded { address: address.into() }));
    output::print(&format!("{address}\n"))?;
    signals.next().await;
    Ok(Exit::Fine)
}

async fn start(args: &BrokerArgs, config: Option<&Config>) -> Result<Arc<Broker>, RunError> {
    let broker = Arc::new(match args.port {
        Some(port) => Broker::start_on(port)?,
        None => Broker::start()?,
    });
    for topic in &args.topic {
        broker.make_topic(&topic.name, topic.partitions)?;
    }
    if let Some(config) = config {
        broker.make_topics(config).await?;
    }
    Ok(broker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_may_say_how_many_partitions_they_have() {
        let topic = |name: &str, partitions| NewTopic { name: name.to_owned(), partitions };
        assert_eq!("orders".parse(), Ok(topic("orders", 3)));
        assert_eq!("orders:12".parse(), Ok(topic("orders", 12)));
        for text in ["orders:", "orders:many", "orders:1:2"] {
            let error = text.parse::<NewTopic>().unwrap_err();
            assert!(error.contains("like `orders:6`"), "{error}");
        }
    }
}
