//! A way back to the brokers, for a client that has lost all of them.
//!
//! librdkafka forgets the brokers that are not in the metadata it is sent. A cluster may have none for a moment: its only broker is
//! fenced after a stall, or the one that answers has lost sight of the others. Then all are forgotten, and the same answer stops the client on its
//! way back to the bootstrap servers, for good (librdkafka's issue 5301). So whoever hears that all brokers are down, or has no answer, looks
//! whether any are known, and if not, adds these again.

#![expect(unsafe_code, reason = "the rdkafka crate cannot add brokers")]

use std::ffi::CString;
use std::sync::OnceLock;

use rdkafka::ClientConfig;
use rdkafka::bindings as sys;
use rdkafka::client::{Client, ClientContext};

/// Part of a client's context, and tied to that client.
#[derive(Default)]
pub(crate) struct Lifeline(OnceLock<Tied>);

struct Tied {
    client: *mut sys::rd_kafka_t,
    servers: CString,
}

// SAFETY: brokers may be added by any thread.
unsafe impl Send for Tied {}
// SAFETY: see above.
unsafe impl Sync for Tied {}

/// The context of a client that can be brought back.
pub(crate) trait Tethered: ClientContext {
    fn lifeline(&self) -> &Lifeline;
}

/// Ties a client to the bootstrap servers of its config.
pub(crate) fn tie<C: Tethered>(client: &Client<C>, config: &ClientConfig) {
    let servers = config.get("bootstrap.servers").or_else(|| config.get("metadata.broker.list"));
    if let Some(servers) = servers.and_then(|it| CString::new(it).ok()) {
        _ = client.context().lifeline().0.set(Tied { client: client.native_ptr(), servers });
    }
}

impl Lifeline {
    /// Adds the bootstrap servers again, if the client knows no brokers.
    ///
    /// Only for callbacks of the client, and for threads that have it.
    pub(crate) fn pull(&self) {
        if let Some(tied) = self.0.get().filter(|it| it.known() == 0) {
            // SAFETY: the client calls, or somebody who has it, so that it is alive; the text ends with a zero.
            unsafe { sys::rd_kafka_brokers_add(tied.client, tied.servers.as_ptr()) };
        }
    }
}

impl Tied {
    /// How many brokers the client knows from metadata. It has to be alive.
    fn known(&self) -> usize {
        let mut known = 0;
        // SAFETY: the client is alive. What it gives is ours, and may be null.
        unsafe {
            let ids = sys::rd_kafka_brokers_learned_ids(self.client, &raw mut known);
            sys::rd_kafka_mem_free(self.client, ids.cast());
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use rdkafka::consumer::{BaseConsumer, Consumer};

    use super::*;
    use crate::event::Events;
    use crate::kafka::client::Told;

    /// A broker that knows of one topic, and of itself or of nobody.
    struct Lonely {
        port: u16,
        is_fenced: Arc<AtomicBool>,
    }

    impl Lonely {
        fn start() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let is_fenced = Arc::new(AtomicBool::new(false));
            let fenced = Arc::clone(&is_fenced);
            thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    let fenced = Arc::clone(&fenced);
                    thread::spawn(move || answer(stream, port, &fenced));
                }
            });
            Self { port, is_fenced }
        }
    }

    /// Answers requests for metadata, version 0, and no others, until the client goes.
    fn answer(mut stream: TcpStream, port: u16, is_fenced: &AtomicBool) -> Option<()> {
        loop {
            let mut length = [0; 4];
            stream.read_exact(&mut length).ok()?;
            let mut request = vec![0; usize::try_from(u32::from_be_bytes(length)).ok()?];
            stream.read_exact(&mut request).ok()?;
            if request.get(..4)? != [0, 3, 0, 0] {
                continue;
            }
            let mut response = request.get(4..8)?.to_vec();
            if is_fenced.load(Ordering::SeqCst) {
                response.extend(0_i32.to_be_bytes());
            } else {
                response.extend([1_i32.to_be_bytes(), 1_i32.to_be_bytes()].concat());
                response.extend(b"\x00\x09127.0.0.1");
                response.extend(i32::from(port).to_be_bytes());
            }
            // One topic, whose leader is not available, without partitions.
            response.extend(1_i32.to_be_bytes());
            response.extend(b"\x00\x05\x00\x06orders");
            response.extend(0_i32.to_be_bytes());
            // librdkafka takes four times the response for enough memory, which it is not where there is so little.
            response.resize(1000, 0);
            let length = u32::try_from(response.len()).ok()?;
            stream.write_all(&[&length.to_be_bytes()[..], &response].concat()).ok()?;
        }
    }

    #[test]
    fn a_client_that_was_told_of_no_brokers_finds_them_again() {
        let lonely = Lonely::start();
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", format!("127.0.0.1:{}", lonely.port))
            .set("group.id", "g")
            .set("api.version.request", "false")
            .set("broker.version.fallback", "0.9.0")
            // Its own way back works, unless one of its threads is slow.
            .set("metadata.recovery.strategy", "none");
        let told = Told::new(Events::default());
        let consumer: BaseConsumer<Told> = config.create_with_context(told).unwrap();
        tie(consumer.client(), &config);
        let brokers = |seconds| {
            let limit = Duration::from_secs(seconds);
            consumer.fetch_metadata(Some("orders"), limit).map(|it| it.brokers().len())
        };
        assert_eq!(brokers(20), Ok(1));
        // Nobody is lost as long as somebody is known.
        consumer.context().lifeline().pull();
        assert_eq!(brokers(20), Ok(1));

        lonely.is_fenced.store(true, Ordering::SeqCst);
        // It may hear of that by itself, before it is asked. Then there is nobody left to ask; an answer may be late once.
        let is_lost = || consumer.context().lifeline().0.get().is_some_and(|it| it.known() == 0);
        let (began, mut errors) = (Instant::now(), 0);
        while errors < 2 || !is_lost() {
            errors = if brokers(1).is_ok() { 0 } else { errors + 1 };
            assert!(began.elapsed() < Duration::from_secs(60), "some broker is still known");
        }
        lonely.is_fenced.store(false, Ordering::SeqCst);
        assert!(brokers(2).is_err(), "librdkafka finds them itself: is this still needed?");
        consumer.context().lifeline().pull();
        assert_eq!(brokers(20), Ok(1));
    }
}
