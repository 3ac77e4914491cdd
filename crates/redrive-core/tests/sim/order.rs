//! Members that own whole lanes, entities whose events must run in order, and operators.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use redrive_core::headers::{self, Dialect, Failed, Reading, Stamp, Stop};
use redrive_core::lane::{
    Assigned, EntityId, Identity, Marker, OnDeadLetter, OrderedConfig, OrderedLane, Rank, Routed,
};
use redrive_core::offsets::BlockId;
use redrive_core::{Origin, Reason, RetryState, Timestamp};

use super::driven::{Driven, Load};
use super::{
    EPOCH, Event, GROUP, Hops, Landing, MemberLane, Outgoing, PARTITIONS, Record, Token, World,
    partition,
};
use crate::cluster::{Committed, Partition};
use crate::rng::Rng;

/// The header that names the entity.
const ENTITY: &str = "order-id";

/// What makes a world an ordered one.
#[derive(Debug)]
pub(super) struct Ordering {
    rng: Rng,
    entities: u64,
    on_dead_letter: OnDeadLetter,
    /// The state topic: what each record says.
    state: Vec<StateRecord>,
    /// The dead-letter topic.
    dead: Vec<DeadLetter>,
    /// Entities that an operator is busy with.
    operated: Vec<(usize, EntityId)>,
}

/// A record of the state topic.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateRecord {
    pub(super) lane: usize,
    pub(super) marker: Marker,
    /// Else it says that the marker is gone.
    pub(super) is_there: bool,
}

/// A dead letter.
#[derive(Clone, Debug)]
pub(super) struct DeadLetter {
    lane: usize,
    entity: Option<EntityId>,
    identity: Identity,
    record: Rc<Record>,
    is_redriven: bool,
}

/// What a member notes when a lane is assigned to it, one after the other.
#[derive(Debug)]
pub(super) struct Noting {
    member: usize,
    home: Partition,
    generation: u64,
    committed: Vec<Option<Committed>>,
    ends: Vec<i64>,
    state_end: Option<i64>,
}

impl Routed for Outgoing {
    fn tier(&self) -> Option<usize> {
        self.to.map(|it| it.0 - 1)
    }
}

impl Ordering {
    /// Half of the worlds are ordered. Chance is not drawn from the world's own sequence, so that others stay what they
    /// were.
    pub(super) fn of(seed: u64, is_long: bool) -> Option<Self> {
        let mut rng = Rng::new(seed ^ 0x0D_E2);
        if rng.one_in(2) {
            return None;
        }
        // Where delays are long, a single entity would take hours.
        let entities = if is_long { 20 } else { *rng.pick(&[1, 3, 8, 30]) };
        let on_dead_letter = *rng.pick(&[OnDeadLetter::Hold, OnDeadLetter::Release]);
        Some(Self {
            rng,
            entities,
            on_dead_letter,
            state: Vec::new(),
            dead: Vec::new(),
            operated: Vec::new(),
        })
    }

    /// The headers of a record that is produced. Some have no entity.
    pub(super) fn headers(&mut self) -> Vec<(String, Vec<u8>)> {
        if self.rng.one_in(15) {
            return Vec::new();
        }
        let entity = self.rng.next() % self.entities;
        vec![(ENTITY.to_owned(), entity.to_string().into_bytes())]
    }
}

/// Whose event a record is.
pub(super) fn entity(record: &Record) -> Option<EntityId> {
    let header = record.headers.iter().find(|it| it.0 == ENTITY)?;
    Some(EntityId::of(&header.1))
}

impl World {
    /// The lane that a partition belongs to.
    pub(super) fn home(&self, at: Partition) -> Partition {
        if self.ordering.is_some() { (0, at.1) } else { at }
    }

    pub(super) fn homes(&self) -> Vec<Partition> {
        match self.ordering {
            Some(_) => (0..PARTITIONS).map(|it| (0, it)).collect(),
            None => self.partitions(),
        }
    }

    pub(super) fn parts(&self, home: Partition) -> Vec<Partition> {
        match self.ordering {
            Some(_) => self.partitions().into_iter().filter(|it| it.1 == home.1).collect(),
            None => vec![home],
        }
    }

    /// Whether it is the lane's owner, as the group sees it.
    pub(super) fn owns(&self, token: Token) -> bool {
        self.cluster.is_owner(self.home(token.at), token.member, token.generation)
    }

