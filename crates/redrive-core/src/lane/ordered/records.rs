//! Records of an ordered lane that come and go.

use super::super::entities::{Copy, Left, Part, Pending, Sent, State};
use super::super::entity::{EntityId, Identity};
use super::super::parking::Ended;
use super::super::{Action, Fate, Hop, Item, Lane, Marker, Payload, Phase, Ranked, Slots};
use super::{Hopping, OnDeadLetter, OrderedAction, OrderedLane, Routed, Stage, place};
use crate::mutation::{self, Mutation};
use crate::time::Timestamp;
use crate::verdict::Reason;

impl<P: Payload, H: Clone + Routed> OrderedLane<P, H> {
    /// Finds a place for a record that was read.
    pub(super) fn take_in(
        &mut self,
        part: Part,
        item: Item<Ranked<P>>,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        let is_ours = item.fate != Fate::Settle && self.place(part, &item).is_some();
        let lane = &mut self.lanes[part];
        if !lane.see(&item) {
            return;
        }
        if !is_ours {
            return lane.admit(item, now, slots);
        }
        let epoch = item.payload.rank.and_then(|it| it.epoch);
        let has_epochs = part > 0 && !self.config.is_exactly_once;
        if has_epochs && self.epochs.is_void(part, item.offset, epoch) {
            self.void += 1;
            return self.lanes[part].settle_parked(item.offset, item.dated());
        }
        self.file(part, item, false, now, slots);
    }

    /// Which entity's record it is, and which one. Each record of a tier that belongs to nobody is taken for an entity of its
    /// own; those of the source are not looked at.
    pub(super) fn place(&self, part: Part, item: &Item<Ranked<P>>) -> Option<(EntityId, Identity)> {
        place(part, item.offset, item.payload.rank)
    }

    /// Finds a place for a record that counts, or for one that was folded away.
    pub(super) fn file(
        &mut self,
        part: Part,
        item: Item<Ranked<P>>,
        is_scanned: bool,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        let Some((entity, identity)) = self.place(part, &item) else {
            return;
        };
        let lane = &mut self.lanes[part];
        let hop = item.payload.rank.map_or(0, |it| it.hop);
        let copy = Copy {
            part,
            offset: item.offset,
            hop,
            due: item.due,
            is_dated: item.is_dated,
            fate: item.fate,
            wake: lane.wake(&item),
            until: self
                .config
                .lane
                .retention
                .map_or(Timestamp::from_millis(i64::MAX), |it| item.appended_at.after(it / 2)),
        };
        if !self.hops.is_empty()
            && let Some(hopping) = self.hops.get_mut(&(entity, identity))
        {
            // This is the copy that is on its way, or one more of it, or one that is ahead of it and was folded away.
            let before = hopping.copy;
            if hop < hopping.hop || before.is_some_and(|it| it.hop >= hop) {
                self.superseded += 1;
                return lane.settle_parked(item.offset, copy.dated());
            }
            hopping.copy = Some(copy);
            lane.park(item);
            if let Some(before) = before {
                self.superseded += 1;
                self.lanes[before.part].settle_parked(before.offset, before.dated());
            }
            return self.landed(entity, identity);
        }
        let whole = self.entities.get(entity);
        if let Some(known) = whole.and_then(|it| it.get(identity)).copied() {
            self.superseded += 1;
            let newest = self.newer.get(&(entity, identity)).map_or(known.copy.hop, |it| it.hop);
            if hop <= newest || mutation::is(Mutation::IgnoreHops) {
                return self.lanes[part].settle_parked(item.offset, copy.dated());
            }
            self.lanes[part].park(item);
            if let Some(before) = self.newer.insert((entity, identity), copy) {
                self.lanes[before.part].settle_parked(before.offset, before.dated());
            }
            let is_idle = match known.state {
                State::Parked => true,
                State::Turn | State::Sent(_) => {
                    self.lanes[known.copy.part].withdraw(known.copy.key())
                }
            };
            if is_idle {
                self.stand_aside(entity, identity);
                self.touch(entity);
            }
            return;
        }
        // A copy has come whose origin was not read: if the source did not go as far when that was asked, it may do so now.
        if part > 0 && !is_scanned && identity.origin >= self.lanes[0].position() {
            self.probed = self.probed.min(identity.origin - 1);
            self.probing = self.probing.map(|it| it.min(identity.origin - 1));
        }
        let folded = [self.folds.may_have(entity), self.folds.may_have_again(entity)];
        let is_beyond = match whole {
            Some(whole) => whole.horizon.is_some_and(|it| identity >= it),
            None => folded[0],
        };
        if is_beyond && part > 0 && !self.folds.is_scanning() {
            let is_first = whole.is_none();
            if is_first && copy.wake <= now {
                self.folds.seek();
            }
            // It may be the first of its entity after all.
            let wake = if is_first && copy.wake > now { copy.wake } else { copy.until };
            self.lanes[part].park(item);
            return self.fold_copy(entity, &copy, wake, true);
        }
        // Nearly every record is the only one of its entity, and runs.
        let is_free = part == 0
            && self.stage == Stage::Open
            && whole.is_none()
            && !folded[0]
            && !is_scanned
            && self.closed.head(entity).is_none();
        let pending = Pending { copy, state: State::Parked, is_hopping: false };
        if is_free {
            let pending = Pending { state: State::Turn, ..pending };
            self.entities.insert(entity, identity, pending, folded).give_turn(identity, now);
            return self.lanes[part].admit(item, now, slots);
        }
        self.lanes[part].park(item);
        self.age(entity, identity, &copy);
        self.entities.insert(entity, identity, pending, folded);
        self.touch(entity);
        // Else it could be folded away again before its turn comes.
        let is_old = is_scanned && copy.until <= now && copy.part > 0;
        if is_old && !mutation::is(Mutation::NeverReappend) {
            self.send(entity, identity, Sent::Again, now, slots);
        }
        self.make_room(now);
    }

