//! What a lane asks for, input by input.

#![expect(clippy::unwrap_used, reason = "a lane that is refused fails the test")]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use redrive_core::lane::{
    Action, Assigned, Breaker, Event, Fate, Hop, Item, Lane, LaneConfig, LaneKind, Next, Order,
    Slots,
};
use redrive_core::offsets::{BlockId, MapError};
use redrive_core::{InPlace, MAX_TIMESTAMP, Reason, Timestamp};

const CLUSTER: &str = "cluster-1";
/// Where clocks stand when a test begins.
const START: i64 = 1_000_000;
/// How much memory each payload takes.
const BYTES: usize = 100;
/// The payload of a record that is large.
const LARGE: usize = 100_000;
/// How much it takes to keep one.
const KEPT: usize = BYTES + 2 * size_of::<(Timestamp, i64, Item<i64>)>();

/// A payload is the record's offset, and where it is published to is a name.
type Act = Action<i64, &'static str>;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn config(kind: LaneKind) -> LaneConfig {
    LaneConfig::new(kind, CLUSTER)
}

/// A record of a source topic.
fn fresh(offset: i64) -> Item<i64> {
    Item {
        offset,
        due: Timestamp::default(),
        is_dated: false,
        priority: 0,
        appended_at: at(START),
        fate: Fate::Run,
        bytes: BYTES,
        payload: offset,
    }
}

/// A record of a retry topic.
fn retry(offset: i64, due: i64) -> Item<i64> {
    Item { due: at(due), is_dated: true, ..fresh(offset) }
}

/// What a group left behind.
#[derive(Clone, Debug, Default)]
struct Left {
    committed: Option<(i64, String)>,
    blocks: BTreeMap<BlockId, Vec<u8>>,
}

impl Left {
    fn assign(
        &self,
        config: LaneConfig,
        now: Timestamp,
    ) -> Result<Lane<i64, &'static str>, MapError> {
        let partition = Assigned {
            committed: self.committed.as_ref().map(|it| it.0),
            metadata: self.committed.as_ref().map_or("", |it| &it.1),
            log_start: 0,
            log_end: 1_000_000,
            start: 0,
        };
        let stored = self.blocks.keys().copied();
        Lane::assigned(config, &partition, now, stored, |id| self.blocks.get(&id).cloned())
    }
}

/// A lane, and what stands around it.
struct Bench {
    lane: Lane<i64, &'static str>,
    slots: Slots,
    now: i64,
    left: Left,
    /// Whether commits are left without an answer.
    holds_commits: bool,
}

impl Bench {
    fn new(config: LaneConfig) -> Self {
        Self::after(Left::default(), config, START)
    }

    /// A lane that goes on from what another one committed.
    fn after(left: Left, config: LaneConfig, now: i64) -> Self {
        let lane = left.assign(config, at(now)).unwrap();
        Self { lane, slots: Slots::new(1000), now, left, holds_commits: false }
    }

    fn with_slots(self, slots: Slots) -> Self {
        Self { slots, ..self }
    }

    /// Gives the lane something. Returns what it asks for, but for commits, which are accepted.
    fn feed(
        &mut self,
        input: impl FnOnce(&mut Lane<i64, &'static str>, Timestamp, &mut Slots),
    ) -> Vec<Act> {
        let now = at(self.now);
        input(&mut self.lane, now, &mut self.slots);
        let mut actions = Vec::new();
        while let Some(action) = self.lane.next_action() {
            match action {
                Action::Commit { offset, metadata } => {
                    self.left.committed = Some((offset, metadata));
                    if !self.holds_commits {
                        self.lane.committed(now, &mut self.slots);
                    }
                }
                other => actions.push(other),
            }
        }
        actions
    }

    fn fetch(&mut self, items: impl IntoIterator<Item = Item<i64>>) -> Vec<Act> {
        let feed = |item| self.feed(|lane, now, slots| lane.fetched(item, now, slots));
        items.into_iter().flat_map(feed).collect()
    }

    fn succeed(&mut self, offset: i64) -> Vec<Act> {
        self.feed(|lane, now, slots| lane.succeeded(offset, now, slots))
    }

    /// A run fails. Returns whether a verdict is wanted.
    fn fail(&mut self, offset: i64) -> (bool, Vec<Act>) {
        let mut is_wanted = false;
        let actions = self.feed(|lane, now, slots| {
            lane.given_back(offset, offset);
            is_wanted = lane.failed(offset, true, now, slots);
        });
        (is_wanted, actions)
    }

    fn fail_then(&mut self, offset: i64, next: Next<&'static str>) -> Vec<Act> {
        assert_eq!(self.fail(offset), (true, vec![]));
        self.feed(|lane, now, slots| lane.judged(offset, next, now, slots))
    }

    fn published(&mut self, offset: i64) -> Vec<Act> {
        self.feed(|lane, now, slots| lane.published(offset, now, slots))
    }

    fn drain(&mut self, limit: Duration) -> Vec<Act> {
        self.feed(|lane, now, slots| lane.drain(now.after(limit), now, slots))
    }

    /// Looks at the clock, which may also have gone back.
    fn tick_at(&mut self, now: i64) -> Vec<Act> {
        self.now = now;
        self.feed(|lane, now, slots| lane.tick(now, slots))
    }

    /// Follows the lane's wake-ups until then, each of them later than now and at most a second away.
    fn until(&mut self, then: i64) -> Vec<Act> {
        let mut actions = Vec::new();
        while self.now < then {
            let mut next = then;
            if let Some(wakeup) = self.lane.next_wakeup(at(self.now), &self.slots) {
                let wakeup = wakeup.as_millis();
                assert!(wakeup > self.now && wakeup <= self.now + 1000, "{wakeup}");
                next = next.min(wakeup);
            }
            actions.extend(self.tick_at(next));
        }
        actions
    }

    fn keep(&mut self, bytes: usize) -> Vec<Act> {
        self.feed(|lane, now, slots| lane.set_byte_budget(bytes, now, slots))
    }

    fn refetch(&mut self, items: impl IntoIterator<Item = Item<i64>>) -> Vec<Act> {
        let feed = |item| self.feed(|lane, now, slots| lane.refetched(item, now, slots));
        items.into_iter().flat_map(feed).collect()
    }

    fn refetch_done(&mut self, ticket: u64) -> Vec<Act> {
        self.feed(|lane, now, slots| lane.refetch_done(ticket, now, slots))
    }

    fn refetch_failed(&mut self, ticket: u64) -> Vec<Act> {
        self.feed(|lane, now, slots| lane.refetch_failed(ticket, now, slots))
    }

    /// Lets every run succeed and reads everything again that is asked for, without delay. Returns what ran.
    fn serve(&mut self, actions: Vec<Act>, due: impl Fn(i64) -> i64) -> Vec<i64> {
        let mut ran = Vec::new();
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match action {
                Action::Run { offset, .. } => {
                    ran.push(offset);
                    actions.extend(self.succeed(offset));
                }
                Action::Fetch { ticket, ranges } => {
                    let offsets = ranges.into_iter().flatten();
                    actions.extend(self.refetch(offsets.map(|it| retry(it, due(it)))));
                    actions.extend(self.refetch_done(ticket));
                }
                other => assert_eq!(None, Some(other), "neither a run nor a fetch"),
            }
        }
        ran
    }