    pub(super) fn rank(&self, at: Partition, offset: i64, record: &Record) -> Option<Rank> {
        self.ordering.as_ref()?;
        let entity = entity(record)?;
        let reading = self.read(at, record);
        let origin = match (at.0, reading.origin) {
            (0, _) => offset,
            (_, origin) => origin?.offset,
        };
        let identity = Identity { origin, redriven: reading.redriven };
        Some(Rank { entity, identity, hop: reading.hop, epoch: reading.epoch })
    }

    // ----- taking over

    /// A member begins to take over a lane: it fetches the offsets, and notes the ends one after the other.
    pub(super) fn take_over(&mut self, member: usize, home: Partition, generation: u64) {
        let parts = self.parts(home);
        let offsets = &self.cluster.offsets;
        let committed: Vec<_> = parts.iter().map(|at| offsets.get(at).cloned()).collect();
        for (at, committed) in parts.iter().zip(&committed) {
            self.forgive_cut(*at, committed.as_ref());
        }
        let noting =
            Noting { member, home, generation, committed, ends: Vec::new(), state_end: None };
        self.note(noting);
    }

    pub(super) fn note(&mut self, mut noting: Noting) {
        let token = Token { member: noting.member, at: noting.home, generation: noting.generation };
        if !self.owns(token) || !self.members[noting.member].is_alive {
            return;
        }
        let parts = self.parts(noting.home);
        let Some(ordering) = &mut self.ordering else {
            return;
        };
        let delay = ordering.rng.range(0, 60);
        // The state topic first: what an operator sent back before it opened an entity is then below the tiers' ends. The source
        // last: what the owner before has sent to a tier is then below its end.
        if noting.state_end.is_none() {
            noting.state_end = i64::try_from(ordering.state.len()).ok();
        } else if let Some(at) = parts.get(noting.ends.len() + 1) {
            noting.ends.push(self.cluster.logs[at].end);
        } else {
            noting.ends.insert(0, self.cluster.logs[&noting.home].end);
        }
        if noting.state_end.is_some() && noting.ends.len() == parts.len() {
            self.begin_lane(noting);
        } else {
            self.after(delay, Event::Note(Box::new(noting)));
        }
    }

    fn begin_lane(&mut self, noting: Noting) {
        let Noting { member, home, generation, committed, ends, state_end } = noting;
        let parts = self.parts(home);
        let (Some(ordering), Some(state_end)) = (&self.ordering, state_end) else {
            return;
        };
        let assigned: Vec<_> = parts
            .iter()
            .zip(&committed)
            .zip(&ends)
            .map(|((at, committed), end)| Assigned {
                committed: committed.as_ref().map(|it| it.offset),
                metadata: committed.as_ref().map_or("", |it| &it.metadata),
                log_start: self.cluster.logs[at].start,
                log_end: *end,
                start: self.cluster.logs[at].start,
            })
            .collect();
        let config = OrderedConfig {
            lane: self.lane_config.clone(),
            on_dead_letter: ordering.on_dead_letter,
            is_exactly_once: self.is_exactly_once,
        };
        let markers = ordering.markers(home.1, state_end);
        let blocks = &self.cluster.blocks;
        let stored = |part: usize| -> Vec<BlockId> {
            blocks.keys().filter(|it| it.0 == parts[part]).map(|it| it.1).collect()
        };
        let block = |part: usize, id| blocks.get(&(parts[part], id)).cloned();
        let now = self.clock(member);
        let lane = OrderedLane::assigned(config, &assigned, state_end, markers, now, stored, block);
        let lane = match lane {
            Ok(lane) => lane,
            Err(error) => {
                self.ledger.broken = Some(format!("a map of our own is refused: {error}"));
                return;
            }
        };
        let mut lane = MemberLane::new(Driven::Ordered(Box::new(lane)), generation);
        lane.state_position = usize::try_from(state_end).unwrap_or(0);
        self.members[member].lanes.insert(home, lane);
        for at in parts {
            self.deliver_soon(at);
        }
        let token = Token { member, at: home, generation };
        self.after(10, Event::FollowState(token));
        self.perform(token);
    }

    // ----- the state topic

