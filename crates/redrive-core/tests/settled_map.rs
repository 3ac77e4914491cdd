//! What is settled survives a restart, whatever the order in which it settled.

#![expect(clippy::unwrap_used, reason = "a map that cannot be read fails the test")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use redrive_core::Timestamp;
use redrive_core::offsets::{Block, BlockId, Commit, MapError, Mark, Progress, SettledMap};

const CLUSTER: &str = "cluster-1";
const MAX_CHARS: usize = 4096;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// A partition and what a member knows of it, kept in the simplest way.
#[derive(Default)]
struct Model {
    /// The due time of each record, none where its header has none. Offsets that are not here are gaps.
    records: BTreeMap<i64, Option<i64>>,
    settled: BTreeMap<i64, bool>,
    blocks: BTreeMap<BlockId, Vec<u8>>,
    end: i64,
}

impl Model {
    fn pending(&self) -> Vec<i64> {
        self.settled.iter().filter(|it| !it.1).map(|it| *it.0).collect()
    }

    fn due(&self, offset: i64) -> Option<Timestamp> {
        self.records[&offset].map(at)
    }

    fn mark(&self, offset: i64) -> Option<Mark> {
        self.due(offset).map(|due| Mark { due, offset })
    }

    fn store(&mut self, progress: &mut Progress, commit: &Commit) {
        for Block { id, bytes } in &commit.to_store {
            self.blocks.insert(*id, bytes.clone());
            progress.stored(*id);
        }
        for id in progress.committed(&commit.names) {
            self.blocks.remove(&id);
        }
    }

    fn read(&self, commit: &Commit) -> Result<SettledMap, MapError> {
        let block = |id| self.blocks.get(&id).cloned();
        SettledMap::read(&commit.metadata, CLUSTER, commit.offset, self.end, block)
    }

