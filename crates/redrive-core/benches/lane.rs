//! What a record costs on its way through a lane, and what a million pending ones cost.
//!
//! A success is to take at most 150 ns and no allocation beyond what the record itself needs, a commit with a million
//! pending at most 1 ms, and a pending record at most 64 bytes. Sizes and allocations are printed first.

#![expect(clippy::unwrap_used, reason = "a lane that cannot be made fails the benchmark")]

use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use criterion::{BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use redrive_core::Timestamp;
use redrive_core::lane::{Action, Assigned, Fate, Item, Lane, LaneConfig, LaneKind, Next, Slots};
use redrive_core::offsets::{Commit, Mark, Progress, SettledMap};

const CLUSTER: &str = "cluster-1";
const METADATA_CHARS: usize = 4096;
const MILLION: i64 = 1_000_000;
/// Where the clock stands when all begins.
const EPOCH: i64 = 1_700_000_000_000;
/// Delays are between these.
const DELAYS: (i64, i64) = (10_000, 3_610_000);
/// How many records are timed at once among a million.
const BATCH: u64 = 1000;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// A number below `end` that follows from `seed` alone.
fn chance(seed: i64, end: i64) -> i64 {
    let mut it = seed.unsigned_abs().wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    it = (it ^ (it >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    it = (it ^ (it >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    i64::try_from((it ^ (it >> 31)) % end.unsigned_abs()).unwrap()
}

/// The delay of the record at this offset.
fn delay(offset: i64) -> i64 {
    DELAYS.0 + chance(offset, DELAYS.1 - DELAYS.0)
}

/// A lane with a log that never ends and a Kafka that always answers.
struct Driver {
    lane: Lane<Rc<[u8]>, u32>,
    slots: Slots,
    now: i64,
    /// The next offset of the log.
    next: i64,
    payload: Rc<[u8]>,
    /// How much memory each payload is said to take.
    bytes: usize,
    /// When each record of a retry topic is due.
    due: Vec<i64>,
    /// What is running.
    running: Vec<i64>,
    /// What was read and is not handed over yet.
    batch: Vec<Item<Rc<[u8]>>>,
}

impl Driver {
    fn new(config: LaneConfig) -> Self {
        let partition =
            Assigned { committed: None, metadata: "", log_start: 0, log_end: 0, start: 0 };
        Self {
            lane: Lane::assigned(config, &partition, at(EPOCH), [], |_| None).unwrap(),
            slots: Slots::new(256),
            now: EPOCH,
            next: 0,
            payload: Rc::from([7; 64]),
            bytes: 64,
            due: Vec::new(),
            running: Vec::with_capacity(256),
            batch: Vec::with_capacity(1024),
        }
    }

    fn source() -> Self {
        Self::new(LaneConfig::new(LaneKind::Source, CLUSTER))
    }

    fn retry() -> Self {
        Self::new(LaneConfig::new(LaneKind::Retry, CLUSTER))
    }

    /// A retry topic with a million records that wait, none of them due before `DELAYS.0`.
    fn waiting(config: LaneConfig, bytes: usize) -> Self {
        let mut driver = Self { bytes, ..Self::new(config) };
        driver.due.reserve_exact(2 << 20);
        for _ in 0..MILLION {
            driver.fetch_waiting();
        }
        assert_eq!(i64::try_from(driver.lane.held().0), Ok(MILLION));
        driver
    }

    fn item(&self, offset: i64, due: Option<i64>) -> Item<Rc<[u8]>> {
        Item {
            offset,
            due: at(due.unwrap_or(0)),
            is_dated: due.is_some(),
            priority: 0,
            appended_at: at(self.now),
            fate: Fate::Run,
            bytes: self.bytes,
            payload: Rc::clone(&self.payload),
        }
    }

    fn fetch(&mut self, due: Option<i64>) -> i64 {
        let offset = self.next;
        self.next += 1;
        let item = self.item(offset, due);
        self.lane.fetched(item, at(self.now), &mut self.slots);
        self.perform();
        offset
    }

    fn fetch_waiting(&mut self) {
        let due = self.now + delay(self.next);
        self.due.push(due);
        self.fetch(Some(due));
    }

    /// Carries out what the lane asks for.
    fn perform(&mut self) {
        while let Some(action) = self.lane.next_action() {
            match black_box(action) {
                Action::Run { offset, .. } => self.running.push(offset),
                Action::Commit { .. } => self.lane.committed(at(self.now), &mut self.slots),
                Action::Store(block) => {
                    self.lane.stored(block.id, at(self.now), &mut self.slots);
                }
                Action::Fetch { ticket, ranges } => {
                    for offset in ranges.into_iter().flatten() {
                        let due = self.due[usize::try_from(offset).unwrap()];
                        let item = self.item(offset, Some(due));
                        self.lane.refetched(item, at(self.now), &mut self.slots);
                    }
                    self.lane.refetch_done(ticket, at(self.now), &mut self.slots);
                }
                _ => {}
            }
        }
    }

    fn succeed(&mut self, offset: i64) {
        self.lane.succeeded(offset, at(self.now), &mut self.slots);
        self.perform();
    }

    fn succeed_all(&mut self) -> u64 {
        let mut count = 0;
        while let Some(offset) = self.running.pop() {
            self.succeed(offset);
            count += 1;
        }
        count
    }

    /// A million records a second.
    fn let_time_pass(&mut self) {
        self.now = EPOCH + self.next / 1000;
    }

    /// A record comes and runs; the one that came so many records ago succeeds.
    fn success(&mut self, in_flight: i64) {
        self.let_time_pass();
        let ended = self.fetch(None) - in_flight;
        self.running.clear();
        if ended >= 0 {
            self.succeed(ended);
        }
    }

    /// A record comes, with so many others at once; then all run and succeed.
    fn success_in_batches_of(&mut self, size: usize) {
        self.let_time_pass();
        let item = self.item(self.next, None);
        self.next += 1;
        self.batch.push(item);
        if self.batch.len() == size {
            self.lane.fetched_all(self.batch.drain(..), at(self.now), &mut self.slots);
            self.perform();
            self.succeed_all();
        }
    }

    /// A record comes, runs, fails and goes to its next stop.
    fn redirect(&mut self) {
        self.let_time_pass();
        let offset = self.fetch(None);
        self.running.clear();
        self.lane.given_back(offset, Rc::clone(&self.payload));
        assert!(self.lane.failed(offset, true, at(self.now), &mut self.slots));
        self.lane.judged(offset, Next::Publish(1), at(self.now), &mut self.slots);
        self.perform();
        self.lane.published(offset, at(self.now), &mut self.slots);
        self.perform();
    }

    /// A record comes, waits for a millisecond, runs and succeeds.
    fn wait(&mut self) {
        let offset = self.fetch(Some(self.now + 1));
        self.now += 1;
        self.lane.tick(at(self.now), &mut self.slots);
        self.perform();
        assert_eq!(self.running.pop(), Some(offset));
        self.succeed(offset);
    }

    /// Lets time pass until so many of the waiting records have run.
    fn run_due(&mut self, records: u64) -> u64 {
        let mut count = 0;
        while count < records {
            let wakeup = self.lane.next_wakeup(at(self.now), &self.slots).unwrap();
            self.now = wakeup.as_millis();
            self.lane.tick(at(self.now), &mut self.slots);
            self.perform();
            count += self.succeed_all();
        }
        count
    }
}

#[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
fn per(total: u64, records: i64) -> f64 {
    total as f64 / records as f64
}

#[expect(clippy::disallowed_methods, reason = "a benchmark is about time")]
fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn print_allocations(name: &str, mut driver: Driver, step: impl Fn(&mut Driver)) {
    const RECORDS: i64 = 100_000;
    (0..RECORDS).for_each(|_| step(&mut driver));
    let info = measure(|| (0..RECORDS).for_each(|_| step(&mut driver)));
    let (count, bytes) = (per(info.count_total, RECORDS), per(info.bytes_total, RECORDS));
    eprintln!("{name}: {count:.3} allocations and {bytes:.0} bytes allocated per record");
}

fn print_memory(name: &str, bytes: usize) {
    let mut driver = None;
    let info = measure(|| {
        driver = Some(Driver::waiting(LaneConfig::new(LaneKind::Retry, CLUSTER), bytes))
    });
    let driver = driver.unwrap();
    let list = u64::try_from(driver.due.capacity() * size_of::<i64>()).unwrap();
    let now = info.bytes_current.unsigned_abs() - list;
    let (now, most) = (per(now, MILLION), per(info.bytes_max - list, MILLION));
    eprintln!("{name}: {now:.1} bytes per pending record, at most {most:.1} on the way");
}

fn print_commit(name: &str, progress: &mut Progress) {
    let mut commit = None;
    let time = timed(|| commit = Some(progress.commit(CLUSTER, METADATA_CHARS)));
    let commit = commit.unwrap();
    let (chars, blocks) = (commit.metadata.len(), commit.to_store.len());
    let bytes: usize = commit.to_store.iter().map(|it| it.bytes.len()).sum();
    let is_cut = if commit.high < progress.position() { ", cut" } else { "" };
    eprintln!(
        "{name}: {chars} characters and {blocks} blocks of {bytes} bytes{is_cut}, first {time:.1?}"
    );
    accept(progress, &commit);
}

/// Stores the blocks and takes the commit.
fn accept(progress: &mut Progress, commit: &Commit) {
    for block in &commit.to_store {
        progress.stored(block.id);
    }
    progress.committed(&commit.names);
}

fn mark_of(offset: i64) -> Mark {
    Mark { due: at(EPOCH + delay(offset)), offset }
}

/// Progress that saw records up to `end`, with or without due times.
fn seen(end: i64, is_dated: bool) -> Progress {
    let mut progress = Progress::resume(SettledMap::starting_at(0), []);
    for offset in 0..end {
        assert!(progress.saw(offset, is_dated.then_some(mark_of(offset).due)));
    }
    progress
}

/// Of a million records, the half that is due first is settled.
fn half_in_due_order() -> Progress {
    let mut progress = seen(MILLION, true);
    let mut marks: Vec<_> = (0..MILLION).map(mark_of).collect();
    marks.sort_unstable();
    let (early, late) = marks.split_at(marks.len() / 2);
    for (count, mark) in early.iter().enumerate() {
        progress.settle(mark.offset, Some(mark.due));
        // As often as commits are made.
        if count % 1000 == 0 {
            progress.advance(*mark, []);
        }
    }
    progress.advance(late[0], []);
    progress
}

/// A million records without due times are pending, and as many among them are settled.
fn half_at_random() -> Progress {
    let mut progress = seen(2 * MILLION, false);
    for offset in 0..2 * MILLION {
        if is_settled(offset) {
            progress.settle(offset, None);
        }
    }
    progress
}

fn is_settled(offset: i64) -> bool {
    chance(offset, 2) == 0
}

/// The first record is stuck; a million above it are settled.
fn stuck(is_dated: bool) -> Progress {
    let mut progress = seen(MILLION + 1, is_dated);
    for offset in 1..=MILLION {
        progress.settle(offset, is_dated.then_some(mark_of(offset).due));
    }
    progress
}

fn bench_steps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("input to action");
    group.throughput(Throughput::Elements(1));
    let mut bench = |name: &str, driver: fn() -> Driver, step: fn(&mut Driver)| {
        print_allocations(name, driver(), step);
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|records| {
                let mut driver = driver();
                timed(|| (0..records).for_each(|_| step(&mut driver)))
            });
        });
    };
    bench("success", Driver::source, |it| it.success(0));
    bench("success, 100 in flight", Driver::source, |it| it.success(100));
    bench("success, in batches of 100", Driver::source, |it| it.success_in_batches_of(100));
    bench("success, more than slots", Driver::source, |it| it.success_in_batches_of(1000));
    bench("redirect", Driver::source, Driver::redirect);
    bench("wait", Driver::retry, Driver::wait);
    group.finish();
}

fn bench_waiting(criterion: &mut Criterion) {
    print_memory("1 M waiting, payloads of 64 KiB", 64 << 10);
    print_memory("1 M waiting, payloads of 1 KiB", 1 << 10);
    print_memory("1 M waiting, payloads of 64 bytes", 64);
    let mut group = criterion.benchmark_group("next due of 1 M");
    group.throughput(Throughput::Elements(1));
    for (name, bytes, byte_budget) in
        [("in memory", 64, 1 << 30), ("read again", 64 << 10, 64 << 20)]
    {
        let config = LaneConfig { byte_budget, ..LaneConfig::new(LaneKind::Retry, CLUSTER) };
        let mut driver = Driver::waiting(config, bytes);
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|records| {
                let (mut left, mut time) = (records, Duration::ZERO);
                while left > 0 {
                    let mut ran = 0;
                    time += timed(|| ran = driver.run_due(left.min(BATCH)));
                    left = left.saturating_sub(ran);
                    (0..ran).for_each(|_| driver.fetch_waiting());
                }
                assert!(!driver.lane.is_folded());
                time
            });
        });
    }
    group.finish();
}