    pub(super) fn mark(&mut self, token: Token, marker: Marker, is_there: bool) {
        if self.is_exactly_once && is_there {
            self.count("marker");
            return self.mark_in_transaction(token, marker);
        }
        let (delay, landing) = (self.late(), self.landing());
        self.count(if is_there { "marker" } else { "deleted marker" });
        self.after(delay, Event::MarkLands { token, marker, is_there, landing });
    }

    /// How long something is on its way: now and then so long that its sender is deposed meanwhile.
    pub(super) fn late(&mut self) -> i64 {
        let is_calm = self.is_calm() || self.fault_rate > 1000;
        if let Some(it) = &mut self.ordering
            && !is_calm
            && it.rng.one_in(12)
        {
            return it.rng.range(40, 3000);
        }
        self.rng.range(1, 40)
    }

    pub(super) fn mark_lands(
        &mut self,
        token: Token,
        marker: Marker,
        is_there: bool,
        landing: Landing,
    ) {
        if landing != Landing::Failed {
            self.write_state(StateRecord { lane: token.at.1, marker, is_there });
            if !is_there {
                self.ledger.order.unmarked(token.at.1, marker);
            }
            if !self.owns(token) {
                self.count("late marker");
            }
        }
        let Some(ordering) = &mut self.ordering else {
            return;
        };
        let offset = i64::try_from(ordering.state.len()).ok().map(|it| it - 1);
        // Others may be faster than the acknowledgement. Of a record that the producer itself has sent twice the broker does not
        // tell the offset.
        let delay = if ordering.rng.one_in(3) { ordering.rng.range(0, 400) } else { 0 };
        let is_only =
            ordering.state.iter().filter(|it| it.marker == marker && it.is_there).count() == 1;
        let offset = offset.filter(|_| !(is_only && ordering.rng.one_in(10)));
        let is_fine = landing == Landing::Fine;
        self.after(delay, Event::MarkTold { token, marker, is_there, offset, is_fine });
    }

    pub(super) fn mark_told(
        &mut self,
        token: Token,
        marker: Marker,
        is_there: bool,
        offset: Option<i64>,
        is_fine: bool,
    ) {
        self.feed(token, |lane, now, slots| {
            let Some(lane) = lane.ordered() else {
                return;
            };
            match (is_fine, is_there) {
                (true, true) => lane.marked(marker, offset, now, slots),
                (true, false) => lane.unmarked(marker, now, slots),
                (false, true) => lane.mark_failed(marker, now),
                (false, false) => lane.unmark_failed(marker, now),
            }
        });
    }

    pub(super) fn write_state(&mut self, record: StateRecord) {
        if let Some(ordering) = &mut self.ordering {
            ordering.state.push(record);
        }
    }

    /// Whoever has the lane follows the state topic.
    pub(super) fn follow_state(&mut self, token: Token) {
        let Some(position) = self.lane(token).map(|it| it.0.state_position) else {
            return;
        };
        let Some(ordering) = &mut self.ordering else {
            return;
        };
        let next = ordering.state.get(position).copied();
        let delay = if next.is_some() { 0 } else { ordering.rng.range(1, 60) };
        if let Some((lane, _)) = self.lane(token)
            && next.is_some()
        {
            lane.state_position += 1;
        }
        if let Some(StateRecord { lane, marker, is_there }) = next
            && lane == token.at.1
        {
            let offset = i64::try_from(position).unwrap_or(0);
            let end = self.cluster.logs[&(1, lane)].end;
            if let Some((lane, _)) = self.lane(token) {
                if is_there {
                    lane.opened.remove(&marker);
                } else {
                    lane.opened.insert(marker, end);
                }
            }
            self.feed(token, |lane, now, slots| match lane.ordered() {
                Some(lane) if is_there => lane.marker(marker, offset, now, slots),
                Some(lane) => lane.marker_deleted(marker, offset, end, now, slots),
                None => {}
            });
        }
        self.after(delay, Event::FollowState(token));
    }

    /// Asks where a lane's source ends. The answer is of some time after that, and takes a while.
    pub(super) fn find_end(&mut self, token: Token) {
        self.count("end of a source");
        let delay = self.ordering.as_mut().map_or(0, |it| it.rng.range(0, 60));
        self.after(delay, Event::FindEnd(token));
    }

