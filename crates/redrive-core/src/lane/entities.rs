//! The entities of an ordered lane that have something pending, and nothing of the others.

use std::collections::BTreeMap;

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

/// Nearly every entity has one record.
#[derive(Debug)]
enum Records {
    One(Identity, Pending),
    Many(BTreeMap<Identity, Pending>),
}

impl Entity {
    pub(super) fn first(&self) -> Option<(Identity, &Pending)> {
        match &self.records {
            Records::One(identity, pending) => Some((*identity, pending)),
            Records::Many(many) => many.first_key_value().map(|it| (*it.0, it.1)),
        }
    }

    pub(super) fn get(&self, identity: Identity) -> Option<&Pending> {
        match &self.records {
            Records::One(it, pending) => (*it == identity).then_some(pending),
            Records::Many(many) => many.get(&identity),
        }
    }

    pub(super) fn len(&self) -> usize {
        match &self.records {
            Records::One(..) => 1,
            Records::Many(many) => many.len(),
        }
    }

    pub(super) fn iter(&self) -> Box<dyn DoubleEndedIterator<Item = (Identity, &Pending)> + '_> {
        match &self.records {
            Records::One(identity, pending) => Box::new(std::iter::once((*identity, pending))),
            Records::Many(many) => Box::new(many.iter().map(|it| (*it.0, it.1))),
        }
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
        match &mut self.records {
            Records::Many(many) => {
                many.insert(identity, pending);
            }
            Records::One(before, other) => {
                let many = BTreeMap::from([(*before, *other), (identity, pending)]);
                self.records = Records::Many(many);
            }
        }
    }

    fn change(&mut self, identity: Identity, change: impl FnOnce(&mut Pending)) {
        let Some(mut pending) = self.get(identity).copied() else {
            return;
        };
        self.count(&pending, false);
        change(&mut pending);
        self.count(&pending, true);
        match &mut self.records {
            Records::One(_, one) => *one = pending,
            Records::Many(many) => {
                many.insert(identity, pending);
            }
        }
    }
}

/// The entities that have something pending.
#[derive(Debug, Default)]
pub(super) struct Entities {
    entities: BTreeMap<EntityId, Entity>,
    records: usize,
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
    ) {
        self.records += 1;
        match self.entities.get_mut(&id) {
            Some(entity) => entity.insert(identity, pending),
            None => {
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
                self.entities.insert(id, entity);
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

    /// From now on it is the turn of this one of an entity's records.
    pub(super) fn give_turn(&mut self, id: EntityId, to: Identity, now: Timestamp) {
        if let Some(entity) = self.entities.get_mut(&id) {
            (entity.turn, entity.turn_since) = (Some(to), now);
        }
    }

    /// A record is not pending any more.
    pub(super) fn remove(&mut self, id: EntityId, identity: Identity) -> Option<Pending> {
        let entity = self.entities.get_mut(&id)?;
        let pending = *entity.get(identity)?;
        self.records -= 1;
        if entity.turn == Some(identity) {
            entity.turn = None;
        }
        entity.count(&pending, false);
        let is_empty = match &mut entity.records {
            Records::One(..) => true,
            Records::Many(many) => {
                many.remove(&identity);
                many.is_empty()
            }
        };
        if is_empty {
            self.entities.remove(&id);
        }
        Some(pending)
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
