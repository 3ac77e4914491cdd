//! What an ordered lane has no room for.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::entities::{Copy, Pending, State};
use super::super::entity::{EntityId, Identity};
use super::super::{Payload, Phase, Slots};
use super::{OrderedLane, Routed};
use crate::time::Timestamp;

/// Of an entity with many records so many stay, when others are folded away.
const KEPT_OF_AN_ENTITY: usize = 1;

/// A head that has its turn for longer than this takes long.
const PATIENCE: Duration = Duration::from_secs(1);

impl<P: Payload, H: Clone + Routed> OrderedLane<P, H> {
    /// Folds a copy away that is needed by then.
    pub(super) fn fold_copy(
        &mut self,
        entity: EntityId,
        copy: &Copy,
        wake: Timestamp,
        is_parked: bool,
    ) {
        let (parts, limit) = (self.lanes.len(), self.config.lane.index_limit);
        if is_parked {
            self.lanes[copy.part].fold_parked(copy.offset);
        }
        let fold = self.folds.fold(parts, limit);
        fold.add(copy.part, copy.offset, wake.min(copy.until));
        fold.add_entity(entity);
        self.set_floors();
    }

    pub(super) fn set_floors(&mut self) {
        for (part, lane) in self.lanes.iter_mut().enumerate() {
            lane.set_folded(self.folds.from(part).map(|from| (from, 0)));
        }
    }

    /// Folds records away if there are too many. Where few can be, it is not tried again for each one that comes: a look at all of
    /// them takes its time.
    pub(super) fn make_room(&mut self, now: Timestamp) {
        let limit = self.config.lane.index_limit;
        if self.entities.records() > self.full_at.max(limit) {
            self.fold(limit / 4 * 3, now);
            self.full_at = self.entities.records() + limit / 8;
        }
    }

    /// Folds records away until so many are left: whole entities that are needed last, then the last records of others.
    pub(super) fn fold(&mut self, target: usize, now: Timestamp) {
        let horizon = now.after(self.config.lane.lead);
        let ready: Vec<BTreeSet<i64>> =
            self.lanes.iter().map(|it| it.ready.offsets().collect()).collect();
        let is_idle = |it: &Pending| {
            let copy = it.copy;
            copy.part > 0
                && !it.is_hopping
                && match it.state {
                    State::Parked => true,
                    State::Turn => self.lanes[copy.part].is_far(copy.key(), &ready[copy.part]),
                    State::Sent(_) => false,
                }
        };
        let mut far: Vec<(Timestamp, EntityId)> = Vec::new();
        let mut long: Vec<(usize, EntityId)> = Vec::new();
        for (id, entity) in self.entities.iter() {
            let Some((first, pending)) = entity.first() else {
                continue;
            };
            // Who waits for an operator is not needed soon.
            let head = self.closed.head(id).filter(|head| *head < first);
            let is_sent_back = head.is_some_and(|head| head.origin == first.origin);
            let wake =
                if is_sent_back { Timestamp::from_millis(i64::MAX) } else { pending.copy.wake };
            if wake > horizon && entity.iter().all(|it| is_idle(it.1)) {
                far.push((wake, id));
            } else if entity.len() > KEPT_OF_AN_ENTITY {
                long.push((entity.len(), id));
            }
        }
        far.sort_unstable();
        long.sort_unstable();
        let mut waiting: Vec<BTreeSet<_>> = vec![BTreeSet::new(); self.lanes.len()];
        let mut folded: Vec<(EntityId, Identity, Copy, Timestamp, bool)> = Vec::new();
        while self.entities.records() > target
            && let Some((mut wake, id)) = far.pop()
        {
            let Some(entity) = self.entities.take(id) else {
                continue;
            };
            // Those behind the first are due when it is.
            for (identity, pending) in entity.iter() {
                folded.push((id, identity, pending.copy, wake, pending.state == State::Parked));
                wake = pending.copy.until;
            }
        }
        while self.entities.records() > target
            && let Some((_, id)) = long.pop()
        {
            let Some(entity) = self.entities.get(id) else {
                continue;
            };
            let excess = self.entities.records() - target;
            let tail = entity
                .iter()
                .skip(KEPT_OF_AN_ENTITY)
                .filter(|it| it.1.is_parked() && it.1.copy.part > 0);
            let mut tail: Vec<_> = tail.map(|it| (it.0, it.1.copy)).collect();
            let tail = tail.split_off(tail.len().saturating_sub(excess));
            for (identity, copy) in &tail {
                self.entities.remove(id, *identity);
                folded.push((id, *identity, *copy, copy.until, true));
            }
            if let Some((lowest, _)) = tail.first()
                && let Some(entity) = self.entities.get_mut(id)
            {
                entity.horizon = Some(entity.horizon.map_or(*lowest, |it| it.min(*lowest)));
                entity.refolded = Some(entity.refolded.map_or(*lowest, |it| it.min(*lowest)));
            }
        }
        for (id, identity, copy, wake, is_parked) in folded {
            self.aging.remove(&(copy.until, id, identity));
            if !is_parked {
                waiting[copy.part].insert(copy.key());
            }
            self.fold_copy(id, &copy, wake, is_parked);
        }
        for (lane, keys) in self.lanes.iter_mut().zip(&waiting) {
            lane.fold_waiting(keys);
        }
    }

