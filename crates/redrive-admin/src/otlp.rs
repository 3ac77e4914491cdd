//! Traces, to a collector that speaks OTLP over HTTP.
//!
//! Spans wait in a queue of a fixed size and are posted in batches, as JSON. A collector that is away holds nothing up: what does
//! not fit is dropped and counted, and a line in the log tells of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::header;
use hyper_util::rt::TokioIo;
use parking_lot::{Condvar, Mutex, MutexGuard};
use redrive::RunSpan;
use redrive::config::Otlp;
use serde_json::{Value, json};
use tokio::net::TcpStream;

/// How many spans wait at the most, and how many are sent at once.
const WAITING: usize = 8192;
const BATCH: usize = 512;
/// How long a batch is waited for, and how long the collector may take.
const EVERY: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(5);
/// How often a batch is sent before it is dropped, and how long is waited in between.
const TRIES: u32 = 3;
const AGAIN: Duration = Duration::from_secs(1);
/// How long what is left may take at the end.
const AT_THE_END: Duration = Duration::from_secs(5);
/// How often it is told that spans are dropped.
const TELL_EVERY: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    spans: VecDeque<RunSpan>,
    dropped: u64,
    is_over: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn put(&self, span: RunSpan) {
        let mut state = self.lock();
        if state.spans.len() >= WAITING {
            state.dropped += 1;
            return;
        }
        state.spans.push_back(span);
        let is_batch = state.spans.len() == BATCH;
        drop(state);
        if is_batch {
            self.changed.notify_one();
        }
    }

    /// The next batch, when it is full, when it is time, or at the end. None when it is over.
    fn take(&self) -> Option<Vec<RunSpan>> {
        let until = Instant::now() + EVERY;
        let mut state = self.lock();
        loop {
            let wait = until.saturating_duration_since(Instant::now());
            let is_time = wait.is_zero() && !state.spans.is_empty();
            if state.is_over || is_time || state.spans.len() >= BATCH {
                let size = state.spans.len().min(BATCH);
                let batch: Vec<_> = state.spans.drain(..size).collect();
                return (!batch.is_empty() || !state.is_over).then_some(batch);
            }
            let wait = if wait.is_zero() { EVERY } else { wait };
            self.changed.wait_for(&mut state, wait);
        }
    }
}

/// Sends spans to a collector. What is left is sent when this is dropped.
pub struct Exporter {
    queue: Arc<Queue>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Exporter {
    /// Sends spans to this collector from now on, whether or not it is there.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(otlp: &Otlp) -> std::io::Result<Self> {
        let queue = Arc::<Queue>::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let sender =
            Sender { otlp: otlp.clone(), queue: Arc::clone(&queue), told: None, dropped: 0 };
        let thread = thread::Builder::new()
            .name("redrive-otlp".to_owned())
            .spawn(move || runtime.block_on(sender.run()))?;
        Ok(Self { queue, thread: Some(thread) })
    }

    /// What takes the spans of a consumer: give it to [`redrive::Consumer::with_tracer`].
    pub fn tracer(&self) -> impl Fn(RunSpan) + Send + Sync + 'static + use<> {
        let queue = Arc::clone(&self.queue);
        move |span| queue.put(span)
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.queue.lock().is_over = true;
        self.queue.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

struct Sender {
    otlp: Otlp,
    queue: Arc<Queue>,
    /// When it was last told that spans are dropped.
    told: Option<Instant>,
    dropped: u64,
}

impl Sender {
    async fn run(mut self) {
        let mut ends_at = None;
        while let Some(batch) = self.queue.take() {
            if self.queue.lock().is_over {
                let until = *ends_at.get_or_insert_with(|| Instant::now() + AT_THE_END);
                if Instant::now() > until {
                    return;
                }
            }
            self.send(&batch).await;
        }
    }

