//! A good history is found good, and each fault that is put into it is noticed.

use bytes::Bytes;

use super::*;
use crate::dice::Dice;
use crate::history::{Copy, Letter, Produced};

const START: i64 = 1_700_000_000_000;

fn place(offset: i64) -> Place {
    Place { partition: 0, offset }
}

fn value(number: i64) -> Bytes {
    format!("{{\"order\":{number}}}").into()
}

/// A run as it should be: each record fails a few times, and then works or is dead-lettered.
pub(crate) fn good(seed: u64, records: i64) -> History {
    let mut dice = Dice::new(seed);
    let mut history = History::default();
    for number in 0..records {
        let (place, value, key) = (place(number), value(number), Bytes::from("Ada"));
        let mut now = START + number * 10;
        history.sent.insert(place, u32::try_from(number).unwrap());
        let produced = Produced { place, key: key.clone(), value: value.clone(), at: now };
        history.produced.push(produced);
        let fails = dice.below(4);
        for overall in 0..=fails {
            let arrived = now * 1000 + i64::from(dice.below(3000));
            let is_last = overall == fails;
            let answer = match (is_last, fails) {
                (true, 3) => Answer::Broken,
                (true, _) => Answer::Done,
                _ => [Answer::Busy { seconds: 1 }, Answer::Broken][dice.below(2) as usize],
            };
            let said = Some((answer, arrived + 5_000));
            history.requests.push(Request { place, value: value.clone(), overall, arrived, said });
            let at = arrived / 1000 + 7;
            if is_last && fails == 3 {
                let reason = "attempts".to_owned();
                let (key, value) = (key.clone(), value.clone());
                history.letters.push(Letter { origin: place, key, value, reason, at });
            } else if !is_last {
                now = at + 1000;
                let (overall, status) = (overall + 1, answer.status());
                let copy = Copy { origin: place, topic: 0, place, overall, due: now, status, at };
                history.copies.push(copy);
            }
        }
    }
    history
}

fn requests_of(history: &History, wanted: Place) -> Vec<usize> {
    let all = history.requests.iter().enumerate();
    all.filter(|it| it.1.place == wanted).map(|it| it.0).collect()
}

/// A record with at least two requests that ended well.
fn retried(history: &History) -> Place {
    let done = |it: &Request| it.overall > 0 && it.answer() == Some(Answer::Done);
    history.requests.iter().find(|it| done(it)).unwrap().place
}

fn places(faults: &[Fault]) -> Vec<Place> {
    faults.iter().map(|it| it.place).collect()
}

#[test]
fn a_good_run_is_found_good_and_every_record_is_counted_once() {
    for seed in 0..200 {
        let findings = judge(&good(seed, 50), false);
        assert!(findings.is_kept(), "seed {seed}: {findings:?}");
        assert_eq!(findings.run_twice, [], "seed {seed}");
        assert_eq!(findings.handled + findings.dead_lettered, 50, "seed {seed}");
        assert!(findings.late.is_sorted() && findings.late.iter().all(|it| *it < 3000));
    }
}

#[test]
fn a_record_that_the_service_never_got_done_is_lost() {
    for seed in 0..100 {
        let mut history = good(seed, 50);
        let victim = retried(&history);
        let last = *requests_of(&history, victim).last().unwrap();
        history.requests.remove(last);
        let findings = judge(&history, false);
        assert_eq!(places(&findings.lost), [victim], "seed {seed}");
        assert_eq!(findings.lost[0].order, u32::try_from(victim.offset).ok());
        assert!(findings.lost[0].what.contains("left in a retry topic"), "{:?}", findings.lost);
        assert!(!findings.is_kept());
        let cut = judge(&history, true);
        assert!(cut.is_kept() && cut.unfinished == 1, "it was cut short: it would have run");
        history.committed.insert((1, 0), victim.offset);
        assert!(judge(&history, true).is_kept(), "the group is not beyond it");
        history.committed.insert((1, 0), victim.offset + 1);
        assert_eq!(places(&judge(&history, true).lost), [victim], "nobody would read it again");
    }
}

#[test]
fn a_record_that_nobody_ever_saw_again_is_lost() {
    let mut history = good(1, 20);
    history.requests.retain(|it| it.place != place(7));
    history.copies.retain(|it| it.origin != place(7));
    history.letters.retain(|it| it.origin != place(7));
    let findings = judge(&history, false);
    assert_eq!(places(&findings.lost), [place(7)]);
    assert_eq!(findings.lost[0].what, "the service never saw it");
    history.committed.insert((0, 0), 7);
    assert_eq!(judge(&history, true).unfinished, 1);
    history.committed.insert((0, 0), 8);
    assert_eq!(places(&judge(&history, true).lost), [place(7)]);
}

#[test]
fn a_record_that_was_acknowledged_and_is_not_in_the_topic_is_lost_though_the_run_was_cut_short() {
    let mut history = good(2, 20);
    history.produced.retain(|it| it.place != place(3));
    for is_cut_short in [false, true] {
        let findings = judge(&history, is_cut_short);
        assert_eq!(places(&findings.lost), [place(3)]);
        assert_eq!(findings.produced, 20);
    }
}

#[test]
fn a_dead_letter_that_is_missing_is_a_record_that_is_lost() {
    let mut history = good(3, 50);
    let letter = history.letters.pop().unwrap();
    let findings = judge(&history, false);
    assert_eq!(places(&findings.lost), [letter.origin]);
    assert!(findings.lost[0].what.contains("the service said `500`"), "{:?}", findings.lost);
}

