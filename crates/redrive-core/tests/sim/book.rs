//! What is to be seen of order, by the handler and by whoever reads the topics.

use std::collections::{BTreeMap, BTreeSet};

use redrive_core::lane::{EntityId, Identity, Rank};

/// Who ran when, of which entity.
#[derive(Debug, Default)]
pub struct OrderBook {
    /// Every record of an entity, by where it was produced.
    produced: BTreeMap<(usize, EntityId), BTreeMap<Identity, Produced>>,
    /// What each owner has started last, by the owner's generation.
    started: BTreeMap<(u64, usize, EntityId), Identity>,
    /// What runs, by the owner's generation.
    running: BTreeMap<(u64, usize, EntityId), u64>,
    /// Heads in the dead-letter topic.
    closed: BTreeMap<(usize, EntityId), Identity>,
    /// Heads whose entities were opened.
    released: BTreeSet<(usize, EntityId, Identity)>,
    /// What owners have dead-lettered.
    dead: BTreeSet<(usize, EntityId, Identity)>,
    /// The newest copy that an owner has published, by record.
    hops: BTreeMap<(u64, u32), u32>,
}

/// A record that is to run.
#[derive(Clone, Copy, Debug)]
struct Produced {
    id: u64,
    /// Where an operator who sent it back has appended it in the first tier.
    at: Option<i64>,
    /// Whether its entity was closed then, and nobody but an operator has opened it since.
    is_closed: bool,
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
        let produced = Produced { id, at: None, is_closed: false };
        self.produced.entry((lane, entity)).or_default().insert(identity, produced);
    }

    /// An owner has opened an entity, whose head it is about to run again.
    pub fn unmarked(&mut self, lane: usize, entity: EntityId) {
        let records = self.produced.get_mut(&(lane, entity)).into_iter();
        records.flat_map(BTreeMap::values_mut).for_each(|it| it.is_closed = false);
    }

    pub fn redriven(
        &mut self,
        lane: usize,
        entity: EntityId,
        id: u64,
        identity: Identity,
        at: i64,
        is_closed: bool,
    ) {
        let records = self.produced.entry((lane, entity)).or_default();
        records.retain(|_, it| it.id != id);
        records.insert(identity, Produced { id, at: Some(at), is_closed });
        // From now on the entity's others may run behind it.
        for (key, started) in &mut self.started {
            if (key.1, key.2) == (lane, entity) {
                *started = (*started).min(identity);
            }
        }
    }

    /// An operator has opened an entity, perhaps before its head is in the dead-letter topic.
    pub fn released(&mut self, lane: usize, entity: EntityId, head: Identity) {
        self.closed.remove(&(lane, entity));
        self.released.insert((lane, entity, head));
    }

    /// An owner's dead letter is there.
    pub fn dead(
        &mut self,
        lane: usize,
        entity: EntityId,
        identity: Identity,
        is_follower: bool,
        holds: bool,
    ) -> Option<String> {
        self.dead.insert((lane, entity, identity));
        if holds && !is_follower && !self.released.contains(&(lane, entity, identity)) {
            self.closed.insert((lane, entity), identity);
        }
        let first = (lane, entity, Identity { origin: 0, redriven: 0 });
        let is_alone = self.dead.range(first..(lane, entity, identity)).next().is_none();
        (is_follower && is_alone)
            .then(|| format!("{identity:?} follows nobody into the dead-letter topic"))
    }

    /// An owner's copy is in a tier.
    pub fn hopped(&mut self, id: u64, redriven: u32, hop: u32) {
        let newest = self.hops.entry((id, redriven)).or_default();
        *newest = (*newest).max(hop);
    }

    /// A current owner starts a run. Returns what is wrong with that.
    pub fn start(&mut self, start: Start, has_ended: impl Fn(u64) -> bool) -> Option<String> {
        let Start { generation, lane, id, rank, position } = start;
        let Rank { entity, identity, hop, .. } = rank;
        let key = (generation, lane, entity);
        if let Some(other) = self.running.insert(key, id)
            && other != id
        {
            return Some(format!("record {id} runs beside {other} of its entity"));
        }
        let records = self.produced.entry((lane, entity)).or_default();
        let mut before = records.range(..identity).filter(|it| it.1.id != id);
        // What is sent back while the entity is open gets in line when it is read.
        let is_known = |it: &Produced| it.is_closed || it.at.is_none_or(|at| at < position);
        if let Some((other, it)) = before.find(|it| !has_ended(it.1.id) && is_known(it.1)) {
            let it = it.id;
            return Some(format!(
                "record {id} at {identity:?} overtakes {it} at {other:?} of its entity"
            ));
        }
        let last = self.started.entry(key).or_insert(identity);
        if identity < *last {
            return Some(format!("record {id} at {identity:?} runs after {last:?} of its entity"));
        }
        *last = identity;
        match self.closed.get(&(lane, entity)) {
            Some(head) if *head == identity => {
                self.closed.remove(&(lane, entity));
            }
            Some(head) if *head < identity => {
                return Some(format!(
                    "record {id} at {identity:?} runs, but follows {head:?} in the dead-letter topic"
                ));
            }
            _ => {}
        }
        let newest = self.hops.get(&(id, identity.redriven)).copied().unwrap_or(0);
        if hop < newest {
            return Some(format!("record {id} runs from hop {hop}, but {newest} is there"));
        }
        None
    }

    /// A run is over.
    pub fn ran(&mut self, generation: u64, lane: usize, entity: EntityId) {
        self.running.remove(&(generation, lane, entity));
    }
}
