//! A wrong address or an expired token must not dead-letter a whole topic.
//!
//! Until an answer shows that the address and the credentials are right, an answer of 401, 403, 404 or 405 may mean the record
//! or the whole endpoint. So its record is held: it stays in its place, uncounted, and is sent again a little later. When
//! [`LIMIT`] records got such an answer, the flow stops, and all of them are still there. When somebody else's answer shows
//! that the endpoint is right, the next answer to the record counts as it is. So it does when no further record got such an
//! answer for [`QUIET`]: few records come, and one of them must not wait for ever.
//!
//! Answers that a proxy may give for any address (408, 425, 429, 5xx, redirects) say nothing either way.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use redrive::{Failure, Outcome, is_retryable_status};

/// So many records, and the flow stops.
const LIMIT: usize = 20;
/// After so long without a further one, an answer counts as it is.
const QUIET: Duration = Duration::from_secs(10);
/// How soon a record that is held is sent again: at first, and at last. In between the wait doubles.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(4));

/// Holds records back until it is known that the endpoint is right.
#[derive(Debug)]
pub(crate) struct Guard {
    /// The address, for people.
    url: String,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Watching(Watch),
    /// The endpoint is right.
    Trusting,
    /// The flow stops, until somebody lets it go on.
    Stopped,
}

/// Answers so far that may mean that the endpoint is wrong.
#[derive(Debug, Default)]
struct Watch {
    /// Whose, and when they came first.
    records: BTreeMap<String, Instant>,
    statuses: BTreeMap<u16, usize>,
    last: Option<Instant>,
}

impl Guard {
    pub(crate) fn new(url: String) -> Self {
        Self { url, state: Mutex::new(State::Watching(Watch::default())) }
    }

    /// It begins anew.
    pub(crate) fn reset(&self) {
        *self.state() = State::Watching(Watch::default());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// What becomes of a record that was answered with `status`, where the answer alone would mean `outcome`.
    pub(crate) fn judge(
        &self,
        record: &str,
        status: u16,
        outcome: Outcome,
        now: Instant,
    ) -> Outcome {
        let mut state = self.state();
        let failure = match (outcome, status) {
            (Outcome::Failed(failure), 401 | 403 | 404 | 405) => failure,
            (outcome, _) => {
                // A service that asks for something knows us, and so does one that is content or finds fault with a record.
                let is_proof =
                    !matches!(outcome, Outcome::Failed(_)) || !is_retryable_status(status);
                if is_proof && matches!(*state, State::Watching(_)) {
                    *state = State::Trusting;
                }
                return outcome;
            }
        };
        let watch = match &mut *state {
            State::Trusting => return Outcome::Failed(failure),
            State::Stopped => return Outcome::Held(failure, AGAIN.1),
            State::Watching(watch) => watch,
        };
        let first = watch.records.get(record).copied().unwrap_or_else(|| {
            watch.records.insert(record.to_owned(), now);
            *watch.statuses.entry(status).or_default() += 1;
            watch.last = Some(now);
            now
        });
        if watch.records.len() >= LIMIT {
            let outcome = Outcome::stop(self.reason(watch));
            *state = State::Stopped;
            return outcome;
        }
        if watch.last.is_some_and(|it| now.duration_since(it) >= QUIET) {
            return Outcome::Failed(failure);
        }
        Outcome::Held(failure, now.duration_since(first).clamp(AGAIN.0, AGAIN.1))
    }

    fn reason(&self, watch: &Watch) -> Failure {
        let statuses: Vec<_> = watch
            .statuses
            .iter()
            .map(|(status, count)| format!("{status} ({count} times)"))
            .collect();
        let message = format!(
            "the first {LIMIT} records were all answered with {} by {}: the address or the credentials seem to be wrong; \
             put them right and resume or restart, these records are still there",
            statuses.join(" and "),
            self.url
        );
        let status = watch.statuses.iter().max_by_key(|it| it.1).map_or(404, |it| *it.0);
        Failure::of_status(status).with_message(message)
    }
}

#[cfg(test)]
mod tests {
    use redrive::Ask;

    use super::*;

    fn guard() -> Guard {
        Guard::new("http://h/x".to_owned())
    }

