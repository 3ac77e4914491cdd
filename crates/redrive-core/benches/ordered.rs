//! What order per entity costs a record on its way through a lane. Compare with `success` of the benchmark `lane`.

#![expect(clippy::unwrap_used, reason = "a lane that cannot be made fails the benchmark")]

use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use redrive_core::Timestamp;
use redrive_core::lane::{
    Action, Assigned, EntityId, Fate, Identity, Item, LaneConfig, LaneKind, OnDeadLetter,
    OrderedAction, OrderedConfig, OrderedLane, Rank, Ranked, Routed, Slots,
};

/// Where the clock stands when all begins.
const EPOCH: i64 = 1_700_000_000_000;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// Nothing fails here.
#[derive(Clone, Copy, Debug)]
struct Nowhere;

impl Routed for Nowhere {
    fn tier(&self) -> Option<usize> {
        None
    }
}

/// An ordered lane with a source that never ends, one tier, and a Kafka that always answers.
struct Driver {
    lane: OrderedLane<Rc<[u8]>, Nowhere>,
    slots: Slots,
    now: i64,
    /// The next offset of the source.
    next: i64,
    /// How many entities there are.
    entities: i64,
    payload: Rc<[u8]>,
    /// What is running.
    running: Vec<i64>,
    batch: Vec<Item<Ranked<Rc<[u8]>>>>,
}

impl Driver {
    fn new(entities: i64) -> Self {
        let config = OrderedConfig {
            lane: LaneConfig::new(LaneKind::Source, "cluster-1"),
            on_dead_letter: OnDeadLetter::Hold,
            is_exactly_once: false,
        };
        let part = Assigned { committed: None, metadata: "", log_start: 0, log_end: 0, start: 0 };
        let lane = OrderedLane::assigned(
            config,
            &[part, part],
            0,
            [],
            at(EPOCH),
            |_| Vec::new(),
            |_, _| None,
        );
        let mut driver = Self {
            lane: lane.unwrap(),
            slots: Slots::new(256),
            now: EPOCH,
            next: 0,
            entities,
            payload: Rc::from([7; 64]),
            running: Vec::with_capacity(1024),
            batch: Vec::with_capacity(1024),
        };
        driver.lane.tick(at(EPOCH), &mut driver.slots);
        driver.perform();
        assert!(driver.lane.is_open());
        driver
    }

    fn item(&mut self) -> Item<Ranked<Rc<[u8]>>> {
        let offset = self.next;
        self.next += 1;
        let rank = Rank {
            entity: EntityId::of(&(offset % self.entities).to_be_bytes()),
            identity: Identity { origin: offset, redriven: 0 },
            hop: 0,
            epoch: None,
        };
        Item {
            offset,
            due: at(0),
            is_dated: false,
            priority: 0,
            appended_at: at(self.now),
            fate: Fate::Run,
            bytes: 64,
            payload: Ranked { rank: Some(rank), payload: Rc::clone(&self.payload) },
        }
    }

    /// Carries out what the lane asks for.
    fn perform(&mut self) {
        while let Some(action) = self.lane.next_action() {
            match black_box(action) {
                OrderedAction::Part { action: Action::Run { offset, .. }, .. } => {
                    self.running.push(offset);
                }
                OrderedAction::Commit { .. } => {
                    self.lane.committed(at(self.now), &mut self.slots);
                }
                _ => {}
            }
        }
    }

    /// A record comes, with so many others at once; then all run and succeed.
    fn success_in_batches_of(&mut self, size: usize) {
        self.now = EPOCH + self.next / 1000;
        let item = self.item();
        self.batch.push(item);
        if self.batch.len() == size {
            self.lane.fetched_all(0, self.batch.drain(..), at(self.now), &mut self.slots);
            self.perform();
            while let Some(offset) = self.running.pop() {
                self.lane.succeeded_all(0, Some(offset..offset + 1), at(self.now), &mut self.slots);
                self.perform();
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark is about time")]
fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let mut group = criterion.benchmark_group("ordered");
    group.throughput(Throughput::Elements(1));
    let mut bench = |name: &str, entities: i64, size: usize| {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|records| {
                let mut driver = Driver::new(entities);
                timed(|| (0..records).for_each(|_| driver.success_in_batches_of(size)))
            });
        });
    };
    bench("success", 1_000_000_007, 1);
    bench("success, in batches of 100", 1_000_000_007, 100);
    bench("success, 10 entities in batches of 100", 10, 100);
    bench("success, one entity in batches of 100", 1, 100);
    group.finish();
    criterion.final_summary();
}
