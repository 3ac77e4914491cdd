//! From a failed run to the record's next stop.

use std::sync::Arc;
use std::time::Duration;

use redrive_core::headers::{self, Due, Failed, Header, Owner, Reading, Stamp, Stop};
use redrive_core::lane::{Hop, Next};
use redrive_core::{
    Action, Ask, Delivery, Draw, Failure, InPlace, Incident, MAX_TIMESTAMP, Origin, Reason,
    RecordView, RetryState, Timestamp,
};

use super::envelope;
use super::machine::OwnWhole;
use super::plan::{FlowPlan, Role};
use crate::config::DeadLetterFormat;
use crate::event::{DelayBy, Event, Spot};
use crate::kafka::publish::{Body, Outgoing};
use crate::pack::Pack;
use crate::record::Record;

/// The clock tells the milliseconds that have gone by, so that a part of one is not in it. A delay that began within it must not
/// end sooner by that.
const BEGUN: Duration = Duration::from_millis(1);

/// How many partitions topics have.
pub(crate) trait Partitions {
    /// Whether the topic has this partition. Where that is not known, it has not.
    fn has(&self, topic: &str, partition: i32) -> bool;
}

/// What is to become of a record.
pub(super) struct Judged {
    pub(super) next: Next<Arc<Outgoing>>,
    pub(super) event: Event,
    /// Whether the whole process is to end.
    pub(super) exit: bool,
}

/// Makes outgoing records of a flow.
pub(super) struct Judge<'a> {
    pub(super) plan: &'a FlowPlan,
    pub(super) partitions: &'a dyn Partitions,
    pub(super) now: Timestamp,
    /// The lane that keeps the order, where one does.
    pub(super) order: Option<&'a OwnWhole>,
}

