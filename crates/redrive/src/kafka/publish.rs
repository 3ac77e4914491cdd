//! Publishing: producers whose calls never wait.

#![expect(
    unsafe_code,
    reason = "the rdkafka crate copies the value, and takes only names that are UTF-8"
)]

use std::ffi::CString;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::bindings as sys;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{Producer, ProducerContext, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;
use redrive_core::Timestamp;
use redrive_core::lane::Routed;

use super::client::{Properties, Told};
use super::lifeline::{self, Lifeline, Tethered};
use crate::pack::{Pack, USUAL_HEADERS};
use crate::record::Record;

/// The partitioner decides.
const ANY_PARTITION: i32 = -1;

/// Where a record goes, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) topic: Arc<str>,
    /// Where the topic has it; else the key decides.
    pub(crate) partition: Option<i32>,
    /// Which of its flow's retry topics that is, if it is one.
    pub(crate) tier: Option<usize>,
    /// Before this time nobody needs it there.
    pub(crate) needed_at: Timestamp,
    /// Whether it goes by itself: brokers that refuse a batch do not say for which of its records.
    pub(crate) is_alone: bool,
    /// In their order.
    pub(crate) headers: Pack,
    /// What takes the place of key and value, where something does.
    pub(crate) body: Option<Body>,
}

impl Outgoing {
    /// Key and value: its own, else those of the record that goes there.
    fn content<'a>(&'a self, record: Option<&'a Record>) -> [Option<&'a [u8]>; 2] {
        match &self.body {
            Some(body) => [body.key.as_deref(), body.value.as_deref()],
            None => [record.and_then(Record::key), record.and_then(Record::value)],
        }
    }

    /// How many bytes it takes, more or less.
    pub(crate) fn bytes(&self, record: Option<&Record>) -> usize {
        let content = self.content(record).into_iter().flatten();
        content.map(<[u8]>::len).sum::<usize>() + self.headers.size()
    }
}

/// A key and a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
}

impl Routed for Outgoing {
    fn tier(&self) -> Option<usize> {
        self.tier
    }
}

/// Where a record is that was published, if that is known: below zero if it is not.
pub(crate) type At = i64;

/// Whoever wants to know what became of a publish.
pub(crate) trait Receipt: Send + Sync {
    /// The record was acknowledged by all replicas that are in sync, or it was not.
    fn published(&self, ticket: (u64, i64), result: Result<At, Unpublished>);
}

/// Why a record is not at its next stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unpublished {
    /// It was not taken.
    Refused(RDKafkaErrorCode),
    /// It was part of a transaction that ended because of something else.
    Aborted,
}

/// What goes along with a record until it is acknowledged. librdkafka reads the value where it is, so that it must stay.
pub(crate) struct Pending {
    receipt: Arc<dyn Receipt>,
    ticket: (u64, i64),
    _record: Option<Record>,
    _outgoing: Arc<Outgoing>,
}

/// Brings what becomes of records to whoever wants to know.
pub(crate) struct Context(Told);

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        self.0.error(error, reason);
    }

    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        self.0.log(level, fac, message);
    }
}

impl Tethered for Context {
    fn lifeline(&self) -> &Lifeline {
        self.0.lifeline()
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<Pending>;

    fn delivery(&self, result: &DeliveryResult<'_>, pending: Box<Pending>) {
        let refused = |(error, _): &(KafkaError, _)| Unpublished::Refused(code(error));
        let result = result.as_ref().map(rdkafka::Message::offset).map_err(refused);
        if matches!(result, Err(Unpublished::Refused(RDKafkaErrorCode::MessageTimedOut))) {
            self.lifeline().pull();
        }
        pending.receipt.published(pending.ticket, result);
    }
}

/// An idempotent producer.
pub(crate) struct Publisher {
    producer: ThreadedProducer<Context>,
    /// For what goes by itself. Whoever makes transactions sees to that with this one.
    alone: Option<Alone>,
}

/// A producer whose batches have one record each, made when it is needed.
struct Alone {
    config: ClientConfig,
    told: Told,
    producer: OnceLock<ThreadedProducer<Context>>,
}

impl Alone {
    fn producer(&self) -> KafkaResult<&ThreadedProducer<Context>> {
        if let Some(producer) = self.producer.get() {
            return Ok(producer);
        }
        let producer = connected(&self.config, self.told.clone())?;
        Ok(self.producer.get_or_init(|| producer))
    }
}

fn connected(config: &ClientConfig, told: Told) -> KafkaResult<ThreadedProducer<Context>> {
    let producer: ThreadedProducer<Context> = config.create_with_context(Context(told))?;
    lifeline::tie(producer.client(), config);
    Ok(producer)
}

impl Publisher {
    pub(crate) fn new(properties: &Properties, told: Told) -> KafkaResult<Self> {
        let mut config = properties.producer();
        let producer = connected(&config, told.clone())?;
        config.set("batch.num.messages", "1").set("linger.ms", "0");
        Ok(Self { producer, alone: Some(Alone { config, told, producer: OnceLock::new() }) })
    }

    /// One whose records are part of transactions. Whatever another one of the same name has begun comes to its end first.
    pub(crate) fn transactional(
        properties: &Properties,
        told: Told,
        name: &str,
        limit: Duration,
    ) -> KafkaResult<Self> {
        let producer = connected(&properties.transactional_producer(name), told)?;
        producer.init_transactions(limit)?;
        Ok(Self { producer, alone: None })
    }

