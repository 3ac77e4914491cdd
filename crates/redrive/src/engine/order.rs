//! Driving lanes whose entities' events run in order: one machine for all partitions that belong together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redrive_core::Timestamp;
use redrive_core::lane::{
    Action, EntityId, Hop, Marker, OrderedAction, OrderedCensus, Part, Ranked, Run,
};

use super::inbox::{LaneKey, Letter};
use super::load::Load;
use super::machine::{Machine, OwnWhole, Whole, unranked};
use super::plan::Role;
use super::run::Start;
use super::{Engine, Held, note_lateness};
use crate::event::{Event, Spot};
use crate::kafka::commit;
use crate::kafka::markers::{Note, shown};
use crate::kafka::publish::{At, Outgoing, Receipt as _};
use crate::record::Record;

/// Of how many closed entities the name is kept, for those who are told when they are opened.
const NAMES: usize = 10_000;

/// What is told of entities.
#[derive(Default)]
pub(super) struct Told {
    /// Whether it was told that the lane is open.
    is_open: bool,
    /// How things were when it was last told.
    census: OrderedCensus,
    /// Markers that are being written, with what is told when they are there.
    marking: BTreeMap<Marker, (Spot, Note)>,
    /// The names of closed entities.
    names: BTreeMap<EntityId, Arc<str>>,
    /// Entities of which a marker is gone.
    opening: BTreeSet<EntityId>,
}

impl Told {
    fn name(&mut self, entity: EntityId, name: Option<Arc<str>>) {
        if let Some(name) = name.filter(|_| self.names.len() < NAMES) {
            self.names.insert(entity, name);
        }
    }
}

impl Engine {
    pub(super) fn open_whole(
        &mut self,
        parts: Vec<(u64, LaneKey)>,
        group: usize,
        machine: Box<OwnWhole>,
        now: Timestamp,
    ) {
        let Some(home) = parts.first().map(|it| it.0) else {
            return;
        };
        for (part, (lane, key)) in parts.iter().enumerate() {
            let mut held = Held::new(*key, group, Machine::Part { whole: home, part });
            // The source is read when all that is pending is known.
            (held.is_held_back, held.is_cut_off) = (part == 0, part == 0);
            self.lanes.insert(*lane, held);
        }
        let parts = parts.into_iter().map(|it| it.0).collect();
        let whole = Whole { machine, parts, mark: None, told: Told::default() };
        self.wholes.insert(home, whole);
        self.is_to_share = true;
        if self.is_halted {
            self.feed(home, |machine, slots| machine.halt(now, slots));
        }
        // There may be nothing to read.
        self.feed(home, |machine, slots| machine.tick(now, slots));
    }

    /// Does what an ordered lane asks for, until it asks for no more.
    pub(super) fn perform_whole(&mut self, home: u64, now: Timestamp) {
        self.tell_taken_over(home);
        let partition = self.lanes.get(&home).map_or(0, |it| it.key.partition);
        while let Some(whole) = self.wholes.get_mut(&home) {
            // Nearly all that it asks for.
            while let Some(Run { offset, payload, in_place }) = whole.machine.next_source_run() {
                let (lane, role, load) = (home, Role::Source, payload.payload);
                self.starts.push(Start { lane, role, partition, offset, load, in_place });
            }
            match whole.machine.next_action() {
                Some(OrderedAction::Part { part, action }) => {
                    if let Some(lane) = whole.parts.get(part).copied() {
                        self.perform_part(lane, action, now);
                    }
                }
                Some(OrderedAction::Commit { parts }) => self.commit_whole(home, parts),
                Some(OrderedAction::Mark { marker, payload }) => {
                    if let Some(record) = payload.into_record() {
                        self.mark(home, marker, &record);
                    }
                }
                Some(OrderedAction::Unmark(marker)) => self.unmark(home, marker),
                Some(OrderedAction::FindEnd) => self.find_end(home),
                Some(OrderedAction::Drained) => {
                    for lane in whole.parts.clone() {
                        self.remove(lane);
                    }
                }
                None => {
                    let lanes = &self.lanes;
                    let is_unfed = |it: &&u64| lanes.get(it).is_some_and(Held::is_unfed);
                    let Some(lane) = whole.parts.iter().find(is_unfed).copied() else {
                        break;
                    };
                    self.take_backlog(lane, now);
                }
            }
        }
        self.tell_closed_and_opened(home);
        self.note_wakeup(home, now);
    }

