//! Whether the events of each entity ran in their order, by what the handlers of all members say.
//!
//! What a member runs after its partition went to another one, and before it notices, is nobody's fault: it is told apart by what the
//! members say of their partitions, and does not count. Everything else must be in order, across members, kills and restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::Result;

/// A record of the source topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Produced {
    /// Who it is.
    pub id: u64,
    /// Whose event it is.
    pub entity: u64,
    /// Where it is.
    pub partition: i32,
    /// Where it is.
    pub offset: i64,
}

/// A dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Whose.
    pub id: u64,
    /// Whether it only follows another one.
    pub is_follower: bool,
}

/// A run of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    id: u64,
    start: i64,
    /// None for one that never ended.
    end: Option<i64>,
    is_done: bool,
    /// Which of its member's turns with the partition it belongs to.
    turn: usize,
    /// Whether the partition was another one's when it began, or when it ended.
    is_deposed: bool,
}

/// What a member says, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Start { id: u64, attempt: u64 },
    End { id: u64, attempt: u64, is_done: bool },
    Own(i32, u64),
    Give(i32),
}

/// A member's turn with a partition.
#[derive(Clone, Copy, Debug)]
struct Turn {
    partition: i32,
    /// Who comes later has a higher one.
    epoch: u64,
    from: i64,
    until: i64,
}

/// Everything that is out of order, in words. Entities whose head is a dead letter are held.
///
/// # Errors
///
/// The ledgers cannot be read.
pub fn faults(
    directory: &Path,
    topic: &str,
    produced: &[Produced],
    letters: &[Letter],
) -> Result<Vec<String>> {
    let members = read(directory, topic)?;
    let mut faults = check(&members, produced);
    faults.extend(letter_faults(produced, letters));
    Ok(faults)
}

/// Behind a dead letter there are dead letters alone, and before it none.
fn letter_faults(produced: &[Produced], letters: &[Letter]) -> Vec<String> {
    let of = |is_follower: bool| -> BTreeSet<u64> {
        letters.iter().filter(|it| it.is_follower == is_follower).map(|it| it.id).collect()
    };
    let (heads, followers) = (of(false), of(true));
    let mut faults = Vec::new();
    for (entity, events) in by_entity(produced) {
        let mut head = None;
        for Produced { id, .. } in events {
            let is_letter = (heads.contains(&id), followers.contains(&id));
            match (head, is_letter) {
                (None, (true, _)) => head = Some(id),
                (None, (false, true)) => {
                    faults.push(format!("entity {entity}: {id} follows nobody"));
                }
                (Some(head), (false, false)) => {
                    faults.push(format!("entity {entity}: {id} does not follow {head}"));
                }
                _ => {}
            }
        }
    }
    faults
}

/// The events of each entity, in their order.
fn by_entity(produced: &[Produced]) -> BTreeMap<u64, Vec<Produced>> {
    let mut entities: BTreeMap<u64, Vec<Produced>> = BTreeMap::new();
    for it in produced {
        entities.entry(it.entity).or_default().push(*it);
    }
    entities.values_mut().for_each(|it| it.sort_by_key(|it| it.offset));
    entities
}

fn read(directory: &Path, topic: &str) -> Result<Vec<Vec<(Line, i64)>>> {
    let mut members = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_none_or(|it| it != "ledger") {
            continue;
        }
        let mut lines = Vec::new();
        for line in BufReader::new(File::open(&path)?).lines() {
            lines.extend(parse(&line?, topic));
        }
        members.push(lines);
    }
    Ok(members)
}

fn parse(line: &str, topic: &str) -> Option<(Line, i64)> {
    let words: Vec<_> = line.split(' ').collect();
    let number = |index: usize| words.get(index)?.parse::<u64>().ok();
    let partition = || {
        let (of, partition) = words.get(1)?.rsplit_once('/')?;
        partition.parse().ok().filter(|_| of == topic)
    };
    let line = match *words.first()? {
        "start" => Line::Start { id: number(1)?, attempt: number(2)? },
        word @ ("done" | "fail") => {
            Line::End { id: number(1)?, attempt: number(2)?, is_done: word == "done" }
        }
        "own" => Line::Own(partition()?, number(2)?),
        "give" => Line::Give(partition()?),
        _ => return None,
    };
    Some((line, words.last()?.parse().ok()?))
}