/// Records without due times come, and settle with as many others in flight.
struct Flow {
    progress: Progress,
    in_flight: Vec<i64>,
    next: usize,
    is_shuffled: bool,
}

impl Flow {
    fn new(in_flight: usize, is_shuffled: bool) -> Self {
        let progress = Progress::resume(SettledMap::starting_at(0), []);
        let mut flow = Self { progress, in_flight: Vec::new(), next: 0, is_shuffled };
        flow.in_flight = (0..in_flight).map(|_| flow.see()).collect();
        flow
    }

    fn see(&mut self) -> i64 {
        let offset = self.progress.position();
        assert!(self.progress.saw(black_box(offset), None));
        offset
    }

    /// A record settles, and another one comes.
    fn step(&mut self) {
        let slot = if self.is_shuffled {
            let slots = i64::try_from(self.in_flight.len()).unwrap();
            usize::try_from(chance(self.progress.position(), slots)).unwrap()
        } else {
            self.next
        };
        self.next = if self.next + 1 < self.in_flight.len() { self.next + 1 } else { 0 };
        assert!(self.progress.settle(black_box(self.in_flight[slot]), None));
        self.in_flight[slot] = self.see();
    }
}

fn bench_progress(criterion: &mut Criterion) {
    const RECORDS: i64 = 100_000;
    let mut group = criterion.benchmark_group("progress");
    group.throughput(Throughput::Elements(1));
    for (name, in_flight, is_shuffled) in [
        ("in order, 1 in flight", 1, false),
        ("in order, 100 in flight", 100, false),
        ("shuffled, 100 in flight", 100, true),
    ] {
        let mut flow = Flow::new(in_flight, is_shuffled);
        (0..RECORDS).for_each(|_| flow.step());
        let info = measure(|| (0..RECORDS).for_each(|_| flow.step()));
        eprintln!("{name}: {:.3} allocations per record", per(info.count_total, RECORDS));
        group.bench_function(name, |bencher| bencher.iter(|| flow.step()));
    }
    group.finish();
}

