//! The ordered lane, input by input, with a Kafka that always answers.

#![expect(clippy::unwrap_used, reason = "a lane that is refused fails the test")]

use std::collections::BTreeMap;
use std::time::Duration;

use redrive_core::lane::{
    Action, Assigned, EntityId, Fate, Hop, Identity, Item, LaneConfig, LaneKind, Marker, Next,
    OnDeadLetter, OrderedAction, OrderedConfig, OrderedLane, Part, Rank, Ranked, Routed, Slots,
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
        appended_at: at(START),
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
    is_source_open: bool,
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
        let mut bench = Self {
            lane: lane.unwrap(),
            slots: Slots::new(1000),
            now: START,
            logs,
            committed: Vec::new(),
            running: Vec::new(),
            dead: Vec::new(),
            markers,
            state_end: end,
            is_source_open: false,
        };
        bench.pass_time(0);
        bench
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
                    let record = Record { hop: record.hop + 1, epoch, due, ..record };
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
                Action::Fetch { ticket, ranges } => {
                    for offset in ranges.into_iter().flatten() {
                        let record = self.logs[part][usize::try_from(offset).unwrap()];
                        self.lane.refetched(part, item(offset, record), now, &mut self.slots);
                    }
                    self.lane.refetch_done(part, ticket, now, &mut self.slots);
                }
                Action::Pause => self.is_source_open = false,
                Action::Resume => self.is_source_open = true,
                Action::Store(block) => self.lane.stored(part, block.id, now, &mut self.slots),
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
            OrderedAction::Drained => {}
        }
    }

    fn produce(&mut self, entities: impl IntoIterator<Item = u32>) {
        for entity in entities {
            let identity = order(i64::try_from(self.logs[0].len()).unwrap());
            let entity = Some(entity);
            self.logs[0].push(Record { entity, identity, hop: 0, epoch: None, due: 0 });
        }
        self.go_on();
    }

    fn running(&self) -> Vec<i64> {
        self.running.iter().map(|it| it.2.identity.origin).collect()
    }

    /// The first that runs succeeds.
    fn succeed(&mut self) -> i64 {
        let (part, offset, record) = self.running.remove(0);
        self.lane.succeeded_all(part, [offset], at(self.now), &mut self.slots);
        self.go_on();
        record.identity.origin
    }

    /// The first that runs fails, and goes to a tier or to the dead-letter topic.
    fn fail(&mut self, to: To) -> i64 {
        let (part, offset, record) = self.running.remove(0);
        let now = at(self.now);
        assert!(self.lane.failed(part, offset, true, now, &mut self.slots));
        self.lane.judged(part, offset, Next::Publish(to), now, &mut self.slots);
        self.go_on();
        record.identity.origin
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
    let record = Record { entity: Some(1), identity: order(0), hop: 1, epoch: Some(7), due: 0 };
    logs[0].push(Record { hop: 0, epoch: None, ..record });
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
        let entity = Some(1);
        let identity = order(origin);
        logs[0].push(Record { entity, identity, hop: 0, epoch: None, due: 0 });
    }
    let follower = Record { hop: 1, epoch: Some(1), ..logs[0][1] };
    logs[1].push(follower);
    let mut bench = Bench::new(config(OnDeadLetter::Hold), logs);
    assert_eq!(bench.running(), [0]);
    bench.succeed();
    assert_eq!(bench.running.iter().map(|it| (it.0, it.1)).collect::<Vec<_>>(), [(1, 0)]);
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
fn entities_with_nothing_pending_cost_nothing() {
    let mut bench = Bench::new(config(OnDeadLetter::Hold), two_tiers());
    for start in (0..100_000).step_by(500) {
        bench.produce(start..start + 500);
        while !bench.running.is_empty() {
            bench.succeed();
        }
    }
    let census = bench.lane.census();
    assert_eq!((census.entities, census.pending, census.closed), (0, 0, 0));
    assert_eq!(bench.lane.held(), (0, 0));
}

#[test]
fn records_without_an_entity_are_not_held_up() {
    let mut bench = Bench::new(config(OnDeadLetter::Hold), two_tiers());
    for origin in 0..2 {
        let identity = order(origin);
        bench.logs[0].push(Record { entity: None, identity, hop: 0, epoch: None, due: 0 });
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
