//! Entities that wait in the retry topics.
//!
//! What is pending is found by the same lane that runs it: it is told what the group committed and what is in the retry topics,
//! and does the rest. Nothing of what it asks for is done.

use std::collections::BTreeMap;
use std::sync::Arc;

use redrive_core::Timestamp;
use redrive_core::headers::Header;
use redrive_core::lane::{
    Assigned, Fate, Item, LaneConfig, LaneKind, OrderedConfig, OrderedLane, Part, Ranked, Routed,
    Slots,
};

use super::reading::{Reader, length};
use crate::RunError;
use crate::clock;
use crate::config::FlowConfig;
use crate::engine::plan::{FlowPlan, StopPlan};
use crate::event::Spot;
use crate::kafka::group::text_of;
use crate::kafka::markers::{self, Note, shown};
use crate::kafka::message::Message;
use crate::kafka::offsets::Committed;
use crate::kafka::state::{Said, StateTopic};
use crate::kafka::whole;
use crate::record::Record;

/// An entity whose first record is to be retried.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedEntity {
    /// Its name: as text, or as base64 where it is none.
    pub entity: Option<String>,
    /// Whether the name is base64.
    pub is_base64: bool,
    /// Its hash, in hexadecimal digits.
    pub id: String,
    /// The source topic.
    pub topic: Arc<str>,
    /// The partition there, and in the retry topics.
    pub partition: i32,
    /// Its records, in the order in which they run: the head first.
    pub records: Vec<WaitingRecord>,
}

/// A record that waits in a retry topic.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingRecord {
    /// Its offset in the source topic.
    pub origin: i64,
    /// How often an operator sent it back.
    pub redriven: u32,
    /// Where it waits.
    pub at: Spot,
    /// From when on it may run, where it is not just behind others.
    pub due: Option<Timestamp>,
    /// How often it was published because it failed. None of it: it waits behind others.
    pub attempts: u32,
    /// When it failed first.
    pub since: Option<Timestamp>,
    /// Its last failure.
    pub error: Option<String>,
    /// What that said.
    pub message: Option<String>,
}

/// What is needed to look.
pub(super) struct Look {
    pub(super) group: Arc<str>,
    pub(super) flows: Vec<FlowConfig>,
    pub(super) state_topic: Arc<StateTopic>,
    pub(super) reader: Reader,
}

/// What is kept of a record that was read.
struct Seen {
    note: Note,
    due: Option<Timestamp>,
    attempts: u32,
    since: Option<Timestamp>,
}

/// Nothing is published by those who only look.
#[derive(Clone, Debug)]
struct Nowhere;

impl Routed for Nowhere {
    fn tier(&self) -> Option<usize> {
        None
    }
}

type OnlyLooked = OrderedLane<(), Nowhere>;

/// A partition of a source topic, and how far the same of its retry topics are to be read.
struct Lane {
    plan: Arc<FlowPlan>,
    partition: i32,
    machine: OnlyLooked,
    ends: Vec<i64>,
}

impl Look {
    pub(super) fn run(
        self,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Vec<BlockedEntity>, RunError> {
        let mut lanes = Vec::new();
        let cluster = self.reader.cluster().unwrap_or_default();
        for flow in &self.flows {
            let plan = Arc::new(FlowPlan::new(flow, &self.group));
            lanes.extend(self.lanes(flow, &plan, &cluster)?);
        }
        let all = lanes.iter().flat_map(Lane::ranges).map(|it| length(&it.1)).sum();
        let (mut read, mut found) = (0, Vec::new());
        for lane in lanes {
            found.extend(lane.look(&self.reader, |count| {
                read += count;
                progress(read, all);
            })?);
        }
        Ok(found)
    }

    fn lanes(
        &self,
        flow: &FlowConfig,
        plan: &Arc<FlowPlan>,
        cluster: &str,
    ) -> Result<Vec<Lane>, RunError> {
        let mut count = i32::MAX;
        for stop in &plan.stops {
            count = count.min(self.reader.partitions(&stop.topic)?);
        }
        let partitions: Vec<_> = (0..count)
            .flat_map(|it| plan.stops.iter().map(move |stop| (&*stop.topic, it)))
            .collect();
        // In the order in which a member does.
        let committed = self.reader.committed(&partitions)?;
        let state = (&**self.state_topic.name(), markers::PARTITION);
        let state_end = match self.reader.partitions(state.0)? {
            0 => 0,
            _ => self.reader.bounds(&[state])?.first().map_or(0, |it| it.1),
        };
        let said = self.state_topic.read(&partitions, state_end)?;
        let bounds = self.reader.bounds(&partitions)?;
        let each = plan.stops.len().max(1);
        let lanes = committed.chunks(each).zip(bounds.chunks(each)).zip(0..);
        lanes
            .map(|((committed, bounds), partition)| {
                let parts: Vec<_> = committed.iter().zip(bounds.iter().copied()).collect();
                let config = OrderedConfig {
                    lane: LaneConfig {
                        index_limit: usize::MAX,
                        ..LaneConfig::new(LaneKind::Source, cluster)
                    },
                    on_dead_letter: flow.on_dead_letter,
                    is_exactly_once: false,
                };
                let machine = machine(config, plan, partition, &parts, state_end, &said)?;
                let ends = bounds.iter().map(|it| it.1).collect();
                Ok(Lane { plan: Arc::clone(plan), partition, machine, ends })
            })
            .collect()
    }
}

fn machine(
    config: OrderedConfig,
    plan: &FlowPlan,
    partition: i32,
    parts: &[(&Committed, (i64, i64))],
    state_end: i64,
    said: &Said,
) -> Result<OnlyLooked, RunError> {
    let assigned: Vec<_> = parts
        .iter()
        .map(|(committed, (log_start, log_end))| Assigned {
            committed: committed.offset.filter(|it| it <= log_end),
            metadata: text_of(&committed.metadata),
            log_start: *log_start,
            log_end: *log_end,
            start: *log_start,
        })
        .collect();
    let names: Vec<_> = plan.stops.iter().map(|it| (&*it.topic, partition)).collect();
    whole::open(config, &names, &assigned, state_end, said)
        .map_err(|error| RunError::Fatal(format!("{}/{partition}: {error}", plan.flow.source())))
}

impl Lane {
    /// What is to be read of each retry topic.
    fn ranges(&self) -> impl Iterator<Item = (Part, std::ops::Range<i64>)> {
        let tiers = self.ends.iter().enumerate().skip(1);
        tiers.map(|(part, end)| (part, self.machine.position(part)..*end))
    }