    /// The map says of every record whether it is settled, and speaks of none that it was not told of.
    fn check(&self, map: &SettledMap, high: i64) {
        for (offset, settled) in &self.settled {
            let expected = *settled && (*offset < high || *offset < map.commit_point);
            assert_eq!(
                map.is_settled(*offset, self.due(*offset)),
                expected,
                "offset {offset} of {map:?}"
            );
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A record comes, so many offsets behind the last, with this due time.
    Read {
        gap: i64,
        due: Option<i64>,
    },
    /// One of the pending records settles.
    Settle {
        which: prop::sample::Index,
    },
    /// The mark moves to just before the first that waits; some others are running.
    Advance {
        running: Vec<prop::sample::Index>,
        at_most: i64,
    },
    Commit,
    /// Some of the pending records settle for now, the mark moves on, and the commit is not accepted.
    Abort {
        sent: Vec<prop::sample::Index>,
        at_most: i64,
    },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (prop_oneof![8 => Just(0), 1 => 1..4i64], prop::option::weighted(0.8, 0..50i64))
            .prop_map(|(gap, due)| Step::Read { gap, due }),
        6 => any::<prop::sample::Index>().prop_map(|which| Step::Settle { which }),
        3 => (prop::collection::vec(any::<prop::sample::Index>(), 0..4), 0..60i64)
            .prop_map(|(running, at_most)| Step::Advance { running, at_most }),
        2 => Just(Step::Commit),
        2 => (prop::collection::vec(any::<prop::sample::Index>(), 0..4), 0..60i64)
            .prop_map(|(sent, at_most)| Step::Abort { sent, at_most }),
        1 => Just(Step::Restart),
    ]
}

/// Plays the steps with maps of at most `max_chars` characters.
fn play(steps: Vec<Step>, max_chars: usize) {
    let mut model = Model::default();
    let mut progress = Progress::resume(SettledMap::starting_at(0), []);
    for step in steps {
        match step {
            Step::Read { gap, due } => {
                let offset = model.end + gap;
                model.records.insert(offset, due);
                model.settled.insert(offset, false);
                model.end = offset + 1;
                assert!(progress.saw(offset, due.map(at)));
                assert!(!progress.saw(offset, due.map(at)), "a record that comes twice runs once");
            }
            Step::Settle { which } => {
                let pending = model.pending();
                if !pending.is_empty() {
                    let offset = *which.get(&pending);
                    model.settled.insert(offset, true);
                    assert!(progress.settle(offset, model.due(offset)));
                    assert!(!progress.settle(offset, model.due(offset)));
                }
            }
            Step::Advance { running, at_most } => {
                let pending = model.pending();
                let running: Vec<_> = if pending.is_empty() {
                    vec![]
                } else {
                    running.iter().map(|it| *it.get(&pending)).collect()
                };
                let waiting = pending
                    .iter()
                    .filter(|it| !running.contains(it))
                    .filter_map(|it| model.mark(*it));
                let limit = Mark { due: at(at_most), offset: 0 };
                let to = waiting.min().map_or(limit, |it| it.min(limit));
                progress.advance(to, running.iter().filter_map(|it| model.mark(*it)));
            }
            Step::Commit => {
                let commit = progress.commit(CLUSTER, max_chars);
                assert!(commit.metadata.len() <= max_chars, "{} characters", commit.metadata.len());
                assert_eq!(commit.offset, model.pending().first().copied().unwrap_or(model.end));
                model.store(&mut progress, &commit);
                model.check(&model.read(&commit).unwrap(), commit.high);
            }
            Step::Abort { sent, at_most } => {
                let pending = model.pending();
                let sent: BTreeSet<_> = sent
                    .iter()
                    .filter(|_| !pending.is_empty())
                    .map(|it| *it.get(&pending))
                    .collect();
                for offset in &sent {
                    progress.settle_for_now(*offset, model.due(*offset));
                }
                let waiting = pending.iter().filter(|it| !sent.contains(it));
                let limit = Mark { due: at(at_most), offset: 0 };
                let to = waiting.filter_map(|it| model.mark(*it)).fold(limit, Mark::min);
                progress.advance(to, sent.iter().filter_map(|it| model.mark(*it)));
                let commit = progress.commit(CLUSTER, max_chars);
                for Block { id, bytes } in &commit.to_store {
                    model.blocks.insert(*id, bytes.clone());
                    progress.stored(*id);
                }
                sent.iter().for_each(|it| _ = model.settled.insert(*it, true));
                model.check(&model.read(&commit).unwrap(), commit.high);
                sent.iter().for_each(|it| _ = model.settled.insert(*it, false));
                progress.take_back();
            }
            Step::Restart => {
                let commit = progress.commit(CLUSTER, max_chars);
                model.store(&mut progress, &commit);
                let map = model.read(&commit).unwrap();
                let high = commit.high;
                for (offset, settled) in &mut model.settled {
                    *settled &= *offset < high || *offset < commit.offset;
                }
                progress = Progress::resume(map, model.blocks.keys().copied());
                for (offset, settled) in model.settled.range(commit.offset..) {
                    assert_eq!(
                        progress.saw(*offset, model.due(*offset)),
                        !settled,
                        "offset {offset}"
                    );
                }
                progress.pass(model.end);
            }
        }
        assert_eq!(progress.commit_point(), model.pending().first().copied().unwrap_or(model.end));
    }
}

proptest! {
    #[test]
    fn what_is_settled_survives_restarts(steps in prop::collection::vec(step(), 0..120)) {
        play(steps, MAX_CHARS);
    }

    /// With little room most of it goes to blocks, and with very little some of it is not said at all.
    #[test]
    fn what_does_not_fit_goes_to_blocks_and_is_never_wrong(
        steps in prop::collection::vec(step(), 0..120),
        max_chars in 30..60usize,
    ) {
        play(steps, max_chars);
    }

    #[test]
    fn hostile_metadata_never_panics(text in any::<String>(), ascii in "[\\x00-\\x7f]{0,80}") {
        for text in [text, ascii] {
            let _ = SettledMap::read(&text, CLUSTER, 0, 100, |_| None);
        }
    }

    /// One character changed is seen, wherever it is.
    #[test]
    fn a_changed_map_is_refused(at in any::<prop::sample::Index>(), with in 0..128u8) {
        let commit = example();
        let mut bytes = commit.metadata.clone().into_bytes();
        let index = at.index(bytes.len());
        prop_assume!(bytes[index] != with);
        bytes[index] = with;
        let text = String::from_utf8(bytes).unwrap();
        prop_assert!(SettledMap::read(&text, CLUSTER, commit.offset, 1000, |_| None).is_err());
    }
}

/// A commit with something in every part of its map.
fn example() -> Commit {
    let mut progress = Progress::resume(SettledMap::starting_at(0), []);
    for offset in 0..100 {
        progress.saw(offset, (offset % 3 > 0).then(|| at(offset * 7 % 50)));
    }
    for offset in (1..100).step_by(2) {
        progress.settle(offset, (offset % 3 > 0).then(|| at(offset * 7 % 50)));
    }
    progress.commit(CLUSTER, MAX_CHARS)
}

mod refusals {
    use super::*;

    fn read(commit: &Commit, cluster: &str, offset: i64, end: i64) -> Result<SettledMap, MapError> {
        SettledMap::read(&commit.metadata, cluster, offset, end, |_| None)
    }

    #[test]
    fn a_map_of_another_cluster_or_commit_point_or_log_is_refused() {
        let commit = example();
        assert!(read(&commit, CLUSTER, commit.offset, 100).is_ok());
        assert_eq!(read(&commit, "cluster-2", commit.offset, 100), Err(MapError::AnotherCluster));
        assert_eq!(
            read(&commit, CLUSTER, 5, 100),
            Err(MapError::AnotherCommitPoint(commit.offset))
        );
        assert_eq!(read(&commit, CLUSTER, commit.offset, 99), Err(MapError::BeyondLogEnd(100)));
    }