    /// Comes back when the lane wants it, and serves it then.
    fn serve_next(&mut self, due: impl Fn(i64) -> i64) -> Vec<i64> {
        let wakeup = self.lane.next_wakeup(at(self.now), &self.slots).unwrap();
        let actions = self.tick_at(wakeup.as_millis());
        self.serve(actions, due)
    }

    /// A lane of the same kind that goes on from the last commit.
    fn again(&self, config: LaneConfig) -> Self {
        Self::after(self.left.clone(), config, self.now)
    }
}

/// The records that are to be run.
fn runs(actions: &[Act]) -> Vec<i64> {
    let run = |action: &Act| match action {
        Action::Run { offset, .. } => Some(*offset),
        _ => None,
    };
    actions.iter().filter_map(run).collect()
}

/// What is to be read again: the ticket, and where each range begins and ends.
fn fetches(actions: &[Act]) -> Vec<(u64, Vec<(i64, i64)>)> {
    let fetch = |action: &Act| match action {
        Action::Fetch { ticket, ranges } => {
            Some((*ticket, ranges.iter().map(|it| (it.start, it.end)).collect()))
        }
        _ => None,
    };
    actions.iter().filter_map(fetch).collect()
}

fn publish(offset: i64, hop: Hop<&'static str>) -> Act {
    Action::Publish { offset, payload: offset, hop }
}

fn run_again(wait: Duration) -> Next<&'static str> {
    Next::RunAgain { wait, in_place: InPlace { runs: 1, failed_at: Some(at(START)) } }
}

// ----- running and settling

#[test]
fn a_source_record_runs_at_once_and_is_committed_after_the_interval() {
    let mut bench = Bench::new(config(LaneKind::Source));
    let run = Action::Run { offset: 0, payload: 0, in_place: InPlace::default() };
    assert_eq!(bench.fetch([fresh(0)]), [run]);
    assert_eq!(bench.lane.commit_point(), 0);
    assert_eq!(bench.succeed(0), []);
    assert_eq!(bench.lane.commit_point(), 1);
    assert_eq!(bench.until(START + 999), []);
    assert_eq!(bench.left.committed, None);
    assert_eq!(bench.until(START + 1000), []);
    assert_eq!(bench.left.committed.unwrap().0, 1);
}

#[test]
fn what_is_settled_out_of_order_does_not_run_again_after_a_restart() {
    let mut bench = Bench::new(config(LaneKind::Source));
    assert_eq!(runs(&bench.fetch((0..4).map(fresh))), [0, 1, 2, 3]);
    bench.succeed(3);
    bench.succeed(1);
    bench.until(START + 1000);
    assert_eq!(bench.left.committed.as_ref().unwrap().0, 0);
    let mut bench = bench.again(config(LaneKind::Source));
    assert_eq!(bench.lane.position(), 0);
    assert_eq!(runs(&bench.fetch((0..5).map(fresh))), [0, 2, 4]);
}

#[test]
fn neighbours_that_succeed_are_settled_together_but_for_those_that_failed() {
    let mut bench = Bench::new(config(LaneKind::Source));
    assert_eq!(runs(&bench.fetch((0..600).map(fresh))).len(), 600);
    assert_eq!(bench.slots.running(), 600);
    let hop = Next::Publish("retry");
    assert_eq!(bench.fail_then(300, hop), [publish(300, Hop::Verdict("retry"))]);
    // Whoever tells too much, or tells it twice, settles nothing that is on its way or was never read.
    for _ in 0..2 {
        let told = [0..500, 500..900];
        assert_eq!(bench.feed(|lane, now, slots| lane.succeeded_all(told, now, slots)), []);
        assert_eq!((bench.slots.running(), bench.lane.commit_point()), (0, 300));
    }
    assert_eq!(bench.published(300), []);
    assert_eq!((bench.lane.commit_point(), bench.lane.position()), (600, 600));
}

#[test]
fn to_tell_of_neighbours_together_or_one_by_one_comes_to_the_same() {
    for seed in 0..200u64 {
        let mut draws = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut draw = |below: u64| {
            draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            i64::try_from((draws >> 33) % below).unwrap()
        };
        // Everything runs at once, so that nothing begins in between.
        let (metadata_chars, ready_limit) = (100, 100_000);
        let kind = || LaneConfig { metadata_chars, ready_limit, ..config(LaneKind::Source) };
        let bench = || Bench::new(kind()).with_slots(Slots::new(100_000));
        let mut benches = [bench(), bench()];
        let mut next = 0;
        for _ in 0..40 {
            let (count, start, length) = (draw(400), draw(2000), draw(500));
            // Some offsets are never delivered, and some records have a priority of their own.
            let items: Vec<_> = (next..next + count)
                .filter(|it| it % 97 != 13)
                .map(|it| Item { priority: u8::from(it % 50 == 7), ..fresh(it) })
                .collect();
            next += count;
            let (failed, wait) = (start + length / 2, 1 + draw(300));
            let mut asked = Vec::new();
            for (bench, is_together) in benches.iter_mut().zip([true, false]) {
                bench.now += wait;
                let mut actions = bench.fetch(items.clone());
                if bench.lane.position() > failed && failed % 3 == 0 && bench.fail(failed).0 {
                    actions.extend(bench.feed(|lane, now, slots| {
                        lane.judged(failed, Next::Publish("retry"), now, slots);
                    }));
                }
                let run = start..start + length;
                actions.extend(bench.feed(|lane, now, slots| {
                    if is_together {
                        lane.succeeded_all(Some(run), now, slots);
                    } else {
                        run.for_each(|it| lane.succeeded(it, now, slots));
                    }
                }));
                let lane = (bench.lane.commit_point(), bench.lane.held(), bench.slots.running());
                // Which commits and blocks there are depends on when the clock is looked at.
                actions.retain(|it| !matches!(it, Action::Store(_) | Action::Delete(_)));
                asked.push((actions, lane));
            }
            assert!(asked[0] == asked[1], "seed {seed}: {:?} {:?}", asked[0].1, asked[1].1);
        }
        let committed = benches.map(|mut bench| {
            bench.until(bench.now + 2000);
            let mut again = bench.again(kind()).with_slots(Slots::new(100_000));
            runs(&again.fetch((0..next).map(fresh)))
        });
        assert_eq!(committed[0], committed[1], "seed {seed}");
    }
}

