//! What is ordered, and what the service will say to each order: all of it drawn from a seed.

use std::fmt;
use std::time::Duration;

use crate::dice::Dice;

/// Whose orders the service never gets done.
const HAPLESS: &str = "Sisyphus";

const CUSTOMERS: [&str; 16] = [
    "Ada",
    "Alan",
    "Barbara",
    "Dennis",
    "Edsger",
    "Frances",
    "Grace",
    "Hedy",
    "Joan",
    "Katherine",
    "Ken",
    "Leslie",
    "Margaret",
    "Niklaus",
    "Radia",
    "Tony",
];

const ITEMS: [&str; 16] = [
    "abacus",
    "atlas",
    "bell",
    "candle",
    "compass",
    "globe",
    "inkwell",
    "kettle",
    "kite",
    "lamp",
    "lens",
    "magnet",
    "music box",
    "quill",
    "sextant",
    "slide rule",
];

/// The longest `Retry-After`, at any speed.
pub(crate) const LONGEST_TOLD: Duration = Duration::from_secs(2);

/// Of those that fail once, these are the ways to do so; how often each is listed is how often it is drawn.
const TROUBLES: [Answer; 16] = [
    Answer::Broken,
    Answer::Broken,
    Answer::Broken,
    Answer::Broken,
    Answer::Broken,
    Answer::Broken,
    Answer::Unavailable,
    Answer::Unavailable,
    Answer::Busy { seconds: 1 },
    Answer::Busy { seconds: 1 },
    Answer::Busy { seconds: 2 },
    Answer::Busy { seconds: 2 },
    Answer::Silent,
    Answer::Silent,
    Answer::Silent,
    Answer::Silent,
];

/// What the service says to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    /// 200.
    Done,
    /// 500.
    Broken,
    /// 503.
    Unavailable,
    /// 429, with `Retry-After`.
    Busy {
        /// When to come back.
        seconds: u8,
    },
    /// Nothing, until whoever asked has gone.
    Silent,
    /// 422: it will never work.
    Poison,
    /// 410 with `redrive-action: drop`: nobody wants it any more.
    Cancelled,
}

impl Answer {
    /// The status, where there is one.
    pub(crate) fn status(self) -> Option<u16> {
        match self {
            Answer::Done => Some(200),
            Answer::Broken => Some(500),
            Answer::Unavailable => Some(503),
            Answer::Busy { .. } => Some(429),
            Answer::Silent => None,
            Answer::Poison => Some(422),
            Answer::Cancelled => Some(410),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Busy { seconds } => write!(f, "429, come back in {seconds} s"),
            Answer::Silent => f.write_str("no answer in time"),
            Answer::Cancelled => f.write_str("410, drop it"),
            other => write!(f, "{}", other.status().unwrap_or_default()),
        }
    }
}

/// What is wrong with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    /// It fails so often, each time in one of these ways, and then works.
    Passing(u8, [Answer; 3]),
    Poison,
    Hapless,
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    customer: &'static str,
    item: &'static str,
    cents: u16,
    trouble: Trouble,
}

/// All orders of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Orders(Vec<Order>);

impl Orders {
    /// So many orders, of which this share fails at first.
    pub(crate) fn new(count: u32, failure_rate: f64, seed: u64) -> Self {
        let (mut dice, mut failing) = (Dice::new(seed), 0u32);
        let orders = (0..count).map(|_| {
            let (customer, item) = (dice.pick(&CUSTOMERS), dice.pick(&ITEMS));
            let cents = u16::try_from(99 + 100 * dice.below(90)).unwrap_or(99);
            let times = [1, 1, 1, 1, 1, 2, 2, 3][dice.below(8) as usize % 8];
            let ways = [(); 3].map(|()| dice.pick(&TROUBLES));
            if !dice.falls(failure_rate) {
                return Order { customer, item, cents, trouble: Trouble::None };
            }
            failing += 1;
            // Spread over the run, and some of each kind in a short one, too.
            let trouble = match failing % 24 {
                3 => Trouble::Hapless,
                6 if failing % 48 == 6 => Trouble::Poison,
                9 if failing % 72 == 9 => Trouble::Cancelled,
                _ => Trouble::Passing(times, ways),
            };
            let customer = if trouble == Trouble::Hapless { HAPLESS } else { customer };
            Order { customer, item, cents, trouble }
        });
        Self(orders.collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, number: u32) -> Option<&Order> {
        self.0.get(usize::try_from(number).ok()?)
    }

    /// Who ordered: the record's key.
    pub(crate) fn customer(&self, number: u32) -> &'static str {
        self.get(number).map_or("nobody", |it| it.customer)
    }