    #[test]
    fn no_metadata_is_no_map() {
        assert_eq!(SettledMap::read("", CLUSTER, 0, 0, |_| None), Err(MapError::Empty));
        for foreign in ["consumer-host-1", "{\"a\":1}", "ümlaut", "\0\0\0\0\0\0"] {
            assert_eq!(
                SettledMap::read(foreign, CLUSTER, 0, 9, |_| None),
                Err(MapError::Unreadable)
            );
        }
    }

    #[test]
    fn a_block_that_is_missing_or_was_changed_refuses_the_map() {
        let mut progress = Progress::resume(SettledMap::starting_at(0), []);
        for offset in 0..4000 {
            progress.saw(offset, None);
        }
        for offset in (1..4000).filter(|it| it * it % 7 < 3) {
            progress.settle(offset, None);
        }
        let commit = progress.commit(CLUSTER, 100);
        let [block] = commit.to_store.as_slice() else { panic!("one block is expected") };
        let refused = Err(MapError::MissingBlock(block.id));
        assert_eq!(read(&commit, CLUSTER, 0, 4000), refused);
        let changed = |_| Some([&block.bytes[..], b"x"].concat());
        assert_eq!(SettledMap::read(&commit.metadata, CLUSTER, 0, 4000, changed), refused);
        let there = |id| (id == block.id).then(|| block.bytes.clone());
        assert!(SettledMap::read(&commit.metadata, CLUSTER, 0, 4000, there).is_ok());
    }
}

mod blocks {
    use super::*;

    fn fragmented(records: i64) -> Progress {
        let mut progress = Progress::resume(SettledMap::starting_at(0), []);
        for offset in 0..records {
            progress.saw(offset, None);
        }
        for offset in (1..records).filter(|it| it * it % 7 < 3) {
            progress.settle(offset, None);
        }
        progress
    }

    /// Settles so many records from `offset` on that are pending.
    fn settle(progress: &mut Progress, offset: i64, mut count: usize) {
        for offset in offset.. {
            if count == 0 {
                break;
            }
            count -= usize::from(progress.settle(offset, None));
        }
    }

    #[test]
    fn a_block_that_is_stored_is_not_stored_again_and_a_failed_commit_deletes_nothing() {
        let mut progress = fragmented(200_000);
        let first = progress.commit(CLUSTER, MAX_CHARS);
        assert_eq!((first.names.len(), first.to_store.len()), (4, 4));
        // Nothing was stored yet: they are asked for again.
        assert_eq!(progress.commit(CLUSTER, MAX_CHARS).to_store, first.to_store);
        for block in &first.to_store {
            progress.stored(block.id);
        }
        assert!(progress.commit(CLUSTER, MAX_CHARS).to_store.is_empty());
        assert!(progress.committed(&first.names).is_empty());

        // One stretch changes much. Its new block is stored, but the commit fails: the old one is still named.
        settle(&mut progress, 66_000, 9000);
        let failed = progress.commit(CLUSTER, MAX_CHARS);
        assert_eq!(failed.to_store.len(), 1);
        progress.stored(failed.to_store[0].id);
        settle(&mut progress, 66_000, 8800);
        let second = progress.commit(CLUSTER, MAX_CHARS);
        progress.stored(second.to_store[0].id);
        let mut obsolete = progress.committed(&second.names);
        obsolete.sort();
        let mut expected = vec![first.names[1], failed.to_store[0].id];
        expected.sort();
        assert_eq!(obsolete, expected);
    }

    #[test]
    fn a_few_changes_are_listed_and_store_nothing() {
        let mut model = Model { end: 2_000_000, ..Model::default() };
        let mut progress = fragmented(model.end);
        let commit = progress.commit(CLUSTER, MAX_CHARS);
        assert!(commit.to_store.len() > 25);
        model.store(&mut progress, &commit);
        let (mut stored, mut commits) = (0, 0);
        for start in 0..40 {
            (0..100).for_each(|it| settle(&mut progress, 70_000 + start * 40 + it * 19_000, 1));
            let commit = progress.commit(CLUSTER, MAX_CHARS);
            assert!(commit.metadata.len() <= MAX_CHARS && commit.high == model.end);
            stored += commit.to_store.iter().map(|it| it.bytes.len()).sum::<usize>();
            commits += usize::from(!commit.to_store.is_empty());
            model.store(&mut progress, &commit);
            let map = model.read(&commit).unwrap();
            for offset in (0..model.end).step_by(7).chain(70_000..80_000) {
                assert_eq!(map.is_settled(offset, None), progress.is_settled(offset, None));
            }
        }
        assert!(commits <= 15, "{commits} of 40 commits stored blocks");
        assert!(stored < 40 * 60_000, "{stored} bytes in 40 commits");
    }

