//! The entities of an ordered lane that have something pending, and nothing of the others.

#![expect(
    clippy::disallowed_types,
    reason = "with its own hasher a table's order is the same in every run"
)]

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hash, Hasher};

use super::Fate;
use super::entity::{EntityId, Identity};
use crate::time::Timestamp;

/// Which of an ordered lane's partitions: 0 is the source topic's, the others are the tiers' in their order.
pub type Part = usize;

/// A record's copy that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copy {
    pub(super) part: Part,
    pub(super) offset: i64,
    pub(super) hop: u32,
    pub(super) due: Timestamp,
    pub(super) is_dated: bool,
    /// What it is there for, unless it is sent elsewhere.
    pub(super) fate: Fate,
    /// When it is to be woken, once it is its turn.
    pub(super) wake: Timestamp,
    /// When it is to be appended again, if it is not its turn before.
    pub(super) until: Timestamp,
}

impl Copy {
    pub(super) fn dated(&self) -> Option<Timestamp> {
        self.is_dated.then_some(self.due)
    }

    pub(super) fn key(&self) -> (Timestamp, i64) {
        (self.wake, self.offset)
    }
}

/// What is being done with a pending record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing: it is not its turn.
    Parked,
    /// It runs when it is due.
    Turn,
    /// It goes elsewhere, unrun.
    Sent(Sent),
}

/// Why a record goes elsewhere, unrun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// To the first tier, behind others of its entity.
    Behind,
    /// To the dead-letter topic, behind the one that it follows.
    Dead(Identity),
    /// To the tail of its own tier, before retention deletes it.
    Again,
}

/// A pending record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) copy: Copy,
    pub(super) state: State,
    /// Whether it is on its way to a tier. The copy is then the one that it leaves.
    pub(super) is_hopping: bool,
}

impl Pending {
    pub(super) fn is_parked(&self) -> bool {
        self.state == State::Parked && !self.is_hopping
    }
}

/// An entity with something pending.
#[derive(Debug)]
pub(super) struct Entity {
    records: Records,
    /// Which one runs, or waits for its time to.
    pub(super) turn: Option<Identity>,
    /// Since when.
    pub(super) turn_since: Timestamp,
    /// From which record on some may be folded away. None: everything of it that is pending is here.
    pub(super) horizon: Option<Identity>,
    /// The same, of what was folded away since what is folded away was last read again.
    pub(super) refolded: Option<Identity>,
    /// How many are in a tier, or on their way to one.
    beyond: usize,
    /// How many are parked, and how many of them in the source topic.
    parked: usize,
    held: usize,
    /// How many go to the dead-letter topic unrun.
    dying: usize,
}

/// Nearly every entity has one record, and most others have few.
#[derive(Debug)]
enum Records {
    One(Identity, Pending),
    /// In their order.
    Few(VecDeque<(Identity, Pending)>),
    Many(BTreeMap<Identity, Pending>),
}

/// Where so many are few, a place among them is found and made faster than in a tree.
const FEW: usize = 32;

impl Records {
    fn insert(&mut self, identity: Identity, pending: Pending) {
        match self {
            Records::One(before, other) => {
                let mut few = VecDeque::from([(*before, *other)]);
                few.insert(usize::from(*before < identity), (identity, pending));
                *self = Records::Few(few);
            }
            Records::Few(few) if few.len() < FEW => {
                let at = few.partition_point(|it| it.0 < identity);
                few.insert(at, (identity, pending));
            }
            Records::Few(few) => {
                let few = std::mem::take(few);
                let many = few.into_iter().chain([(identity, pending)]).collect();
                *self = Records::Many(many);
            }
            Records::Many(many) => {
                many.insert(identity, pending);
            }
        }
    }

    fn get(&self, identity: Identity) -> Option<&Pending> {
        match self {
            Records::One(it, pending) => (*it == identity).then_some(pending),
            Records::Few(few) => {
                let at = few.binary_search_by_key(&identity, |it| it.0).ok()?;
                few.get(at).map(|it| &it.1)
            }
            Records::Many(many) => many.get(&identity),
        }
    }

