//! Running handlers.
//!
//! Records are handed over in chunks. Most handlers that are quick are done at the first poll, and cost no task of their
//! own; those that wait for something get one.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{self, Poll, Waker};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;
use redrive_core::{Failure, InPlace, Kind};
use tokio::runtime::Handle;

use super::inbox::{Ended, Inbox};
use super::load::Load;
use super::plan::{FlowPlan, Role};
use super::quick::Quick;
use super::trace::{Begun, Tracer};
use crate::handler::{Context, Handler, Outcome};
use crate::numbers::Numbers;
use crate::record::Record;

/// A record that is to run.
pub(super) struct Start {
    pub(super) lane: u64,
    pub(super) role: Role,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) load: Load,
    pub(super) in_place: InPlace,
}

/// Records that are to run. Those that waited for their time come before those that have none.
#[derive(Default)]
pub(super) struct Starts {
    due: Vec<Start>,
    fresh: Vec<Start>,
}

impl Starts {
    #[inline]
    pub(super) fn push(&mut self, start: Start) {
        let line = if start.role == Role::Source { &mut self.fresh } else { &mut self.due };
        line.push(start);
    }

    pub(super) fn len(&self) -> usize {
        self.due.len() + self.fresh.len()
    }
}

/// How a run ended: well, or otherwise. A failure is large, and most runs have none.
pub(crate) type End = Option<Box<Outcome>>;

/// A run that waits for something.
type Run = Pin<Box<dyn Future<Output = End> + Send>>;

/// How long a chunk should take at least: to wake a thread costs a part of that.
const WORTH: Duration = Duration::from_micros(500);
/// The most records that one chunk has.
const CHUNK: usize = 1024;
/// Runs that take no longer than this, and do not wait, are quick.
const QUICK: Duration = Duration::from_micros(5);

/// How many records ahead one is asked for, and how many its value, which is looked for there.
const AHEAD: usize = 8;
const VALUE_AHEAD: usize = 4;

/// Runs records.
pub(super) struct Runner {
    pub(super) runtime: Handle,
    pub(super) handler: Arc<dyn AnyHandler>,
    pub(super) plan: Arc<FlowPlan>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) numbers: Arc<Numbers>,
    pub(super) tracer: Option<Tracer>,
    /// How many threads run handlers.
    pub(super) workers: usize,
    pub(super) quick: Arc<Quick<Vec<Start>>>,
    /// How many nanoseconds a run took lately, up to its end or its first wait.
    pub(super) pace: AtomicU64,
    /// Whether runs waited for something lately.
    pub(super) waits: AtomicBool,
}

impl Runner {
    pub(super) fn start(self: &Arc<Self>, starts: &mut Starts) {
        self.start_all(&mut starts.due, true);
        self.start_all(&mut starts.fresh, false);
    }

    /// Starts runs: if they are due, before others that were not begun yet.
    fn start_all(self: &Arc<Self>, starts: &mut Vec<Start>, is_due: bool) {
        // As many chunks as there are threads, if there is enough to do; by what runs took lately.
        let pace = Duration::from_nanos(self.pace.load(Ordering::Relaxed));
        let worth = WORTH.as_nanos() / pace.as_nanos().max(1);
        let share = starts.len().div_ceil(self.workers);
        let size = share.max(usize::try_from(worth).unwrap_or(usize::MAX)).clamp(1, CHUNK);
        // Those that wait are better off with tokio's workers: what they wait for wakes them there.
        let is_quick = pace <= QUICK && !self.waits.load(Ordering::Relaxed);
        // The room stays here: to grow it again each time costs more than to move the records once.
        let mut left = starts.drain(..);
        while left.len() > 0 {
            let chunk: Vec<_> = left.by_ref().take(size).collect();
            if is_quick {
                self.quick.push(chunk, is_due, &self.runtime, self.runs());
            } else {
                let runner = Arc::clone(self);
                self.runtime.spawn(async move { runner.run(chunk) });
            }
        }
    }

    /// Looks after threads that were quick and are stuck. Returns when to look again.
    pub(super) fn look(self: &Arc<Self>) -> Option<Duration> {
        self.quick.look(&self.runtime, self.runs())
    }

    fn runs(self: &Arc<Self>) -> impl FnMut(Vec<Start>) + Send + 'static {
        let runner = Arc::clone(self);
        move |chunk| Arc::clone(&runner).run(chunk)
    }

    fn run(self: Arc<Self>, chunk: Vec<Start>) {
        let (began, runs) = (Instant::now(), chunk.len());
        let handler = Arc::clone(&self.handler);
        let mut chunk = Chunk {
            ended: Ended::default(),
            starts: chunk.into_iter(),
            now: None,
            watch: Stopwatch::new(),
            waits: 0,
            runner: self,
        };
        handler.begin(&mut chunk);
        let Chunk { runner, ended, mut watch, waits, .. } = chunk;
        watch.note(&runner.numbers);
        let pace = began.elapsed().as_nanos() / runs.max(1) as u128;
        runner.pace.store(u64::try_from(pace).unwrap_or(u64::MAX), Ordering::Relaxed);
        runner.waits.store(waits > runs / 8, Ordering::Relaxed);
        if !ended.is_empty() {
            runner.inbox.ran(ended);
        }
    }

    async fn finish(self: Arc<Self>, mut run: Guarded, began: Instant, now: Now) {
        let end = match self.plan.timeout {
            None => run.await,
            Some(limit) => match tokio::time::timeout(limit, &mut run).await {
                Ok(end) => end,
                Err(_) => {
                    // What is given up is the user's, too, and may panic.
                    _ = catch_unwind(AssertUnwindSafe(|| drop(run)));
                    let message = format!("no answer within {limit:?}");
                    let failure = Failure::of_kind(Kind::TIMEOUT).with_message(message);
                    Some(Box::new(Outcome::Failed(failure)))
                }
            },
        };
        self.numbers.run_time.note(1, began.elapsed());
        let mut ended = Ended::default();
        now.ended(end, &mut ended);
        self.inbox.ran(ended);
    }
}