#[test]
fn what_is_not_byte_for_byte_what_was_produced_does_not_count() {
    let mut history = good(4, 50);
    let victim = retried(&history);
    let last = *requests_of(&history, victim).last().unwrap();
    history.requests[last].value = Bytes::from_static(b"{\"order\":0} ");
    let letter = history.letters.first_mut().unwrap();
    let other = letter.origin;
    letter.key = Bytes::from_static(b"Alan");
    let findings = judge(&history, true);
    let mut lost = places(&findings.lost);
    lost.sort_unstable();
    let mut expected = [victim, other];
    expected.sort_unstable();
    assert_eq!(lost, expected);
    assert!(findings.lost.iter().all(|it| it.what.contains("not what was produced")));
}

#[test]
fn a_retry_that_comes_a_microsecond_before_its_copys_due_time_is_early() {
    for seed in 0..100 {
        let mut history = good(seed, 50);
        let victim = retried(&history);
        let last = *requests_of(&history, victim).last().unwrap();
        let copies = history.copies.iter().filter(|it| it.origin == victim);
        let due = copies.map(|it| it.due).max().unwrap() * 1000;
        history.requests[last].arrived = due;
        let before = last - 1;
        history.requests[before].said = Some((Answer::Broken, due - 500_000));
        assert!(judge(&history, false).is_kept(), "on the dot is not early");
        history.requests[last].arrived = due - 1;
        let findings = judge(&history, false);
        assert_eq!(places(&findings.early), [victim], "seed {seed}");
        assert!(findings.early[0].what.contains("before it was due"), "{:?}", findings.early);
        assert!(!findings.is_kept());
    }
}

#[test]
fn a_retry_before_the_time_that_the_service_has_named_is_early() {
    let mut history = good(5, 50);
    let victim = retried(&history);
    let all = requests_of(&history, victim);
    let (before, last) = (all[all.len() - 2], all[all.len() - 1]);
    let arrived = history.requests[last].arrived;
    let attempt = history.requests[before].overall + 1;
    let is_its = |it: &&mut Copy| it.origin == victim && it.overall == attempt;
    history.copies.iter_mut().find(is_its).unwrap().status = Some(429);
    history.requests[before].said = Some((Answer::Busy { seconds: 1 }, arrived - 1_000_000));
    assert!(judge(&history, false).is_kept());
    history.requests[before].said = Some((Answer::Busy { seconds: 1 }, arrived - 999_999));
    let findings = judge(&history, false);
    assert_eq!(places(&findings.early), [victim]);
    assert!(findings.early[0].what.contains("Retry-After: 1"), "{:?}", findings.early);
    history.copies.iter_mut().find(is_its).unwrap().status = None;
    assert!(judge(&history, false).is_kept(), "nobody waited for that answer any more");
}

#[test]
fn a_retry_that_no_copy_speaks_of_is_early() {
    let mut history = good(6, 50);
    let victim = retried(&history);
    history.copies.retain(|it| it.origin != victim);
    let findings = judge(&history, false);
    assert!(findings.early.iter().all(|it| it.place == victim) && !findings.early.is_empty());
}

#[test]
fn an_attempt_that_runs_twice_is_noticed_and_breaks_no_promise() {
    for seed in 0..100 {
        let mut history = good(seed, 50);
        let victim = retried(&history);
        let first = requests_of(&history, victim)[0];
        let mut again = history.requests[first].clone();
        again.arrived += 1;
        history.requests[first].said = None;
        history.requests.push(again);
        let findings = judge(&history, false);
        assert_eq!(places(&findings.run_twice), [victim], "seed {seed}");
        assert!(findings.is_kept());
    }
}

#[test]
fn a_run_after_success_is_noticed() {
    let mut history = good(7, 50);
    let victim = retried(&history);
    let last = *requests_of(&history, victim).last().unwrap();
    let mut again = history.requests[last].clone();
    again.arrived += 10_000;
    history.requests.push(again);
    let findings = judge(&history, false);
    assert_eq!(places(&findings.run_twice), [victim]);
    assert_eq!(findings.run_twice[0].what, "it ran again after its end");
    assert_eq!(findings.handled + findings.dead_lettered, 50, "it is counted once all the same");
}

#[test]
fn a_dead_letter_of_a_record_that_worked_is_noticed() {
    let mut history = good(8, 50);
    let victim = retried(&history);
    let (key, value) = (Bytes::from("Ada"), value(victim.offset));
    history.letters.push(Letter { origin: victim, key, value, reason: String::new(), at: START });
    let findings = judge(&history, false);
    assert_eq!(places(&findings.run_twice), [victim]);
    assert_eq!(findings.handled + findings.dead_lettered, 50);
}

#[test]
fn what_nobody_has_produced_is_noticed_and_not_counted() {
    let mut history = good(9, 5);
    let stranger = Request {
        place: place(999),
        value: value(999),
        overall: 0,
        arrived: START,
        said: Some((Answer::Done, START)),
    };
    history.requests.push(stranger);
    let findings = judge(&history, false);
    assert_eq!(findings.produced, 5);
    assert_eq!(places(&findings.run_twice), [place(999)]);
}

#[test]
fn what_the_service_wanted_dropped_counts_as_dropped() {
    let mut history = good(10, 1);
    history.letters.clear();
    history.requests.iter_mut().for_each(|it| it.said = Some((Answer::Cancelled, it.arrived)));
    history.requests.truncate(1);
    history.copies.clear();
    let findings = judge(&history, false);
    assert_eq!((findings.dropped, findings.lost.len()), (1, 0));
}

#[test]
fn percentiles_are_values_that_occurred() {
    let values: Vec<i64> = (1..=100).collect();
    assert_eq!([0.0, 0.5, 0.99, 1.0].map(|it| percentile(&values, it)), [1, 50, 99, 100]);
    assert_eq!(percentile(&[], 0.5), 0);
    assert_eq!(percentile(&[7], 0.99), 7);
}