    fn get_mut(&mut self, identity: Identity) -> Option<&mut Pending> {
        match self {
            Records::One(it, pending) => (*it == identity).then_some(pending),
            Records::Few(few) => {
                let at = few.binary_search_by_key(&identity, |it| it.0).ok()?;
                few.get_mut(at).map(|it| &mut it.1)
            }
            Records::Many(many) => many.get_mut(&identity),
        }
    }

    /// Removes one that is there. Returns whether it was the last.
    fn remove(&mut self, identity: Identity) -> bool {
        match self {
            Records::One(..) => true,
            Records::Few(few) => {
                if let Ok(at) = few.binary_search_by_key(&identity, |it| it.0) {
                    few.remove(at);
                }
                few.is_empty()
            }
            Records::Many(many) => {
                many.remove(&identity);
                many.is_empty()
            }
        }
    }
}

impl Entity {
    pub(super) fn first(&self) -> Option<(Identity, &Pending)> {
        match &self.records {
            Records::One(identity, pending) => Some((*identity, pending)),
            Records::Few(few) => few.front().map(|it| (it.0, &it.1)),
            Records::Many(many) => many.first_key_value().map(|it| (*it.0, it.1)),
        }
    }

    pub(super) fn get(&self, identity: Identity) -> Option<&Pending> {
        self.records.get(identity)
    }

    pub(super) fn len(&self) -> usize {
        match &self.records {
            Records::One(..) => 1,
            Records::Few(few) => few.len(),
            Records::Many(many) => many.len(),
        }
    }

    pub(super) fn iter(&self) -> Box<dyn DoubleEndedIterator<Item = (Identity, &Pending)> + '_> {
        match &self.records {
            Records::One(identity, pending) => Box::new(std::iter::once((*identity, pending))),
            Records::Few(few) => Box::new(few.iter().map(|it| (it.0, &it.1))),
            Records::Many(many) => Box::new(many.iter().map(|it| (*it.0, it.1))),
        }
    }

    /// From now on it is the turn of this one.
    pub(super) fn give_turn(&mut self, to: Identity, now: Timestamp) {
        (self.turn, self.turn_since) = (Some(to), now);
    }

    /// Whether something of it is in a tier, or on its way to one.
    pub(super) fn is_beyond(&self) -> bool {
        self.beyond > 0
    }

    pub(super) fn parked(&self) -> usize {
        self.parked
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Those that go to the dead-letter topic unrun, and which ones they follow.
    pub(super) fn dying(&self) -> Vec<(Identity, Identity)> {
        if self.dying == 0 {
            return Vec::new();
        }
        let dying = self.iter().filter_map(|(identity, it)| match it.state {
            State::Sent(Sent::Dead(head)) => Some((identity, head)),
            _ => None,
        });
        dying.collect()
    }

    fn count(&mut self, pending: &Pending, is_more: bool) {
        let one = |counter: &mut usize, counts: bool| {
            if counts {
                *counter = if is_more { *counter + 1 } else { counter.saturating_sub(1) };
            }
        };
        one(&mut self.beyond, pending.copy.part > 0 || pending.is_hopping);
        one(&mut self.parked, pending.is_parked());
        one(&mut self.held, pending.copy.part == 0 && pending.is_parked());
        one(&mut self.dying, matches!(pending.state, State::Sent(Sent::Dead(_))));
    }

    fn insert(&mut self, identity: Identity, pending: Pending) {
        self.count(&pending, true);
        self.records.insert(identity, pending);
    }

    fn change(&mut self, identity: Identity, change: impl FnOnce(&mut Pending)) {
        let Some(mut pending) = self.get(identity).copied() else {
            return;
        };
        self.count(&pending, false);
        change(&mut pending);
        self.count(&pending, true);
        if let Some(place) = self.records.get_mut(identity) {
            *place = pending;
        }
    }
}

