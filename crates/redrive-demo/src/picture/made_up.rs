//! A demo that never ran: the board as it would stand after so many milliseconds, worked out without a clock.

use std::collections::BTreeSet;
use std::sync::Arc;

use redrive::{DelayBy, Event, Reason, Spot, Timestamp};

use crate::board::{Board, Scene};
use crate::dice::Dice;
use crate::options::Options;
use crate::orders::{Answer, Orders};
use crate::site::Names;

const START: i64 = 1_700_000_000_000;
/// From when to when the service is down.
const DOWN: std::ops::Range<i64> = 4_000..5_500;

/// Which retry topic each retry goes to: the first one twice.
const TIERS: [usize; 4] = [0, 0, 1, 2];

/// The board so many milliseconds after the start, and the time then.
pub(crate) fn board(until: i64) -> (Board, i64) {
    let options = Options::default();
    let orders = Arc::new(Orders::new(options.records, options.failure_rate.0, 4));
    let names = Names::new("orders");
    let tiers: Vec<_> = names.tiers.iter().cloned().zip(options.delays()).collect();
    let scene = Scene {
        orders: Arc::clone(&orders),
        broker: "embedded broker at 127.0.0.1:39092".to_owned(),
        metrics: "http://127.0.0.1:39464/metrics".to_owned(),
        topic: names.source.clone(),
        tiers: tiers.clone(),
    };
    let mut board = Board::new(scene, START);
    board.begin(START);
    let mut dice = Dice::new(4);
    let every = i64::try_from(options.producing().as_millis()).unwrap_or(0) / orders.len() as i64;
    // What happens next: when, to which order, which time. A negative number is the service going down or coming back.
    let mut next: BTreeSet<(i64, i64, u32)> = BTreeSet::new();
    next.insert((DOWN.start, -1, 1));
    next.insert((DOWN.end, -1, 0));
    for number in 0..i64::from(options.records) {
        next.insert((number * every, number, 0));
    }
    let mut seen = vec![0; orders.len()];
    while let Some((at, number, overall)) = next.pop_first().filter(|it| it.0 <= until) {
        let now = START + at;
        let Ok(number) = u32::try_from(number) else {
            board.outage(overall == 1, now);
            continue;
        };
        if overall == 0 {
            board.produced(now);
        }
        let (offset, late) = (i64::from(number) * 8 + i64::from(overall), dice.below(2_600));
        let spot = Spot { topic: Arc::from("orders"), partition: 0, offset };
        board.started(spot.clone(), number, overall, now * 1000 + i64::from(late));
        let answer = (!DOWN.contains(&at)).then(|| orders.answer(number, seen[number as usize]));
        let (error, wait) = match answer {
            None => ("connect".to_owned(), None),
            Some(answer) => {
                seen[number as usize] += 1;
                if answer != Answer::Silent {
                    board.answered(number, answer, now);
                }
                match answer {
                    Answer::Done => continue,
                    Answer::Cancelled => {
                        let (error, reason) = (String::new(), Reason::Handler);
                        board.told(
                            &Event::Dropped { spot, error, reason, policy: None, overall },
                            now,
                        );
                        continue;
                    }
                    Answer::Silent => ("timeout".to_owned(), None),
                    Answer::Busy { seconds } => (String::new(), Some(i64::from(seconds) * 1000)),
                    _ => (String::new(), None),
                }
            }
        };
        let is_poison = answer == Some(Answer::Poison);
        let tier = TIERS.get(overall as usize).filter(|_| !is_poison);
        match tier.and_then(|it| tiers.get(*it)) {
            Some((topic, delay)) => {
                let delay = i64::try_from(delay.as_millis()).unwrap_or(0);
                let wait = wait.unwrap_or(delay);
                next.insert((at + wait, i64::from(number), overall + 1));
                board.told(&retries(spot, error, topic, overall, now, wait), now);
            }
            None => {
                let reason = if is_poison { Reason::NotRetryable } else { Reason::Attempts };
                let to = Arc::from(names.dead_letters.as_str());
                let error = Some(error);
                board.told(
                    &Event::DeadLettered { spot, error, reason, to, policy: None, overall },
                    now,
                );
            }
        }
    }
    (board, START + until)
}

fn retries(spot: Spot, error: String, to: &str, overall: u32, now: i64, wait: i64) -> Event {
    Event::Retries {
        spot,
        error,
        to: Arc::from(to),
        overall: overall + 1,
        due: Timestamp::from_millis(now + wait),
        delay: std::time::Duration::from_millis(u64::try_from(wait).unwrap_or(0)),
        by: DelayBy::Tier,
        policy: None,
        policy_attempts: overall + 1,
        tier: overall,
        tier_attempts: 1,
        tier_cap: Some(1),
        is_moved: overall > 0,
    }
}