    fn look(
        mut self,
        reader: &Reader,
        mut progress: impl FnMut(u64),
    ) -> Result<Vec<BlockedEntity>, RunError> {
        let (now, mut slots) = (clock::now(), Slots::new(1));
        let mut seen = BTreeMap::new();
        let ranges: Vec<_> = self.ranges().collect();
        for (part, range) in ranges {
            let plan = Arc::clone(&self.plan);
            let Some(stop) = plan.stops.get(part) else {
                continue;
            };
            let machine = &mut self.machine;
            let end = range.end;
            reader.read(&stop.topic, self.partition, range, |messages| {
                progress(messages.len() as u64);
                let items: Vec<_> = messages
                    .into_iter()
                    .map(|message| item(&plan, stop, part, message, &mut seen))
                    .collect();
                machine.fetched_all(part, items, now, &mut slots);
                while machine.next_action().is_some() {}
            })?;
            machine.passed(part, end, now, &mut slots);
            while machine.next_action().is_some() {}
        }
        let mut entities: BTreeMap<_, BlockedEntity> = BTreeMap::new();
        for (entity, identity, part, offset) in self.machine.all_pending() {
            let (Some(seen), Some(stop)) = (seen.get(&(part, offset)), self.plan.stops.get(part))
            else {
                continue;
            };
            let blocked = entities.entry(entity).or_insert_with(|| BlockedEntity {
                entity: seen.note.entity.clone().or_else(|| seen.note.entity_base64.clone()),
                is_base64: seen.note.entity_base64.is_some(),
                id: shown(entity).to_string(),
                topic: Arc::clone(self.plan.flow.source()),
                partition: self.partition,
                records: Vec::new(),
            });
            blocked.records.push(WaitingRecord {
                origin: identity.origin,
                redriven: identity.redriven,
                at: Spot { topic: Arc::clone(&stop.topic), partition: self.partition, offset },
                due: seen.due,
                attempts: seen.attempts,
                since: seen.since,
                error: seen.note.error.clone(),
                message: seen.note.message.clone(),
            });
        }
        Ok(entities.into_values().collect())
    }
}

/// A message as the lane takes it, without what is in it.
fn item(
    plan: &FlowPlan,
    stop: &StopPlan,
    part: Part,
    message: Message,
    seen: &mut BTreeMap<(Part, i64), Seen>,
) -> Item<Ranked<()>> {
    let taken = plan.item(stop.role, message, |_| false);
    let ranked = plan.ranked(taken.item, taken.copy);
    if ranked.payload.rank.is_some() && ranked.fate != Fate::Settle {
        let due = ranked.due;
        seen.insert((part, ranked.offset), see(plan, stop, due, &ranked.payload.payload));
    }
    let item = ranked.map(|it| Ranked { rank: it.rank, payload: () });
    Item { bytes: 0, ..item }
}

fn see(plan: &FlowPlan, stop: &StopPlan, due: Timestamp, record: &Record) -> Seen {
    let headers: Vec<Header<'_>> = record.headers().collect();
    let state = plan.read_record(stop.role, &headers, record).state;
    let name = plan.entity.as_ref().and_then(|it| it.name(record));
    let mut note = Note::new(name.as_deref(), Timestamp::default());
    note.read_headers(&record.raw_headers().collect::<Vec<_>>());
    let has_failed = state.overall > 0;
    Seen {
        note,
        due: Some(due).filter(|it| has_failed && *it > Timestamp::default()),
        attempts: state.overall,
        since: state.first_failed_at,
    }
}
