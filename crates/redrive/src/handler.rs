//! What takes the records: the user's code.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::{Ask, Delivery, Failure, Flow, InPlace, RecordView, RetryState, Timestamp};

use crate::clock;
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
    /// It failed, but what that means is not known yet: the record stays in its place, is not counted, and runs again after
    /// this time.
    Held(Failure, Duration),
}

impl Outcome {
    /// It failed, and is to be tried again at this time.
    pub fn retry_at(failure: impl IntoFailure, at: Timestamp) -> Self {
        Outcome::Asked(failure.into_failure(), Ask::RetryAt(at))
    }

    /// It failed, and is to be tried again: as its policy says, or the flow's default where that one does not retry.
    pub fn retry(failure: impl IntoFailure) -> Self {
        Outcome::Asked(failure.into_failure(), Ask::Retry)
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
    pub(crate) retried: Option<Arc<Retried>>,
}

/// Whose records these are.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) group: Arc<str>,
    pub(crate) source: Arc<str>,
    /// What decides about their failures.
    pub(crate) flow: Flow,
}

/// What the headers of a retried record say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retried {
    pub(crate) origin: Option<(Arc<str>, i32, i64)>,
    pub(crate) state: RetryState<'static>,
    pub(crate) redriven: u32,
}

impl Retried {
    /// How much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        let policy = self.state.policy.as_deref().map_or(0, str::len);
        size_of::<Self>() + policy + self.origin.as_ref().map_or(0, |it| it.0.len())
    }
}

impl Context {
    /// What a handler is told of a record that is new, for trying out handlers without Kafka.
    ///
    /// ```
    /// use redrive::{Context, Flow, Record};
    ///
    /// let record = Record::made_up("orders", 0, 17).with_value("{}");
    /// let context = Context::made_up("billing", Flow::new("orders"), &record).with_overall_attempts(2);
    /// assert_eq!(context.idempotency_key(), "billing/orders/0/17/0");
    /// ```
    pub fn made_up(group: &str, flow: Flow, record: &Record) -> Self {
        let source = Arc::clone(flow.source());
        Self {
            names: Arc::new(Names { group: group.into(), source, flow }),
            partition: record.partition(),
            offset: record.offset(),
            in_place: InPlace::default(),
            retried: None,
        }
    }

    fn retried_mut(&mut self) -> &mut Retried {
        Arc::make_mut(self.retried.get_or_insert_default())
    }

    /// Tells that it was published so often because of failures.
    #[must_use]
    pub fn with_overall_attempts(mut self, attempts: u32) -> Self {
        self.retried_mut().state.overall = attempts;
        self
    }

    /// Tells that it was retried under this policy, for so many times.
    #[must_use]
    pub fn with_policy(mut self, policy: impl Into<String>, attempts: u32) -> Self {
        let state = &mut self.retried_mut().state;
        (state.policy, state.policy_attempts) = (Some(policy.into().into()), attempts);
        self
    }

    /// Tells that it failed first at this time.
    #[must_use]
    pub fn with_first_failed_at(mut self, time: Timestamp) -> Self {
        self.retried_mut().state.first_failed_at = Some(time);
        self
    }

    /// Tells that it came from there first.
    #[must_use]
    pub fn with_origin(mut self, topic: impl Into<Arc<str>>, partition: i32, offset: i64) -> Self {
        self.retried_mut().origin = Some((topic.into(), partition, offset));
        self
    }

    /// Tells that an operator sent it back so often.
    #[must_use]
    pub fn with_redriven(mut self, times: u32) -> Self {
        self.retried_mut().redriven = times;
        self
    }

    /// Tells that it was run so often before, within this delivery.
    #[must_use]
    pub fn with_runs_in_place(mut self, runs: u32) -> Self {
        self.in_place.runs = runs;
        self
    }

    /// Where the record came from first: topic, partition and offset.
    pub fn origin(&self) -> (&str, i32, i64) {
        match self.retried.as_ref().and_then(|it| it.origin.as_ref()) {
            Some((topic, partition, offset)) => (topic, *partition, *offset),
            None => (&self.names.source, self.partition, self.offset),
        }
    }

    /// How often it was published because of failures.
    pub fn overall_attempts(&self) -> u32 {
        self.retried.as_ref().map_or(0, |it| it.state.overall)
    }

    /// How often it was run before, within this delivery.
    pub fn runs_in_place(&self) -> u32 {
        self.in_place.runs
    }

    /// The identifier of the policy that it was retried under.
    pub fn policy(&self) -> Option<&str> {
        self.retried.as_ref()?.state.policy.as_deref()
    }

    /// When it failed first.
    pub fn first_failed_at(&self) -> Option<Timestamp> {
        let retried = self.retried.as_ref().and_then(|it| it.state.first_failed_at);
        retried.or(self.in_place.failed_at)
    }

    /// Whether another failure would be the record's end, as far as that can be known: if it gets the same policy as the last
    /// one. Of a record that was not published yet it is the last attempt if no policy of the flow would retry it. A failure
    /// that gets another policy may be retried all the same, and one that is not retryable is the end at any time.
    pub fn is_last_attempt(&self) -> bool {
        let fresh = RetryState::default();
        let state = self.retried.as_ref().map_or(&fresh, |it| &it.state);
        let delivery = Delivery { record: RecordView::default(), state, in_place: self.in_place };
        self.names.flow.is_last_chance(&delivery, clock::now())
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

    /// The flow goes on after it was stopped or paused. For those that remember something; it must not wait.
    fn resumed(&self) {}
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
