//! Running handlers.
//!
//! Records are handed to tokio in chunks. Most handlers that are quick are done at the first poll, and cost no task of their
//! own; those that wait for something get one.

use std::future::Future;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use redrive_core::{Failure, Kind};
use tokio::runtime::Handle;

use super::inbox::{Inbox, Ran};
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

/// The most records that one chunk has.
const CHUNK: usize = 128;

/// Runs records.
pub(super) struct Runner {
    pub(super) runtime: Handle,
    pub(super) handler: Arc<dyn AnyHandler>,
    pub(super) timeout: Option<Duration>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) numbers: Arc<Numbers>,
    pub(super) tracer: Option<Tracer>,
}

impl Runner {
    pub(super) fn start(self: &Arc<Self>, starts: &mut Vec<Start>) {
        let workers = thread::available_parallelism().map_or(1, NonZero::get);
        let size = starts.len().div_ceil(workers).clamp(1, CHUNK);
        while !starts.is_empty() {
            let rest = starts.split_off(size.min(starts.len()));
            let chunk = std::mem::replace(starts, rest);
            self.runtime.spawn(Arc::clone(self).run(chunk));
        }
    }

    async fn run(self: Arc<Self>, chunk: Vec<Start>) {
        let mut done = Vec::with_capacity(chunk.len());
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
                    done.push(Ran { lane, offset, outcome });
                    watch.ran(&self.numbers);
                    continue;
                }
            };
            // Whoever takes it over polls it again at once, and is woken from then on.
            match Pin::new(&mut run).poll(&mut task::Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => {
                    end(traced, &outcome);
                    done.push(Ran { lane, offset, outcome });
                    watch.ran(&self.numbers);
                }
                Poll::Pending => {
                    let began = watch.hands_over(&self.numbers);
                    tokio::spawn(Arc::clone(&self).finish(run, began, traced, lane, offset));
                }
            }
        }
        watch.note(&self.numbers);
        if !done.is_empty() {
            self.inbox.ran(&mut done);
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
        self.inbox.ran(&mut vec![Ran { lane, offset, outcome }]);
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
