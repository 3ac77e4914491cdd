//! Where the demo takes place: a broker within the process or a real one, and the topics' names.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use redrive::Consumer;
use redrive::config::Config;
use redrive::embedded::Broker;
use redrive::topics::Topics;

use crate::clock;
use crate::options::Options;
use crate::run::DemoError;

/// How long a broker may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// The topics and the group.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) source: String,
    pub(crate) tiers: [String; 3],
    pub(crate) dead_letters: String,
    pub(crate) group: String,
    state: String,
}

impl Names {
    /// All names, by that of the source topic.
    pub(crate) fn new(source: &str) -> Self {
        let group = format!("{source}.billing");
        Self {
            source: source.to_owned(),
            tiers: [1, 2, 3].map(|it| format!("{source}.retry.{it}")),
            dead_letters: format!("{source}.dlt"),
            state: format!("{group}.redrive"),
            group,
        }
    }

    /// All topics that the demo reads again, the source topic first and the dead letters last.
    pub(crate) fn read(&self) -> Vec<&str> {
        let mut all = vec![self.source.as_str()];
        all.extend(self.tiers.iter().map(String::as_str));
        all.push(&self.dead_letters);
        all
    }
}

/// A broker that is there.
pub(crate) struct Site {
    pub(crate) names: Names,
    bootstrap: String,
    /// The broker within the process, where it is one.
    broker: Option<Arc<Broker>>,
}

impl Site {
    /// Finds the broker, or starts one.
    pub(crate) fn open(options: &Options) -> Result<Self, DemoError> {
        if let Some(address) = &options.kafka {
            // Nobody else's topics, and not those of the demo before.
            let id = clock::millis() % 100_000_000;
            let names = Names::new(&format!("redrive-demo-{id}.orders"));
            return Ok(Self { names, bootstrap: address.clone(), broker: None });
        }
        let broker = Broker::start()?;
        let bootstrap = broker.bootstrap().to_owned();
        Ok(Self { names: Names::new("orders"), bootstrap, broker: Some(Arc::new(broker)) })
    }

    pub(crate) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// The broker, in words.
    pub(crate) fn shown(&self) -> String {
        match &self.broker {
            Some(_) => format!("embedded broker at {}", self.bootstrap),
            None => format!("Kafka at {}", self.bootstrap),
        }
    }

    /// A consumer on this broker, whose topics are made.
    pub(crate) async fn consumer(
        &self,
        config: Config,
        partitions: i32,
    ) -> Result<Consumer, DemoError> {
        if let Some(broker) = &self.broker {
            broker.make_topic(&self.names.source, partitions)?;
            return Ok(Consumer::new(config).with_broker(Arc::clone(broker)));
        }
        let config = config.with_kafka("bootstrap.servers", self.bootstrap.as_str());
        let topics = Topics::connect(&config, ANSWER).await?.with_created_sources(partitions);
        let plan = topics.plan().await?;
        for made in topics.apply(&plan, false, |_| {}).await {
            made.result.map_err(|why| DemoError::Topic { topic: made.topic.to_string(), why })?;
        }
        Ok(Consumer::new(config))
    }

    /// Deletes the topics where they would stay, unless they are to. Says what is left.
    pub(crate) async fn leave(&self, keeps: bool) -> Option<String> {
        if self.broker.is_some() {
            return None;
        }
        let (bootstrap, source) = (&self.bootstrap, &self.names.source);
        if keeps {
            return Some(format!("the topics {source}* are left on {bootstrap}"));
        }
        let left = self.clear().await;
        Some(match left.is_empty() {
            true => format!("the topics {source}* are deleted again; --keep-topics keeps them"),
            false => format!("these topics are left on {bootstrap}: {}", left.join(", ")),
        })
    }

    /// Deletes the topics. Gives those that could not be.
    async fn clear(&self) -> Vec<String> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap);
        let admin: Result<AdminClient<DefaultClientContext>, _> = config.create();
        let mut all = self.names.read();
        all.push(&self.names.state);
        let options = AdminOptions::new().operation_timeout(Some(ANSWER));
        let Ok(admin) = admin else {
            return all.into_iter().map(str::to_owned).collect();
        };
        let left = match admin.delete_topics(&all, &options).await {
            Ok(results) => results.into_iter().filter_map(Result::err).map(|it| it.0).collect(),
            Err(_) => all.into_iter().map(str::to_owned).collect(),
        };
        // A group that stays is forgotten by the broker in time.
        _ = admin.delete_groups(&[&self.names.group], &options).await;
        left
    }
}