    /// The record's value.
    pub(crate) fn value(&self, number: u32) -> String {
        let Some(Order { customer, item, cents, .. }) = self.get(number) else {
            return String::new();
        };
        format!(r#"{{"order":{number},"customer":"{customer}","item":"{item}","cents":{cents}}}"#)
    }

    /// What the service says when it sees an order, having seen it so often before.
    pub(crate) fn answer(&self, number: u32, before: u32) -> Answer {
        match self.get(number).map_or(Trouble::Poison, |it| it.trouble) {
            Trouble::None => Answer::Done,
            Trouble::Passing(times, ways) if before < u32::from(times) => {
                ways[before as usize % ways.len()]
            }
            Trouble::Passing(..) => Answer::Done,
            Trouble::Poison => Answer::Poison,
            Trouble::Hapless => Answer::Broken,
            Trouble::Cancelled => Answer::Cancelled,
        }
    }
}

/// The number of the order in a record's value.
pub(crate) fn number(value: &[u8]) -> Option<u32> {
    let value: serde_json::Value = serde_json::from_slice(value).ok()?;
    value.get("order")?.as_u64()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(orders: &Orders) -> usize {
        let count = u32::try_from(orders.len()).unwrap();
        (0..count).filter(|it| orders.answer(*it, 0) != Answer::Done).count()
    }

    #[test]
    fn a_seed_gives_the_same_orders_again_and_another_one_others() {
        assert_eq!(Orders::new(500, 0.3, 7), Orders::new(500, 0.3, 7));
        assert_ne!(Orders::new(500, 0.3, 7), Orders::new(500, 0.3, 8));
    }

    #[test]
    fn the_share_that_fails_is_the_one_that_was_asked_for() {
        assert_eq!(failing(&Orders::new(1000, 0.0, 1)), 0);
        assert_eq!(failing(&Orders::new(1000, 1.0, 1)), 1000);
        for seed in 0..20 {
            let found = failing(&Orders::new(10_000, 0.25, seed));
            assert!((2_300..2_700).contains(&found), "seed {seed}: {found}");
        }
    }

    #[test]
    fn there_is_some_of_every_trouble_in_the_usual_run() {
        for seed in 0..50 {
            let orders = Orders::new(400, 0.25, seed);
            let said = |wanted: fn(Answer) -> bool| {
                (0..400).any(|number| (0..3).any(|before| wanted(orders.answer(number, before))))
            };
            assert!(said(|it| it == Answer::Broken), "seed {seed}");
            assert!(said(|it| matches!(it, Answer::Busy { .. })), "seed {seed}");
            assert!(said(|it| it == Answer::Silent), "seed {seed}");
            assert!(said(|it| it == Answer::Poison), "seed {seed}");
            assert!(said(|it| it == Answer::Cancelled), "seed {seed}");
            let hapless: Vec<_> = (0..400).filter(|it| orders.customer(*it) == HAPLESS).collect();
            assert!(hapless.len() > 1, "seed {seed}");
            assert!(hapless.iter().all(|it| orders.answer(*it, 99) == Answer::Broken));
        }
    }

    #[test]
    fn what_fails_for_a_while_works_within_three_retries() {
        let orders = Orders::new(2_000, 1.0, 3);
        for number in (0..2_000).filter(|it| orders.customer(*it) != HAPLESS) {
            let last = orders.answer(number, 3);
            assert!(matches!(last, Answer::Done | Answer::Poison | Answer::Cancelled));
        }
    }

    #[test]
    fn no_retry_after_is_longer_than_the_screen_is_wide() {
        let told = TROUBLES.iter().filter_map(|it| match it {
            Answer::Busy { seconds } => Some(Duration::from_secs((*seconds).into())),
            _ => None,
        });
        assert_eq!(told.max(), Some(LONGEST_TOLD));
    }

    #[test]
    fn a_value_names_its_order() {
        let orders = Orders::new(3, 0.5, 1);
        assert_eq!(number(orders.value(2).as_bytes()), Some(2));
        for broken in ["", "{}", "[]", "{\"order\":-1}", "{\"order\":\"2\"}"] {
            assert_eq!(number(broken.as_bytes()), None, "{broken}");
        }
    }
}
