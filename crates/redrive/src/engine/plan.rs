//! What an engine is to do: a flow, with the topics it reads.

use std::sync::Arc;
use std::time::Duration;

use redrive_core::headers::{self, Dialect, Due, Header, Owner, Place, ReadContext, Reading};
use redrive_core::lane::{EntityId, Fate, Identity, Item, LaneKind, Rank, Ranked};
use redrive_core::{Flow, Origin, Reason, RetryState, Strategy, Timestamp};

use super::load::bytes_of;
use crate::config::{DeadLetterFormat, Entity, FlowConfig, Ordering};
use crate::handler::{Context, Names, Retried};
use crate::kafka::message::{Message, WholeMessage};
use crate::pack::{self, USUAL_HEADERS};
use crate::record::{Before, Record};

/// A flow and all that belongs to it.
pub(crate) struct FlowPlan {
    pub(crate) flow: Flow,
    pub(crate) names: Arc<Names>,
    pub(crate) dialect: Dialect,
    pub(crate) dead_letter_format: DeadLetterFormat,
    /// The topics that it reads: the source first.
    pub(crate) stops: Vec<StopPlan>,
    pub(crate) timeout: Option<Duration>,
    /// Whether records run in some order.
    pub(crate) is_ordered: bool,
    /// What names the entity of a record, where the records of one entity run in order.
    pub(crate) entity: Option<Entity>,
}

/// A topic that a flow reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StopPlan {
    pub(crate) topic: Arc<str>,
    pub(crate) role: Role,
}

/// What a topic is to its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Source,
    /// A retry topic or a delay topic, by its place.
    Tier(u32),
    /// The one retry topic behind the delay topics, or one that is no longer named and has yet to run dry.
    Retry,
}

impl FlowConfig {
    /// The topics that it reads: the source first.
    pub(crate) fn stops(&self) -> Vec<StopPlan> {
        let draining: Vec<Arc<str>> = self.draining.iter().map(|it| it.as_str().into()).collect();
        FlowPlan::stops_of(&self.flow, &draining)
    }
}

impl FlowPlan {
    /// What a flow of this group is.
    pub(crate) fn new(flow: &FlowConfig, group: &Arc<str>) -> Self {
        let names = Names {
            group: Arc::clone(group),
            source: Arc::clone(flow.flow.source()),
            flow: flow.flow.clone(),
        };
        Self {
            flow: flow.flow.clone(),
            names: Arc::new(names),
            dialect: flow.dialect,
            dead_letter_format: flow.dead_letter_format,
            stops: flow.stops(),
            timeout: flow.timeout,
            is_ordered: flow.ordering != Ordering::None,
            entity: (flow.ordering == Ordering::Key).then(|| flow.entity.clone()),
        }
    }

    /// The topics that a flow reads.
    pub(crate) fn stops_of(flow: &Flow, draining: &[Arc<str>]) -> Vec<StopPlan> {
        let source = StopPlan { topic: Arc::clone(flow.source()), role: Role::Source };
        let tiers = (0u32..)
            .zip(flow.strategy().tiers())
            .map(|(index, it)| StopPlan { topic: Arc::clone(&it.topic), role: Role::Tier(index) });
        let retry = match flow.strategy() {
            Strategy::DelayThenRetry { retry, .. } => Some(retry),
            _ => None,
        };
        let retries = retry.into_iter().chain(draining);
        let retries = retries.map(|it| StopPlan { topic: Arc::clone(it), role: Role::Retry });
        std::iter::once(source).chain(tiers).chain(retries).collect()
    }

    /// What the lanes of a topic are for.
    pub(crate) fn lane_kind(flow: &Flow, role: Role) -> LaneKind {
        let is_relayed = flow.strategy().relay_target(flow.source()).is_some();
        match role {
            Role::Source => LaneKind::Source,
            Role::Tier(_) if is_relayed => LaneKind::Relay,
            Role::Tier(_) | Role::Retry => LaneKind::Retry,
        }
    }

