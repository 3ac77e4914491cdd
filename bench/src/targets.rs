//! What Redrive is to reach, in the same run as those it is compared with.

use crate::results::{Results, Row};
use crate::stats;
use crate::turn::Engine;
use crate::work::delays::MIXED;
use crate::work::failing::SHARES;
use crate::work::keys::FORMS;
use crate::work::stuck::HANGS;
use crate::work::success::{LARGE, SMALL};
use crate::work::{killed, pending};

/// A target, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// Which work it is of.
    pub(crate) work: &'static str,
    pub(crate) wanted: String,
    /// None where it was not measured.
    pub(crate) found: Option<Found>,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) measured: String,
    pub(crate) is_met: bool,
    /// In how many rounds it was met, and how many there were.
    pub(crate) rounds: (usize, usize),
}

impl Found {
    /// By the number that counts, and those of the rounds.
    fn new(measured: String, judged: f64, rounds: &[f64], meets: impl Fn(f64) -> bool) -> Self {
        let met = rounds.iter().filter(|it| meets(**it)).count();
        Self { measured, is_met: meets(judged), rounds: (met, rounds.len()) }
    }
}

/// A number of one row against that of another, round by round.
fn ratios(of: &Row, to: &Row, name: &str) -> Vec<f64> {
    let others = to.by_round(name);
    let beside = |round: usize| others.iter().find(|it| it.0 == round).map(|it| it.1);
    let pairs = of.by_round(name).into_iter().filter_map(|(round, it)| Some((it, beside(round)?)));
    pairs.map(|(of, to)| of / to).collect()
}

/// The same: the median, and from where to where it goes.
pub(crate) fn ratio(of: &Row, to: &Row, name: &str) -> Option<(f64, f64, f64)> {
    let ratios = ratios(of, to, name);
    let (low, high) = stats::bounds(&ratios)?;
    Some((stats::median(&ratios)?, low, high))
}

/// What a row is to compare with.
type Place = (&'static str, &'static str, Engine);

struct Judge<'a> {
    results: &'a Results,
    targets: Vec<Target>,
}

impl Judge<'_> {
    fn row(&self, place: Place) -> Option<&Row> {
        self.results.row(place.0, place.1, place.2)
    }

    /// A turn that failed is not as good as one that was measured.
    fn add(&mut self, of: Place, wanted: String, mut found: Option<Found>) {
        let failed = self.row(of).map_or(0, |it| it.failures.len());
        if let Some(found) = found.as_mut().filter(|_| failed > 0) {
            found.measured.push_str(&format!("; {failed} turns failed"));
            found.is_met = false;
            found.rounds.1 += failed;
        }
        self.targets.push(Target { work: of.0, wanted, found });
    }

    /// The rate of one is at least so much of another's.
    fn rate(&mut self, wanted: String, of: Place, to: Place, least: f64) {
        self.at_least(wanted, of, to, "rate", least);
    }

    /// A number of one is at least so much of another's.
    fn at_least(&mut self, wanted: String, of: Place, to: Place, name: &str, least: f64) {
        let found = self.row(of).zip(self.row(to)).and_then(|(of, to)| {
            let (ratio, low, high) = ratio(of, to, name)?;
            // What is missed by less than a hundredth is not to look as if it were met.
            let digits = if (ratio - least).abs() < 0.01 { 3 } else { 2 };
            let text = format!("{ratio:.digits$} × ({low:.2}–{high:.2})");
            Some(Found::new(text, ratio, &ratios(of, to, name), |it| it >= least))
        });
        self.add(of, wanted, found);
    }

    /// The median of a number is at most so much.
    fn at_most(&mut self, wanted: &str, of: Place, name: &str, most: f64, unit: &str) {
        let found = self.row(of).and_then(|row| {
            let (median, worst) = (row.median(name)?, row.most(name)?);
            let text = format!("{} {unit} (at worst {})", number(median), number(worst));
            Some(Found::new(text, median, &row.values(name), |it| it <= most))
        });
        self.add(of, wanted.to_owned(), found);
    }

    /// A count is at most so much in every round.
    fn always(&mut self, wanted: &str, of: Place, name: &str, most: f64, unit: &str) {
        let found = self.row(of).and_then(|row| {
            let worst = row.most(name)?;
            let text = format!("{}{unit}", grouped(worst));
            Some(Found::new(text, worst, &row.values(name), |it| it <= most))
        });
        self.add(of, wanted.to_owned(), found);
    }

    /// A count is 0 in every round.
    fn none(&mut self, wanted: &str, of: Place, name: &str) {
        self.always(wanted, of, name, 0.0, "");
    }
}

/// A number for people.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => grouped(value),
    }
}