    pub(super) fn look_where_it_ends(&mut self, token: Token) {
        let end = self.cluster.logs[&self.home(token.at)].end;
        let delay = self.ordering.as_mut().map_or(0, |it| it.rng.range(0, 60));
        self.after(delay, Event::EndTold { token, end });
    }

    /// Counts copies that an ordered lane has settled unrun.
    pub(super) fn count_dropped(&mut self, token: Token) {
        let Some((lane, _)) = self.lane(token) else {
            return;
        };
        let Some(census) = lane.lane.ordered().map(|it| it.census()) else {
            return;
        };
        let before = std::mem::replace(&mut lane.dropped, (census.void, census.superseded));
        if census.void > before.0 {
            self.count("void copy");
        }
        if census.superseded > before.1 {
            self.count("superseded copy");
        }
    }

    // ----- hops

    /// A record as it goes on unrun: behind others of its entity, to the tail of its tier, or to the dead-letter topic.
    pub(super) fn unrun(
        &self,
        token: Token,
        offset: i64,
        record: &Rc<Record>,
        to: Option<Partition>,
        stop: Stop<'_>,
    ) -> Hops {
        let reading = self.read(token.at, record);
        let state = reading.state.clone();
        self.stamped(token, offset, record, &reading, &state, to, stop, None)
    }

    #[expect(clippy::too_many_arguments, reason = "all of it goes into the headers")]
    pub(super) fn stamped(
        &self,
        token: Token,
        offset: i64,
        record: &Rc<Record>,
        reading: &Reading<'_>,
        state: &RetryState<'_>,
        to: Option<Partition>,
        stop: Stop<'_>,
        failure: Option<Failed<'_>>,
    ) -> Hops {
        let now = self.clock(token.member);
        let epoch = self.ordered(token).and_then(OrderedLane::epoch);
        let origin = reading.origin.unwrap_or(Origin {
            topic: "orders",
            partition: partition(token.at),
            offset,
        });
        let stamp = Stamp {
            group: GROUP,
            origin,
            produced_at: None,
            from: ("orders", partition(token.at), offset),
            state,
            hop: reading.hop + 1,
            epoch,
            redriven: reading.redriven,
            failure,
            stop,
            now,
        };
        Rc::new(Outgoing { to, headers: written(record, &stamp) })
    }

    /// What a follower's dead letter says: the origin of its head.
    pub(super) fn follows(&self, token: Token, offset: i64, record: &Record) -> Option<Identity> {
        let rank = self.rank(token.at, offset, record)?;
        self.ordered(token)?.follows(&rank)
    }

    fn ordered(&self, token: Token) -> Option<&OrderedLane<Load, Hops>> {
        let lane = self.members[token.member].lanes.get(&self.home(token.at))?;
        match &lane.lane {
            Driven::Ordered(it) if lane.generation == token.generation => Some(it),
            _ => None,
        }
    }

    /// A current owner sends a record after its head to the dead-letter topic. The head must be there already, and nobody may have
    /// opened the entity as far as the owner must know: it has read the state topic, and then the first tier.
    pub(super) fn check_follower(&mut self, token: Token, offset: i64, record: &Record) {
        let Some(rank) = self.rank(token.at, offset, record).filter(|_| self.owns(token)) else {
            return;
        };
        let (lane, entity) = (token.at.1, rank.entity);
        let head = self.follows(token, offset, record);
        let broken = self.ledger.order.follow(lane, entity, rank.identity, head);
        let is_opened = head.is_some_and(|head| self.has_seen_opened(token, entity, head));
        let late =
            is_opened.then(|| format!("{:?} follows {head:?}, which was opened", rank.identity));
        self.ledger.broken = self.ledger.broken.take().or(broken).or(late);
    }

    fn has_seen_opened(&self, token: Token, entity: EntityId, head: Identity) -> bool {
        let Some(lane) = self.members[token.member].lanes.get(&self.home(token.at)) else {
            return false;
        };
        let Some(ordering) = &self.ordering else {
            return false;
        };
        // It knows its own markers before it reads them.
        let all = ordering.of_head(token.at.1, entity, head, usize::MAX);
        let seen = ordering.of_head(token.at.1, entity, head, lane.state_position);
        let position = lane.lane.position(1);
        let is_over = |it: &Marker| {
            seen.get(it) == Some(&false) && lane.opened.get(it).is_none_or(|end| *end <= position)
        };
        !all.is_empty() && all.iter().all(|(it, is_there)| !is_there && is_over(it))
    }