    /// A record that is not under way stands aside, as the newest copy that there is of it. The one before is settled.
    pub(super) fn stand_aside(&mut self, entity: EntityId, identity: Identity) {
        let newer = self.newer.remove(&(entity, identity));
        if let Some(copy) = &newer {
            if let Some(before) = self.entities.pending(entity, identity).map(|it| it.copy) {
                self.lanes[before.part].settle_parked(before.offset, before.dated());
            }
            self.age(entity, identity, copy);
        }
        self.entities.change(entity, identity, |it| {
            let copy = newer.unwrap_or(it.copy);
            *it = Pending { copy, state: State::Parked, is_hopping: false };
        });
        if let Some(it) = self.entities.get_mut(entity)
            && it.turn == Some(identity)
        {
            it.turn = None;
        }
    }

    /// A record has ended by a copy that was under way: the newer one is not needed any more.
    fn settle_newer(&mut self, entity: EntityId, identity: Identity) {
        if let Some(copy) = self.newer.remove(&(entity, identity)) {
            self.lanes[copy.part].settle_parked(copy.offset, copy.dated());
        }
    }

    /// Retention must not delete a record that stands aside.
    pub(super) fn age(&mut self, entity: EntityId, identity: Identity, copy: &Copy) {
        let is_kept = self.config.lane.retention.is_none() || copy.part == 0;
        if !is_kept && !mutation::is(Mutation::NeverReappend) {
            self.aging.insert((copy.until, entity, identity));
        }
    }

    /// Appends records again that have stood aside for long. Who has a turn is looked after by its part.
    pub(super) fn append_again(&mut self, now: Timestamp, slots: &mut Slots) {
        while let Some((at, entity, identity)) = self.aging.first().copied()
            && at <= now
            && self.lanes.first().is_some_and(|it| it.phase == Phase::Open)
        {
            self.aging.pop_first();
            let pending = self.entities.pending(entity, identity);
            if pending.is_some_and(|it| it.is_parked() && it.copy.part > 0) {
                self.send(entity, identity, Sent::Again, now, slots);
            }
        }
    }