/// A whole number with a comma after each thousand.
pub(crate) fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// All of them, in the order of the work.
pub(crate) fn judge(results: &Results) -> Vec<Target> {
    use Engine::{Batch, Ordered, Parallel, Pipe, Poll, Redrive};
    let mut judge = Judge { results, targets: Vec::new() };
    let success = |case, engine| ("success", case, engine);
    let text = |it: &str| it.to_owned();
    judge.rate(
        text("100 B: ≥ 1.0 × the poll loop"),
        success(SMALL, Redrive),
        success(SMALL, Poll),
        1.0,
    );
    judge.rate(
        text("1 KB: ≥ 0.9 × the batch read"),
        success(LARGE, Redrive),
        success(LARGE, Batch),
        0.9,
    );
    let failing = |case, engine| ("failing", case, engine);
    let wanted = text("100 %: ≥ 0.8 × the raw pipe with the same headers");
    judge.rate(wanted, failing("100 %", Redrive), failing("100 %", Pipe), 0.8);
    let wanted = text("1 %: ≥ 0.95 × the rate of (1), whose handler does nothing");
    // Of the same part of the time: in the first quarter nothing is retried yet.
    judge.at_least(wanted, failing("1 %", Redrive), success(SMALL, Redrive), "later_rate", 0.95);
    let wanted = text("1 %: ≥ 0.95 × the rate without failures");
    judge.rate(wanted, failing("1 %", Redrive), failing("0 %", Redrive), 0.95);
    let mixed = ("delays", MIXED, Redrive);
    judge.at_most("lateness p50 ≤ 1 ms", mixed, "late_p50", 1.0, "ms");
    judge.at_most("lateness p99 ≤ 10 ms", mixed, "late_p99", 10.0, "ms");
    judge.none("never early", mixed, "early");
    for (case, _) in FORMS {
        let ordered = ("keys", case, Ordered);
        let found = judge.row(ordered).and_then(|row| {
            let (median, least) = (row.median("of_bound")?, row.least("of_bound")?);
            let text = format!("{median:.3} (at worst {least:.3})");
            Some(Found::new(text, median, &row.values("of_bound"), |it| it >= 0.97))
        });
        judge.add(ordered, format!("{case}: ≥ 0.97 of what keys and slots allow at best"), found);
        let wanted = format!("{case}: ≥ Parallel Consumer");
        judge.rate(wanted, ordered, ("keys", case, Parallel), 1.0);
    }
    let hangs = ("stuck", HANGS, Redrive);
    let wanted = text("behind a hanging run: ≥ 1.0 × the poll loop with the same handler");
    judge.rate(wanted, hangs, ("stuck", HANGS, Poll), 1.0);
    judge.always("metadata within its limit of 4096", hangs, "metadata", 4096.0, " characters");
    judge.none("nothing run again after a restart", hangs, "again");
    let waits = ("pending", pending::CASE, Redrive);
    judge.at_most(
        "RSS ≤ 286 MiB (300 MB) while they wait",
        waits,
        "rss_waiting",
        300.0 * 1e6 / f64::from(1 << 20),
        "MiB",
    );
    judge.at_most("first due run ≤ 2 s after assignment", waits, "first_due", 2.0, "s");
    judge.none("none run twice by a clean restart", waits, "again");
    let killed = ("killed", killed::CASE, Ordered);
    judge.none("0 lost", killed, "lost");
    judge.none("0 early", killed, "early");
    judge.none("0 out of order", killed, "out_of_order");
    for (case, share) in SHARES {
        if share > 0 {
            let wanted = format!("{case}: ≥ 0.7 × (2), the same without exactly-once");
            judge.rate(wanted, ("exactly-once", case, Redrive), failing(case, Redrive), 0.7);
        }
    }
    judge.targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sample;

    fn results(redrive: &[f64], poll: &[f64]) -> Results {
        let mut results = Results::default();
        for (engine, rates) in [(Engine::Redrive, redrive), (Engine::Poll, poll)] {
            for rate in rates {
                let mut sample = Sample::default();
                sample.set("rate", *rate);
                results.row_mut("success", SMALL, engine).samples.push(sample);
            }
        }
        results
    }

    fn first(results: &Results) -> Found {
        judge(results)[0].found.clone().unwrap()
    }

    #[test]
    fn a_ratio_is_the_median_of_the_rounds() {
        let results = results(&[9.0, 12.0, 30.0], &[10.0, 10.0, 10.0]);
        let found = first(&results);
        assert_eq!(found.measured, "1.20 × (0.90–3.00)");
        assert_eq!((found.is_met, found.rounds), (true, (2, 3)));
        // Nobody measured the rest.
        assert!(judge(&results)[1..].iter().all(|it| it.found.is_none()));
    }

    #[test]
    fn a_missed_target_is_called_so() {
        let found = first(&results(&[9.0], &[10.0]));
        assert_eq!((found.is_met, found.rounds), (false, (0, 1)));
        let close = first(&results(&[9.96], &[10.0]));
        assert_eq!(close.measured, "0.996 × (1.00–1.00)");
        assert!(!close.is_met);
    }

    #[test]
    fn what_must_never_be_is_judged_by_the_worst_round() {
        let mut results = Results::default();
        for lost in [0.0, 0.0, 1.0] {
            let mut sample = Sample::default();
            sample.set("lost", lost);
            results.row_mut("killed", killed::CASE, Engine::Ordered).samples.push(sample);
        }
        let lost = |results: &Results| {
            let target = judge(results).into_iter().find(|it| it.wanted == "0 lost").unwrap();
            target.found.unwrap()
        };
        let found = lost(&results);
        assert_eq!((found.measured.as_str(), found.is_met, found.rounds), ("1", false, (2, 3)));
        // One that did not come to its end is no better.
        results.rows[0].samples.pop();
        results.rows[0].failures.push("it ended by itself".to_owned());
        let found = lost(&results);
        assert_eq!((found.is_met, found.rounds), (false, (2, 3)));
        assert_eq!(found.measured, "0; 1 turns failed");
    }

    #[test]
    fn a_round_without_a_sample_is_left_out() {
        let mut results = results(&[10.0, 40.0], &[10.0, 20.0, 10.0]);
        // The second turn failed.
        for (sample, round) in results.rows[0].samples.iter_mut().zip([1.0, 3.0]) {
            sample.set("round", round);
        }
        assert_eq!(first(&results).measured, "2.50 × (1.00–4.00)");
    }

    #[test]
    fn numbers_are_written_for_people() {
        let written = [0.0, 0.123, 12.34, 999.6, 1_234_567.0].map(number);
        assert_eq!(written, ["0", "0.12", "12.3", "1,000", "1,234,567"]);
    }
}