#[test]
fn a_drain_waits_for_runs_of_which_only_the_offset_is_kept() {
    let mut bench = Bench::new(config(LaneKind::Source));
    bench.fetch((0..3).map(fresh));
    assert_eq!(bench.drain(millis(5000)), []);
    bench.feed(|lane, now, slots| lane.succeeded_all(Some(0..2), now, slots));
    assert_eq!(bench.until(START + 2000), []);
    assert_eq!(bench.feed(|lane, now, slots| lane.succeeded(2, now, slots)), [Action::Drained]);
    assert_eq!(bench.left.committed.unwrap().0, 3);
}

#[test]
fn a_lane_that_is_lost_gives_the_slots_of_its_runs_back() {
    let mut bench = Bench::new(config(LaneKind::Source));
    bench.fetch((0..3).map(fresh));
    assert_eq!(bench.slots.running(), 3);
    bench.feed(|lane, now, slots| lane.lose(now, slots));
    assert_eq!(bench.slots.running(), 0);
    // What they come to does not count any more.
    bench.feed(|lane, now, slots| lane.succeeded_all(Some(0..3), now, slots));
    assert_eq!((bench.slots.running(), bench.lane.commit_point()), (0, 0));
    assert!(!bench.fail(1).0);
}

#[test]
fn retries_that_settled_before_their_neighbours_do_not_run_again_after_a_restart() {
    let items = || [retry(0, START + 9000), retry(1, START + 1000), retry(2, START + 5000)];
    let mut bench = Bench::new(config(LaneKind::Retry));
    bench.fetch(items());
    assert_eq!(runs(&bench.until(START + 1000)), [1]);
    bench.succeed(1);
    bench.until(START + 3000);
    assert_eq!(bench.left.committed.as_ref().unwrap().0, 0);
    let mut bench = bench.again(config(LaneKind::Retry));
    assert_eq!(bench.fetch(items()), []);
    assert_eq!(runs(&bench.until(START + 9000)), [2, 0]);
}

#[test]
fn partition_order_runs_one_after_another_and_a_published_record_loses_its_place() {
    let order = Order::Partition;
    let mut bench = Bench::new(LaneConfig { order, ..config(LaneKind::Source) });
    assert_eq!(runs(&bench.fetch((0..3).map(fresh))), [0]);
    assert_eq!(runs(&bench.succeed(0)), [1]);
    let actions = bench.fail_then(1, Next::Publish("retry"));
    assert_eq!(actions, [publish(1, Hop::Verdict("retry"))]);
    assert_eq!(runs(&bench.published(1)), [2]);
}

#[test]
fn an_unreadable_record_is_dead_lettered_unrun() {
    let mut bench = Bench::new(config(LaneKind::Source));
    let fate = Fate::DeadLetter(Reason::Header);
    let actions = bench.fetch([Item { fate, ..fresh(0) }]);
    assert_eq!(actions, [publish(0, Hop::DeadLetter(Reason::Header))]);
    assert_eq!((bench.slots.running(), bench.lane.commit_point()), (0, 0));
    assert_eq!(bench.published(0), []);
    assert_eq!(bench.lane.commit_point(), 1);
}

#[test]
fn a_record_of_another_group_is_settled_unrun() {
    let mut bench = Bench::new(config(LaneKind::Retry));
    assert_eq!(bench.fetch([Item { fate: Fate::Settle, ..retry(0, START + 9000) }]), []);
    assert_eq!((bench.lane.commit_point(), bench.lane.held()), (1, (0, 0)));
}

#[test]
fn a_source_pauses_when_too_much_is_ready_and_resumes_at_half() {
    let limited = LaneConfig { ready_limit: 4, ..config(LaneKind::Source) };
    let mut bench = Bench::new(limited).with_slots(Slots::new(1));
    assert_eq!(runs(&bench.fetch((0..4).map(fresh))), [0]);
    assert_eq!(bench.fetch([fresh(4)]), [Action::Pause]);
    assert_eq!(runs(&bench.succeed(0)), [1]);
    let actions = bench.succeed(1);
    assert_eq!(runs(&actions), [2]);
    assert_eq!(actions.last(), Some(&Action::Resume));
}

// ----- waiting

#[test]
fn a_retry_runs_when_it_is_due_and_not_before() {
    let mut bench = Bench::new(config(LaneKind::Retry));
    assert_eq!(bench.fetch([retry(0, START + 5000)]), []);
    assert_eq!(bench.until(START + 4999), []);
    assert_eq!(runs(&bench.until(START + 5000)), [0]);
}

#[test]
fn a_ready_record_is_not_started_after_the_clock_went_back() {
    let mut bench = Bench::new(config(LaneKind::Retry)).with_slots(Slots::new(1));
    bench.fetch([retry(0, START + 1000), retry(1, START + 1500)]);
    assert_eq!(runs(&bench.until(START + 1600)), [0]);
    bench.now = START + 1200;
    assert_eq!(bench.succeed(0), []);
    assert_eq!(bench.until(START + 1499), []);
    assert_eq!(runs(&bench.until(START + 1500)), [1]);
}

#[test]
fn a_run_in_place_after_the_clock_went_back_waits_for_the_due_time() {
    let mut bench = Bench::new(config(LaneKind::Retry));
    bench.fetch([retry(0, START + 1000)]);
    assert_eq!(runs(&bench.until(START + 1000)), [0]);
    bench.now = START + 500;
    assert_eq!(bench.fail_then(0, run_again(millis(100))), []);
    assert_eq!(bench.until(START + 999), []);
    assert_eq!(runs(&bench.until(START + 1000)), [0]);
}

