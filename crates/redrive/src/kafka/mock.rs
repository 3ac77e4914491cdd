//! librdkafka's own broker for tests, which speaks Kafka's protocol on a loopback port of its choice.
//!
//! It lives on threads of a client of ours that does nothing else.

#![expect(
    unsafe_code,
    reason = "the rdkafka crate's mock cluster may not change threads, and lets groups wait"
)]

use std::ffi::{CStr, CString};
use std::ptr::NonNull;
use std::thread;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::bindings as sys;
use rdkafka::client::{Client, ClientContext};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::types::RDKafkaType;

/// One broker is enough: what several do for each other, the mock does not do anyway.
const BROKERS: i32 = 1;
/// How often members of the newer protocol report, and after how long without that they are gone, in milliseconds.
const HEARTBEAT: i32 = 200;
const SESSION: i32 = 6000;
/// How long it is left alone after it was told something: it forgets that it was woken if it is told something else right after
/// its answer, and then sleeps for up to a second.
const BETWEEN: Duration = Duration::from_millis(1);
/// They are counted from here.
const FIRST: i32 = 1;

/// Nobody hears what the client says that carries the mock: it talks to nobody.
struct Silent;

impl ClientContext for Silent {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}
}

pub(crate) struct Mock {
    raw: NonNull<sys::rd_kafka_mock_cluster_t>,
    bootstrap: String,
    /// Declared last, since the mock needs it until its own end.
    _client: Client<Silent>,
}

// SAFETY: the mock is told what to do over a queue, or under its lock, and so by any thread.
unsafe impl Send for Mock {}
// SAFETY: see above.
unsafe impl Sync for Mock {}

impl Mock {
    /// Starts one.
    pub(crate) fn start() -> Result<Self, KafkaError> {
        let mut config = ClientConfig::new();
        // What it logs is kept until somebody fetches it, which nobody does.
        config.set_log_level(RDKafkaLogLevel::Emerg).set("log_level", "0");
        let native = config.create_native_config()?;
        let client = Client::new(&config, native, RDKafkaType::RD_KAFKA_PRODUCER, Silent)?;
        // SAFETY: the client is alive, and stays so for as long as the mock.
        let raw = unsafe { sys::rd_kafka_mock_cluster_new(client.native_ptr(), BROKERS) };
        let raw = NonNull::new(raw).ok_or(KafkaError::MockCluster(RDKafkaErrorCode::Fail))?;
        // SAFETY: the mock is alive, and its text as long; it is copied before anything can end.
        let bootstrap =
            unsafe { CStr::from_ptr(sys::rd_kafka_mock_cluster_bootstraps(raw.as_ptr())) };
        let bootstrap = bootstrap.to_string_lossy().into_owned();
        // SAFETY: the mock is alive. Groups would otherwise wait three seconds for more members, and those of the newer
        // protocol ask every three seconds whether anything is new, and miss a member after thirty.
        unsafe {
            sys::rd_kafka_mock_group_initial_rebalance_delay_ms(raw.as_ptr(), 0);
            sys::rd_kafka_mock_set_group_consumer_heartbeat_interval_ms(raw.as_ptr(), HEARTBEAT);
            sys::rd_kafka_mock_set_group_consumer_session_timeout_ms(raw.as_ptr(), SESSION);
        }
        Ok(Self { raw, bootstrap, _client: client })
    }

    /// Where it listens.
    pub(crate) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Makes a topic. There must be at least one partition.
    pub(crate) fn make_topic(&self, name: &str, partitions: i32) -> Result<(), KafkaError> {
        let name = CString::new(name)?;
        // SAFETY: the mock is alive, and copies the name.
        let made = unsafe {
            sys::rd_kafka_mock_topic_create(self.raw.as_ptr(), name.as_ptr(), partitions, BROKERS)
        };
        thread::sleep(BETWEEN);
        match RDKafkaErrorCode::from(made) {
            RDKafkaErrorCode::NoError => Ok(()),
            code => Err(KafkaError::MockCluster(code)),
        }
    }

    /// Lets it tell clients to connect to this port of the loopback address, instead of its own.
    pub(crate) fn advertise(&self, port: u16) {
        // SAFETY: the mock is alive, and copies the name.
        unsafe {
            sys::rd_kafka_mock_broker_set_host_port(
                self.raw.as_ptr(),
                FIRST,
                c"127.0.0.1".as_ptr(),
                port.into(),
            );
        }
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        // SAFETY: it is ours, and the client that carries it is still alive.
        unsafe { sys::rd_kafka_mock_cluster_destroy(self.raw.as_ptr()) };
    }
}