    /// Tells that a lane has taken over. Nothing of it has run before.
    fn tell_taken_over(&mut self, home: u64) {
        let is_new = |it: &&mut Whole| !it.told.is_open && it.machine.is_open();
        let Some(whole) = self.wholes.get_mut(&home).filter(is_new) else {
            return;
        };
        whole.told.is_open = true;
        let epoch = whole.machine.epoch().unwrap_or(0);
        let OrderedCensus { entities, closed, .. } = whole.machine.census();
        let (pending, closed) = (entities as u64, closed as u64);
        if let Some((topic, partition)) = self.source(home) {
            let event = Event::TakenOver { topic, partition, epoch, pending, closed };
            self.tools.events.tell(&event);
        }
    }

    fn perform_part(
        &mut self,
        lane: u64,
        action: Action<Ranked<Load>, Arc<Outgoing>>,
        now: Timestamp,
    ) {
        let role = self.role(lane);
        let Some(action) = unranked(action) else {
            return;
        };
        let Action::Run { offset, payload: load, in_place } = action else {
            return self.carry_out(lane, role, action, now);
        };
        let Some(held) = self.lanes.get_mut(&lane) else {
            return;
        };
        // Who waited behind another one is not late.
        let has_failed =
            load.record().and_then(|it| it.header("redrive-first-failed-at")).is_some();
        if in_place.runs == 0 && has_failed {
            let machine = held.machine.driver(&mut self.wholes);
            let due = machine.and_then(|it| it.due(offset));
            note_lateness(&self.state.numbers, due, now);
        }
        let partition = held.key.partition;
        self.starts.push(Start { lane, role, partition, offset, load, in_place });
    }

    /// Commits all parts in one request.
    fn commit_whole(&mut self, home: u64, parts: Vec<(i64, String)>) {
        let (Some(whole), Some(held)) = (self.wholes.get(&home), self.lanes.get_mut(&home)) else {
            return;
        };
        if !std::mem::take(&mut held.is_closing) {
            held.ticket = commit::ticket();
        }
        let ticket = held.ticket;
        if let Some(link) = self.tools.groups.get(held.group) {
            let requests = whole.parts.iter().zip(parts).map(|(lane, (offset, metadata))| {
                commit::Request { lane: *lane, ticket, offset, metadata }
            });
            link.commits.request(requests);
        }
    }

    pub(super) fn is_part(&self, lane: u64) -> bool {
        self.lanes.get(&lane).is_some_and(|it| matches!(it.machine, Machine::Part { .. }))
    }

    /// Ordered lanes commit what is in a transaction, with the transaction.
    pub(super) fn close_wholes(
        &mut self,
        group: usize,
        ticket: u64,
        lanes: Vec<(u64, Vec<i64>)>,
        now: Timestamp,
    ) {
        let mut wholes: BTreeMap<u64, BTreeMap<Part, Vec<i64>>> = BTreeMap::new();
        for (lane, sent) in lanes {
            let Some(held) = self.lanes.get_mut(&lane) else {
                continue;
            };
            for offset in &sent {
                if held.troubles.make_good(*offset, &self.state) {
                    self.tools.events.tell(&Event::Recovered);
                }
            }
            if let Machine::Part { whole, part } = held.machine {
                wholes.entry(whole).or_default().insert(part, sent);
            }
        }
        for (home, sent) in wholes {
            let whole = self.wholes.get_mut(&home).filter(|it| it.machine.is_open());
            let (Some(whole), Some(held)) = (whole, self.lanes.get_mut(&home)) else {
                if let Some(link) = self.tools.groups.get(group) {
                    link.commits.refuse(ticket);
                }
                continue;
            };
            (held.ticket, held.is_closing) = (ticket, true);
            whole.machine.close_transaction(&sent, now, &mut self.slots);
            self.touched.insert(home);
        }
    }

    // ----- closed entities