#[test]
fn a_wait_in_place_takes_no_slot_and_counts_its_runs() {
    let mut bench = Bench::new(config(LaneKind::Source)).with_slots(Slots::new(1));
    bench.fetch([fresh(0)]);
    assert_eq!(bench.fail_then(0, run_again(millis(100))), []);
    assert_eq!(bench.slots.running(), 0);
    let in_place = InPlace { runs: 1, failed_at: Some(at(START)) };
    let actions = bench.until(START + 100);
    assert_eq!(actions, [Action::Run { offset: 0, payload: 0, in_place }]);
}

#[test]
fn a_relay_publishes_what_is_due_without_a_slot() {
    let mut bench = Bench::new(config(LaneKind::Relay)).with_slots(Slots::new(1));
    bench.fetch([retry(0, START + 1000), retry(1, START + 1000)]);
    assert_eq!(bench.until(START + 999), []);
    let actions = bench.until(START + 1000);
    assert_eq!(actions, [publish(0, Hop::Relay), publish(1, Hop::Relay)]);
    assert_eq!((bench.slots.running(), bench.lane.commit_point()), (0, 0));
    bench.published(0);
    assert_eq!(bench.lane.commit_point(), 1);
}

#[test]
fn a_record_due_after_retention_is_appended_again_and_settled_when_that_is_acknowledged() {
    let retention = Some(Duration::from_secs(100));
    let mut bench = Bench::new(LaneConfig { retention, ..config(LaneKind::Retry) });
    bench.fetch([retry(0, START + 300_000)]);
    assert_eq!(bench.until(START + 49_999), []);
    assert_eq!(bench.until(START + 50_000), [publish(0, Hop::Reappend)]);
    bench.until(START + 55_000);
    assert_eq!(bench.left.committed.as_ref().unwrap().0, 0);
    bench.published(0);
    assert_eq!(bench.lane.commit_point(), 1);
}

/// A lane that keeps two payloads, with six records of which the two in the middle are due first. The others are asked
/// for, with this ticket.
fn forgetful() -> (Bench, u64) {
    let due = |offset: i64| START + 60_000 + if (2..4).contains(&offset) { 0 } else { 100 };
    let (byte_budget, lead) = (KEPT * 5 / 2, millis(2000));
    let mut bench = Bench::new(LaneConfig { byte_budget, lead, ..config(LaneKind::Retry) });
    assert_eq!(bench.fetch((0..6).map(|it| retry(it, due(it)))), []);
    assert_eq!(bench.lane.held(), (6, 2 * KEPT));
    assert_eq!(bench.until(START + 58_099), []);
    let asked = fetches(&bench.until(START + 58_100));
    let (ticket, ranges) = asked.first().unwrap();
    assert_eq!((ranges.as_slice(), asked.len()), ([(0, 2), (4, 6)].as_slice(), 1));
    (bench, *ticket)
}

#[test]
fn tiny_payloads_stay_within_the_budget_with_what_it_takes_to_keep_them() {
    let mut bench = Bench::new(LaneConfig { byte_budget: 10 * KEPT, ..config(LaneKind::Retry) });
    bench.fetch((0..100).map(|it| Item { bytes: 1, ..retry(it, START + 60_000) }));
    let (records, bytes) = bench.lane.held();
    let each = KEPT - BYTES + 1;
    assert_eq!((records, bytes), (100, 10 * KEPT / each * each));
}

#[test]
fn a_lane_says_until_when_payloads_are_kept() {
    let (byte_budget, lead) = (KEPT * 5 / 2, millis(2000));
    let with = |config| Bench::new(LaneConfig { lead, ..config });
    let mut bench = with(LaneConfig { byte_budget, ..config(LaneKind::Retry) });
    bench.fetch([retry(0, START + 60_000)]);
    assert_eq!(bench.lane.horizon(), MAX_TIMESTAMP);
    bench.fetch([retry(1, START + 70_000)]);
    assert_eq!(bench.lane.horizon(), at(START + 70_000));
    bench.fetch([retry(2, START + 70_001)]);
    assert_eq!((bench.lane.held(), bench.lane.horizon()), ((3, 2 * KEPT), at(START + 70_000)));
    // What is due before that takes the place of what is due last.
    bench.fetch([retry(3, START + 65_000)]);
    assert_eq!((bench.lane.held(), bench.lane.horizon()), ((4, 2 * KEPT), at(START + 65_000)));
    bench.keep(3 * KEPT);
    assert_eq!(bench.lane.horizon(), MAX_TIMESTAMP);

    let mut none = with(LaneConfig { byte_budget: 0, ..config(LaneKind::Retry) });
    none.fetch([retry(0, START + 60_000)]);
    assert_eq!((none.lane.held(), none.lane.horizon()), ((1, 0), Timestamp::default()));

    let mut folded = with(LaneConfig { index_limit: 4, ..config(LaneKind::Retry) });
    folded.fetch((0..5).map(|it| retry(it, START + 60_000 + it)));
    assert!(folded.lane.is_folded());
    assert_eq!(folded.lane.horizon(), at(START + 60_003));
}

#[test]
fn payloads_beyond_the_budget_are_read_again_before_they_are_due() {
    let (mut bench, ticket) = forgetful();
    bench.refetch([0, 1, 4, 5].map(|it| retry(it, START + 60_100)));
    assert_eq!(bench.refetch_done(ticket), []);
    assert_eq!(runs(&bench.until(START + 60_099)), [2, 3]);
    assert_eq!(runs(&bench.until(START + 60_100)), [0, 1, 4, 5]);
}

#[test]
fn what_cannot_be_read_again_is_asked_for_once_more() {
    let (mut bench, ticket) = forgetful();
    bench.refetch([0, 1].map(|it| retry(it, START + 60_100)));
    assert_eq!(bench.refetch_failed(ticket), []);
    assert_eq!(bench.until(START + 59_099), []);
    let asked = fetches(&bench.until(START + 59_100));
    assert_eq!(asked, [(ticket + 1, vec![(4, 6)])]);
}

#[test]
fn what_is_missing_when_it_is_read_again_is_told_and_settled() {
    let (mut bench, ticket) = forgetful();
    bench.refetch([0, 1, 4].map(|it| retry(it, START + 60_100)));
    assert_eq!(bench.refetch_done(ticket), [Action::Tell(Event::Lost(5..6))]);
    for offset in runs(&bench.until(START + 60_100)) {
        bench.succeed(offset);
    }
    assert_eq!(bench.lane.commit_point(), 6);
}