/// The entities that have something pending.
#[derive(Debug, Default)]
pub(super) struct Entities {
    entities: HashMap<EntityId, Entity, BuildHasherDefault<OwnHash>>,
    records: usize,
}

impl Hash for EntityId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.halves().1);
    }
}

/// An entity's id is a hash already. So their order in memory is the same in every run.
#[derive(Debug, Default)]
struct OwnHash(u64);

impl Hasher for OwnHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, half: u64) {
        self.0 = half;
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|it| self.0 = self.0.rotate_left(8) ^ u64::from(*it));
    }
}

/// What is left of an entity when a record of it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// Whether nothing is known of it any more.
    pub(super) is_gone: bool,
    /// Whether some of it may be folded away.
    pub(super) may_be_folded: bool,
}

impl Entities {
    pub(super) fn get(&self, id: EntityId) -> Option<&Entity> {
        self.entities.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: EntityId) -> Option<&mut Entity> {
        self.entities.get_mut(&id)
    }

    pub(super) fn pending(&self, id: EntityId, identity: Identity) -> Option<&Pending> {
        self.entities.get(&id)?.get(identity)
    }

    /// All of them, in an order that is the same in every run and means nothing.
    pub(super) fn iter(&self) -> impl Iterator<Item = (EntityId, &Entity)> {
        self.entities.iter().map(|it| (*it.0, it.1))
    }

    /// How many entities have something pending.
    pub(super) fn len(&self) -> usize {
        self.entities.len()
    }

    /// How many records are pending.
    pub(super) fn records(&self) -> usize {
        self.records
    }

    /// Adds a record. If it is its entity's first, something of that entity may be folded away, for longer or since the last
    /// scan.
    pub(super) fn insert(
        &mut self,
        id: EntityId,
        identity: Identity,
        pending: Pending,
        [is_folded, is_refolded]: [bool; 2],
    ) -> &mut Entity {
        self.records += 1;
        match self.entities.entry(id) {
            Entry::Occupied(entity) => {
                let entity = entity.into_mut();
                entity.insert(identity, pending);
                entity
            }
            Entry::Vacant(place) => {
                let records = Records::One(identity, pending);
                let [beyond, parked, held, dying] = [0; 4];
                let horizon = is_folded.then_some(Identity::FIRST);
                let refolded = is_refolded.then_some(Identity::FIRST);
                let (turn, turn_since) = (None, Timestamp::default());
                let mut entity = Entity {
                    records,
                    turn,
                    turn_since,
                    horizon,
                    refolded,
                    beyond,
                    parked,
                    held,
                    dying,
                };
                entity.count(&pending, true);
                place.insert(entity)
            }
        }
    }

    pub(super) fn change(
        &mut self,
        id: EntityId,
        identity: Identity,
        change: impl FnOnce(&mut Pending),
    ) {
        if let Some(entity) = self.entities.get_mut(&id) {
            entity.change(identity, change);
        }
    }

    /// A record is not pending any more.
    pub(super) fn remove(&mut self, id: EntityId, identity: Identity) -> Option<Left> {
        let entity = self.entities.get_mut(&id)?;
        let pending = *entity.get(identity)?;
        self.records -= 1;
        if entity.turn == Some(identity) {
            entity.turn = None;
        }
        entity.count(&pending, false);
        let is_gone = entity.records.remove(identity);
        let left = Left { is_gone, may_be_folded: entity.horizon.is_some() };
        if is_gone {
            self.entities.remove(&id);
        }
        Some(left)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (EntityId, &mut Entity)> {
        self.entities.iter_mut().map(|it| (*it.0, it.1))
    }

    /// Forgets an entity.
    pub(super) fn take(&mut self, id: EntityId) -> Option<Entity> {
        let entity = self.entities.remove(&id)?;
        self.records -= entity.len();
        Some(entity)
    }
}