    /// A part was read on: what waited for that may go on.
    pub(super) fn read_on(&mut self, part: Part) {
        let position = self.lanes[part].position();
        while let Some((at, below, entity, identity)) =
            self.landing.range((part, i64::MIN, EntityId::FIRST, Identity::FIRST)..).next().copied()
            && at == part
            && below <= position
        {
            self.landing.remove(&(at, below, entity, identity));
            self.landed(entity, identity);
        }
        if part == 1 {
            self.open_entities();
        }
        if part == 0 {
            self.read_source_on();
        }
    }

    /// Entities that waited for the source may go on, as far as it was read.
    pub(super) fn read_source_on(&mut self) {
        while let Some((origin, entity)) = self.behind_source.first().copied()
            && self.has_read(origin)
        {
            self.behind_source.pop_first();
            self.touch(entity);
        }
    }

    /// Whether everything of the source up to this offset was read: or all there is, where it does not go as far.
    pub(super) fn has_read(&self, origin: i64) -> bool {
        let position = self.lanes[0].position();
        let is_whole = position >= self.ends[0] && origin <= self.probed;
        origin < position || is_whole || mutation::is(Mutation::IgnoreSource)
    }

    /// An entity waits until the source was read past an offset.
    pub(super) fn wait_for_source(&mut self, origin: i64, entity: EntityId) {
        self.behind_source.insert((origin, entity));
        self.find_end();
    }

    /// Asks where the source ends, if something waits that is beyond the end that is known. A deposed owner may have read on after that was
    /// noted, and an operator may have sent back what it brought to the dead-letter topic; or the source is not what it was.
    pub(super) fn find_end(&mut self) {
        if self.probing.is_none()
            && let Some((origin, _)) = self.behind_source.last().copied()
            && origin >= self.ends[0]
            && origin > self.probed
        {
            self.probing = Some(origin);
            self.actions.push_back(OrderedAction::FindEnd);
        }
    }

    /// A record is not pending any more. If it was the last that is known of its entity, there may be more.
    pub(super) fn forget(&mut self, id: EntityId, identity: Identity) {
        match self.entities.remove(id, identity) {
            Some(Left { is_gone: true, may_be_folded: false }) => {}
            Some(Left { is_gone: true, may_be_folded: true }) => self.folds.starve(),
            Some(Left { is_gone: false, .. }) | None => self.touch(id),
        }
    }

    /// An entity is to be looked at.
    pub(super) fn touch(&mut self, id: EntityId) {
        if self.touched.last() != Some(&id) {
            self.touched.push(id);
        }
    }

    /// A record has gone to a tier, and the one that it left is settled. It is pending there once it is read.
    pub(super) fn landed(&mut self, entity: EntityId, identity: Identity) {
        let Some(hopping) = self.hops.get(&(entity, identity)).copied() else {
            return;
        };
        let Some(below) = hopping.below else {
            return;
        };
        let is_read = self.lanes[hopping.to].position() >= below;
        // In a transaction there is one copy, whose offset nobody tells.
        if !is_read || (below == 0 && hopping.copy.is_none()) {
            if below > 0 {
                self.landing.insert((hopping.to, below, entity, identity));
            }
            return;
        }
        self.hops.remove(&(entity, identity));
        // It can be folded away now.
        self.full_at = self.full_at.saturating_sub(2);
        match hopping.copy {
            Some(copy) => {
                self.age(entity, identity, &copy);
                self.entities.change(entity, identity, |it| {
                    *it = Pending { copy, state: State::Parked, is_hopping: false };
                });
                let horizon = self.entities.get(entity).and_then(|it| it.horizon);
                if horizon.is_some_and(|it| identity >= it) && !self.folds.is_scanning() {
                    self.folds.seek();
                    self.entities.remove(entity, identity);
                    self.fold_copy(entity, &copy, copy.until, true);
                    self.aging.remove(&(copy.until, entity, identity));
                }
            }
            // Retention was faster.
            None => {
                self.lanes[hopping.to].lost(below - 1..below);
                self.forget(entity, identity);
            }
        }
        if let Some(it) = self.entities.get_mut(entity)
            && it.turn == Some(identity)
        {
            it.turn = None;
        }
        self.touch(entity);
    }