#[test]
fn what_is_near_does_not_keep_what_is_due_right_after_it_from_being_read_again_in_time() {
    let mut bench = Bench::new(LaneConfig { byte_budget: 0, ..config(LaneKind::Retry) });
    assert_eq!(fetches(&bench.fetch([retry(0, START + 1500)])), [(0, vec![(0, 1)])]);
    bench.refetch([retry(0, START + 1500)]);
    bench.refetch_done(0);
    assert_eq!(fetches(&bench.fetch([retry(1, START + 1501)])), [(1, vec![(1, 2)])]);
}

#[test]
fn no_more_is_read_again_at_once_than_there_is_memory_for() {
    let large = |offset| Item { bytes: LARGE, ..retry(offset, START + 60_000) };
    let byte_budget = 10 * LARGE;
    let mut bench = Bench::new(LaneConfig { byte_budget, ..config(LaneKind::Retry) });
    bench.fetch((0..500).map(large));
    let mut ran = 0;
    let mut actions = VecDeque::from(bench.until(START + 60_000));
    while let Some(action) = actions.pop_front() {
        match action {
            Action::Run { offset, .. } => {
                ran += 1;
                actions.extend(bench.succeed(offset));
            }
            Action::Fetch { ticket, ranges } => {
                for offset in ranges.into_iter().flatten() {
                    actions.extend(bench.refetch([large(offset)]));
                    let bytes = bench.lane.held().1;
                    assert!(bytes <= 4 * byte_budget + LARGE, "{bytes}");
                }
                actions.extend(bench.refetch_done(ticket));
            }
            other => assert_eq!(None, Some(other), "neither a run nor a fetch"),
        }
    }
    assert_eq!((ran, bench.lane.commit_point()), (500, 500));
}

#[test]
fn a_lane_that_is_told_to_keep_less_drops_the_farthest_and_runs_them_on_time() {
    let due = |offset: i64| START + 70_000 - offset * 1000;
    let mut bench = Bench::new(config(LaneKind::Retry));
    bench.fetch((0..6).map(|it| retry(it, due(it))));
    assert_eq!(bench.lane.held(), (6, 6 * KEPT));
    assert_eq!(bench.keep(3 * KEPT - 1), []);
    assert_eq!(bench.lane.held(), (6, 2 * KEPT));
    // What comes later is held to it as well.
    assert_eq!(bench.fetch([retry(6, START + 60_000)]), []);
    assert_eq!(bench.lane.held(), (7, 2 * KEPT));
    assert_eq!(fetches(&bench.until(START + 63_999)), []);
    let asked = fetches(&bench.until(START + 64_000));
    assert_eq!(asked, [(0, vec![(4, 5)])]);
    bench.refetch([retry(4, due(4))]);
    bench.refetch_done(0);
    let mut ran = Vec::new();
    while bench.now < START + 70_000 {
        for offset in bench.serve_next(due) {
            ran.push((offset, bench.now - due(offset)));
        }
    }
    assert_eq!(ran, [(5, 0), (4, 0), (3, 0), (2, 0), (1, 0), (0, 0)]);
}

#[test]
fn a_lane_that_is_told_to_keep_more_keeps_what_comes_from_then_on() {
    let mut bench = Bench::new(LaneConfig { byte_budget: 0, ..config(LaneKind::Retry) });
    bench.fetch((0..3).map(|it| retry(it, START + 60_000)));
    assert_eq!(bench.lane.held(), (3, 0));
    bench.keep(2 * KEPT);
    bench.fetch((3..6).map(|it| retry(it, START + 60_000)));
    assert_eq!(bench.lane.held(), (6, 2 * KEPT));
}

#[test]
fn what_is_near_goes_back_where_less_is_to_be_kept_but_for_the_first() {
    for (budget, left) in [(10 * LARGE, 15), (2 * LARGE, 8), (LARGE, 4), (1, 1), (0, 1)] {
        let config = LaneConfig { byte_budget: 10 * LARGE, ..config(LaneKind::Retry) };
        let mut bench = Bench::new(config);
        let large = |offset| Item { bytes: LARGE, ..retry(offset, START + 1000) };
        assert_eq!(bench.fetch((0..15).map(large)), []);
        assert_eq!(bench.lane.held(), (15, 15 * LARGE));
        assert_eq!(bench.keep(budget), [], "{budget}");
        assert_eq!(bench.lane.held(), (15, left * LARGE), "{budget}");
        let actions = bench.until(START + 1000);
        let ran = bench.serve(actions, |_| START + 1000);
        assert_eq!((ran, bench.now), ((0..15).collect(), START + 1000), "{budget}");
    }
}

#[test]
fn a_lane_that_runs_nothing_can_be_told_to_keep_less() {
    let due = |_| START + 10_000;
    let mut bench = Bench::new(config(LaneKind::Retry));
    bench.fetch((0..4).map(|it| retry(it, due(it))));
    bench.feed(|lane, now, slots| lane.halt(now, slots));
    assert_eq!(bench.keep(0), []);
    assert_eq!(bench.lane.held(), (4, 0));
    bench.feed(|lane, now, slots| lane.resume(now, slots));
    let asked = fetches(&bench.until(START + 8000));
    assert_eq!(asked, [(0, vec![(0, 4)])]);
    bench.drain(millis(1000));
    assert_eq!(bench.keep(1 << 20), []);
    bench.until(START + 9000);
    assert_eq!(bench.keep(1), []);
}

#[test]
fn a_source_is_paused_by_the_budget_that_it_has_now() {
    let mut bench = Bench::new(config(LaneKind::Source)).with_slots(Slots::new(1));
    assert_eq!(runs(&bench.fetch((0..5).map(fresh))), [0]);
    assert_eq!(bench.keep(BYTES * 4), [Action::Pause]);
    assert_eq!(bench.keep(BYTES * 4 - 1), []);
    assert_eq!(bench.keep(BYTES * 8), [Action::Resume]);
    // There is no less than one at a time.
    assert_eq!(bench.keep(0), [Action::Pause]);
    for offset in 0..3 {
        assert_eq!(runs(&bench.succeed(offset)), [offset + 1]);
    }
    assert!(bench.succeed(3).contains(&Action::Resume));
    assert_eq!(bench.tick_at(START + 1), []);
    assert_eq!(bench.fetch([fresh(5)]), [Action::Pause]);
}

