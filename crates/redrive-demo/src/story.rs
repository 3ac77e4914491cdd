//! The life of one record, stop by stop, as the witnesses tell it.

use std::collections::BTreeSet;

use crate::history::{History, Life};
use crate::judge::ms;
use crate::orders::{self, Answer, Orders};
use crate::site::Names;

/// A record's life.
pub(crate) struct Story {
    pub(crate) title: String,
    pub(crate) steps: Vec<Step>,
}

/// Something that happened to it.
pub(crate) struct Step {
    /// Since it was produced, in µs.
    pub(crate) at: i64,
    pub(crate) what: String,
    pub(crate) note: String,
    /// Whether that was good or bad, where it was either.
    pub(crate) is_good: Option<bool>,
}

/// The story of the record with the most stops; of several the one to which the most different things happened.
pub(crate) fn story(history: &History, orders: &Orders, names: &Names) -> Option<Story> {
    let lives = history.lives();
    let interest = |life: &&Life<'_>| {
        let answers: BTreeSet<_> = life.requests.iter().map(|it| it.answer()).collect();
        let stops = life.requests.len().max(life.copies.len() + 1) + life.letters.len();
        (stops, answers.len())
    };
    let life = lives.values().filter(|it| it.produced.is_some()).max_by_key(interest)?;
    tell(life, orders, names)
}

fn tell(life: &Life<'_>, orders: &Orders, names: &Names) -> Option<Story> {
    let produced = life.produced?;
    let number = orders::number(&produced.value)?;
    let start = produced.at * 1000;
    let spot = format!("partition {}, offset {}", produced.place.partition, produced.place.offset);
    let mut steps = vec![Step {
        at: 0,
        what: format!("produced to {}", names.source),
        note: spot,
        is_good: None,
    }];
    for request in &life.requests {
        let due = life.copies.iter().find(|it| it.overall == request.overall).map(|it| it.due);
        let late = due.filter(|_| request.overall > 0).map(|it| request.arrived - it * 1000);
        let note = late.map(|it| format!("{} late", ms(it)));
        let (what, is_good) = match request.answer() {
            Some(Answer::Done) => ("the service said 200: done".to_owned(), true),
            Some(answer) => (format!("the service said {answer}"), false),
            None => ("the service gave no answer".to_owned(), false),
        };
        let note = note.unwrap_or_default();
        steps.push(Step { at: request.arrived - start, what, note, is_good: Some(is_good) });
    }
    for copy in &life.copies {
        // A connection that was refused is known by what came of it alone.
        let is_seen = life.requests.iter().any(|it| it.overall + 1 == copy.overall);
        let topic = names.tiers.get(copy.topic).map_or("a retry topic", String::as_str);
        let refused = if is_seen { "" } else { "no connection: " };
        let due = (copy.due * 1000 - start) as f64 / 1e6;
        steps.push(Step {
            at: copy.at * 1000 - start,
            what: format!("{refused}waits in {topic}"),
            note: format!("due at {due:.3} s"),
            is_good: None,
        });
    }
    for letter in &life.letters {
        steps.push(Step {
            at: letter.at * 1000 - start,
            what: format!("dead letter in {}", names.dead_letters),
            note: format!("reason: {}", letter.reason),
            is_good: Some(false),
        });
    }
    steps.sort_by_key(|it| it.at);
    // The broker's clock may be a moment behind.
    steps.iter_mut().for_each(|it| it.at = it.at.max(0));
    let title = format!("order {number} of {}, stop by stop", orders.customer(number));
    Some(Story { title, steps })
}