    /// One stretch that does not fit needs a block, the others do not.
    #[test]
    fn only_what_is_fragmented_goes_to_a_block() {
        let mut progress = Progress::resume(SettledMap::starting_at(0), []);
        for offset in 0..1_000_000 {
            progress.saw(offset, None);
            if (500_000..550_000).contains(&offset) && offset * offset % 7 < 3 {
                progress.settle(offset, None);
            }
        }
        let commit = progress.commit(CLUSTER, MAX_CHARS);
        assert_eq!(commit.names.iter().map(|it| it.stretch).collect::<Vec<_>>(), [7, 8]);
        settle(&mut progress, 500_000, 50_000);
        let commit = progress.commit(CLUSTER, MAX_CHARS);
        assert!(commit.names.is_empty() && commit.metadata.len() < 48);
    }

    /// More than all the names that fit could speak of: the map says what it can, and how far.
    #[test]
    fn a_map_that_cannot_say_all_is_cut() {
        let mut model = Model::default();
        let mut progress = fragmented(1_000_000);
        model.end = 1_000_000;
        let commit = progress.commit(CLUSTER, 100);
        assert!(commit.metadata.len() <= 100);
        assert!((65_536..model.end).contains(&commit.high), "{}", commit.high);
        model.store(&mut progress, &commit);
        let map = model.read(&commit).unwrap();
        for offset in 0..model.end {
            let expected = offset < commit.high && progress.is_settled(offset, None);
            assert_eq!(map.is_settled(offset, None), expected);
        }
    }

    #[test]
    fn a_late_block_of_a_deposed_owner_is_deleted_and_never_read() {
        let late = BlockId { stretch: 0, hash: 42 };
        let mut progress = Progress::resume(SettledMap::starting_at(0), [late]);
        let commit = progress.commit(CLUSTER, MAX_CHARS);
        assert!(commit.names.is_empty());
        assert_eq!(progress.committed(&commit.names), [late]);
    }
}

mod restarts {
    use super::*;

    /// Seed 135 of the simulation: the mark moved on over records that were not read again yet, and they were lost.
    #[test]
    fn the_mark_waits_until_everything_was_read_again() {
        let mut progress = Progress::resume(SettledMap::starting_at(0), []);
        for offset in 0..3 {
            progress.saw(offset, Some(at(10 * offset)));
        }
        let commit = progress.commit(CLUSTER, MAX_CHARS);
        let read = |commit: &Commit| {
            SettledMap::read(&commit.metadata, CLUSTER, commit.offset, 3, |_| None).unwrap()
        };
        let mut progress = Progress::resume(read(&commit), []);
        progress.saw(0, Some(at(0)));
        progress.settle(0, Some(at(0)));
        progress.advance(Mark { due: at(100), offset: 0 }, []);
        let map = read(&progress.commit(CLUSTER, MAX_CHARS));
        assert!(map.is_settled(0, Some(at(0))));
        assert!(!map.is_settled(1, Some(at(10))) && !map.is_settled(2, Some(at(20))));
    }
}

mod sizes {
    use super::*;

    /// One stuck record and a million settled above it: a few bytes.
    #[test]
    fn a_stuck_record_costs_a_few_characters() {
        let mut progress = Progress::resume(SettledMap::starting_at(0), []);
        for offset in 0..1_000_000 {
            progress.saw(offset, None);
            if offset > 0 {
                progress.settle(offset, None);
            }
        }
        let commit = progress.commit(CLUSTER, MAX_CHARS);
        assert_eq!(commit.offset, 0);
        assert!(commit.metadata.len() < 32, "{} characters", commit.metadata.len());
    }

    /// A million waiting records with mixed delays, the earlier half of them settled in due order.
    #[test]
    fn mixed_delays_that_settle_in_due_order_cost_a_few_characters() {
        let records: i64 = 1_000_000;
        let due = |offset: i64| at(offset.wrapping_mul(7_919) % records);
        let mut progress = Progress::resume(SettledMap::starting_at(0), []);
        for offset in 0..records {
            progress.saw(offset, Some(due(offset)));
        }
        for offset in (0..records).filter(|it| due(*it) < at(records / 2)) {
            progress.settle(offset, Some(due(offset)));
        }
        progress.advance(Mark { due: at(records / 2), offset: 0 }, []);
        let commit = progress.commit(CLUSTER, MAX_CHARS);
        assert!(commit.names.is_empty());
        assert!(commit.metadata.len() < 48, "{} characters", commit.metadata.len());
    }
}