#[test]
fn a_record_that_comes_late_and_is_due_sooner_takes_the_place_of_one_that_is_near() {
    let mut bench = Bench::new(LaneConfig { ready_limit: 2, ..config(LaneKind::Retry) });
    bench.fetch([retry(0, START + 1500), retry(1, START + 1600), retry(2, START + 100)]);
    assert_eq!(runs(&bench.until(START + 100)), [2]);
    bench.succeed(2);
    assert_eq!(runs(&bench.until(START + 1600)), [0, 1]);
}

#[test]
fn only_the_ticket_that_a_record_was_last_asked_for_by_tells_that_it_is_gone() {
    let narrow = LaneConfig { byte_budget: 0, ready_limit: 1, ..config(LaneKind::Retry) };
    let mut bench = Bench::new(narrow);
    assert_eq!(fetches(&bench.fetch([retry(0, START + 1500)])), [(0, vec![(0, 1)])]);
    // The other one is due sooner: the first goes back to those that wait, and what was read of it is dropped.
    assert_eq!(fetches(&bench.fetch([retry(1, START + 1000)])), [(1, vec![(1, 2)])]);
    assert_eq!(bench.refetch([retry(0, START + 1500)]), []);
    assert_eq!(bench.refetch([retry(1, START + 1000)]), []);
    assert_eq!(bench.refetch_done(1), []);
    let actions = bench.until(START + 1000);
    assert_eq!((runs(&actions), fetches(&actions)), (vec![1], vec![(2, vec![(0, 1)])]));
    assert_eq!(bench.refetch_done(0), []);
    assert_eq!(bench.refetch([retry(0, START + 1500)]), []);
    assert_eq!(bench.refetch_done(2), []);
    assert_eq!(runs(&bench.until(START + 1500)), [0]);
}

#[test]
fn what_is_due_soon_may_take_three_times_as_much_more() {
    let budget = 20 * LARGE;
    for (due, most) in [(START + 1500, 4 * budget), (START + 10_000, budget)] {
        let mut bench = Bench::new(LaneConfig {
            byte_budget: budget,
            ready_limit: 1,
            ..config(LaneKind::Retry)
        });
        let large = |offset| Item { bytes: LARGE, ..retry(offset, due) };
        bench.fetch((0..100).map(large));
        let (records, bytes) = bench.lane.held();
        assert_eq!(records, 100);
        assert!(bytes <= most && bytes > most - 3 * LARGE, "{bytes} of {most}");
    }
}

#[test]
fn what_is_to_be_read_again_is_asked_for_together_while_others_are_read() {
    let due = START + 1500;
    let mut bench = Bench::new(LaneConfig { byte_budget: 0, ..config(LaneKind::Retry) });
    assert_eq!(fetches(&bench.fetch([retry(0, due)])), [(0, vec![(0, 1)])]);
    assert_eq!(fetches(&bench.fetch([retry(1, due)])), [(1, vec![(1, 2)])]);
    for offset in 2..9 {
        assert_eq!(bench.fetch([retry(offset, due)]), [], "{offset}");
    }
    bench.refetch([retry(0, due)]);
    assert_eq!(fetches(&bench.refetch_done(0)), [(2, vec![(2, 9)])]);
    bench.refetch((1..9).map(|it| retry(it, due)));
    assert_eq!((bench.refetch_done(1), bench.refetch_done(2)), (vec![], vec![]));
    assert_eq!(runs(&bench.until(due)), (0..9).collect::<Vec<_>>());
}

/// A lane that folds soon.
fn folding(index_limit: usize) -> LaneConfig {
    LaneConfig { index_limit, ready_limit: 50, lead: millis(100), ..config(LaneKind::Retry) }
}

#[test]
fn ten_thousand_waiting_records_are_bounded_in_memory_and_run_in_due_order() {
    const RECORDS: i64 = 10_000;
    let due = |offset: i64| START + 10_000 + offset * 7919 % RECORDS * 10;
    let byte_budget = 40 * BYTES;
    let mut bench = Bench::new(LaneConfig { byte_budget, ..folding(200) });
    assert_eq!(bench.fetch((0..RECORDS).map(|it| retry(it, due(it)))), []);
    assert!(bench.lane.is_folded());
    let mut ran = Vec::new();
    while bench.now < START + 120_000 {
        for offset in bench.serve_next(due) {
            assert!(due(offset) <= bench.now, "{offset} is early");
            ran.push(offset);
        }
        let (records, bytes) = bench.lane.held();
        assert!(records <= 200 + 50 && bytes <= 4 * byte_budget, "{records}, {bytes}");
    }
    let mut in_due_order: Vec<_> = (0..RECORDS).collect();
    in_due_order.sort_by_key(|it| due(*it));
    assert!(ran == in_due_order, "{} records ran", ran.len());
    assert_eq!(bench.lane.commit_point(), RECORDS);
}

/// When the records of [`scanning`] are due.
fn folded_due(offset: i64) -> i64 {
    START + 10_000 + offset * 1000
}

/// A lane with six records of which three have run; the other three were folded and are asked for, with this ticket.
fn scanning(config: LaneConfig) -> (Bench, u64) {
    let mut bench = Bench::new(config).with_slots(Slots::new(1));
    assert_eq!(bench.fetch((0..6).map(|it| retry(it, folded_due(it)))), []);
    assert!(bench.lane.is_folded());
    for offset in [0, 1, 2] {
        assert_eq!(bench.until(folded_due(offset)).len(), 1);
        assert_eq!(bench.succeed(offset), []);
    }
    let asked = fetches(&bench.until(START + 12_700));
    let (ticket, ranges) = asked.first().unwrap();
    assert_eq!((ranges.as_slice(), asked.len()), ([(3, 6)].as_slice(), 1));
    (bench, *ticket)
}

#[test]
fn a_ready_record_is_not_taken_again_by_a_scan() {
    let (mut bench, ticket) = scanning(folding(4));
    let items = || (3..6).map(|it| retry(it, folded_due(it)));
    assert_eq!(bench.refetch(items()), []);
    // All three are due, and there is one slot.
    assert_eq!(runs(&bench.tick_at(START + 20_000)), [3]);
    assert_eq!(bench.refetch_failed(ticket), []);
    let asked = fetches(&bench.tick_at(START + 21_000));
    assert_eq!(asked, [(ticket + 1, vec![(3, 6)])]);
    assert_eq!(bench.refetch(items()), []);
    assert_eq!(bench.refetch_done(ticket + 1), []);
    assert_eq!(bench.lane.held(), (2, 2 * BYTES));
    assert_eq!(runs(&bench.succeed(3)), [4]);
    assert_eq!(runs(&bench.succeed(4)), [5]);
    assert_eq!(bench.succeed(5), []);
    assert_eq!(bench.until(START + 40_000), []);
    assert_eq!((bench.lane.commit_point(), bench.lane.held()), (6, (0, 0)));
}

