//! The ordered lane, input by input, with a Kafka that always answers.

#![expect(clippy::unwrap_used, reason = "a lane that is refused fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use redrive_core::lane::{
    Action, Assigned, EntityId, Event, Fate, Hop, Identity, Item, LaneConfig, LaneKind, Marker,
    Next, OnDeadLetter, OrderedAction, OrderedConfig, OrderedLane, Part, Payload, Rank, Ranked,
    Routed, Slots,
};
use redrive_core::{Reason, Timestamp};

/// Where clocks stand when a test begins.
const START: i64 = 1_000_000;

/// Where a failed record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct To(Option<usize>, i64);

impl Routed for To {
    fn tier(&self) -> Option<usize> {
        self.0
    }
}

/// A record: whose it is, and what its headers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    entity: Option<u32>,
    identity: Identity,
    hop: u32,
    epoch: Option<u64>,
    due: i64,
    appended_at: i64,
}

impl Payload for Record {
    fn lend(&mut self) -> Self {
        *self
    }

    fn share(&mut self) -> Self {
        *self
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn id(entity: u32) -> EntityId {
    EntityId::of(&entity.to_be_bytes())
}

fn order(origin: i64) -> Identity {
    Identity { origin, redriven: 0 }
}

/// A record of the source topic that belongs to nobody.
fn fresh(identity: Identity, appended_at: i64) -> Record {
    Record { entity: None, identity, hop: 0, epoch: None, due: 0, appended_at }
}

fn item(offset: i64, record: Record) -> Item<Ranked<Record>> {
    let rank = record.entity.map(|entity| Rank {
        entity: id(entity),
        identity: record.identity,
        hop: record.hop,
        epoch: record.epoch,
    });
    Item {
        offset,
        due: at(record.due),
        is_dated: record.hop > 0,
        priority: 0,
        appended_at: at(record.appended_at),
        fate: Fate::Run,
        bytes: 10,
        payload: Ranked { rank, payload: record },
    }
}

/// A lane of one source and some tiers, and what stands around it.
struct Bench {
    lane: OrderedLane<Record, To>,
    slots: Slots,
    now: i64,
    logs: Vec<Vec<Record>>,
    committed: Vec<(i64, String)>,
    /// What runs, in the order it was started.
    running: Vec<(Part, i64, Record)>,
    dead: Vec<(Record, Reason)>,
    markers: Vec<Marker>,
    /// The end of the state topic.
    state_end: i64,
    /// What retention has deleted of each log: everything below.
    deleted: Vec<i64>,
    /// What people were told.
    told: Vec<(Part, Event)>,
    /// How often offsets cannot be read again.
    unread: u32,
    /// Whether followers are refused at first, and sent another way.
    refuses: bool,
    /// Whether nobody is told that what is sent unrun has arrived, and what that was.
    is_silent: bool,
    unanswered: Vec<(Part, i64)>,
    is_source_open: bool,
    /// How often the lane asked where the source ends.
    asked: u32,
}

impl Bench {
    fn new(config: OrderedConfig, logs: Vec<Vec<Record>>) -> Self {
        Self::after(config, logs, Vec::new(), Vec::new())
    }

    fn after(
        config: OrderedConfig,
        logs: Vec<Vec<Record>>,
        committed: Vec<(i64, String)>,
        markers: Vec<Marker>,
    ) -> Self {
        let mut bench = Self::assigned(config, logs, committed, markers);
        bench.pass_time(0);
        bench
    }

    /// A lane that nothing was done for yet.
    fn assigned(
        config: OrderedConfig,
        logs: Vec<Vec<Record>>,
        committed: Vec<(i64, String)>,
        markers: Vec<Marker>,
    ) -> Self {
        let parts: Vec<_> = logs
            .iter()
            .enumerate()
            .map(|(part, log)| Assigned {
                committed: committed.get(part).map(|it| it.0),
                metadata: committed.get(part).map_or("", |it| &it.1),
                log_start: 0,
                log_end: i64::try_from(log.len()).unwrap(),
                start: 0,
            })
            .collect();
        let read = markers.iter().copied().zip(0..);
        let end = i64::try_from(markers.len()).unwrap();
        let lane =
            OrderedLane::assigned(config, &parts, end, read, at(START), |_| vec![], |_, _| None);
        Self {
            lane: lane.unwrap(),
            slots: Slots::new(1000),
            now: START,
            logs,
            committed: Vec::new(),
            running: Vec::new(),
            dead: Vec::new(),
            markers,
            state_end: end,
            deleted: vec![0; parts.len()],
            told: Vec::new(),
            unread: 0,
            refuses: false,
            is_silent: false,
            unanswered: Vec::new(),
            is_source_open: false,
            asked: 0,
        }
    }

    /// Reads all there is, and carries out what the lane asks for, until it asks for nothing.
    fn go_on(&mut self) {
        loop {
            let mut is_idle = true;
            while let Some(action) = self.lane.next_action() {
                is_idle = false;
                self.carry_out(action);
            }
            for part in 0..self.logs.len() {
                let position = self.lane.position(part);
                if part == 0 && !self.is_source_open {
                    continue;
                }
                let unread = &self.logs[part][usize::try_from(position).unwrap()..];
                let unread = unread.iter().take(500).zip(position..);
                let unread: Vec<_> = unread.map(|(record, offset)| item(offset, *record)).collect();
                if !unread.is_empty() {
                    is_idle = false;
                    self.lane.fetched_all(part, unread, at(self.now), &mut self.slots);
                }
            }
            if is_idle {
                return;
            }
        }
    }

    fn carry_out(&mut self, action: OrderedAction<Record, To>) {
        let now = at(self.now);
        match action {
            OrderedAction::Part { part, action } => match action {
                Action::Run { offset, payload, .. } => {
                    self.running.push((part, offset, payload.payload));
                }
                Action::Publish { offset, hop: Hop::DeadLetter(Reason::Follower), .. }
                    if self.refuses =>
                {
                    let next = Next::Publish(To(None, 0));
                    self.lane.redirected(part, offset, next, now, &mut self.slots);
                }
                Action::Publish { offset, hop: Hop::Follow | Hop::DeadLetter(_), .. }
                    if self.is_silent =>
                {
                    self.unanswered.push((part, offset));
                }
                Action::Publish { offset, payload, hop } => {
                    let (to, due) = match hop {
                        Hop::Verdict(To(tier, due)) => (tier.map(|it| it + 1), due),
                        Hop::Follow => (Some(1), self.now),
                        Hop::Reappend => (Some(part), payload.payload.due),
                        Hop::DeadLetter(_) | Hop::Relay => (None, 0),
                    };
                    let reason = match hop {
                        Hop::DeadLetter(reason) => reason,
                        _ => Reason::Attempts,
                    };
                    let record = payload.payload;
                    let epoch = self.lane.epoch();
                    let appended_at = self.now;
                    let record = Record { hop: record.hop + 1, epoch, due, appended_at, ..record };
                    let below = match to {
                        Some(to) => {
                            self.logs[to].push(record);
                            i64::try_from(self.logs[to].len()).unwrap()
                        }
                        None => {
                            self.dead.push((record, reason));
                            0
                        }
                    };
                    self.lane.published(part, offset, below, now, &mut self.slots);
                }
                Action::Fetch { ticket, .. } if self.unread > 0 => {
                    self.unread -= 1;
                    self.lane.refetch_failed(part, ticket, now, &mut self.slots);
                }
                Action::Fetch { ticket, ranges } => {
                    let deleted = self.deleted[part];
                    for offset in ranges.into_iter().flatten().filter(|it| *it >= deleted) {
                        let record = self.logs[part][usize::try_from(offset).unwrap()];
                        self.lane.refetched(part, item(offset, record), now, &mut self.slots);
                    }
                    self.lane.refetch_done(part, ticket, now, &mut self.slots);
                }
                Action::Pause => self.is_source_open = false,
                Action::Resume => self.is_source_open = true,
                Action::Store(block) => self.lane.stored(part, block.id, now, &mut self.slots),
                Action::Tell(event) => self.told.push((part, event)),
                _ => {}
            },
            OrderedAction::Commit { parts } => {
                self.committed = parts;
                self.lane.committed(now, &mut self.slots);
            }
            OrderedAction::Mark { marker, .. } => {
                self.markers.push(marker);
                let offset = Some(self.state_end);
                self.state_end += 1;
                self.lane.marked(marker, offset, now, &mut self.slots);
            }
            OrderedAction::Unmark(marker) => {
                self.markers.retain(|it| *it != marker);
                self.state_end += 1;
                self.lane.unmarked(marker, now, &mut self.slots);
            }
            OrderedAction::FindEnd => {
                self.asked += 1;
                let end = i64::try_from(self.logs[0].len()).unwrap();
                self.lane.source_ends(end, now, &mut self.slots);
            }
            OrderedAction::Drained => {}
        }
    }

    fn produce(&mut self, entities: impl IntoIterator<Item = u32>) {
        for entity in entities {
            let identity = order(i64::try_from(self.logs[0].len()).unwrap());
            self.logs[0].push(Record { entity: Some(entity), ..fresh(identity, self.now) });
        }
        self.go_on();
    }

    fn running(&self) -> Vec<i64> {
        self.running.iter().map(|it| it.2.identity.origin).collect()
    }

    /// The first that runs succeeds.
    fn succeed(&mut self) -> i64 {
        let (part, offset, record) = self.running.remove(0);
        self.lane.succeeded_all(part, Some(offset..offset + 1), at(self.now), &mut self.slots);
        self.go_on();
        record.identity.origin
    }

    /// These succeed one after the other, with copies of this hop.
    fn succeed_all(&mut self, origins: RangeInclusive<i64>, hop: u32) {
        for origin in origins {
            while self.running.is_empty() {
                assert!(self.now < START + 60_000, "{origin}: {:?}", self.lane.census());
                self.pass_time(100);
            }
            assert_eq!(self.running[0].2.hop, hop);
            assert_eq!(self.succeed(), origin);
        }
    }

    /// The first that runs fails, and goes to a tier or to the dead-letter topic.
    fn fail(&mut self, to: To) -> i64 {
        let origin = self.judge(to, at(self.now));
        self.go_on();
        origin
    }

    /// The same, and nothing of what follows is done.
    fn judge(&mut self, to: To, now: Timestamp) -> i64 {
        let (part, offset, record) = self.running.remove(0);
        assert!(self.lane.failed(part, offset, true, now, &mut self.slots));
        self.lane.judged(part, offset, Next::Publish(to), now, &mut self.slots);
        record.identity.origin
    }

    /// The first that runs is to be dead-lettered. Gives the marker that has to be there before.
    #[expect(clippy::panic, reason = "what tests share is part of them")]
    fn fail_up_to_mark(&mut self, now: Timestamp) -> Marker {
        self.judge(To(None, 0), now);
        match self.lane.next_action() {
            Some(OrderedAction::Mark { marker, .. }) => marker,
            other => panic!("{other:?}"),
        }
    }

    fn pass_time(&mut self, millis: i64) {
        self.now += millis;
        self.lane.tick(at(self.now), &mut self.slots);
        self.go_on();
    }

    fn committed(&mut self) -> Vec<(i64, String)> {
        self.pass_time(2000);
        self.committed.clone()
    }

    fn open(&mut self, marker: Marker) {
        self.markers.retain(|it| *it != marker);
        let end = i64::try_from(self.logs[1].len()).unwrap();
        let deleted_at = self.state_end;
        self.state_end += 1;
        self.lane.marker_deleted(marker, deleted_at, end, at(self.now), &mut self.slots);
        self.go_on();
    }
}

fn config(on_dead_letter: OnDeadLetter) -> OrderedConfig {
    let lane = LaneConfig::new(LaneKind::Source, "cluster-1");
    OrderedConfig { lane, on_dead_letter, is_exactly_once: false }
}

fn two_tiers() -> Vec<Vec<Record>> {
    vec![Vec::new(); 3]
}

#[test]
fn one_record_of_an_entity_runs_at_a_time_and_others_flow() {
    let mut bench = Bench::new(config(OnDeadLetter::Hold), two_tiers());
    bench.produce([1, 1, 2, 1, 3]);
    assert_eq!(bench.running(), [0, 2, 4]);
    assert_eq!(bench.succeed(), 0);
    assert_eq!(bench.running(), [2, 4, 1]);
    assert_eq!(bench.logs[1], []);
}

#[test]
fn an_entity_with_more_events_than_there_is_room_for_holds_the_source_back() {
    let mut bench = Bench::new(config(OnDeadLetter::Hold), two_tiers());
    bench.produce((0..20_000).map(|_| 1));
    let read = bench.lane.position(0);
    assert!((1024..=2024).contains(&read), "{read}");
    // Its heads are quick, so that nothing takes the long way by a tier.
    for origin in 0..20_000 {
        assert_eq!(bench.succeed(), origin);
        bench.pass_time(10);
    }
    assert_eq!((bench.logs[1].len(), bench.running.len()), (0, 0));
    assert_eq!(bench.committed()[0].0, 20_000);
}

#[test]
fn a_head_that_takes_long_holds_back_only_those_behind_it() {
    let mut bench = Bench::new(config(OnDeadLetter::Hold), two_tiers());
    bench.produce((0..2000).map(|_| 1).chain([2]));
    assert_eq!(bench.running(), [0]);
    bench.pass_time(900);
    assert_eq!(bench.running(), [0]);
    // A clock that goes back makes nobody wait for ever.
    bench.pass_time(-600_000);
    for _ in 0..4 {
        bench.pass_time(500);
    }
    assert_eq!(bench.running(), [0, 2000]);
    assert_eq!(bench.logs[1].len(), 1999);
    for origin in [0, 2000].into_iter().chain(1..2000) {
        assert_eq!(bench.succeed(), origin);
    }
}

#[test]
fn followers_wait_behind_a_head_that_is_retried() {
    let mut bench = Bench::new(config(OnDeadLetter::Hold), two_tiers());
    bench.produce([1, 1]);
    bench.fail(To(Some(1), START + 60_000));
    bench.produce([1, 2]);
    // The entity's others are in the first tier, and only the other entity runs.
    assert_eq!(bench.running(), [3]);
    assert_eq!(bench.logs[1].iter().map(|it| it.identity.origin).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((bench.logs[1][0].hop, bench.logs[1][0].epoch), (1, Some(1)));
    bench.succeed();
    bench.pass_time(60_000);
    for origin in 0..3 {
        assert_eq!(bench.succeed(), origin);
    }
    assert_eq!(bench.lane.census().entities, 0);
}

#[test]
fn a_held_entity_takes_its_followers_along_until_it_is_opened() {
    let mut bench = Bench::new(config(OnDeadLetter::Hold), two_tiers());
    bench.produce([1, 1, 1]);
    bench.fail(To(None, 0));
    bench.produce([1]);
    let dead: Vec<_> = bench.dead.iter().map(|it| (it.0.identity.origin, it.1)).collect();
    let follower = Reason::Follower;
    assert_eq!(dead, [(0, Reason::Attempts), (1, follower), (2, follower), (3, follower)]);
    assert_eq!(bench.running(), []);
    let marker = bench.markers[0];
    assert_eq!((marker.entity, marker.head, marker.epoch), (id(1), order(0), Some(1)));

    // The next owner knows, too.
    let committed = bench.committed();
    let logs = bench.logs.clone();
    let mut next = Bench::after(config(OnDeadLetter::Hold), logs, committed, vec![marker]);
    next.produce([1]);
    assert_eq!(next.dead.len(), 1);
    next.open(marker);
    next.produce([1]);
    assert_eq!(next.running(), [5]);
}

#[test]
fn a_follower_that_is_refused_and_sent_another_way_is_no_head() {
    let mut bench = Bench::new(config(OnDeadLetter::Hold), two_tiers());
    bench.refuses = true;
    bench.produce([1, 1, 1]);
    bench.fail(To(None, 0));
    assert_eq!((bench.dead.len(), bench.markers.len()), (3, 1));
    assert_eq!(bench.lane.closed().collect::<Vec<_>>(), [(id(1), order(0))]);
}

#[test]
fn a_released_entity_goes_on() {
    let mut bench = Bench::new(config(OnDeadLetter::Release), two_tiers());
    bench.produce([1, 1]);
    bench.fail(To(None, 0));
    assert_eq!((bench.running(), bench.markers.len()), (vec![1], 0));
}

#[test]
fn a_redriven_entity_runs_in_order_once_it_is_opened() {
    let mut bench = Bench::new(config(OnDeadLetter::Hold), two_tiers());
    bench.produce([1, 1]);
    bench.fail(To(None, 0));
    let dead: Vec<_> = bench.dead.drain(..).map(|it| it.0).collect();
    for record in dead {
        let identity = Identity { redriven: 1, ..record.identity };
        bench.logs[1].push(Record { identity, hop: 1, epoch: None, due: START, ..record });
        bench.go_on();
    }
    // New ones wait behind them.
    bench.produce([1]);
    assert_eq!((bench.running(), bench.dead.len()), (vec![], 0));
    bench.open(bench.markers[0]);
    for origin in 0..3 {
        assert_eq!(bench.running(), [origin]);
        bench.succeed();
    }
}

#[test]
fn copies_that_a_deposed_owner_publishes_too_late_are_void() {
    let mut first = Bench::new(config(OnDeadLetter::Hold), two_tiers());
    first.produce([1, 1]);
    let committed = first.committed();
    // The next owner runs both. Then the first one's hop lands.
    let mut next = Bench::after(config(OnDeadLetter::Hold), first.logs.clone(), committed, vec![]);
    assert_eq!(next.lane.epoch(), Some(2));
    next.succeed();
    let late = Record { hop: 1, epoch: Some(1), ..next.logs[0][0] };
    next.logs[1].push(late);
    next.go_on();
    assert_eq!((next.running(), next.lane.census().void), (vec![1], 1));

    // The owner after it reads that copy anew, and knows.
    next.succeed();
    let committed = next.committed();
    let last = Bench::after(config(OnDeadLetter::Hold), next.logs.clone(), committed, vec![]);
    assert_eq!((last.running(), last.lane.epoch()), (vec![], Some(3)));
}

#[test]
fn epochs_go_on_where_offsets_were_lost() {
    let mut logs = two_tiers();
    let source = Record { entity: Some(1), ..fresh(order(0), START) };
    let record = Record { hop: 1, epoch: Some(7), ..source };
    logs[0].push(source);
    logs[1].push(record);
    let bench = Bench::new(config(OnDeadLetter::Hold), logs);
    assert_eq!(bench.lane.epoch(), Some(8));
    // And the source's copy has a lower hop.
    assert_eq!(bench.running, [(1, 0, record)]);
}

#[test]
fn a_follower_does_not_overtake_a_head_that_was_running_when_its_owner_died() {
    let mut logs = two_tiers();
    for origin in 0..2 {
        logs[0].push(Record { entity: Some(1), ..fresh(order(origin), START) });
    }
    let follower = Record { hop: 1, epoch: Some(1), ..logs[0][1] };
    logs[1].push(follower);
    let mut bench = Bench::new(config(OnDeadLetter::Hold), logs);
    assert_eq!(bench.running(), [0]);
    bench.succeed();
    assert_eq!(bench.running.iter().map(|it| (it.0, it.1)).collect::<Vec<_>>(), [(1, 0)]);
}

/// Found in seed 558758: an owner that was deposed read on, and dead-lettered what it read. An operator sent that back, and it ran before those in front of
/// it were read, since they came after the end of the source that its new owner had noted.
#[test]
fn what_a_deposed_owner_dead_lettered_and_an_operator_sent_back_waits_for_its_origin() {
    let mut bench = Bench::new(config(OnDeadLetter::Release), two_tiers());
    bench.is_source_open = false;
    let of = |origin| Record { entity: Some(1), ..fresh(order(origin), START) };
    bench.logs[0].extend((0..3).map(of));
    let again = Identity { redriven: 1, ..order(1) };
    bench.logs[1].push(Record { identity: again, hop: 1, due: START, ..of(1) });
    bench.pass_time(1000);
    assert_eq!((bench.running(), bench.asked), (vec![], 1));
    bench.is_source_open = true;
    for expected in [order(0), order(1), again, order(2)] {
        bench.pass_time(1000);
        let running: Vec<_> = bench.running.iter().map(|it| it.2.identity).collect();
        assert_eq!(running, [expected]);
        bench.succeed();
    }
    assert_eq!(bench.asked, 1);
}

#[test]
fn an_origin_that_the_source_does_not_have_is_not_waited_for() {
    // It was made anew, or lost its end.
    let mut logs = two_tiers();
    logs[0].push(Record { entity: Some(2), ..fresh(order(0), START) });
    let of = |origin| Record { entity: Some(1), ..fresh(order(origin), START) };
    logs[1].extend([7, 9].map(|it| Record { hop: 1, due: START, ..of(it) }));
    let mut bench = Bench::new(config(OnDeadLetter::Hold), logs);
    let mut ran = bench.running();
    ran.sort_unstable();
    assert_eq!(ran, [0, 7]);
    bench.succeed();
    bench.succeed();
    assert_eq!((bench.running(), bench.asked <= 2), (vec![9], true));
}

#[test]
fn where_the_source_ends_is_asked_again_for_what_comes_later() {
    // It was made anew, and is shorter than it was.
    let mut logs = two_tiers();
    let of = |origin, entity| Record { entity: Some(entity), ..fresh(order(origin), START) };
    logs[0].push(of(0, 1));
    logs[1].push(Record { hop: 1, due: START, ..of(9, 2) });
    let mut bench = Bench::new(config(OnDeadLetter::Release), logs);
    let mut ran = bench.running();
    ran.sort_unstable();
    assert_eq!((ran, bench.asked), (vec![0, 9], 1));
    bench.succeed();
    bench.succeed();
    // A deposed owner has read on, and an operator has sent back what it brought to the dead-letter topic.
    bench.is_source_open = false;
    bench.logs[0].extend([1, 2].map(|it| of(it, 1)));
    let again = Identity { redriven: 1, ..order(1) };
    bench.logs[1].push(Record { identity: again, hop: 1, due: START, ..of(1, 1) });
    bench.pass_time(1000);
    assert_eq!((bench.running(), bench.asked), (vec![], 2));
    bench.is_source_open = true;
    for expected in [order(1), again, order(2)] {
        bench.pass_time(1000);
        let running: Vec<_> = bench.running.iter().map(|it| it.2.identity).collect();
        assert_eq!(running, [expected]);
        bench.succeed();
    }
}

#[test]
fn a_blocked_entity_with_very_many_followers_stays_within_the_index_limit() {
    const FOLLOWERS: u32 = 100_000;
    let mut config = config(OnDeadLetter::Hold);
    config.lane.index_limit = 20_000;
    config.lane.byte_budget = 1 << 16;
    let mut bench = Bench::new(config, two_tiers());
    bench.produce([1]);
    bench.fail(To(Some(0), START + 3_600_000));
    for _ in 0..FOLLOWERS / 1000 {
        bench.produce([1; 1000]);
        let (records, bytes) = bench.lane.held();
        assert!(records <= 20_000 + 1024 * 5, "{records}");
        assert!(bytes <= 1 << 18, "{bytes}");
    }
    assert!(bench.lane.is_folded() && bench.running.is_empty());
    // Others are not held up.
    bench.produce([2]);
    assert_eq!(bench.succeed(), i64::from(FOLLOWERS) + 1);
    bench.now += 3_600_000;
    let mut next = 0;
    while next <= i64::from(FOLLOWERS) {
        bench.pass_time(1);
        while !bench.running.is_empty() {
            assert_eq!(bench.succeed(), next);
            next += 1;
        }
        assert!(bench.now < START + 4_000_000, "{next}: {:?}", bench.lane.census());
    }
}

#[test]
fn followers_that_there_is_no_room_for_any_more_are_read_again_in_their_turn() {
    let mut bench = Bench::new(config(OnDeadLetter::Hold), two_tiers());
    bench.produce([1]);
    bench.fail(To(Some(0), START + 10_000));
    bench.produce([1; 50]);
    let (records, bytes) = bench.lane.held();
    assert!(records == 51 && bytes >= 510, "{records}, {bytes}");
    // The head is not kept, and of the others as many as half of it has room for.
    bench.lane.set_byte_budget(1, 100, at(bench.now), &mut bench.slots);
    assert_eq!(bench.lane.held(), (51, 50));
    bench.lane.set_byte_budget(1, 0, at(bench.now), &mut bench.slots);
    bench.lane.set_byte_budget(2, 0, at(bench.now), &mut bench.slots);
    assert_eq!(bench.lane.held(), (51, 0));
    bench.pass_time(10_000);
    for next in 0..=50 {
        assert_eq!(bench.succeed(), next);
    }
    assert_eq!(bench.lane.census().entities, 0);
}

#[test]
fn entities_with_nothing_pending_cost_nothing() {
    let mut bench = Bench::new(config(OnDeadLetter::Hold), two_tiers());
    for start in (0..1_000_000).step_by(500) {
        bench.produce(start..start + 500);
        // What was read is not needed any more.
        let offsets: Vec<_> = bench.running.drain(..).map(|it| it.1).collect();
        assert_eq!(offsets.len(), 500);
        let runs = offsets.into_iter().map(|it| it..it + 1);
        bench.lane.succeeded_all(0, runs, at(bench.now), &mut bench.slots);
        bench.go_on();
    }
    let census = bench.lane.census();
    assert_eq!((census.entities, census.pending, census.closed), (0, 0, 0));
    assert_eq!(bench.lane.held(), (0, 0));
}

/// A lane with room for few records, and topics that keep them for a minute. An entity's head waits for longer than that, and its
/// followers are folded away.
fn folded_followers() -> Bench {
    let mut config = config(OnDeadLetter::Hold);
    config.lane.index_limit = 8;
    config.lane.retention = Some(Duration::from_mins(1));
    let mut bench = Bench::new(config, two_tiers());
    bench.produce([1]);
    bench.fail(To(Some(1), START + 300_000));
    bench.produce([1; 40]);
    assert!(bench.lane.is_folded() && bench.running.is_empty());
    bench
}

/// Lets time pass, while topics keep records for a minute.
fn keep_for_a_minute(bench: &mut Bench, millis: i64) {
    let until = bench.now + millis;
    while bench.now < until {
        let oldest = bench.now - 60_000;
        for (log, deleted) in bench.logs.iter().zip(&mut bench.deleted).skip(1) {
            let is_old = |it: &&Record| it.appended_at < oldest;
            *deleted = i64::try_from(log.iter().take_while(is_old).count()).unwrap();
        }
        bench.pass_time(100);
    }
}

/// Found in seeds 1481 and 12287: reading failed for a while, or the clock jumped, and that counted as time that reading took. There
/// was peace for twenty times as long, and retention deleted what was folded away meanwhile.
#[test]
fn folded_records_are_appended_again_in_time_though_reading_fails_and_the_clock_jumps() {
    let mut bench = folded_followers();
    keep_for_a_minute(&mut bench, 25_000);
    bench.unread = 8;
    keep_for_a_minute(&mut bench, 10_000);
    assert_eq!(bench.unread, 0);
    // The clock goes on by four seconds while offsets are being read.
    for _ in 0..10 {
        keep_for_a_minute(&mut bench, 22_000);
        bench.now += 4000;
    }
    bench.now = bench.now.max(START + 300_000);
    for origin in 0..=40 {
        while bench.running.is_empty() {
            assert!(bench.now < START + 600_000, "{origin}: {:?}", bench.lane.census());
            keep_for_a_minute(&mut bench, 100);
        }
        assert_eq!(bench.succeed(), origin);
    }
    assert_eq!(bench.told, []);
}

/// Found in seed 1481, too: nobody told of it.
#[test]
fn folded_records_that_retention_deleted_are_told_and_the_entity_goes_on() {
    let mut bench = folded_followers();
    // Nobody was there for long. All but the last three followers are gone.
    bench.deleted[1] = 37;
    bench.pass_time(301_000);
    assert_eq!(bench.succeed(), 0);
    let mut ran = Vec::new();
    while bench.now < START + 400_000 {
        bench.pass_time(1000);
        while !bench.running.is_empty() {
            ran.push(bench.succeed());
        }
    }
    let lost = bench.told.iter().flat_map(|it| match it {
        (1, Event::Lost(offsets)) => offsets.clone(),
        other => panic!("{other:?}"),
    });
    let lost: BTreeSet<_> =
        lost.map(|it| bench.logs[1][usize::try_from(it).unwrap()].identity.origin).collect();
    assert_eq!(ran[ran.len() - 3..], [38, 39, 40]);
    assert!(lost.iter().all(|it| !ran.contains(it)), "{lost:?} {ran:?}");
    assert_eq!(lost.len() + ran.len(), 40);
    assert_eq!(bench.lane.census().entities, 0);
}

/// A lane with room for few records, whose owner died before it could say that its records had gone to the first tier: they are there,
/// and in the source.
fn followers_twice(head: Option<Record>) -> (OrderedConfig, Vec<Vec<Record>>) {
    let mut config = config(OnDeadLetter::Hold);
    config.lane.index_limit = 8;
    let mut logs = two_tiers();
    let of = |origin| Record { entity: Some(1), ..fresh(order(origin), START) };
    logs[0].extend((0..=40).map(of));
    logs[1].extend((1..=40).map(|it| Record { hop: 2, epoch: Some(1), due: START, ..of(it) }));
    logs[2].extend(head);
    (config, logs)
}

/// Found in seed 509421: a record was on its way to the dead-letter topic when a newer copy of it was found, which was settled
/// at once. Its owner died, an operator opened the entity, and the next owner knew nothing of the hop.
#[test]
fn a_newer_copy_stays_until_the_older_one_on_its_way_has_arrived() {
    let (config, logs) = followers_twice(None);
    let marker = Marker { entity: id(1), head: order(0), epoch: Some(1) };
    let committed: Vec<_> = [1, 0, 0].map(|it| (it, String::new())).into();
    let mut bench = Bench::assigned(config.clone(), logs, committed, vec![marker]);
    bench.is_silent = true;
    bench.pass_time(0);
    // What was folded away in the tier is sent from the source, and found in the tier when the entity is opened.
    bench.open(marker);
    bench.pass_time(1000);
    assert_eq!((bench.lane.census().superseded, bench.running()), (40, vec![]));
    assert!(bench.unanswered.iter().filter(|it| it.0 == 0).count() > 30);
    let committed = bench.committed();
    let mut next = Bench::after(config, bench.logs.clone(), committed, vec![]);
    next.succeed_all(1..=40, 2);

    // Nothing of it is left once the older ones have arrived.
    for (part, offset) in std::mem::take(&mut bench.unanswered) {
        bench.lane.published(part, offset, 0, at(bench.now), &mut bench.slots);
        bench.go_on();
    }
    while bench.now < START + 60_000 {
        bench.pass_time(1000);
        while !bench.running.is_empty() {
            bench.succeed();
        }
    }
    let committed = bench.committed();
    assert_eq!(committed.iter().map(|it| it.0).collect::<Vec<_>>(), [41, 40, 0]);
}

/// Its offset was never settled, and the owner after would have run it once more.
#[test]
fn a_newer_copy_is_not_forgotten_when_the_older_one_is_refused_and_sent_another_way() {
    let due = START + 10_000;
    let head = Record { entity: Some(1), hop: 1, epoch: Some(1), due, ..fresh(order(0), START) };
    let (config, logs) = followers_twice(Some(head));
    let mut bench = Bench::assigned(config, logs, vec![], vec![]);
    bench.is_silent = true;
    bench.pass_time(0);
    bench.pass_time(10_000);
    assert_eq!(bench.succeed(), 0);
    // Those in the tier are found while those in the source are on their way there.
    bench.pass_time(1000);
    assert_eq!(bench.running(), [1]);
    bench.is_silent = false;
    for (part, offset) in std::mem::take(&mut bench.unanswered) {
        let next = Next::Publish(To(Some(0), bench.now));
        bench.lane.redirected(part, offset, next, at(bench.now), &mut bench.slots);
        bench.go_on();
    }
    bench.succeed_all(1..=40, 2);
    let ends: Vec<_> = bench.logs.iter().map(|it| i64::try_from(it.len()).unwrap()).collect();
    let committed: Vec<_> = bench.committed().into_iter().map(|it| it.0).collect();
    assert_eq!((committed, bench.running()), (ends, vec![]));
}

#[test]
fn followers_that_have_not_gone_yet_are_called_back_when_their_entity_is_opened() {
    let mut config = config(OnDeadLetter::Hold);
    config.lane.byte_budget = 0;
    let mut bench = Bench::new(config, two_tiers());
    bench.produce([1]);
    bench.fail(To(Some(0), START + 1000));
    bench.produce([1, 1]);
    bench.pass_time(1000);
    // They have to be read again to go to the dead-letter topic.
    bench.unread = 1;
    bench.fail(To(None, 0));
    assert_eq!((bench.dead.len(), bench.unread), (1, 0));
    bench.open(bench.markers[0]);
    bench.pass_time(1000);
    assert_eq!(bench.succeed(), 1);
    assert_eq!((bench.running(), bench.dead.len()), (vec![2], 1));
}

/// Found in seed 13970: a marker whose acknowledgement is lost is written again. An operator may have deleted the first one.
#[test]
fn a_marker_that_was_written_again_after_its_deletion_counts() {
    let mut bench = Bench::new(config(OnDeadLetter::Hold), two_tiers());
    bench.produce([1, 1]);
    let now = at(START);
    let marker = bench.fail_up_to_mark(now);
    // It is at 0 in the state topic, deleted at 1, and at 2.
    bench.lane.mark_failed(marker, now);
    bench.lane.marked(marker, Some(2), now, &mut bench.slots);
    bench.lane.marker_deleted(marker, 1, 0, now, &mut bench.slots);
    bench.go_on();
    assert_eq!(bench.lane.head(id(1)), Some(order(0)));
    assert_eq!((bench.running(), bench.dead.len()), (vec![], 2));
    bench.lane.marker_deleted(marker, 3, 0, now, &mut bench.slots);
    assert_eq!(bench.lane.head(id(1)), None);
}

#[test]
fn an_operator_may_be_faster_than_the_acknowledgement_of_a_marker() {
    for acknowledged in [Some(0), None] {
        let mut bench = Bench::new(config(OnDeadLetter::Hold), two_tiers());
        bench.produce([1, 1]);
        let now = at(START);
        let marker = bench.fail_up_to_mark(now);
        bench.lane.marker_deleted(marker, 1, 0, now, &mut bench.slots);
        bench.lane.marked(marker, acknowledged, now, &mut bench.slots);
        bench.go_on();
        assert_eq!((bench.running(), bench.dead.len()), (vec![1], 1));
    }
}

#[test]
fn records_without_an_entity_are_not_held_up() {
    let mut bench = Bench::new(config(OnDeadLetter::Hold), two_tiers());
    for origin in 0..2 {
        bench.logs[0].push(fresh(order(origin), START));
    }
    bench.go_on();
    assert_eq!(bench.running(), [0, 1]);
    bench.fail(To(Some(0), START + 1));
    bench.pass_time(Duration::from_secs(1).as_millis().try_into().unwrap());
    assert_eq!(bench.running(), [1, 0]);
    assert_eq!(bench.lane.census().closed, 0);
    let later = BTreeMap::from([(0, bench.succeed()), (1, bench.succeed())]);
    assert_eq!(later, BTreeMap::from([(0, 1), (1, 0)]));
}

#[test]
fn a_verdict_counts_though_the_time_to_drain_ended_with_its_run() {
    let mut bench = Bench::new(config(OnDeadLetter::Hold), two_tiers());
    bench.produce([1]);
    assert_eq!(bench.committed()[0].0, 0);
    let until = at(bench.now + 500);
    bench.lane.drain(until, at(bench.now), &mut bench.slots);
    bench.now += 500;
    let now = at(bench.now);
    assert!(bench.lane.failed(0, 0, true, now, &mut bench.slots));
    bench.lane.judged(0, 0, Next::Settle, now, &mut bench.slots);
    bench.go_on();
    assert_eq!((bench.lane.commit_point(0), bench.committed[0].0), (1, 1));
}