    /// Where records that stand aside hold the source back, those go to the first tier whose head takes long, so that others
    /// can go on. Behind a head that is quick they are held: they would be slower by way of a tier.
    pub(super) fn relieve(&mut self, now: Timestamp, slots: &mut Slots) {
        if self.lanes.len() == 1 || !self.lanes[0].is_crowded() {
            self.relieve_at = None;
            return;
        }
        // Not for each one that comes: a look at all entities takes its time.
        if self.relieve_at.is_none_or(|at| at > now.after(PATIENCE)) {
            self.relieve_at = Some(now.after(PATIENCE / 2));
        }
        if self.relieve_at.is_some_and(|at| now < at) {
            return;
        }
        self.relieve_at = Some(now.after(PATIENCE / 2));
        let mut slow = Vec::new();
        for (id, entity) in self.entities.iter_mut().filter(|it| it.1.held() > 0) {
            // The clock may have gone back.
            entity.turn_since = entity.turn_since.min(now);
            if entity.turn.is_some() && now.since(entity.turn_since) >= PATIENCE {
                slow.push(id);
            }
        }
        for id in slow {
            self.send_held(id, now, slots);
        }
    }

    /// Reads again what was folded away, if it is needed and there is room.
    pub(super) fn scan(&mut self, now: Timestamp) {
        if self.folds.is_empty() || self.lanes.iter().any(|it| it.phase != Phase::Open) {
            return;
        }
        let room = self.config.lane.index_limit / 2;
        // What keeps others waiting is read even if those that run soon take all the room.
        let is_wanted = self.folds.is_wanted(now);
        if is_wanted && self.entities.records() > room {
            self.fold(room, now);
        }
        let is_needed = self.folds.is_needed(now.after(self.config.lane.lead * 4));
        if is_wanted || (is_needed && self.entities.records() <= room) {
            self.folds.begin();
            for (_, entity) in self.entities.iter_mut() {
                entity.refolded = None;
            }
        }
        if !self.folds.is_scanning() || self.scan_at.is_some_and(|at| now < at) {
            return;
        }
        // What is appended again takes memory until it is acknowledged.
        let limit = self.config.lane.ready_limit;
        if self.lanes.iter().skip(1).any(|it| it.ready.len() > limit) {
            return;
        }
        self.scan_at = None;
        if let Some((part, piece)) = self.folds.next() {
            let ticket = self.lanes[part].ask_for(piece.range());
            self.folds.asked(ticket, piece, now);
            while let Some(action) = self.lanes[part].actions.pop_front() {
                self.route(part, action);
            }
        } else if !self.folds.is_asking() {
            self.folds.end(self.config.lane.retention, now);
            for (id, entity) in self.entities.iter_mut() {
                if entity.horizon.is_some() {
                    entity.horizon = entity.refolded;
                    self.touched.push(id);
                }
            }
        }
        self.set_floors();
    }
}