#[test]
fn a_waiting_record_is_not_taken_again_by_a_scan() {
    let (mut bench, ticket) = scanning(LaneConfig { ready_limit: 1, ..folding(4) });
    assert_eq!(bench.refetch((3..6).map(|it| retry(it, folded_due(it)))), []);
    assert_eq!(bench.refetch_failed(ticket), []);
    let mut ran = Vec::new();
    while bench.now < START + 20_000 {
        ran.extend(bench.serve_next(folded_due));
    }
    assert_eq!(ran, [3, 4, 5]);
    assert_eq!((bench.lane.commit_point(), bench.lane.held()), (6, (0, 0)));
}

#[test]
fn folded_records_that_retention_deleted_are_told_when_they_are_not_found() {
    let (mut bench, ticket) = scanning(folding(4));
    assert_eq!(bench.refetch([retry(5, folded_due(5))]), []);
    assert_eq!(bench.refetch_done(ticket), [Action::Tell(Event::Lost(3..5))]);
    assert_eq!(runs(&bench.until(folded_due(5))), [5]);
    assert_eq!(bench.succeed(5), []);
    assert_eq!((bench.lane.commit_point(), bench.lane.is_folded()), (6, false));
}

// ----- publishing

#[test]
fn a_publish_that_fails_is_tried_again_with_growing_waits_and_never_settled() {
    let mut bench = Bench::new(config(LaneKind::Source));
    bench.fetch([fresh(0)]);
    let again = [publish(0, Hop::Verdict("retry"))];
    assert_eq!(bench.fail_then(0, Next::Publish("retry")), again);
    let wanted = [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000];
    for wait in wanted {
        let failed_at = bench.now;
        assert_eq!(bench.feed(|lane, now, slots| lane.publish_failed(0, now, slots)), []);
        assert_eq!(bench.until(failed_at + wait - 1), []);
        assert_eq!(bench.until(failed_at + wait), again);
    }
    assert_eq!(bench.left.committed.as_ref().unwrap().0, 0);
    assert_eq!(bench.published(0), []);
    assert_eq!(bench.lane.commit_point(), 1);
}

// ----- halting, draining and losing

#[test]
fn timers_that_fall_due_while_the_lane_is_halted_run_when_it_goes_on() {
    let mut bench = Bench::new(config(LaneKind::Source));
    bench.fetch([fresh(0), fresh(1)]);
    assert_eq!(bench.fail_then(0, run_again(millis(1000))), []);
    assert_eq!(bench.fail_then(1, Next::Stop), [Action::Halted { offset: 1 }]);
    assert_eq!(bench.until(START + 1200), []);
    let actions = bench.feed(|lane, now, slots| lane.resume(now, slots));
    assert_eq!(runs(&actions), [0, 1]);
}

#[test]
fn a_halted_lane_is_not_woken_all_the_time_for_what_is_due() {
    let mut bench = Bench::new(config(LaneKind::Source));
    bench.fetch([fresh(0), fresh(1)]);
    bench.fail_then(0, run_again(millis(1000)));
    bench.fail_then(1, Next::Stop);
    bench.tick_at(START + 2000);
    let wakeup = bench.lane.next_wakeup(at(bench.now), &bench.slots);
    assert!(wakeup.is_none_or(|it| it >= at(START + 2100)), "{wakeup:?}");
}

#[test]
fn a_lane_without_slots_is_not_woken_all_the_time_for_what_is_due() {
    let mut bench = Bench::new(config(LaneKind::Source)).with_slots(Slots::new(1));
    bench.fetch([fresh(0), fresh(1)]);
    // The other one takes the slot, for long.
    bench.fail(0);
    bench.feed(|lane, now, slots| lane.judged(0, run_again(millis(1000)), now, slots));
    bench.tick_at(START + 2000);
    assert_eq!(bench.slots.running(), 1);
    let wakeup = bench.lane.next_wakeup(at(bench.now), &bench.slots);
    assert!(wakeup.is_none_or(|it| it >= at(START + 2100)), "{wakeup:?}");
}

#[test]
fn what_is_overdue_does_not_hide_what_is_due_after_it() {
    let mut bench = Bench::new(config(LaneKind::Source)).with_slots(Slots::new(1));
    bench.fetch([fresh(0), fresh(1), fresh(2)]);
    bench.fail_then(0, run_again(millis(1000)));
    bench.fail_then(1, run_again(millis(1500)));
    // The third one keeps the slot, so that the first is overdue.
    bench.tick_at(START + 1200);
    let wakeup = bench.lane.next_wakeup(at(bench.now), &bench.slots);
    assert!(wakeup.is_some_and(|it| it <= at(START + 1500)), "{wakeup:?}");
}

#[test]
fn a_wait_in_place_ends_with_a_drain_and_stays_unsettled() {
    let mut bench = Bench::new(config(LaneKind::Source));
    bench.fetch([fresh(0), fresh(1)]);
    bench.succeed(1);
    assert_eq!(bench.fail_then(0, run_again(millis(10_000))), []);
    assert_eq!(bench.drain(millis(5000)), [Action::Drained]);
    assert_eq!(bench.left.committed.as_ref().unwrap().0, 0);
    let mut bench = bench.again(config(LaneKind::Source));
    assert_eq!(runs(&bench.fetch([fresh(0), fresh(1)])), [0]);
}

#[test]
fn a_drain_waits_for_what_is_under_way_and_for_its_commit() {
    let mut bench = Bench::new(config(LaneKind::Source));
    bench.fetch([fresh(0), fresh(1)]);
    bench.fail_then(1, Next::Publish("retry"));
    assert_eq!(bench.drain(millis(5000)), []);
    assert_eq!(bench.fetch([fresh(2)]), [], "nothing new is started");
    assert_eq!(bench.succeed(0), []);
    bench.holds_commits = true;
    assert_eq!(bench.published(1), []);
    assert_eq!(bench.left.committed.as_ref().unwrap().0, 2);
    let actions = bench.feed(|lane, now, slots| lane.committed(now, slots));
    assert_eq!(actions, [Action::Drained]);
    assert_eq!(bench.lane.next_wakeup(at(bench.now), &bench.slots), None);
}