    /// The source topic's partition that an ordered lane is named after.
    fn source(&self, home: u64) -> Option<(Arc<str>, i32)> {
        let key = self.lanes.get(&home)?.key;
        Some((Arc::clone(self.plan.flow.source()), key.partition))
    }

    /// Closes an entity whose record is to be dead-lettered.
    fn mark(&mut self, home: u64, marker: Marker, record: &Record) {
        let Some((topic, partition)) = self.source(home) else {
            return;
        };
        let Some(whole) = self.wholes.get_mut(&home) else {
            return;
        };
        let part = self.plan.stops.iter().position(|it| *it.topic == *record.topic());
        let lane = part.and_then(|it| whole.machine.part(it));
        let hop = lane.and_then(|it| it.publishing(record.offset()));
        let name = self.plan.entity.as_ref().and_then(|it| it.name(record));
        let mut note = Note::new(name.as_deref(), crate::clock::now());
        match hop {
            Some(Hop::Verdict(outgoing)) => {
                note.read_headers(&outgoing.headers.iter().collect::<Vec<_>>());
            }
            Some(Hop::DeadLetter(reason)) => note.reason = Some(reason.as_str().to_owned()),
            _ => {}
        }
        let (at, state_topic) = ((&*topic, partition), &self.tools.state_topic);
        let group = self.lanes.get(&home).and_then(|it| self.tools.groups.get(it.group));
        if group.is_some_and(|it| it.transactions) {
            whole.mark = Some(state_topic.marker(at, marker, Some(&note)));
        } else {
            let publisher = &self.tools.publisher;
            state_topic.mark(publisher, at, marker, Some(&note), home, &self.inbox);
        }
        let head = Spot { topic, partition, offset: marker.head.origin };
        whole.told.marking.insert(marker, (head, note));
    }

    fn unmark(&mut self, home: u64, marker: Marker) {
        if let Some((topic, partition)) = self.source(home) {
            let (publisher, at) = (&self.tools.publisher, (&*topic, partition));
            self.tools.state_topic.mark(publisher, at, marker, None, home, &self.inbox);
        }
    }

    /// A marker that this lane wanted to write or to delete is so, or is not.
    pub(super) fn marked(
        &mut self,
        home: u64,
        marker: Marker,
        is_there: bool,
        result: Result<At, String>,
        now: Timestamp,
    ) {
        let at = self.source(home);
        let Some(whole) = self.wholes.get_mut(&home) else {
            return;
        };
        self.touched.insert(home);
        let offset = match result {
            Ok(offset) => Some(offset).filter(|it| *it >= 0),
            Err(error) => {
                if is_there {
                    whole.machine.mark_failed(marker, now);
                } else {
                    whole.machine.unmark_failed(marker, now);
                }
                if let Some((topic, partition)) = at {
                    let spot = Spot { topic, partition, offset: marker.head.origin };
                    let to = Arc::clone(self.tools.state_topic.name());
                    self.tools.events.tell(&Event::MarkFailed { spot, to, error });
                }
                return;
            }
        };
        if !is_there {
            if whole.machine.head(marker.entity).is_some() {
                whole.told.opening.insert(marker.entity);
            }
            whole.machine.unmarked(marker, now, &mut self.slots);
            return;
        }
        whole.machine.marked(marker, offset, now, &mut self.slots);
    }

    /// A marker of this lane was read in the state topic.
    pub(super) fn marker(
        &mut self,
        home: u64,
        marker: Marker,
        offset: i64,
        name: Option<Arc<str>>,
        now: Timestamp,
    ) {
        if let Some(whole) = self.wholes.get_mut(&home) {
            whole.told.name(marker.entity, name);
            whole.machine.marker(marker, offset, now, &mut self.slots);
            self.touched.insert(home);
        }
    }

    /// The deletion of a marker of this lane was read in the state topic, at an offset, and its first retry topic had an end then.
    pub(super) fn marker_deleted(
        &mut self,
        home: u64,
        marker: Marker,
        (offset, end): (i64, i64),
        now: Timestamp,
    ) {
        if let Some(whole) = self.wholes.get_mut(&home) {
            if whole.machine.head(marker.entity).is_some() {
                whole.told.opening.insert(marker.entity);
            }
            whole.machine.marker_deleted(marker, offset, end, now, &mut self.slots);
            self.touched.insert(home);
        }
    }