    /// The client, for its transactions.
    pub(crate) fn producer(&self) -> &impl Producer<Context> {
        &self.producer
    }

    /// Sends a record on its way. What becomes of it is told to the receipt, by another thread.
    pub(crate) fn publish(
        &self,
        record: Option<Record>,
        outgoing: Arc<Outgoing>,
        receipt: Arc<dyn Receipt>,
        ticket: (u64, i64),
    ) -> Result<(), RDKafkaErrorCode> {
        let pending = Box::new(Pending {
            receipt,
            ticket,
            _record: record.clone(),
            _outgoing: Arc::clone(&outgoing),
        });
        let [key, value] = outgoing.content(record.as_ref());
        let producer = match self.alone.as_ref().filter(|_| outgoing.is_alone) {
            Some(alone) => alone.producer().map_err(|error| code(&error))?,
            None => &self.producer,
        };
        let topic = CString::new(&*outgoing.topic).map_err(|_| RDKafkaErrorCode::InvalidTopic)?;
        let headers = Headers::new(&outgoing.headers);
        let pending = Box::into_raw(pending);
        let mut parts = [
            part(sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_TOPIC, |it| it.cstr = topic.as_ptr()),
            part(sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_PARTITION, |it| {
                it.i32_ = outgoing.partition.unwrap_or(ANY_PARTITION);
            }),
            part(sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_KEY, |it| it.mem = memory(key)),
            part(sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_VALUE, |it| it.mem = memory(value)),
            part(sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_OPAQUE, |it| it.ptr = pending.cast()),
            part(sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_HEADERS, |it| it.headers = headers.0),
        ];
        let client = producer.client().native_ptr();
        // SAFETY: everything that the parts point to is alive; the value stays alive in `pending`, which librdkafka gives
        // back with the delivery report. On success it owns the headers.
        let error = unsafe { sys::rd_kafka_produceva(client, parts.as_mut_ptr(), parts.len()) };
        if error.is_null() {
            std::mem::forget(headers);
            return Ok(());
        }
        // SAFETY: it was not sent, so that what was lent comes back; the error is ours to destroy.
        unsafe {
            drop(Box::from_raw(pending));
            let code = sys::rd_kafka_error_code(error);
            sys::rd_kafka_error_destroy(error);
            Err(code.into())
        }
    }

    /// The cluster's id, if brokers answer within the limit.
    pub(crate) fn cluster_id(&self, limit: Duration) -> Option<String> {
        self.producer.client().fetch_cluster_id(limit)
    }

    /// The offset behind the last record of a partition, if the brokers answer within the limit.
    pub(crate) fn log_end(&self, topic: &str, partition: i32, limit: Duration) -> Option<i64> {
        Some(self.producer.client().fetch_watermarks(topic, partition, limit).ok()?.1)
    }

    /// Waits until nothing is on its way any more.
    pub(crate) fn flush(&self, limit: Duration) -> KafkaResult<()> {
        let until = Instant::now() + limit;
        self.producer.flush(limit)?;
        match self.alone.as_ref().and_then(|it| it.producer.get()) {
            Some(producer) => producer.flush(until.saturating_duration_since(Instant::now())),
            None => Ok(()),
        }
    }
}

/// Whether a record was refused for its size, or for that of the batch that it was in.
pub(crate) fn is_too_large(error: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode::{InvalidMessageSize, MessageBatchTooLarge, MessageSizeTooLarge};
    matches!(error, MessageSizeTooLarge | InvalidMessageSize | MessageBatchTooLarge)
}

/// What an error is about.
fn code(error: &KafkaError) -> RDKafkaErrorCode {
    error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail)
}

/// librdkafka's headers, until it owns them.
struct Headers(*mut sys::rd_kafka_headers_t);

impl Headers {
    fn new(headers: &Pack) -> Self {
        // SAFETY: names and values are copied; a null value is a null pointer.
        unsafe {
            let raw = sys::rd_kafka_headers_new(USUAL_HEADERS);
            for (name, value) in headers.iter() {
                let length = |it: &[u8]| isize::try_from(it.len()).unwrap_or(isize::MAX);
                sys::rd_kafka_header_add(
                    raw,
                    name.as_ptr().cast(),
                    length(name),
                    value.map_or(ptr::null(), |it| it.as_ptr().cast()),
                    value.map_or(0, length),
                );
            }
            Self(raw)
        }
    }
}

impl Drop for Headers {
    fn drop(&mut self) {
        // SAFETY: librdkafka did not take them.
        unsafe { sys::rd_kafka_headers_destroy(self.0) };
    }
}

fn part(
    kind: sys::rd_kafka_vtype_t,
    set: impl FnOnce(&mut sys::rd_kafka_vu_s__bindgen_ty_1),
) -> sys::rd_kafka_vu_t {
    let mut value = sys::rd_kafka_vu_s__bindgen_ty_1 { _pad: [0; 64] };
    set(&mut value);
    sys::rd_kafka_vu_t { vtype: kind, u: value }
}

fn memory(bytes: Option<&[u8]>) -> sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 {
    sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 {
        ptr: bytes.map_or(ptr::null_mut(), |it| it.as_ptr().cast_mut().cast()),
        size: bytes.map_or(0, <[u8]>::len),
    }
}