    fn place(&self, role: Role) -> Place<'_> {
        let is_returned = matches!(self.flow.strategy(), Strategy::BackToSource(_));
        match role {
            Role::Source if is_returned => Place::ReturnedToSource { topic: self.flow.source() },
            Role::Source => Place::Source,
            Role::Tier(index) => {
                let tier =
                    usize::try_from(index).ok().and_then(|it| self.flow.strategy().tiers().get(it));
                Place::Tier { index, delay: tier.and_then(|it| it.delay) }
            }
            Role::Retry => Place::Retry,
        }
    }

    /// What a record's headers say.
    fn read<'a>(
        &self,
        role: Role,
        headers: &[Header<'a>],
        value: Option<&[u8]>,
        timestamp: Timestamp,
    ) -> Reading<'a> {
        let context = ReadContext {
            group: &self.names.group,
            place: self.place(role),
            dialect: self.dialect,
            timestamp,
        };
        headers::read(headers, value, &context)
    }

    /// What the headers of a record that was taken in say.
    pub(crate) fn read_record<'a>(
        &self,
        role: Role,
        headers: &[Header<'a>],
        record: &Record,
    ) -> Reading<'a> {
        self.read(role, headers, record.value(), record.appended_at().unwrap_or_default())
    }

    /// A message as the lane takes it. What was tried before and will be kept until it is due has memory of its own at once.
    pub(crate) fn item(
        &self,
        role: Role,
        message: Message,
        is_kept: impl FnOnce(Timestamp) -> bool,
    ) -> Taken {
        if self.is_new(role) {
            let copy =
                self.copy(role, &Reading::default(), (message.partition(), message.offset()));
            let bytes = bytes_of(message.key(), message.value());
            let item = Self::new_item((message.offset(), bytes), Record::new(message));
            return Taken { item, unreadable: None, copy };
        }
        let message = WholeMessage::new(message);
        let offset = message.offset();
        let appended_at = Timestamp::from_millis(message.timestamp().unwrap_or(0));
        let mut raw = Vec::with_capacity(USUAL_HEADERS);
        raw.extend(message.headers());
        let mut headers = Vec::with_capacity(raw.len());
        headers.extend(raw.iter().filter_map(|(name, value)| {
            Some(Header { name: std::str::from_utf8(name).ok()?, value: *value })
        }));
        let reading = self.read(role, &headers, message.value(), appended_at);
        let (due, fate) = match (reading.due, reading.owner) {
            (_, Owner::AnotherGroup) => (Timestamp::default(), Fate::Settle),
            (Due::Now, _) => (Timestamp::default(), Fate::Run),
            (Due::At(due), _) => (due, Fate::Run),
            (Due::Unreadable(_), _) => (Timestamp::default(), Fate::DeadLetter(Reason::Header)),
        };
        let is_dated = reading.is_dated && fate == Fate::Run;
        let (unreadable, produced_at) = (reading.unreadable, reading.produced_at);
        let copy = self.copy(role, &reading, (message.partition(), offset));
        let is_relayed = Self::lane_kind(&self.flow, role) == LaneKind::Relay;
        let retried = (!is_relayed).then(|| Arc::new(self.retried(reading)));
        let packed = pack::packed(raw.iter().copied());
        let bytes = bytes_of(message.key(), message.value())
            + packed.len()
            + retried.as_ref().map_or(0, |it| it.bytes());
        let before = Before { produced_at, retried };
        let payload = if is_kept(due) {
            Record::copied(&message, before, &packed)
        } else {
            drop((headers, raw));
            Record::retried(message, before)
        };
        let item = Item { offset, due, is_dated, priority: 0, appended_at, fate, bytes, payload };
        Taken { item, unreadable, copy }
    }

    /// Where a record of this partition comes from, if that is the same partition of the source topic. What another lane, flow
    /// or group has to say of it does not count.
    pub(crate) fn own_origin<'a>(
        &self,
        reading: &Reading<'a>,
        partition: i32,
    ) -> Option<Origin<'a>> {
        let is_own =
            |it: &Origin<'_>| *it.topic == **self.flow.source() && it.partition == partition;
        reading.origin.filter(|it| reading.owner == Owner::Us && is_own(it))
    }

    /// Which copy of which record it is that stands here.
    fn copy(
        &self,
        role: Role,
        reading: &Reading<'_>,
        (partition, offset): (i32, i64),
    ) -> Option<Copy> {
        if self.is_new(role) {
            let identity = Identity { origin: offset, redriven: 0 };
            return Some(Copy { identity, hop: 0, epoch: None });
        }
        self.own_origin(reading, partition).map(|it| Copy {
            identity: Identity { origin: it.offset, redriven: reading.redriven },
            hop: reading.hop,
            epoch: reading.epoch,
        })
    }

    /// Where a record stands among the others of its lane.
    pub(crate) fn rank(&self, role: Role, reading: &Reading<'_>, record: &Record) -> Option<Rank> {
        let copy = self.copy(role, reading, (record.partition(), record.offset()))?;
        Some(copy.rank(self.entity(record)?))
    }

    /// The same for a record with what is known of it already.
    pub(crate) fn ranked(&self, item: Item<Record>, copy: Option<Copy>) -> Item<Ranked<Record>> {
        let entity = copy.and_then(|_| self.entity(&item.payload));
        let rank = entity.zip(copy).map(|(entity, copy)| copy.rank(entity));
        item.map(|payload| Ranked { rank, payload })
    }

    /// Whose event a record is.
    pub(crate) fn entity(&self, record: &Record) -> Option<EntityId> {
        self.entity.as_ref()?.name(record).map(|it| EntityId::of(&it))
    }

    /// Whether records are there for the first time, and nobody need look at their headers. Most are.
    pub(crate) fn is_new(&self, role: Role) -> bool {
        self.place(role) == Place::Source
    }

    /// A record that is there for the first time, as the lane takes it.
    #[inline]
    pub(crate) fn new_item<P>((offset, bytes): (i64, usize), payload: P) -> Item<P> {
        Item {
            offset,
            due: Timestamp::default(),
            is_dated: false,
            priority: 0,
            appended_at: Timestamp::default(),
            fate: Fate::Run,
            bytes,
            payload,
        }
    }

    /// What the handler is told beside the record.
    #[inline]
    pub(crate) fn context(
        &self,
        role: Role,
        (partition, offset): (i32, i64),
        record: &Record,
        in_place: redrive_core::InPlace,
    ) -> Context {
        let retried = (!self.is_new(role)).then(|| match record.attempts_before() {
            Some(known) => Arc::clone(known),
            None => {
                let headers: Vec<_> = record.headers().collect();
                Arc::new(self.retried(self.read_record(role, &headers, record)))
            }
        });
        Context { names: Arc::clone(&self.names), partition, offset, in_place, retried }
    }

    /// What a handler may want to know of earlier attempts.
    fn retried(&self, reading: Reading<'_>) -> Retried {
        let source = self.flow.source();
        let topic = |it: &str| if *it == **source { Arc::clone(source) } else { it.into() };
        let origin = reading.origin.map(|it| (topic(it.topic), it.partition, it.offset));
        Retried {
            origin,
            state: RetryState {
                policy: reading.state.policy.map(|it| it.into_owned().into()),
                ..reading.state
            },
            redriven: reading.redriven,
        }
    }
}