#[test]
fn a_drain_ends_at_its_limit_and_later_results_are_ignored() {
    let mut bench = Bench::new(config(LaneKind::Source));
    bench.fetch([fresh(0), fresh(1)]);
    assert_eq!(bench.drain(millis(5000)), []);
    bench.succeed(1);
    assert_eq!(bench.until(START + 4999), []);
    assert_eq!(bench.slots.running(), 1);
    assert_eq!(bench.tick_at(START + 5000), [Action::Drained]);
    assert_eq!(bench.left.committed.as_ref().unwrap().0, 0);
    assert_eq!(bench.slots.running(), 0);
    assert_eq!((bench.succeed(0), bench.lane.commit_point()), (vec![], 0));
    assert_eq!(bench.slots.running(), 0);
}

#[test]
fn what_happens_after_the_partition_is_lost_is_ignored() {
    let mut bench = Bench::new(config(LaneKind::Source));
    bench.fetch((0..3).map(fresh));
    bench.fail_then(2, Next::Publish("retry"));
    assert_eq!(bench.slots.running(), 2);
    assert_eq!(bench.feed(|lane, now, slots| lane.lose(now, slots)), []);
    assert_eq!(bench.slots.running(), 0);
    assert_eq!(bench.succeed(0), []);
    assert_eq!(bench.fail(1), (false, vec![]));
    assert_eq!(bench.published(2), []);
    assert_eq!(bench.fetch([fresh(3)]), []);
    assert_eq!(bench.tick_at(START + 9000), []);
    assert_eq!((bench.left.committed.clone(), bench.lane.commit_point()), (None, 0));
    assert_eq!(bench.lane.next_wakeup(at(bench.now), &bench.slots), None);
}

#[test]
fn a_commit_that_is_acknowledged_after_the_partition_is_lost_deletes_no_blocks() {
    let blocks = BTreeMap::from([(BlockId { stretch: 0, hash: 7 }, vec![])]);
    let left = Left { committed: None, blocks };
    let mut bench = Bench::after(left, config(LaneKind::Source), START);
    bench.holds_commits = true;
    bench.fetch([fresh(0)]);
    bench.until(START + 1000);
    assert!(bench.left.committed.is_some());
    bench.feed(|lane, now, slots| lane.lose(now, slots));
    assert_eq!(bench.feed(|lane, now, slots| lane.committed(now, slots)), []);
}

// ----- the map

/// A map that says nothing but its version.
fn map_of_version(version: u8) -> String {
    let hash = (0xCBF2_9CE4_8422_2325u64 ^ u64::from(version)).wrapping_mul(0x0100_0000_01B3);
    let [.., a, b, c, d] = ((hash >> 32) ^ (hash & 0xFFFF_FFFF)).to_be_bytes();
    let bits = [version, a, b, c, d].iter().fold(0u64, |bits, it| bits << 8 | u64::from(*it)) << 2;
    (0..6).rev().map(|it| char::from((bits >> (7 * it)).to_le_bytes()[0] & 0x7F)).collect()
}

#[test]
fn a_map_of_a_newer_version_refuses_the_assignment() {
    let left = Left { committed: Some((5, map_of_version(9))), ..Left::default() };
    let refused = left.assign(config(LaneKind::Source), at(START)).map(|it| it.position());
    assert_eq!(refused, Err(MapError::NewerVersion(9)));
}

#[test]
fn metadata_that_is_no_map_is_told_and_the_lane_begins_at_the_commit_point() {
    let left = Left { committed: Some((5, "someone else's".to_owned())), ..Left::default() };
    let mut bench = Bench::after(left, config(LaneKind::Source), START);
    assert_eq!(bench.lane.position(), 5);
    let told = bench.feed(|_, _, _| ());
    assert_eq!(told, [Action::Tell(Event::MapRefused(MapError::Unreadable))]);
    assert_eq!(runs(&bench.fetch([fresh(5)])), [5]);
}

#[test]
fn blocks_are_stored_before_the_commit_that_names_them() {
    const RECORDS: i64 = 800;
    let narrow = || LaneConfig { metadata_chars: 60, ..config(LaneKind::Source) };
    let mut bench = Bench::new(narrow());
    bench.fetch((0..RECORDS).map(fresh));
    for offset in (1..RECORDS).step_by(2) {
        bench.succeed(offset);
    }
    let actions = bench.until(START + 1000);
    let [Action::Store(block)] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!(bench.until(START + 5000), []);
    assert_eq!(bench.left.committed, None);
    bench.left.blocks.insert(block.id, block.bytes.clone());
    assert_eq!(bench.feed(|lane, now, slots| lane.stored(block.id, now, slots)), []);
    assert_eq!(bench.left.committed.as_ref().unwrap().0, 0);
    let mut bench = bench.again(narrow());
    let unsettled: Vec<_> = (0..RECORDS).step_by(2).collect();
    assert_eq!(runs(&bench.fetch((0..RECORDS).map(fresh))), unsettled);
}

// ----- the breaker

#[test]
fn a_breaker_holds_failed_records_in_place_and_lets_one_probe_through() {
    let breaker = Breaker::new(0.5).with_minimum(2).with_probe_every(millis(5000));
    let mut bench =
        Bench::new(config(LaneKind::Source)).with_slots(Slots::new(10).with_breaker(breaker));
    bench.fetch((0..3).map(fresh));
    assert_eq!(bench.fail_then(0, Next::Publish("retry")).len(), 1);
    bench.published(0);
    assert_eq!(bench.fail(1), (false, vec![Action::Pause]));
    assert_eq!(bench.fail(2), (false, vec![]));
    assert_eq!(bench.until(START + 4999), []);
    assert_eq!(runs(&bench.until(START + 5000)), [1]);
    assert_eq!(bench.until(START + 6000), []);
    assert_eq!(bench.fail(1), (false, vec![]));
    assert_eq!(bench.until(START + 10_999), []);
    assert_eq!(runs(&bench.until(START + 11_000)), [1]);
    let actions = bench.succeed(1);
    assert_eq!((runs(&actions), actions.last()), (vec![2], Some(&Action::Resume)));
    assert_eq!(bench.lane.commit_point(), 2);
}
