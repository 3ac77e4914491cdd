//! What is to be seen of order, by the handler and by whoever reads the topics.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use redrive_core::lane::{EntityId, Identity, Marker, Rank};

/// An entity of a lane.
type Who = (usize, EntityId);

/// Who ran when, of which entity.
#[derive(Debug, Default)]
pub struct OrderBook {
    /// How much happened so far.
    now: u64,
    /// Every record of an entity, by where it was produced.
    produced: BTreeMap<Who, BTreeMap<Identity, Produced>>,
    /// What was sent back, and then once more, since a deposed owner brought it to the dead-letter topic as well. It may still run.
    replaced: BTreeMap<Who, BTreeMap<Identity, Produced>>,
    /// What each owner has started, and when last, by the owner's generation.
    started: BTreeMap<(u64, Who), BTreeMap<Identity, Started>>,
    /// What it has started last, and from which copy.
    last: BTreeMap<(u64, Who), (Identity, u32)>,
    /// What runs, by the owner's generation.
    running: BTreeMap<(u64, Who), u64>,
    /// Heads in the dead-letter topic whose entities are closed because of them.
    closed: BTreeMap<Who, BTreeSet<Identity>>,
    /// What owners have dead-lettered.
    dead: BTreeSet<(Who, Identity)>,
    /// The newest copy that an owner has published, by record.
    hops: BTreeMap<(u64, u32), u32>,
    /// Lanes that went on from a map that was cut, so that copies count again which were superseded or void.
    cut: BTreeSet<usize>,
}

/// A record that is to run.
#[derive(Debug)]
struct Produced {
    id: u64,
    sent_back: Option<SentBack>,
}

/// What an operator did with a dead letter.
#[derive(Debug)]
struct SentBack {
    when: u64,
    /// Where in the first tier it was appended.
    at: i64,
    /// The markers that kept it from running then, but for those that an owner has deleted since. An operator deletes them when
    /// everything is sent.
    held_by: BTreeSet<Marker>,
}

#[derive(Clone, Copy, Debug)]
struct Started {
    when: u64,
    /// How far the first tier was read.
    position: i64,
}

impl Produced {
    /// Whether its owner had to know of it when it had read the first tier up to there. What is sent back while nothing holds
    /// it gets in line when it is read; else all of it is read before any of it runs.
    fn is_known(&self, position: i64) -> bool {
        self.sent_back.as_ref().is_none_or(|it| !it.held_by.is_empty() || it.at < position)
    }

    /// Whether another of its entity that started then had to wait for it.
    fn is_before(&self, other: &Started) -> bool {
        self.sent_back.as_ref().is_none_or(|it| {
            it.at < other.position || (!it.held_by.is_empty() && it.when < other.when)
        })
    }
}

/// One run of a record of an entity.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    pub generation: u64,
    pub lane: usize,
    pub id: u64,
    pub rank: Rank,
    /// How far the first tier was read.
    pub position: i64,
}

impl OrderBook {
    pub fn produce(&mut self, lane: usize, entity: EntityId, origin: i64, id: u64) {
        let identity = Identity { origin, redriven: 0 };
        let produced = Produced { id, sent_back: None };
        self.produced.entry((lane, entity)).or_default().insert(identity, produced);
    }

    /// An owner has deleted a marker: it is void, or the record that it is there for runs again after all.
    pub fn unmarked(&mut self, lane: usize, marker: Marker) {
        let who = (lane, marker.entity);
        let records = [self.produced.get_mut(&who), self.replaced.get_mut(&who)];
        let records = records.into_iter().flatten();
        let sent_back = records.flat_map(BTreeMap::values_mut).flat_map(|it| &mut it.sent_back);
        sent_back.for_each(|it| {
            it.held_by.remove(&marker);
        });
    }

    /// An operator has sent a dead letter back, while its entity had these markers.
    pub fn redriven(
        &mut self,
        lane: usize,
        entity: EntityId,
        id: u64,
        identity: Identity,
        at: i64,
        markers: impl IntoIterator<Item = Marker>,
    ) {
        // What comes before the head is not held.
        let holds = |it: &Marker| it.entity == entity && it.head.origin <= identity.origin;
        self.now += 1;
        let held_by = markers.into_iter().filter(holds).collect();
        let sent_back = Some(SentBack { when: self.now, at, held_by });
        let who = (lane, entity);
        let records = self.produced.entry(who).or_default();
        let before = records.extract_if(.., |_, it| it.id == id);
        self.replaced.entry(who).or_default().extend(before);
        records.insert(identity, Produced { id, sent_back });
    }