/// A message as a lane takes it.
pub(crate) struct Taken {
    pub(crate) item: Item<Record>,
    /// The header that could not be read, if there was one.
    pub(crate) unreadable: Option<&'static str>,
    /// Which copy of which record it is, if it came from this partition of the source topic.
    pub(crate) copy: Option<Copy>,
}

/// Which copy of which record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    identity: Identity,
    hop: u32,
    epoch: Option<u64>,
}

impl Copy {
    fn rank(self, entity: EntityId) -> Rank {
        let Copy { identity, hop, epoch } = self;
        Rank { entity, identity, hop, epoch }
    }
}

#[cfg(test)]
impl FlowPlan {
    /// A plan of the group `g`, to try things with.
    pub(super) fn made_up(flow: Flow) -> Self {
        let stops = FlowConfig::new(flow.clone()).stops();
        let names =
            Names { group: "g".into(), source: Arc::clone(flow.source()), flow: flow.clone() };
        Self {
            flow,
            names: Arc::new(names),
            dialect: Dialect::Native,
            dead_letter_format: DeadLetterFormat::Raw,
            stops,
            timeout: None,
            is_ordered: false,
            entity: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::Tier;

    use super::*;

    fn plan() -> FlowPlan {
        let tier = Tier::new("orders.retry", Duration::from_secs(1));
        let flow = Flow::new("orders").with_strategy(Strategy::Tiers(vec![tier]));
        FlowPlan { entity: Some(Entity::Key), ..FlowPlan::made_up(flow) }
    }

    /// A record of the retry topic, in partition 3.
    fn copy(headers: &[(&str, &str)]) -> Record {
        let record = Record::made_up("orders.retry", 3, 40).with_key("k");
        headers.iter().fold(record, |it, (name, value)| {
            it.with_header(format!("redrive-{name}"), Some(value.as_bytes()))
        })
    }

    fn rank(role: Role, record: &Record) -> Option<Rank> {
        let plan = plan();
        let headers: Vec<_> = record.headers().collect();
        plan.rank(role, &plan.read_record(role, &headers, record), record)
    }

    const ORIGIN: [(&str, &str); 4] = [
        ("group", "g"),
        ("origin-topic", "orders"),
        ("origin-partition", "3"),
        ("origin-offset", "17"),
    ];

    #[test]
    fn a_copy_says_which_record_it_is_and_how_new() {
        let more = [("hop", "4"), ("epoch", "9"), ("redriven", "2")];
        let headers: Vec<_> = ORIGIN.into_iter().chain(more).collect();
        let found = rank(Role::Tier(0), &copy(&headers));
        let identity = Identity { origin: 17, redriven: 2 };
        let entity = EntityId::of(b"k");
        assert_eq!(found, Some(Rank { entity, identity, hop: 4, epoch: Some(9) }));
        let found = rank(Role::Retry, &copy(&ORIGIN));
        let identity = Identity { origin: 17, redriven: 0 };
        assert_eq!(found, Some(Rank { entity, identity, hop: 0, epoch: None }));
    }

    #[test]
    fn in_the_source_only_its_place_counts_whatever_its_headers_say() {
        let headers: Vec<_> = ORIGIN.into_iter().chain([("hop", "4"), ("epoch", "9")]).collect();
        let found = rank(Role::Source, &copy(&headers));
        let identity = Identity { origin: 40, redriven: 0 };
        let entity = EntityId::of(b"k");
        assert_eq!(found, Some(Rank { entity, identity, hop: 0, epoch: None }));
    }

    #[test]
    fn what_came_from_elsewhere_or_belongs_to_nobody_has_no_rank() {
        let with = |name: &str, value: &'static str| {
            let changed = ORIGIN.map(|it| if it.0 == name { (it.0, value) } else { it });
            rank(Role::Tier(0), &copy(&changed))
        };
        assert_eq!(with("group", "other"), None);
        assert_eq!(with("origin-topic", "payments"), None);
        assert_eq!(with("origin-partition", "2"), None);
        assert_eq!(with("origin-offset", "x"), None);
        assert_eq!(rank(Role::Tier(0), &copy(&[])), None);
        let nobodys = Record::made_up("orders", 3, 1);
        assert_eq!(rank(Role::Source, &nobodys), None);
    }
}