/// Times commits; before each, something changes.
fn bench_commit(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    mut progress: Progress,
    mut change: impl FnMut(&mut Progress),
) {
    print_commit(name, &mut progress);
    let mut commit = |stored: &mut usize| {
        change(&mut progress);
        let mut commit = None;
        let time = timed(|| commit = Some(progress.commit(CLUSTER, METADATA_CHARS)));
        let commit = black_box(commit).unwrap();
        *stored += commit.to_store.iter().map(|it| it.bytes.len()).sum::<usize>();
        accept(&mut progress, &commit);
        time
    };
    let mut stored = 0;
    let longest = (0..100).map(|_| commit(&mut stored)).max().unwrap();
    eprintln!("{name}: {} bytes stored each time, at most {longest:.1?}", stored / 100);
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|commits| (0..commits).map(|_| commit(&mut stored)).sum());
    });
}

/// One more record comes and settles.
fn one_more(progress: &mut Progress) {
    let offset = progress.position();
    progress.saw(offset, None);
    progress.settle(offset, None);
}

fn bench_commits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("commit");
    bench_commit(&mut group, "1 stuck, 1 M settled above", stuck(false), one_more);
    let mut running = stuck(true);
    let end = Mark { due: at(EPOCH + DELAYS.1), offset: 0 };
    let time = timed(|| running.advance(end, [mark_of(0)]));
    eprintln!("mark moved past 1 M that settled before it: {time:.1?}");
    bench_commit(&mut group, "1 stuck and running, 1 M settled above", running, one_more);
    bench_commit(&mut group, "1 stuck and ready, 1 M settled above", stuck(true), one_more);
    bench_commit(&mut group, "half of 1 M settled in due order", half_in_due_order(), one_more);

    let mut hole = 0;
    let mut settle = |progress: &mut Progress, step: i64| {
        hole = (hole + step) % (2 * MILLION);
        while !progress.settle(hole, None) {
            hole = (hole + 1) % (2 * MILLION);
        }
    };
    let random = half_at_random();
    bench_commit(&mut group, "1 M pending at random, 1 settled", random, |progress| {
        settle(progress, 1);
    });
    bench_commit(
        &mut group,
        "1 M pending at random, 100 settled all over",
        half_at_random(),
        |it| {
            (0..100).for_each(|_| settle(it, 20_011));
        },
    );

    // By the lane itself: a record comes, a second passes.
    let config = LaneConfig { index_limit: 4 << 20, ..LaneConfig::new(LaneKind::Retry, CLUSTER) };
    let mut driver = Driver::waiting(config, 1 << 10);
    group.bench_function("lane with 1 M waiting", |bencher| {
        bencher.iter_custom(|commits| {
            let mut time = Duration::ZERO;
            for _ in 0..commits {
                driver.fetch(Some(EPOCH * 2));
                driver.now += 1000;
                // What is due runs, but does not end: the slots are soon taken.
                time += timed(|| driver.lane.tick(at(driver.now), &mut driver.slots));
                driver.perform();
            }
            time
        });
    });
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    bench_steps(&mut criterion);
    bench_waiting(&mut criterion);
    bench_progress(&mut criterion);
    bench_commits(&mut criterion);
    criterion.final_summary();
}