/// A record that runs.
struct Now {
    lane: u64,
    offset: i64,
    /// The handler has another one, and may let go of it.
    record: Record,
    traced: Option<Box<Begun>>,
}

impl Now {
    /// It has ended.
    #[inline]
    fn ended(self, end: End, ended: &mut Ended) {
        if let Some(traced) = self.traced {
            traced.ended(end.as_deref().unwrap_or(&Outcome::Done));
        }
        ended.push(self.lane, self.offset, end, self.record);
    }
}

/// Runs that begin together.
pub(crate) struct Chunk {
    runner: Arc<Runner>,
    starts: std::vec::IntoIter<Start>,
    now: Option<Now>,
    ended: Ended,
    watch: Stopwatch,
    /// How many did not end at once.
    waits: usize,
}

impl Chunk {
    /// The next record that is to run.
    #[inline]
    fn next(&mut self) -> Option<(Record, Context)> {
        let Start { lane, role, partition, offset, load, in_place } = self.starts.next()?;
        // Whatever is to run has its record: a lane lends it once.
        let record = load.into_record()?;
        let coming = self.starts.as_slice();
        if let Some(start) = coming.get(AHEAD) {
            start.load.prefetch();
        }
        if let Some(start) = coming.get(VALUE_AHEAD) {
            start.load.prefetch_value();
        }
        let context = self.runner.plan.context(role, (partition, offset), &record, in_place);
        let tracer = self.runner.tracer.as_ref();
        let traced = tracer.and_then(|it| Begun::new(it, &record, &context));
        self.now = Some(Now { lane, offset, record: record.clone(), traced });
        Some((record, context))
    }

    /// It has ended at once.
    #[inline]
    fn ended(&mut self, end: End) {
        if let Some(now) = self.now.take() {
            now.ended(end, &mut self.ended);
        }
        self.watch.ran(&self.runner.numbers);
    }

    /// It waits for something. It was polled without a waker, so whoever takes it over polls it again at once.
    fn waits(&mut self, run: Run) {
        self.waits += 1;
        let began = self.watch.hands_over(&self.runner.numbers);
        if let Some(now) = self.now.take() {
            let finish = Arc::clone(&self.runner).finish(Guarded(run), began, now);
            self.runner.runtime.spawn(finish);
        }
    }
}

/// A handler of whatever type.
pub(crate) trait AnyHandler: Send + Sync {
    /// Begins runs, one after the other. Those that end at once share the memory for what they do; panics are failures.
    fn begin(self: Arc<Self>, chunk: &mut Chunk);

    fn resumed(&self);
}

impl<H: Handler> AnyHandler for H {
    fn begin(self: Arc<Self>, chunk: &mut Chunk) {
        let mut place = Box::pin(Place::default());
        while let Some((record, context)) = chunk.next() {
            let lent = place.as_mut().project().back.take();
            let handler = lent.unwrap_or_else(|| Arc::clone(&self));
            let run = async move {
                let end = match handler.handle(record, context).await {
                    Outcome::Done => None,
                    outcome => Some(Box::new(outcome)),
                };
                (end, handler)
            };
            let polled = catch_unwind(AssertUnwindSafe(|| {
                place.as_mut().project().run.set(Some(run));
                place.as_mut().poll(&mut task::Context::from_waker(Waker::noop()))
            }));
            let end = match polled {
                Ok(Poll::Pending) => {
                    let run = std::mem::replace(&mut place, Box::pin(Place::default()));
                    chunk.waits(run);
                    continue;
                }
                Ok(Poll::Ready(end)) => end,
                Err(panic) => panicked(&*panic),
            };
            // What it leaves behind is the user's, too.
            let left = catch_unwind(AssertUnwindSafe(|| place.as_mut().project().run.set(None)));
            chunk.ended(left.map_or_else(|panic| panicked(&*panic), |()| end));
        }
    }

    fn resumed(&self) {
        Handler::resumed(self);
    }
}

pin_project! {
    /// Memory for a run.
    struct Place<F, H> {
        #[pin]
        run: Option<F>,
        // The handler of a run that has ended: the next one need not count a reference to it.
        back: Option<Arc<H>>,
    }
}

impl<F, H> Default for Place<F, H> {
    fn default() -> Self {
        Self { run: None, back: None }
    }
}

impl<F: Future<Output = (End, Arc<H>)>, H> Future for Place<F, H> {
    type Output = End;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<End> {
        let place = self.project();
        let polled = place.run.as_pin_mut().map_or(Poll::Pending, |it| it.poll(context));
        polled.map(|(end, handler)| {
            *place.back = Some(handler);
            end
        })
    }
}

/// A panic is a failure of its own kind.
fn panicked(panic: &(dyn Any + Send)) -> End {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = text.unwrap_or("the handler panicked").to_owned();
    let failure = Failure::of_kind(Kind::PANIC).with_message(message);
    Some(Box::new(Outcome::Failed(failure)))
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
    type Output = End;

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<End> {
        let run = self.0.as_mut();
        match catch_unwind(AssertUnwindSafe(|| run.poll(context))) {
            Ok(poll) => poll,
            Err(panic) => Poll::Ready(panicked(&*panic)),
        }
    }
}