    /// Tells of entities that are closed now, and of those that are open again.
    fn tell_closed_and_opened(&mut self, home: u64) {
        let is_any = |it: &&mut Whole| !(it.told.opening.is_empty() && it.told.marking.is_empty());
        let Some(whole) = self.wholes.get_mut(&home).filter(is_any) else {
            return;
        };
        let machine = &whole.machine;
        let is_closed = |it: &Marker, _: &mut (Spot, Note)| {
            machine.head(it.entity).is_some_and(|head| head <= it.head)
        };
        let closed: Vec<_> = whole.told.marking.extract_if(.., is_closed).collect();
        for (marker, (head, note)) in closed {
            let name = note.shown();
            whole.told.name(marker.entity, name.clone());
            let reason = note.reason.unwrap_or_default();
            self.tools.events.tell(&Event::EntityClosed { entity: name, head, reason });
        }
        let machine = &whole.machine;
        let open = whole.told.opening.extract_if(.., |it| machine.head(*it).is_none());
        let open: Vec<_> = open.collect();
        let open: Vec<_> = open.iter().map(|it| (*it, whole.told.names.remove(it))).collect();
        let Some((topic, partition)) = self.source(home) else {
            return;
        };
        for (id, name) in open {
            let entity = Some(name.unwrap_or_else(|| shown(id)));
            let topic = Arc::clone(&topic);
            self.tools.events.tell(&Event::EntityOpened { entity, topic, partition });
        }
    }

    // ----- numbers

    /// A lane goes, or is looked at: what was dropped since the last look is told.
    pub(super) fn tell_dropped(&mut self, home: u64) {
        let at = self.source(home);
        let (Some(whole), Some((topic, partition))) = (self.wholes.get_mut(&home), at) else {
            return;
        };
        let census = whole.machine.census();
        let before = std::mem::replace(&mut whole.told.census, census);
        self.state.numbers.superseded.add(census.superseded - before.superseded);
        let copies = census.void - before.void;
        if copies > 0 {
            self.tools.events.tell(&Event::Void { topic, partition, copies });
        }
    }

    /// Lets others see how the entities are.
    pub(super) fn take_order_census(&mut self) {
        if self.plan.entity.is_none() {
            return;
        }
        let homes: Vec<_> = self.wholes.keys().copied().collect();
        let mut all = OrderedCensus::default();
        for home in homes {
            self.tell_dropped(home);
            if let Some(whole) = self.wholes.get(&home) {
                let OrderedCensus { entities, closed, pending, .. } = whole.told.census;
                all.entities += entities;
                all.closed += closed;
                all.pending += pending;
            }
        }
        *self.state.entities.lock() = all;
    }

    // ----- ends

    /// Asks where an ordered lane's source ends.
    fn find_end(&self, home: u64) {
        if let (Some((topic, partition)), Some(tails)) = (self.source(home), &self.tools.tails) {
            let inbox = Arc::clone(&self.inbox);
            tails.ask(topic, partition, move |end| {
                inbox.send(Letter::SourceEnds { lane: home, end });
            });
        }
    }

    pub(super) fn source_ends(&mut self, home: u64, end: i64, now: Timestamp) {
        if let Some(whole) = self.wholes.get_mut(&home) {
            whole.machine.source_ends(end, now, &mut self.slots);
            self.touched.insert(home);
        }
    }

    /// Asks where a partition ends that a record was published to at an offset that nobody told.
    pub(super) fn find(&self, lane: u64, offset: i64, to: Part) {
        let partition = self.lanes.get(&lane).map(|it| it.key.partition);
        let topic = self.plan.stops.get(to).map(|it| Arc::clone(&it.topic));
        if let (Some(partition), Some(topic), Some(tails)) = (partition, topic, &self.tools.tails) {
            let inbox = Arc::clone(&self.inbox);
            tails.ask(topic, partition, move |end| {
                inbox.published((lane, offset), Ok((end - 1).max(0)));
            });
        }
    }
}