impl Judge<'_> {
    /// What is to become of a record whose run failed.
    pub(super) fn failed(
        &self,
        role: Role,
        record: &Record,
        in_place: InPlace,
        failure: &Failure,
        asked: Option<Ask>,
        draw: Draw,
    ) -> Judged {
        let headers: Vec<_> = record.headers().collect();
        let reading = self.plan.read_record(role, &headers, record);
        let view = RecordView {
            topic: self.plan.flow.source(),
            key: record.key(),
            value: record.value(),
            headers: &headers,
        };
        let delivery = Delivery { record: view, state: &reading.state, in_place };
        let incident = Incident { failure, asked, provided: None };
        let now = self.now.after(BEGUN);
        let verdict = self.plan.flow.decide(&delivery, &incident, now, draw);
        let (spot, error) = (self.spot(record), describe(failure));
        let failed = Some(Failed { failure, at: now });
        let policy = verdict.state.policy.as_deref().map(str::to_owned);
        let overall = verdict.state.overall;
        let found = self.plan.flow.rules().find(&view, failure);
        let found = found.unwrap_or_else(|| self.plan.flow.default_policy());
        let mut exit = false;
        let (next, event) = match verdict.action {
            Action::RunAgain { wait, in_place } => {
                let by = match (asked, failure.retry_after) {
                    (Some(_), _) => DelayBy::Handler,
                    // It counts where it is longer than the policy's own wait, and is never made longer.
                    (None, Some(after)) if wait <= after => DelayBy::RetryAfter,
                    (None, _) => DelayBy::Backoff,
                };
                let event = Event::RunsAgain {
                    spot,
                    error,
                    wait,
                    by,
                    run: in_place.runs,
                    runs: found.in_memory.as_ref().map(|it| it.attempts),
                    policy,
                };
                (Next::RunAgain { wait: wait.saturating_add(BEGUN), in_place }, event)
            }
            Action::Publish { topic, due, delay } => {
                let forward_to = self.plan.flow.strategy().relay_target(self.plan.flow.source());
                let stop =
                    Stop::Tier { due, delay: Some(delay), forward_to: forward_to.map(|it| &**it) };
                let tier = verdict.state.tier.unwrap_or(0);
                let tier_plan = usize::try_from(tier)
                    .ok()
                    .and_then(|it| self.plan.flow.strategy().tiers().get(it));
                let backoff = found.delayed.as_ref().and_then(|it| it.backoff.as_ref());
                let by = match (asked, failure.retry_after, backoff) {
                    (Some(_), ..) => DelayBy::Handler,
                    (None, Some(_), _) => DelayBy::RetryAfter,
                    (None, None, None) if tier_plan.is_some_and(|it| it.delay.is_some()) => {
                        DelayBy::Tier
                    }
                    (None, None, _) => DelayBy::Backoff,
                };
                let event = Event::Retries {
                    spot,
                    error,
                    to: Arc::clone(topic),
                    overall,
                    due,
                    delay,
                    by,
                    policy,
                    policy_attempts: verdict.state.policy_attempts,
                    tier,
                    tier_attempts: verdict.state.tier_attempts,
                    // A policy with a backoff of its own does not look at it.
                    tier_cap: tier_plan.filter(|_| backoff.is_none()).and_then(|it| it.attempts),
                    is_moved: reading.state.tier.is_some_and(|it| it != tier),
                };
                let to = Arc::clone(topic);
                let outgoing = self.outgoing(to, record, &reading, &verdict.state, failed, stop);
                (Next::Publish(outgoing), event)
            }
            Action::DeadLetter { topic, reason } => {
                let stop = Stop::DeadLetter { reason, follows: None };
                let to = Arc::clone(topic);
                let event = Event::DeadLettered {
                    spot,
                    error: Some(error),
                    reason,
                    to: Arc::clone(topic),
                    policy,
                    overall,
                };
                let outgoing = self.outgoing(to, record, &reading, &verdict.state, failed, stop);
                (Next::Publish(outgoing), event)
            }
            Action::Drop { reason } => {
                (Next::Settle, Event::Dropped { spot, error, reason, policy, overall })
            }
            Action::Stop { exit: ends, .. } => {
                exit = ends;
                (Next::Stop, Event::Stopped { spot, error })
            }
            // The lane holds it, which is loud, rather than losing it.
            _ => (Next::Stop, Event::Stopped { spot, error }),
        };
        Judged { next, event, exit }
    }

    /// Where a record is.
    fn spot(&self, record: &Record) -> Spot {
        let (partition, offset) = (record.partition(), record.offset());
        Spot { topic: self.topic(record), partition, offset }
    }

    /// The topic that a record was read from, by the name that all share.
    fn topic(&self, record: &Record) -> Arc<str> {
        let mut topics = self.plan.stops.iter().map(|it| &it.topic);
        let topic = topics.find(|it| ***it == *record.topic());
        topic.map_or_else(|| record.topic().into(), Arc::clone)
    }

    /// What is told of a dead letter of a record that was not run, or that nothing else will take.
    pub(super) fn dead_lettered(&self, role: Role, record: &Record, reason: Reason) -> Event {
        let headers: Vec<_> = record.headers().collect();
        let state = self.plan.read_record(role, &headers, record).state;
        Event::DeadLettered {
            spot: self.spot(record),
            error: None,
            reason,
            to: Arc::clone(self.plan.flow.dead_letter()),
            policy: state.policy.map(|it| it.into_owned()),
            overall: state.overall,
        }
    }

    /// The outgoing record of a hop.
    pub(super) fn hop(
        &self,
        role: Role,
        record: &Record,
        hop: Hop<Arc<Outgoing>>,
    ) -> Arc<Outgoing> {
        match hop {
            Hop::Verdict(outgoing) => outgoing,
            Hop::DeadLetter(reason) => self.dead_letter(role, record, reason),
            Hop::Relay => {
                let source = self.plan.flow.source();
                let to = self.plan.flow.strategy().relay_target(source).unwrap_or(source);
                let headers: Vec<_> = record.headers().collect();
                let reading = self.plan.read_record(role, &headers, record);
                let origin = reading.origin.filter(|_| reading.owner == Owner::Us);
                let home = origin.map_or(record.partition(), |it| it.partition);
                let partition = self.partition(to, home);
                Arc::new(as_it_is(Arc::clone(to), partition, record))
            }
            Hop::Follow => {
                let headers: Vec<_> = record.headers().collect();
                let reading = self.plan.read_record(role, &headers, record);
                // A flow without retry topics has no followers.
                let Some(tier) = self.plan.flow.strategy().tiers().first() else {
                    return self.dead_letter(role, record, Reason::Follower);
                };
                let stop = Stop::Tier { due: self.now, delay: tier.delay, forward_to: None };
                let to = Arc::clone(&tier.topic);
                self.outgoing(to, record, &reading, &reading.state, None, stop)
            }
            Hop::Reappend => {
                if self.order.is_some()
                    && let Some(outgoing) = self.newer(role, record)
                {
                    return outgoing;
                }
                Arc::new(as_it_is(self.topic(record), Some(record.partition()), record))
            }
        }
    }

    /// A dead letter of a record that was not run, or that nothing else will take.
    pub(super) fn dead_letter(&self, role: Role, record: &Record, reason: Reason) -> Arc<Outgoing> {
        let headers: Vec<_> = record.headers().collect();
        let reading = self.plan.read_record(role, &headers, record);
        let head = self.order.filter(|_| reason == Reason::Follower).and_then(|it| {
            let head = it.follows(&self.plan.rank(role, &reading, record)?)?;
            let topic: &str = self.plan.flow.source();
            Some(Origin { topic, partition: record.partition(), offset: head.origin })
        });
        let stop = Stop::DeadLetter { reason, follows: head };
        let to = Arc::clone(self.plan.flow.dead_letter());
        self.outgoing(to, record, &reading, &reading.state, None, stop)
    }

    /// The same without the headers that tell of the failure at length, or in another dialect: what can be done without when a record is
    /// too large.
    pub(super) fn trimmed(&self, outgoing: &Outgoing) -> Outgoing {
        let is_told = |name: &[u8]| headers::tells_at_length(name, self.plan.dialect);
        let headers = outgoing.headers.iter().filter(|it| !is_told(it.0)).collect();
        Outgoing { headers, ..alone(outgoing) }
    }

    /// A dead letter of a record that its next stop did not take. What that was to know of the failure, the dead letter knows, too.
    pub(super) fn too_large(&self, role: Role, record: &Record, refused: &Outgoing) -> Outgoing {
        use headers::Name::{Error, FailedAt, FirstFailedAt, Status};
        let is_told = |name: &[u8]| {
            matches!(headers::Name::of(name), Some(Error | FailedAt | FirstFailedAt | Status))
        };
        let letter = self.trimmed(&self.dead_letter(role, record, Reason::TooLarge));
        let own = letter.headers.iter().filter(|it| !is_told(it.0));
        let told = refused.headers.iter().filter(|it| is_told(it.0));
        let headers = own.chain(told).collect();
        Outgoing { headers, ..letter }
    }

    /// The same record at the tail of its topic, as a copy that is newer than the one before it. None for one that is not
    /// ordered.
    fn newer(&self, role: Role, record: &Record) -> Option<Arc<Outgoing>> {
        let headers: Vec<_> = record.headers().collect();
        let reading = self.plan.read_record(role, &headers, record);
        self.plan.own_origin(&reading, record.partition())?;
        let due = match reading.due {
            Due::At(due) => due,
            Due::Now | Due::Unreadable(_) => self.now,
        };
        let stop = Stop::Tier { due, delay: None, forward_to: None };
        Some(self.outgoing(self.topic(record), record, &reading, &reading.state, None, stop))
    }

    fn outgoing(
        &self,
        topic: Arc<str>,
        record: &Record,
        reading: &Reading<'_>,
        state: &RetryState<'_>,
        failure: Option<Failed<'_>>,
        stop: Stop<'_>,
    ) -> Arc<Outgoing> {
        // A name that is not UTF-8 is lent one that is, and takes its own place again below.
        let raw: Vec<_> = record.raw_headers().collect();
        let names: Vec<_> = raw.iter().map(|it| String::from_utf8_lossy(it.0)).collect();
        let headers: Vec<_> = raw
            .iter()
            .zip(&names)
            .map(|((_, value), name)| Header { name, value: *value })
            .collect();
        // Where the order counts, a record of a retry topic that nobody knows the origin of must not be taken for another one.
        let source: &str = self.plan.flow.source();
        let here = Origin {
            topic: if self.order.is_some() { record.topic() } else { source },
            partition: record.partition(),
            offset: record.offset(),
        };
        let origin = reading.origin.filter(|_| reading.owner == Owner::Us).unwrap_or(here);
        let stamp = Stamp {
            group: &self.plan.names.group,
            origin,
            produced_at: reading.produced_at.or_else(|| record.timestamp()),
            from: (record.topic(), record.partition(), record.offset()),
            state,
            hop: reading.hop.saturating_add(1),
            epoch: self.order.and_then(OwnWhole::epoch),
            redriven: reading.redriven,
            failure,
            stop,
            now: self.now,
        };
        let written = headers::write(&headers, &stamp, self.plan.dialect);
        let mut headers = Pack::with_room_for(written.len());
        for Header { name, value } in written.iter() {
            let lent = names.iter().position(|it| std::ptr::eq(it.as_ptr(), name.as_ptr()));
            let own = lent.and_then(|index| raw.get(index)).map_or(name.as_bytes(), |it| it.0);
            headers.push((own, value));
        }
        let is_dead = matches!(stop, Stop::DeadLetter { .. });
        let body = if is_dead && self.plan.dead_letter_format == DeadLetterFormat::Envelope {
            Some(envelope::wrap(record, &stamp))
        } else {
            let value = headers::write_value(record.value(), &stamp, self.plan.dialect);
            value.map(|it| Body { key: record.key().map(<[u8]>::to_vec), value: Some(it) })
        };
        let tiers = self.plan.flow.strategy().tiers();
        let tier = tiers.iter().position(|it| it.topic == topic);
        // In an ordered lane all stay together.
        let partition = match self.order.filter(|_| !is_dead) {
            Some(_) => Some(record.partition()),
            None => self.partition(&topic, origin.partition),
        };
        let needed_at = match stop {
            Stop::Tier { due, .. } => due,
            Stop::DeadLetter { .. } => MAX_TIMESTAMP,
        };
        Arc::new(Outgoing { topic, partition, tier, needed_at, is_alone: false, headers, body })
    }

    /// The origin's partition, where the topic has it.
    fn partition(&self, topic: &str, partition: i32) -> Option<i32> {
        self.partitions.has(topic, partition).then_some(partition)
    }
}

