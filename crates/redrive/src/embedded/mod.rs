//! A broker within the process, for trying things out and for tests.
//!
//! It is librdkafka's mock cluster: it speaks Kafka's protocol on a loopback port, so that clients of any kind can join in.
//! Everything is kept in memory and ends with the process. A partition keeps 5 MiB and drops older records, read or not; topics
//! are made by [`Broker::make_topic`], or by clients that ask for one, since it has no admin API; transactions are answered, but
//! do nothing.

mod door;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::RunError;
use crate::config::{self, Config};
use crate::kafka::client::Properties;
use crate::kafka::mock::Mock;
use crate::topics;
use door::Door;

/// How many bytes a partition keeps. librdkafka says so, and cannot be told otherwise.
pub(crate) const KEPT: &str = "5 MiB";
/// How librdkafka's mock begins the name of its cluster, in this process or another.
const CLUSTER: &str = "mockCluster";
/// How many partitions a source topic gets that nobody has made.
pub const SOURCE_PARTITIONS: i32 = 3;

/// More partitions than this are a mistake here: each of them takes memory.
const MAX_PARTITIONS: i32 = 10_000;

/// Why an embedded broker does not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// It cannot be started.
    #[error("the embedded broker cannot be started: {0}")]
    Start(String),
    /// It cannot listen on the port that it was given.
    #[error(
        "the embedded broker cannot listen on 127.0.0.1:{port}: {reason}; take another port, or none for a free one"
    )]
    Port {
        /// The port.
        port: u16,
        /// Why.
        reason: String,
    },
    /// The name cannot be a topic's.
    #[error("{0}")]
    BadName(String),
    /// A topic cannot have so many partitions.
    #[error(
        "{topic} cannot have {partitions} partitions on the embedded broker: it takes from 1 to 10,000"
    )]
    BadPartitions {
        /// The topic.
        topic: String,
        /// How many it should have.
        partitions: i32,
    },
    /// There is such a topic.
    #[error("the topic {0} is there already")]
    AlreadyThere(String),
    /// The topic could not be made.
    #[error("the topic {topic} could not be made: {reason}")]
    Refused {
        /// The topic.
        topic: String,
        /// Why.
        reason: String,
    },
}

/// Whether a cluster of this id is an embedded broker, in this process or another.
pub(crate) fn is_embedded(cluster: &str) -> bool {
    cluster.starts_with(CLUSTER)
}

/// A broker within this process. It ends when it is dropped.
///
/// ```
/// use redrive::embedded::Broker;
///
/// let broker = Broker::start()?;
/// broker.make_topic("orders", 3)?;
/// assert!(broker.bootstrap().starts_with("127.0.0.1:"));
/// # Ok::<(), redrive::embedded::BrokerError>(())
/// ```
pub struct Broker {
    address: String,
    /// Topics with their partitions, but for those that clients have made by asking for them.
    topics: Mutex<BTreeMap<String, i32>>,
    /// Declared first, since it ends first.
    _door: Option<Door>,
    mock: Mock,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Broker").field(&self.bootstrap()).finish()
    }
}

impl Broker {
    /// Starts a broker on a free port of the loopback address.
    ///
    /// # Errors
    ///
    /// There is no port or no thread to be had.
    pub fn start() -> Result<Self, BrokerError> {
        // The mock would end the whole process where it cannot have a port.
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .map_err(|it| BrokerError::Start(it.to_string()))?;
        let mock = Mock::start().map_err(|it| BrokerError::Start(it.to_string()))?;
        let address = mock.bootstrap().to_owned();
        Ok(Self { address, topics: Mutex::default(), _door: None, mock })
    }

    /// Starts a broker on this port of the loopback address; 0 stands for a free one.
    ///
    /// The mock chooses a port itself, so that connections to this one are passed on to that.
    ///
    /// # Errors
    ///
    /// Somebody else has the port, or it may not be had.
    pub fn start_on(port: u16) -> Result<Self, BrokerError> {
        let mut broker = Self::start()?;
        let behind = broker.address.parse::<SocketAddr>();
        let behind = behind.map_err(|it| BrokerError::Start(it.to_string()))?;
        let door = Door::open(port, behind)
            .map_err(|it| BrokerError::Port { port, reason: it.to_string() })?;
        broker.mock.advertise(door.port());
        broker.address = format!("127.0.0.1:{}", door.port());
        broker._door = Some(door);
        Ok(broker)
    }

