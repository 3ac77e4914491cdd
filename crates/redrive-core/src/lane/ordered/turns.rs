//! Whose turn it is, of the records of an entity.

use super::super::entities::{Entity, Pending, Sent, State};
use super::super::entity::{EntityId, Identity};
use super::super::{Payload, Slots};
use super::{OrderedLane, Routed, fate_of};
use crate::mutation::{self, Mutation};
use crate::time::Timestamp;

impl<P: Payload, H: Clone + Routed> OrderedLane<P, H> {
    pub(super) fn schedule(&mut self, id: EntityId, now: Timestamp, slots: &mut Slots) {
        self.call_back(id);
        let Some(entity) = self.entities.get(id) else {
            return;
        };
        let Some((first, pending)) = entity.first() else {
            return;
        };
        let pending = *pending;
        let head = self.closed.head(id);
        // Records of it may be unread that come before: its head, too.
        let is_beyond = entity.horizon.is_some_and(|it| first >= it);
        let is_unread = pending.copy.part > 0 && !self.has_read(first.origin);
        let is_blind = is_unread || is_beyond;
        let other = entity.turn.filter(|it| *it != first);
        let other = other.and_then(|it| Some((it, *entity.get(it)?)));
        if is_beyond {
            self.folds.starve();
            self.fold_beyond(id);
            return self.send_held(id, now, slots);
        }
        if is_unread {
            self.wait_for_source(first.origin, id);
        } else if let Some(head) = head.filter(|head| *head < first) {
            // An operator who sends an entity's records back begins with its head, and opens it when all are there.
            if first.origin == head.origin {
                return self.send_held(id, now, slots);
            }
            if entity.parked() == 0 {
                return;
            }
            // What is unread in the source may be the same records.
            let is_seen =
                |it: &(Identity, &Pending)| it.1.copy.part == 0 || self.has_read(it.0.origin);
            let parked = entity.iter().filter(|it| it.1.is_parked());
            let (seen, unseen): (Vec<_>, Vec<_>) = parked.partition(is_seen);
            let seen: Vec<_> = seen.into_iter().map(|it| it.0).collect();
            if let Some(first) = unseen.first().map(|it| it.0) {
                self.wait_for_source(first.origin, id);
            }
            for identity in seen {
                self.send(id, identity, Sent::Dead(head), now, slots);
            }
            return;
        }
        if let Some((turn, running)) = other
            && running.state == State::Turn
            && !running.is_hopping
            && self.lanes[running.copy.part].withdraw(running.copy.key())
        {
            self.stand_aside(id, turn);
        }
        let has_turn = self.entities.get(id).is_some_and(|it| it.turn.is_some());
        if !has_turn && !is_blind && pending.is_parked() {
            // It was to be dead-lettered, and the owner that closed the entity for it did not come to that. If it ran with the
            // marker there, the next owner would take the entity for closed.
            if head == Some(first) {
                for marker in self.closed.of(id, first) {
                    self.unmark(marker);
                }
                if !mutation::is(Mutation::UnmarkLate) {
                    return;
                }
            }
            self.entities.change(id, first, |it| it.state = State::Turn);
            if let Some(entity) = self.entities.get_mut(id) {
                entity.give_turn(first, now);
            }
            let copy = pending.copy;
            self.lanes[copy.part].unpark(copy.key(), copy.fate, now, slots);
            self.is_stirred = true;
        }
        // Where something is pending in a tier, later ones go there as well. Else they are held, and the source with them.
        if self.entities.get(id).is_some_and(Entity::is_beyond) {
            self.send_held(id, now, slots);
        }
    }

    /// Takes records back that were to follow a head to the dead-letter topic, and whose entity was opened before they went.
    fn call_back(&mut self, id: EntityId) {
        let dying = self.entities.get(id).map(Entity::dying).unwrap_or_default();
        for (identity, head) in dying {
            let Some(pending) = self.entities.pending(id, identity).copied() else {
                continue;
            };
            if self.closed.of(id, head).is_empty()
                && self.lanes[pending.copy.part].withdraw(pending.copy.key())
            {
                self.stand_aside(id, identity);
            }
        }
    }

    /// Folds away what is parked beyond an entity's horizon.
    pub(super) fn fold_beyond(&mut self, id: EntityId) {
        if self.folds.is_scanning() {
            return;
        }
        let Some(entity) = self.entities.get(id) else {
            return;
        };
        let parked = entity.iter().filter(|it| it.1.is_parked() && it.1.copy.part > 0);
        for (identity, copy) in parked.map(|it| (it.0, it.1.copy)).collect::<Vec<_>>() {
            self.entities.remove(id, identity);
            self.aging.remove(&(copy.until, id, identity));
            self.fold_copy(id, &copy, copy.until, true);
        }
    }

    /// Sends records of an entity that are held in the source to the first tier.
    pub(super) fn send_held(&mut self, id: EntityId, now: Timestamp, slots: &mut Slots) {
        let Some(entity) = self.entities.get(id).filter(|it| it.held() > 0) else {
            return;
        };
        if self.lanes.len() == 1 {
            return;
        }
        let is_held = |it: &Pending| it.copy.part == 0 && it.is_parked();
        let held = entity.iter().filter(|it| is_held(it.1)).map(|it| it.0);
        for identity in held.collect::<Vec<_>>() {
            self.send(id, identity, Sent::Behind, now, slots);
        }
    }

    /// Sends a parked record elsewhere, unrun.
    pub(super) fn send(
        &mut self,
        id: EntityId,
        identity: Identity,
        sent: Sent,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        let Some(pending) = self.entities.pending(id, identity).copied() else {
            return;
        };
        self.entities.change(id, identity, |it| it.state = State::Sent(sent));
        let copy = pending.copy;
        self.lanes[copy.part].unpark(copy.key(), fate_of(sent), now, slots);
        self.is_stirred = true;
    }
}