/// A record that only moves.
fn as_it_is(topic: Arc<str>, partition: Option<i32>, record: &Record) -> Outgoing {
    let headers = record.raw_headers().collect();
    let needed_at = Timestamp::default();
    Outgoing { topic, partition, tier: None, needed_at, is_alone: false, headers, body: None }
}

/// The same by itself.
pub(super) fn alone(outgoing: &Outgoing) -> Outgoing {
    Outgoing { is_alone: true, ..outgoing.clone() }
}

pub(super) fn spot(record: &Record) -> Spot {
    Spot { topic: record.topic().into(), partition: record.partition(), offset: record.offset() }
}

/// A failure in a line.
pub(super) fn describe(failure: &Failure) -> String {
    let name = failure.simple_name();
    let status = failure.status.map(|it| format!("status {it}"));
    let kind = failure.kind.as_ref().map(|it| it.as_str());
    let parts = [name.as_deref(), status.as_deref(), kind, failure.message.as_deref()];
    let mut text = String::with_capacity(parts.iter().flatten().map(|it| it.len() + 2).sum());
    for part in parts.into_iter().flatten() {
        text.push_str(if text.is_empty() { "" } else { ": " });
        text.push_str(part);
    }
    if text.is_empty() { "no reason given".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use redrive_core::{Delayed, Flow, InMemory, Policy, Strategy, Tier};

    use super::*;

    struct Any;

    impl Partitions for Any {
        fn has(&self, _: &str, _: i32) -> bool {
            true
        }
    }

    fn judged(policy: Policy, failure: &Failure, now: Timestamp) -> Judged {
        let tier = Tier::new("orders.retry", Duration::from_millis(250));
        let flow =
            Flow::new("orders").with_strategy(Strategy::Tiers(vec![tier])).with_default(policy);
        let plan = FlowPlan::made_up(flow);
        let record = Record::made_up("orders", 0, 7);
        let judge = Judge { plan: &plan, partitions: &Any, now, order: None };
        judge.failed(Role::Source, &record, InPlace::default(), failure, None, Draw::Seed(1))
    }

    /// A service that said `Retry-After: 1` in the middle of a millisecond was asked again after 999.4 ms.
    #[test]
    fn no_delay_is_shorter_than_it_says_by_the_millisecond_in_which_it_began() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let after_this = now.after(BEGUN);
        let delayed = || Policy::named("p").with_delayed(Delayed::attempts(5));
        for (failure, delay) in [
            (Failure::of_status(503), 250),
            (Failure::of_status(429).with_retry_after(Duration::from_secs(1)), 1_000),
        ] {
            let Event::Retries { due, .. } = judged(delayed(), &failure, now).event else {
                panic!("it is retried");
            };
            assert_eq!(due, after_this.after(Duration::from_millis(delay)));
        }
        let in_place = Policy::named("p").with_in_memory(InMemory::attempts(1));
        let judged = judged(in_place, &Failure::of_status(503), now);
        let Next::RunAgain { wait, .. } = judged.next else {
            panic!("it runs again");
        };
        assert_eq!(wait, Duration::from_millis(101), "100 ms by default");
    }
}