    /// A copy is in a tier.
    pub(super) fn copy_lands(&mut self, at: Partition, offset: i64, is_owner: bool) {
        let record = Rc::clone(&self.cluster.logs[&at].records[&offset]);
        if let Some(rank) = self.rank(at, offset, &record)
            && is_owner
        {
            self.ledger.order.hopped(record.id, rank.identity.redriven, rank.hop);
        }
    }

    /// A dead letter is in the dead-letter topic.
    pub(super) fn dead_letter_lands(&mut self, token: Token, offset: i64, id: u64, out: &Hops) {
        let is_owner = self.owns(token);
        let now = self.time + EPOCH;
        let bytes = 100;
        let headers = out.headers.clone();
        let record = Rc::new(Record { id, headers, appended_at: now, bytes });
        let reading = self.read((1, token.at.1), &record);
        let origin = reading.origin.map_or(offset, |it| it.offset);
        let identity = Identity { origin, redriven: reading.redriven };
        let entity = entity(&record);
        let reason = record.headers.iter().find(|it| it.0 == "redrive-reason");
        let is_follower = reason.is_some_and(|it| it.1 == Reason::Follower.as_str().as_bytes());
        if let Some(entity) = entity
            && let Some(ordering) = &self.ordering
            && is_owner
        {
            let lane = token.at.1;
            let holds = ordering.on_dead_letter == OnDeadLetter::Hold && !is_follower;
            // Its marker is there before it, so that an operator may have opened the entity already.
            let closes = holds && !ordering.is_opened(lane, entity, identity);
            self.ledger.order.dead(lane, entity, identity, closes);
            if is_follower {
                self.count("follower dead-lettered");
            }
        }
        if let Some(ordering) = &mut self.ordering {
            let lane = token.at.1;
            // One that a deposed owner brings once more is not sent back again.
            let is_redriven = ordering.dead.iter().any(|it| {
                (it.lane, it.entity, it.identity) == (lane, entity, identity) && it.is_redriven
            });
            ordering.dead.push(DeadLetter { lane, entity, identity, record, is_redriven });
        }
    }

    // ----- operators

    /// An operator looks at a closed entity, and opens it, or sends its records back first.
    pub(super) fn operate(&mut self) {
        let Some(ordering) = &mut self.ordering else {
            return;
        };
        let state_end = i64::try_from(ordering.state.len()).unwrap_or(0);
        let lane = ordering.rng.below(PARTITIONS);
        let closed: Vec<_> = ordering.markers(lane, state_end).into_iter().map(|it| it.0).collect();
        let is_calm = self.time > self.faults_until;
        // In the end an operator looks after those whose head is back and that are closed still.
        let owner = self.cluster.owners.get(&(0, lane));
        let owner = owner.and_then(|it| self.members[it.0].lanes.get_mut(&(0, lane)));
        let owner = owner.and_then(|it| it.lane.ordered());
        let is_back = |it: &&Marker| {
            let first = owner.as_ref().and_then(|lane| lane.pending(it.entity)).map(|it| it.1);
            // What is folded away nobody can see.
            first.is_none_or(|first| first.origin == it.head.origin)
        };
        let closed: Vec<_> = closed
            .iter()
            .filter(|it| !ordering.operated.contains(&(lane, it.entity)))
            .filter(|it| !is_calm || is_back(it))
            .collect();
        let again = ordering.rng.range(200, 4000);
        if !closed.is_empty() {
            let entity = ordering.rng.pick(&closed).entity;
            ordering.operated.push((lane, entity));
            if is_calm || ordering.rng.one_in(2) {
                self.count("released entity");
                self.release(lane, entity);
            } else {
                self.count("redriven entity");
                self.redrive(lane, entity);
            }
        }
        self.after(again, Event::Operate);
    }

    /// Deletes an entity's markers.
    fn release(&mut self, lane: usize, entity: EntityId) {
        let Some(ordering) = &mut self.ordering else {
            return;
        };
        ordering.operated.retain(|it| *it != (lane, entity));
        let state_end = i64::try_from(ordering.state.len()).unwrap_or(0);
        let markers = ordering.markers(lane, state_end);
        for (marker, _) in markers.into_iter().filter(|it| it.0.entity == entity) {
            self.write_state(StateRecord { lane, marker, is_there: false });
            self.ledger.order.released(lane, entity, marker.head);
        }
    }