fn check(members: &[Vec<(Line, i64)>], produced: &[Produced]) -> Vec<String> {
    let turns = turns(members);
    let of: BTreeMap<u64, Produced> = produced.iter().map(|it| (it.id, *it)).collect();
    let mut runs: BTreeMap<u64, Vec<Run>> = BTreeMap::new();
    let mut faults = Vec::new();
    for (member, lines) in members.iter().enumerate() {
        for run in member_runs(member, lines, &turns, &of, &mut faults) {
            if let Some(it) = of.get(&run.id) {
                runs.entry(it.entity).or_default().push(run);
            }
        }
    }
    for (entity, events) in by_entity(produced) {
        let runs = runs.remove(&entity).unwrap_or_default();
        faults.extend(entity_faults(&events, &runs).map(|it| format!("entity {entity}: {it}")));
    }
    faults
}

/// The turns of all members, each with who had it. One that was never given back lasts for ever.
fn turns(members: &[Vec<(Line, i64)>]) -> Vec<(usize, Turn)> {
    let mut turns: Vec<(usize, Turn)> = Vec::new();
    for (member, lines) in members.iter().enumerate() {
        let mut open: BTreeMap<i32, usize> = BTreeMap::new();
        for (line, at) in lines {
            match line {
                Line::Own(partition, epoch) => {
                    open.insert(*partition, turns.len());
                    let (partition, epoch) = (*partition, *epoch);
                    let turn = Turn { partition, epoch, from: *at, until: i64::MAX };
                    turns.push((member, turn));
                }
                Line::Give(partition) => {
                    if let Some(index) = open.remove(partition) {
                        turns[index].1.until = *at;
                    }
                }
                Line::Start { .. } | Line::End { .. } => {}
            }
        }
    }
    turns
}

fn member_runs(
    member: usize,
    lines: &[(Line, i64)],
    turns: &[(usize, Turn)],
    of: &BTreeMap<u64, Produced>,
    faults: &mut Vec<String>,
) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut open: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    let mut owned: BTreeMap<i32, usize> = BTreeMap::new();
    let mut own = turns.iter().enumerate().filter(|it| it.1.0 == member).map(|it| it.0);
    for (line, at) in lines {
        match *line {
            Line::Own(partition, _) => _ = own.next().and_then(|it| owned.insert(partition, it)),
            Line::Give(_) => {}
            Line::Start { id, attempt } => {
                let turn = of.get(&id).and_then(|it| owned.get(&it.partition));
                let Some(turn) = turn.copied() else {
                    faults.push(format!("{id} ran at {at} where nobody was assigned it"));
                    continue;
                };
                open.insert((id, attempt), runs.len());
                let run =
                    Run { id, start: *at, end: None, is_done: false, turn, is_deposed: false };
                runs.push(run);
            }
            Line::End { id, attempt, is_done } => {
                if let Some(index) = open.remove(&(id, attempt)) {
                    (runs[index].end, runs[index].is_done) = (Some(*at), is_done);
                }
            }
        }
    }
    for run in &mut runs {
        let turn = turns[run.turn].1;
        // Transactions need no epochs.
        let is_later = |it: &Turn| (it.epoch, it.from) > (turn.epoch, turn.from);
        let next = turns.iter().map(|it| it.1);
        let next = next.filter(|it| it.partition == turn.partition && is_later(it));
        let deposed = next.map(|it| it.from).min().unwrap_or(i64::MAX).min(turn.until);
        run.is_deposed = run.start >= deposed || run.end.unwrap_or(run.start) > deposed;
    }
    runs
}