    /// Where it listens, as `bootstrap.servers` takes it.
    ///
    /// Clients other than Redrive find it quick with a low `fetch.wait.max.ms`, and with a low `session.timeout.ms` where groups
    /// change: it answers late to both.
    pub fn bootstrap(&self) -> &str {
        &self.address
    }

    /// Makes a topic.
    ///
    /// # Errors
    ///
    /// There is one already, or Kafka has no such names.
    pub fn make_topic(&self, name: &str, partitions: i32) -> Result<(), BrokerError> {
        if let Some(problem) = config::topic_problem(name) {
            return Err(BrokerError::BadName(problem));
        }
        let topic = || name.to_owned();
        if !(1..=MAX_PARTITIONS).contains(&partitions) {
            return Err(BrokerError::BadPartitions { topic: topic(), partitions });
        }
        self.mock.make_topic(name, partitions).map_err(|error| match error {
            KafkaError::MockCluster(RDKafkaErrorCode::TopicAlreadyExists) => {
                BrokerError::AlreadyThere(topic())
            }
            error => BrokerError::Refused { topic: topic(), reason: error.to_string() },
        })?;
        self.topics().insert(topic(), partitions);
        Ok(())
    }

    /// The topics that are known, with their partitions.
    pub(crate) fn topics(&self) -> MutexGuard<'_, BTreeMap<String, i32>> {
        self.topics.lock()
    }

    pub(crate) fn properties(&self) -> Properties {
        Properties::new(&[("bootstrap.servers".to_owned(), self.address.clone())])
    }

    /// Makes all topics that a config needs and that are not there. A source topic gets [`SOURCE_PARTITIONS`], the others as
    /// many as their source has.
    ///
    /// A consumer with this broker does so itself.
    ///
    /// # Errors
    ///
    /// The config has no group, or names that Kafka would take for the same.
    pub async fn make_topics(self: &Arc<Self>, config: &Config) -> Result<(), RunError> {
        topics::embedded::make_all(self, config).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_may_change_threads() {
        fn is_shared<T: Send + Sync + 'static>() {}
        is_shared::<Broker>();
    }

    #[test]
    fn topics_are_made_once_and_only_with_names_that_kafka_has() {
        let broker = Broker::start().unwrap();
        assert_eq!(broker.make_topic("orders", 3), Ok(()));
        assert_eq!(
            broker.make_topic("orders", 4),
            Err(BrokerError::AlreadyThere("orders".to_owned()))
        );
        for name in ["", "..", "or ders", "a\0b", &"a".repeat(250)] {
            let error = broker.make_topic(name, 1).unwrap_err();
            assert!(matches!(error, BrokerError::BadName(_)), "{error}");
        }
        for partitions in [i32::MIN, -1, 0, 10_001, i32::MAX] {
            let error = broker.make_topic("other", partitions).unwrap_err();
            assert!(error.to_string().contains("from 1 to 10,000"), "{error}");
        }
    }

    #[test]
    fn brokers_stand_side_by_side_and_end() {
        let (one, other) = (Broker::start().unwrap(), Broker::start().unwrap());
        assert_ne!(one.bootstrap(), other.bootstrap());
        let at = one.bootstrap().to_owned();
        assert!(std::net::TcpStream::connect(&at).is_ok());
        drop(one);
        assert!(std::net::TcpStream::connect(&at).is_err());
        assert!(std::net::TcpStream::connect(other.bootstrap()).is_ok());
    }

    #[test]
    fn a_port_can_be_chosen_unless_somebody_has_it() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = Broker::start_on(port).unwrap_err().to_string();
        assert!(error.contains(&format!("127.0.0.1:{port}: ")), "{error}");
        assert!(error.contains("take another port"), "{error}");
        drop(taken);
        let broker = Broker::start_on(port).unwrap();
        assert_eq!(broker.bootstrap(), format!("127.0.0.1:{port}"));
        // What it tells clients is that address, too.
        let mut config = rdkafka::ClientConfig::new();
        config.set("bootstrap.servers", broker.bootstrap());
        use rdkafka::producer::Producer;
        let client: rdkafka::producer::BaseProducer = config.create().unwrap();
        let metadata = client.client().fetch_metadata(None, std::time::Duration::from_secs(20));
        let brokers: Vec<_> = metadata.unwrap().brokers().iter().map(|it| it.port()).collect();
        assert_eq!(brokers, [i32::from(port)]);
    }
}