    async fn send(&mut self, batch: &[RunSpan]) {
        if batch.is_empty() {
            return;
        }
        let body = Bytes::from(body(batch).to_string());
        let mut problem = String::new();
        for tried in 0..TRIES {
            if tried > 0 {
                if self.queue.lock().is_over {
                    break;
                }
                tokio::time::sleep(AGAIN).await;
            }
            match tokio::time::timeout(ANSWER, post(&self.otlp, body.clone())).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => problem = error,
                Err(_) => problem = "no answer in time".to_owned(),
            }
        }
        let mut state = self.queue.lock();
        self.dropped += batch.len() as u64 + std::mem::take(&mut state.dropped);
        drop(state);
        if self.told.is_none_or(|it| it.elapsed() >= TELL_EVERY) {
            let (host, port) = (&self.otlp.host, self.otlp.port);
            let count = std::mem::take(&mut self.dropped);
            tracing::warn!(
                "{count} spans were dropped, since the collector at {host}:{port} does not take them: {problem}"
            );
            self.told = Some(Instant::now());
        }
    }
}

async fn post(otlp: &Otlp, body: Bytes) -> Result<(), String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let stream =
        TcpStream::connect((otlp.host.as_str(), otlp.port)).await.map_err(|it| text(&it))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|it| text(&it))?;
    let connection = tokio::spawn(connection);
    let host = if otlp.host.contains(':') { format!("[{}]", otlp.host) } else { otlp.host.clone() };
    let request = Request::post(format!("{}/v1/traces", otlp.path))
        .header(header::HOST, format!("{host}:{}", otlp.port))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .map_err(|it| text(&it))?;
    let answer = sender.send_request(request).await.map_err(|it| text(&it))?;
    let status = answer.status();
    // The answer is read, so that the connection ends well.
    _ = Limited::new(answer.into_body(), 1 << 20).collect().await;
    connection.abort();
    if status.is_success() { Ok(()) } else { Err(format!("status {}", status.as_u16())) }
}

/// What OTLP calls a request, in JSON.
fn body(spans: &[RunSpan]) -> Value {
    let service = std::env::var("OTEL_SERVICE_NAME").ok().filter(|it| !it.is_empty());
    let service = service.unwrap_or_else(|| "redrive".to_owned());
    json!({
        "resourceSpans": [{
            "resource": { "attributes": [text("service.name", &service)] },
            "scopeSpans": [{
                "scope": { "name": "redrive", "version": env!("CARGO_PKG_VERSION") },
                "spans": spans.iter().map(span).collect::<Vec<_>>(),
            }],
        }],
    })
}

fn span(span: &RunSpan) -> Value {
    let mut attributes = vec![
        text("messaging.system", "kafka"),
        text("messaging.operation.type", "process"),
        text("messaging.destination.name", &span.topic),
        text("messaging.destination.partition.id", &span.partition.to_string()),
        text("messaging.consumer.group.name", &span.group),
        number("messaging.kafka.offset", span.offset),
        text("redrive.record", &span.record),
        number("redrive.attempts", span.overall.into()),
        number("redrive.runs_in_place", span.in_place.into()),
    ];
    attributes.extend(span.policy.as_deref().map(|it| text("redrive.policy", it)));
    const CONSUMER: u8 = 5;
    const ERROR: u8 = 2;
    let mut json = json!({
        "traceId": hex(&span.trace),
        "spanId": hex(&span.id),
        "name": format!("process {}", span.topic),
        "kind": CONSUMER,
        "startTimeUnixNano": nanos(span.began),
        "endTimeUnixNano": nanos(span.ended),
        "attributes": attributes,
    });
    if let Some(parent) = &span.parent {
        json["parentSpanId"] = hex(parent).into();
    }
    if let Some(error) = &span.error {
        json["status"] = json!({ "code": ERROR, "message": error });
    }
    json
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// Numbers of 64 bits are text in OTLP's JSON.
fn number(key: &str, value: i64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

fn nanos(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|it| format!("{it:02x}")).collect()
}