    fn answer(guard: &Guard, record: usize, status: u16, now: Instant) -> Outcome {
        let outcome = match status {
            200..=299 => Outcome::Done,
            _ => Outcome::Failed(Failure::of_status(status)),
        };
        guard.judge(&record.to_string(), status, outcome, now)
    }

    fn is_held(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Held(..))
    }

    #[test]
    fn the_twentieth_record_stops_the_flow_and_says_why() {
        let (guard, now) = (guard(), Instant::now());
        for record in 1..20 {
            let status = if record < 3 { 401 } else { 404 };
            assert!(is_held(&answer(&guard, record, status, now)), "{record}");
            // The same record again is no other record.
            assert!(is_held(&answer(&guard, record, status, now)), "{record}");
        }
        let Outcome::Asked(failure, Ask::Stop { exit: false }) = answer(&guard, 20, 404, now)
        else {
            panic!("it was to stop");
        };
        let message = failure.message.unwrap();
        assert!(message.contains("401 (2 times) and 404 (18 times) by http://h/x"), "{message}");
        // What was under way meanwhile is not dead-lettered either.
        assert!(is_held(&answer(&guard, 21, 404, now)));
        assert_eq!(answer(&guard, 22, 200, now), Outcome::Done);
        assert!(is_held(&answer(&guard, 23, 404, now)));
        guard.reset();
        for record in 1..20 {
            assert!(is_held(&answer(&guard, record, 403, now)), "{record}");
        }
        assert!(!is_held(&answer(&guard, 20, 405, now)));
    }

    #[test]
    fn a_record_that_is_held_waits_longer_each_time() {
        let (guard, start) = (guard(), Instant::now());
        let mut waits = Vec::new();
        let mut at = start;
        while let Outcome::Held(_, wait) = answer(&guard, 1, 404, at) {
            at += wait;
            waits.push(wait.as_millis());
        }
        assert_eq!(waits, [500, 500, 1000, 2000, 4000, 4000]);
        assert!(at - start >= QUIET);
    }

    #[test]
    fn one_good_answer_is_enough_to_trust() {
        for status in [200, 204, 400, 409, 422] {
            let (guard, now) = (guard(), Instant::now());
            assert!(is_held(&answer(&guard, 1, 404, now)));
            assert!(!is_held(&answer(&guard, 2, status, now)));
            for record in 1..100 {
                let outcome = answer(&guard, record, 404, now);
                assert_eq!(outcome, Outcome::Failed(Failure::of_status(404)), "after {status}");
            }
        }
    }

    #[test]
    fn an_answer_that_any_proxy_may_give_says_nothing() {
        for status in [302, 408, 425, 429, 500, 502, 503] {
            let (guard, now) = (guard(), Instant::now());
            for record in 0..30 {
                assert!(!is_held(&answer(&guard, record, status, now)));
            }
            assert!(is_held(&answer(&guard, 31, 404, now)), "after {status}");
        }
    }

    #[test]
    fn a_service_that_asks_for_something_is_the_right_one() {
        let (guard, now) = (guard(), Instant::now());
        let asked = Outcome::dead_letter(Failure::of_status(404));
        assert_eq!(guard.judge("1", 404, asked.clone(), now), asked);
        assert!(!is_held(&answer(&guard, 2, 404, now)));
    }

    #[test]
    fn a_single_record_is_not_held_for_ever() {
        let (guard, start) = (guard(), Instant::now());
        assert!(is_held(&answer(&guard, 1, 404, start)));
        assert!(is_held(&answer(&guard, 1, 404, start + Duration::from_secs(8))));
        // Another one comes, and both wait for what becomes of it.
        assert!(is_held(&answer(&guard, 2, 404, start + Duration::from_secs(9))));
        assert!(is_held(&answer(&guard, 1, 404, start + Duration::from_secs(10))));
        for record in [1, 2] {
            let outcome = answer(&guard, record, 404, start + Duration::from_secs(19));
            assert_eq!(outcome, Outcome::Failed(Failure::of_status(404)));
        }
        // They count all the same: the twentieth stops the flow.
        for record in 3..20 {
            assert!(is_held(&answer(&guard, record, 404, start + Duration::from_secs(30))));
        }
        assert!(!is_held(&answer(&guard, 20, 404, start + Duration::from_secs(30))));
    }
}