    /// An operator has deleted a marker with this head.
    pub fn released(&mut self, lane: usize, entity: EntityId, head: Identity) {
        if let Some(heads) = self.closed.get_mut(&(lane, entity)) {
            heads.remove(&head);
        }
    }

    /// An owner's dead letter is there. It closes its entity, unless it follows another or somebody has opened the entity before that.
    pub fn dead(&mut self, lane: usize, entity: EntityId, identity: Identity, closes: bool) {
        self.dead.insert(((lane, entity), identity));
        let heads = self.closed.entry((lane, entity)).or_default();
        if closes {
            heads.insert(identity);
        } else {
            // A head that was not settled is to run again, but follows another that was dead-lettered before it could.
            heads.remove(&identity);
        }
    }

    /// A current owner sends a record after its head to the dead-letter topic. Returns what is wrong with that.
    pub fn follow(
        &self,
        lane: usize,
        entity: EntityId,
        identity: Identity,
        head: Option<Identity>,
    ) -> Option<String> {
        let head = head.filter(|it| *it < identity);
        let is_there = |it: Identity| self.dead.contains(&((lane, entity), it));
        (!head.is_some_and(is_there) && !self.cut.contains(&lane)).then(|| {
            format!("{identity:?} follows {head:?}, which is not in the dead-letter topic")
        })
    }

    /// An owner's copy is in a tier.
    pub fn hopped(&mut self, id: u64, redriven: u32, hop: u32) {
        let newest = self.hops.entry((id, redriven)).or_default();
        *newest = (*newest).max(hop);
    }

    /// The lane goes on from a map that does not say all.
    pub fn cut(&mut self, lane: usize) {
        self.cut.insert(lane);
    }

    /// A current owner starts a run. Returns what is wrong with that.
    pub fn start(&mut self, start: Start, has_ended: impl Fn(u64) -> bool) -> Option<String> {
        let broken = self.started(start, has_ended);
        broken.filter(|_| !self.cut.contains(&start.lane))
    }

    fn started(&mut self, start: Start, has_ended: impl Fn(u64) -> bool) -> Option<String> {
        let Start { generation, lane, id, rank, position } = start;
        let Rank { entity, identity, hop, .. } = rank;
        let who = (lane, entity);
        self.now += 1;
        if let Some(other) = self.running.insert((generation, who), id)
            && other != id
        {
            return Some(format!("record {id} runs beside {other} of its entity"));
        }
        let started = self.started.entry((generation, who)).or_default();
        // One that waits in its place, or that stopped the lane, keeps its turn whoever comes meanwhile.
        let last = self.last.insert((generation, who), (identity, hop));
        let since = started.get(&identity).filter(|_| last == Some((identity, hop))).copied();
        let since = since.unwrap_or(Started { when: self.now, position });
        let records = self.produced.entry(who).or_default();
        let mut before = records.range(..identity).filter(|it| it.1.id != id);
        if let Some((other, it)) =
            before.find(|it| !has_ended(it.1.id) && it.1.is_known(since.position))
        {
            let it = it.id;
            return Some(format!(
                "record {id} at {identity:?} overtakes {it} at {other:?} of its entity"
            ));
        }
        let replaced = || self.replaced.get(&who)?.get(&identity);
        let record = records.get(&identity).or_else(replaced);
        let is_before = |it: &Started| record.is_none_or(|record| record.is_before(it));
        let mut later = started.range((Excluded(identity), Unbounded));
        if let Some((last, _)) = later.find(|it| is_before(it.1)) {
            return Some(format!("record {id} at {identity:?} runs after {last:?} of its entity"));
        }
        started.insert(identity, since);
        if let Some(heads) = self.closed.get_mut(&who) {
            // It was not settled, so that its owner's successor runs it again.
            heads.remove(&identity);
            if let Some(head) = heads.first().filter(|it| **it < identity) {
                return Some(format!(
                    "record {id} at {identity:?} runs, but follows {head:?} in the dead-letter topic"
                ));
            }
        }
        let newest = self.hops.get(&(id, identity.redriven)).copied().unwrap_or(0);
        if hop < newest {
            return Some(format!("record {id} runs from hop {hop}, but {newest} is there"));
        }
        None
    }

    /// A run is over.
    pub fn ran(&mut self, generation: u64, lane: usize, entity: EntityId) {
        self.running.remove(&(generation, (lane, entity)));
    }
}