    /// Sends an entity's next dead letter back, in origin order. After the last the entity is opened.
    pub(super) fn redrive(&mut self, lane: usize, entity: EntityId) {
        let now = Timestamp::from_millis(self.time + EPOCH);
        let Some(ordering) = &mut self.ordering else {
            return;
        };
        let mut dead: Vec<_> = ordering.dead.iter_mut().collect();
        dead.retain(|it| it.lane == lane && it.entity == Some(entity) && !it.is_redriven);
        dead.sort_by_key(|it| it.identity);
        let Some(next) = dead.into_iter().next() else {
            return self.release(lane, entity);
        };
        next.is_redriven = true;
        let (record, identity) = (Rc::clone(&next.record), next.identity);
        // Duplicates of it are not sent back.
        for it in &mut ordering.dead {
            let is_same = it.lane == lane && it.entity == Some(entity) && it.identity == identity;
            it.is_redriven |= is_same;
        }
        let delay = ordering.rng.range(1, 200);
        let state_end = i64::try_from(ordering.state.len()).unwrap_or(0);
        let markers: Vec<_> =
            ordering.markers(lane, state_end).into_iter().map(|it| it.0).collect();
        let Identity { origin, redriven } = identity;
        let redriven = redriven + 1;
        let stamp = Stamp {
            group: GROUP,
            origin: Origin { topic: "orders", partition: partition((0, lane)), offset: origin },
            produced_at: None,
            from: ("orders.dlt", 0, 0),
            state: &RetryState::default(),
            hop: 1,
            epoch: None,
            redriven,
            failure: None,
            stop: Stop::Tier { due: now, delay: Some(Duration::ZERO), forward_to: None },
            now,
        };
        let headers = written(&record, &stamp);
        let now = now.as_millis();
        let at = self.cluster.append((1, lane), record.id, headers, now, &mut self.rng);
        self.ledger.redriven(record.id);
        let identity = Identity { origin, redriven };
        self.ledger.order.redriven(lane, entity, record.id, identity, at, markers);
        self.deliver_soon((1, lane));
        self.after(delay, Event::Redrive { lane, entity });
    }
}

impl Ordering {
    /// Whether the marker that the present owner wrote for this head is gone again. What earlier ones bring late is void.
    fn is_opened(&self, lane: usize, entity: EntityId, head: Identity) -> bool {
        let markers = self.of_head(lane, entity, head, usize::MAX);
        let newest = markers.iter().max_by_key(|it| it.0.epoch);
        newest.is_some_and(|(_, is_there)| !is_there)
    }

    /// The markers that a head ever had, as far as somebody has read, and whether they are there.
    fn of_head(
        &self,
        lane: usize,
        entity: EntityId,
        head: Identity,
        read: usize,
    ) -> BTreeMap<Marker, bool> {
        let state = self.state.iter().take(read).filter(|it| it.lane == lane);
        let of_head = state.filter(|it| (it.marker.entity, it.marker.head) == (entity, head));
        of_head.map(|it| (it.marker, it.is_there)).collect()
    }

    /// The lane's markers below an offset of the state topic.
    fn markers(&self, lane: usize, end: i64) -> Vec<(Marker, i64)> {
        let mut markers = BTreeMap::new();
        for (offset, it) in self.state.iter().enumerate() {
            let offset = i64::try_from(offset).unwrap_or(0);
            if it.lane == lane && offset < end {
                markers.insert(it.marker, it.is_there.then_some(offset));
            }
        }
        markers.into_iter().filter_map(|(marker, offset)| Some((marker, offset?))).collect()
    }
}

/// A record's headers as they are written.
pub(super) fn written(record: &Record, stamp: &Stamp<'_>) -> Vec<(String, Vec<u8>)> {
    let headers = record.headers();
    let written = headers::write(&headers, stamp, Dialect::Native);
    let owned =
        |it: &headers::Header<'_>| (it.name.to_owned(), it.value.unwrap_or_default().to_vec());
    written.iter().map(|it| owned(&it)).collect()
}