/// What is wrong with the runs of an entity, whose events are given in their order.
fn entity_faults(events: &[Produced], runs: &[Run]) -> impl Iterator<Item = String> {
    let place: BTreeMap<u64, usize> =
        events.iter().enumerate().map(|(place, it)| (it.id, place)).collect();
    let mut runs: Vec<_> = runs.iter().filter(|it| !it.is_deposed).copied().collect();
    // A run that ended in the millisecond in which the next one began comes before it.
    runs.sort_by_key(|it| (it.start, it.end.unwrap_or(it.start), place.get(&it.id).copied()));
    let mut faults = Vec::new();
    // When each event was done first.
    let mut done: BTreeMap<usize, i64> = BTreeMap::new();
    for run in runs.iter().filter(|it| it.is_done) {
        let at = run.end.unwrap_or(run.start);
        let Some(place) = place.get(&run.id) else {
            continue;
        };
        done.entry(*place).and_modify(|it| *it = at.min(*it)).or_insert(at);
    }
    let mut over: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    for (index, run) in runs.iter().enumerate() {
        let Some(place) = place.get(&run.id).copied() else {
            continue;
        };
        let first_open = (0..place).find(|it| done.get(it).is_none_or(|at| *at > run.start));
        if let Some(open) = first_open {
            let before = events[open].id;
            faults.push(format!("{} ran at {} before {before} was done", run.id, run.start));
        }
        if let Some(other) =
            runs[..index].iter().find(|it| it.end.is_some_and(|end| end > run.start))
        {
            faults.push(format!("{} ran at {} beside {}", run.id, run.start, other.id));
        }
        // Within a turn nothing comes again that is done, or that something later was run after.
        let last = last.entry(run.turn).or_default();
        if place < *last || over.contains(&(run.turn, place)) {
            faults.push(format!("{} ran at {} again in the same turn", run.id, run.start));
        }
        *last = place.max(*last);
        if run.is_done {
            over.insert((run.turn, place));
        }
    }
    faults.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(ids: std::ops::Range<u64>) -> Vec<Produced> {
        let event = |id: u64| Produced { id, entity: 1, partition: 0, offset: id as i64 };
        ids.map(event).collect()
    }

    fn told(members: &[&[&str]]) -> Vec<String> {
        let parse = |line: &&str| parse(line, "t").expect("a line");
        let members: Vec<Vec<_>> =
            members.iter().map(|it| it.iter().map(parse).collect()).collect();
        check(&members, &events(0..3))
    }

    #[test]
    fn dead_letters_are_followed_by_dead_letters_alone() {
        let letter = |id, is_follower| Letter { id, is_follower };
        let faults = |letters: &[Letter]| letter_faults(&events(0..3), letters);
        assert_eq!(faults(&[]), [""; 0]);
        assert_eq!(faults(&[letter(1, false), letter(2, true)]), [""; 0]);
        assert!(faults(&[letter(1, false)])[0].contains("2 does not follow 1"));
        assert!(faults(&[letter(2, true)])[0].contains("2 follows nobody"));
    }

    #[test]
    fn one_after_the_other_is_fine_with_retries_in_between() {
        let run = [
            "own t/0 1 1",
            "start 0 0 0 10",
            "fail 0 0 11",
            "start 0 1 0 20",
            "done 0 1 21",
            "start 1 0 0 21",
            "done 1 0 22",
        ];
        assert_eq!(told(&[&run]), [""; 0]);
    }

    #[test]
    fn one_that_overtakes_is_a_fault() {
        let run = ["own t/0 1 1", "start 0 0 0 10", "fail 0 0 11", "start 1 0 0 12", "done 1 0 13"];
        let faults = told(&[&run]);
        assert!(faults[0].contains("1 ran at 12 before 0 was done"), "{faults:?}");
    }

    #[test]
    fn two_at_a_time_are_a_fault() {
        let run = ["own t/0 1 1", "start 0 0 0 10", "start 1 0 0 12", "done 0 0 13", "done 1 0 14"];
        assert!(told(&[&run]).iter().any(|it| it.contains("beside 0")));
    }

    #[test]
    fn a_killed_members_runs_come_again_but_not_in_the_same_turn() {
        let killed = ["own t/0 1 1", "start 0 0 0 10", "done 0 0 11", "start 1 0 0 12"];
        let next =
            ["own t/0 2 100", "start 0 0 0 110", "done 0 0 111", "start 1 0 0 112", "done 1 0 113"];
        assert_eq!(told(&[&killed, &next]), [""; 0]);
        let again =
            ["own t/0 1 1", "start 0 0 0 10", "done 0 0 11", "start 0 0 0 12", "done 0 0 13"];
        assert!(told(&[&again])[0].contains("again in the same turn"));
    }

    #[test]
    fn what_a_deposed_member_runs_is_nobodys_fault_until_it_notices() {
        let slept = [
            "own t/0 1 1",
            "start 0 0 0 10",
            "done 0 0 150",
            "start 1 0 0 151",
            "done 1 0 152",
            "give t/0 160",
        ];
        let next =
            ["own t/0 2 100", "start 0 0 0 110", "done 0 0 155", "start 1 0 0 156", "done 1 0 157"];
        assert_eq!(told(&[&slept, &next]), [""; 0]);
        // What it did before that counts.
        let too_soon = ["own t/0 1 1", "start 1 0 0 50", "done 1 0 51", "give t/0 160"];
        assert!(told(&[&too_soon, &next])[0].contains("1 ran at 50 before 0 was done"));
        let late = ["own t/0 1 1", "give t/0 160", "start 0 0 0 170", "done 0 0 171"];
        assert_eq!(told(&[&late]), [""; 0], "a run that outlived its turn is deposed");
    }

    #[test]
    fn nothing_of_a_new_owner_may_skip_what_only_a_deposed_one_has_done() {
        let slept = ["own t/0 1 1", "start 0 0 0 10", "done 0 0 150", "give t/0 160"];
        let next = ["own t/0 2 100", "start 1 0 0 155", "done 1 0 157"];
        assert!(told(&[&slept, &next])[0].contains("1 ran at 155 before 0 was done"));
    }
}