    pub(super) fn ended(&mut self, part: Part, ended: Ended<Ranked<P>, H>) {
        match ended {
            Ended::Over { offset, payload, hop } => {
                let Some((entity, identity)) = place(part, offset, payload.rank) else {
                    return;
                };
                if payload.rank.is_none() {
                    self.forget(entity, identity);
                    return;
                }
                if hop.as_ref().is_some_and(|hop| self.target(part, hop).is_some()) {
                    let below = self.below;
                    if let Some(hopping) = self.hops.get_mut(&(entity, identity)) {
                        hopping.below = Some(below);
                    }
                    return self.landed(entity, identity);
                }
                if let Some(hop) = hop
                    && self.config.is_exactly_once
                    && self.closes(entity, identity, &hop)
                {
                    self.close(Marker { entity, head: identity, epoch: None }, i64::MIN);
                }
                self.settle_newer(entity, identity);
                self.forget(entity, identity);
            }
            Ended::Gone { offset } => {
                let is_it = |it: &Pending| (it.copy.part, it.copy.offset) == (part, offset);
                let all = self.entities.iter();
                let found = all.flat_map(|(id, it)| it.iter().map(move |it| (id, it)));
                let found = found.filter(|it| is_it(it.1.1)).map(|it| (it.0, it.1.0)).next();
                if let Some((entity, identity)) = found {
                    if self.newer.contains_key(&(entity, identity)) {
                        self.stand_aside(entity, identity);
                        self.touch(entity);
                    } else {
                        self.forget(entity, identity);
                    }
                }
            }
        }
    }

    /// Which part a hop goes to. None: the dead-letter topic.
    pub(super) fn target(&self, part: Part, hop: &Hop<H>) -> Option<Part> {
        match hop {
            Hop::Verdict(hop) => hop.tier().map(|it| it + 1),
            Hop::Follow => Some(1),
            Hop::Reappend => Some(part),
            Hop::DeadLetter(_) | Hop::Relay => None,
        }
    }

    /// Passes on what a part asks for.
    pub(super) fn route(&mut self, part: Part, mut action: Action<Ranked<P>, H>) {
        match &mut action {
            Action::Publish { payload: Ranked { rank: Some(rank), payload }, hop, .. } => {
                let (entity, identity) = (rank.entity, rank.identity);
                if let Some(to) = self.target(part, hop) {
                    let copy = self.newer.remove(&(entity, identity));
                    let hopping = Hopping { to, hop: rank.hop + 1, below: None, copy };
                    self.hops.entry((entity, identity)).or_insert(hopping);
                    self.entities.change(entity, identity, |it| it.is_hopping = true);
                    self.touch(entity);
                } else if self.closes(entity, identity, hop) {
                    let marker = Marker { entity, head: identity, epoch: self.epoch() };
                    let payload = payload.share();
                    self.actions.push_back(OrderedAction::Mark { marker, payload });
                    if mutation::is(Mutation::MarkLate) {
                        self.closed.close(marker, i64::MIN);
                    } else if !self.config.is_exactly_once {
                        self.marking.insert(marker, (part, action));
                        return;
                    }
                }
            }
            Action::Halted { .. } => {
                self.lanes.iter_mut().for_each(Lane::stop);
            }
            _ => {}
        }
        self.actions.push_back(OrderedAction::Part { part, action });
    }

    /// Whether a dead letter closes its entity, and there is no marker yet that says so. One that follows another does not, whichever way it
    /// goes: it may have been refused and go once more in another form.
    pub(super) fn closes(&self, entity: EntityId, identity: Identity, hop: &Hop<H>) -> bool {
        let state = self.entities.pending(entity, identity).map(|it| it.state);
        let follows = matches!(hop, Hop::DeadLetter(Reason::Follower))
            || matches!(state, Some(State::Sent(Sent::Dead(_))));
        self.config.on_dead_letter == OnDeadLetter::Hold
            && !follows
            && (self.closed.of(entity, identity).is_empty() || self.config.is_exactly_once)
    }
}
