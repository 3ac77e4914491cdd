//! Running handlers.
//!
//! Records are handed to tokio in chunks. Most handlers that are quick are done at the first poll, and cost no task of their
//! own; those that wait for something get one.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{self, Poll, Waker};
use std::time::{Duration, Instant};

use redrive_core::{Failure, Kind};
use tokio::runtime::Handle;

use super::inbox::{Ended, Inbox};
use super::trace::{Begun, Tracer};
use crate::handler::{AnyHandler, Context, Outcome, Run};
use crate::numbers::Numbers;
use crate::record::Record;

/// A record that is to run.
pub(super) struct Start {
    pub(super) lane: u64,
    pub(super) offset: i64,
    pub(super) record: Record,
    pub(super) context: Context,
}

/// How long a chunk should take at least: to wake a thread costs a part of that.
const WORTH: Duration = Duration::from_micros(50);
/// The most records that one chunk has.
const CHUNK: usize = 1024;

/// Runs records.
pub(super) struct Runner {
    pub(super) runtime: Handle,
    pub(super) handler: Arc<dyn AnyHandler>,
    pub(super) timeout: Option<Duration>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) numbers: Arc<Numbers>,
    pub(super) tracer: Option<Tracer>,
    /// How many threads run handlers.
    pub(super) workers: usize,
    /// How many nanoseconds a run took lately, up to its end or its first wait.
    pub(super) pace: AtomicU64,
}

impl Runner {
    pub(super) fn start(self: &Arc<Self>, starts: &mut Vec<Start>) {
        // As many chunks as there are threads, if there is enough to do; by what runs took lately.
        let pace = usize::try_from(self.pace.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let worth = usize::try_from(WORTH.as_nanos()).unwrap_or(usize::MAX) / pace.max(1);
        let share = starts.len().div_ceil(self.workers);
        let size = share.max(worth).clamp(1, CHUNK);
        let mut starts = starts.drain(..);
        while starts.len() > 0 {
            let chunk = starts.by_ref().take(size).collect();
            self.runtime.spawn(Arc::clone(self).run(chunk));
        }
    }

    async fn run(self: Arc<Self>, chunk: Vec<Start>) {
        let (began, runs) = (Instant::now(), chunk.len());
        let mut ended = Ended::with_room(runs);
        let mut watch = Stopwatch::new();
        for Start { lane, offset, record, context } in chunk {
            let traced = match &self.tracer {
                None => None,
                Some(tracer) => Begun::new(tracer, &record, &context),
            };
            let started =
                catch_unwind(AssertUnwindSafe(|| Arc::clone(&self.handler).start(record, context)));
            let mut run = match started {
                Ok(run) => Guarded(run),
                Err(panic) => {
                    let outcome = panicked(&*panic);
                    end(traced, &outcome);
                    ended.push(lane, offset, outcome);
                    watch.ran(&self.numbers);
                    continue;
                }
            };
            // Whoever takes it over polls it again at once, and is woken from then on.
            match Pin::new(&mut run).poll(&mut task::Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => {
                    end(traced, &outcome);
                    ended.push(lane, offset, outcome);
                    watch.ran(&self.numbers);
                }
                Poll::Pending => {
                    let began = watch.hands_over(&self.numbers);
                    tokio::spawn(Arc::clone(&self).finish(run, began, traced, lane, offset));
                }
            }
        }
        watch.note(&self.numbers);
        let pace = began.elapsed().as_nanos() / runs.max(1) as u128;
        self.pace.store(u64::try_from(pace).unwrap_or(u64::MAX), Ordering::Relaxed);
        if !ended.is_empty() {
            self.inbox.ran(ended);
        }
    }

    async fn finish(
        self: Arc<Self>,
        run: Guarded,
        began: Instant,
        traced: Option<Box<Begun>>,
        lane: u64,
        offset: i64,
    ) {
        let outcome = match self.timeout {
            None => run.await,
            Some(limit) => tokio::time::timeout(limit, run).await.unwrap_or_else(|_| {
                let message = format!("no answer within {limit:?}");
                Outcome::Failed(Failure::of_kind(Kind::TIMEOUT).with_message(message))
            }),
        };
        self.numbers.run_time.note(1, began.elapsed());
        end(traced, &outcome);
        let mut ended = Ended::default();
        ended.push(lane, offset, outcome);
        self.inbox.ran(ended);
    }
}

/// A run that is traced has ended.
fn end(traced: Option<Box<Begun>>, outcome: &Outcome) {
    if let Some(traced) = traced {
        traced.ended(outcome);
    }
}

/// Measures runs that end at the first poll. The clock costs as much as such a run may, so that of quick ones it is looked at
/// once for a few; their time together is exact, and each is taken to have had the same share.
struct Stopwatch {
    looked: Instant,
    runs: u32,
    at_once: u32,
}

impl Stopwatch {
    /// How many runs share a look at the clock, and how quick they have to be for that.
    const SHARED: u32 = 8;
    const QUICK: Duration = Duration::from_micros(20);

    fn new() -> Self {
        Self { looked: Instant::now(), runs: 0, at_once: 1 }
    }

    /// A run has ended.
    fn ran(&mut self, numbers: &Numbers) {
        self.runs += 1;
        if self.runs >= self.at_once {
            self.note(numbers);
        }
    }

    /// A run goes on elsewhere. Returns when it began.
    fn hands_over(&mut self, numbers: &Numbers) -> Instant {
        let began = self.looked;
        if self.runs > 0 {
            self.note(numbers);
        } else {
            self.looked = Instant::now();
        }
        began
    }

    /// Notes the runs since the last look.
    fn note(&mut self, numbers: &Numbers) {
        if self.runs > 0 {
            let now = Instant::now();
            let each = now.saturating_duration_since(self.looked) / self.runs;
            numbers.run_time.note(u64::from(self.runs), each);
            self.at_once = if each < Self::QUICK { Self::SHARED } else { 1 };
            (self.looked, self.runs) = (now, 0);
        }
    }
}

/// A run whose panics are failures.
struct Guarded(Run);

impl Future for Guarded {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<Outcome> {
        let run = self.0.as_mut();
        match catch_unwind(AssertUnwindSafe(|| run.poll(context))) {
            Ok(poll) => poll,
            Err(panic) => Poll::Ready(panicked(&*panic)),
        }
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Outcome {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = text.unwrap_or("the handler panicked").to_owned();
    Outcome::Failed(Failure::of_kind(Kind::PANIC).with_message(message))
}
