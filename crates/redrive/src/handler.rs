//! What takes the records: the user's code.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use redrive_core::{Ask, Failure, InPlace, Timestamp};

use crate::record::Record;

/// How a run ended, where it is more than done or failed.
///
/// ```
/// use redrive::{Failure, Outcome};
///
/// fn settle(is_known: bool) -> Outcome {
///     if is_known { Outcome::Done } else { Outcome::dead_letter(Failure::of_type("UnknownOrder")) }
/// }
/// # settle(true);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// It worked.
    Done,
    /// It failed: the policies decide.
    Failed(Failure),
    /// It failed, and the handler knows what is to be done.
    Asked(Failure, Ask),
}

impl Outcome {
    /// It failed, and is to be tried again at this time.
    pub fn retry_at(failure: impl IntoFailure, at: Timestamp) -> Self {
        Outcome::Asked(failure.into_failure(), Ask::RetryAt(at))
    }

    /// It goes to the dead-letter topic, whatever the policies say.
    pub fn dead_letter(failure: impl IntoFailure) -> Self {
        Outcome::Asked(failure.into_failure(), Ask::DeadLetter)
    }

    /// It is dropped: settled and counted.
    pub fn drop(failure: impl IntoFailure) -> Self {
        Outcome::Asked(failure.into_failure(), Ask::Drop)
    }

    /// The flow stops, and the record stays where it is.
    pub fn stop(failure: impl IntoFailure) -> Self {
        Outcome::Asked(failure.into_failure(), Ask::Stop { exit: false })
    }
}

pub use redrive_core::IntoFailure;

/// What a handler may return.
pub trait IntoOutcome {
    /// The outcome that it stands for.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::Done
    }
}

impl<E: IntoFailure> IntoOutcome for Result<(), E> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::Failed(error.into_failure()),
        }
    }
}

impl<E: IntoFailure> IntoOutcome for Result<Outcome, E> {
    fn into_outcome(self) -> Outcome {
        self.unwrap_or_else(|error| Outcome::Failed(error.into_failure()))
    }
}

/// What a handler is told beside the record.
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) names: Arc<Names>,
    /// Where it was read, in the source topic unless it was retried.
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) in_place: InPlace,
    /// What its headers say, where it was retried.
    pub(crate) retried: Option<Box<Retried>>,
}

/// Whose records these are.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) group: Arc<str>,
    pub(crate) source: Arc<str>,
}

/// What the headers of a retried record say.
#[derive(Clone, Debug)]
pub(crate) struct Retried {
    pub(crate) origin: Option<(String, i32, i64)>,
    pub(crate) overall: u32,
    pub(crate) policy: Option<String>,
    pub(crate) redriven: u32,
    pub(crate) first_failed_at: Option<Timestamp>,
}

impl Context {
    /// Where the record came from first: topic, partition and offset.
    pub fn origin(&self) -> (&str, i32, i64) {
        match self.retried.as_ref().and_then(|it| it.origin.as_ref()) {
            Some((topic, partition, offset)) => (topic, *partition, *offset),
            None => (&self.names.source, self.partition, self.offset),
        }
    }

    /// How often it was published because of failures.
    pub fn overall_attempts(&self) -> u32 {
        self.retried.as_ref().map_or(0, |it| it.overall)
    }

    /// How often it was run before, within this delivery.
    pub fn runs_in_place(&self) -> u32 {
        self.in_place.runs
    }

    /// The identifier of the policy that it was retried under.
    pub fn policy(&self) -> Option<&str> {
        self.retried.as_ref()?.policy.as_deref()
    }

    /// When it failed first.
    pub fn first_failed_at(&self) -> Option<Timestamp> {
        let retried = self.retried.as_ref().and_then(|it| it.first_failed_at);
        retried.or(self.in_place.failed_at)
    }

    /// What names the record through all its attempts: group, topic, partition and offset, and how often an operator sent
    /// it back.
    pub fn idempotency_key(&self) -> String {
        let (topic, partition, offset) = self.origin();
        let redriven = self.retried.as_ref().map_or(0, |it| it.redriven);
        format!("{}/{topic}/{partition}/{offset}/{redriven}", self.names.group)
    }
}

/// What takes the records of a flow.
///
/// Any async function of a [`Record`] and a [`Context`] is one, if it returns nothing, a [`Result`] or an [`Outcome`].
pub trait Handler: Send + Sync + 'static {
    /// Runs the record.
    fn handle(&self, record: Record, context: Context) -> impl Future<Output = Outcome> + Send;
}

impl<F, R> Handler for F
where
    F: Fn(Record, Context) -> R + Send + Sync + 'static,
    R: Future<Output: IntoOutcome> + Send,
{
    async fn handle(&self, record: Record, context: Context) -> Outcome {
        self(record, context).await.into_outcome()
    }
}

/// A run that has begun or is about to.
pub(crate) type Run = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A handler of whatever type.
pub(crate) trait AnyHandler: Send + Sync {
    fn start(self: Arc<Self>, record: Record, context: Context) -> Run;
}

impl<H: Handler> AnyHandler for H {
    fn start(self: Arc<Self>, record: Record, context: Context) -> Run {
        Box::pin(async move { self.handle(record, context).await })
    }
}
