//! Delays stay within what their backoff says.

use std::time::Duration;

use proptest::prelude::*;
use redrive_core::{Backoff, Draw, Exponential, ExponentialRandom, Linear, MAX_DELAY, Random};

use crate::arbitrary::{any_duration, backoff_of, duration, exponential_of, linear_of};

fn any_backoff() -> impl Strategy<Value = Backoff> {
    backoff_of(any_duration())
}

fn draw() -> impl Strategy<Value = Draw> {
    prop_oneof![8 => any::<u64>().prop_map(Draw::Seed), 1 => Just(Draw::Lowest), 1 => Just(Draw::Highest)]
}

/// Small attempts as well as those at which a power overflows.
fn retried() -> impl Strategy<Value = u32> {
    prop_oneof![0..70u32, 1_000..1_100u32, any::<u32>(), Just(u32::MAX)]
}

/// The next whole microsecond.
fn rounded_up(duration: Duration) -> Duration {
    let micros = duration.as_nanos().div_ceil(1000);
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

proptest! {
    #[test]
    fn a_drawn_delay_lies_between_the_lowest_and_the_highest(
        backoff in any_backoff(), retried in retried(), seed: u64,
    ) {
        let delay = backoff.delay(retried, Draw::Seed(seed));
        prop_assert!(backoff.delay(retried, Draw::Lowest) <= delay);
        prop_assert!(delay <= backoff.delay(retried, Draw::Highest));
    }

    #[test]
    fn the_nominal_delay_lies_between_the_lowest_and_the_highest(
        backoff in any_backoff(), retried in retried(),
    ) {
        let nominal = backoff.nominal(retried);
        prop_assert!(backoff.delay(retried, Draw::Lowest) <= nominal);
        prop_assert!(nominal <= backoff.delay(retried, Draw::Highest));
    }

    #[test]
    fn no_delay_is_longer_than_a_thousand_years(
        backoff in any_backoff(), retried in retried(), draw in draw(),
    ) {
        prop_assert!(backoff.delay(retried, draw) <= MAX_DELAY);
        prop_assert!(backoff.nominal(retried) <= MAX_DELAY);
    }

    #[test]
    fn delays_are_whole_microseconds(
        backoff in any_backoff(), retried in retried(), draw in draw(),
    ) {
        let delay = backoff.delay(retried, draw);
        prop_assert_eq!(delay.subsec_nanos() % 1_000, 0, "{:?}", delay);
    }

    #[test]
    fn a_seed_gives_the_same_delay_whatever_was_asked_before(
        backoff in any_backoff(), retried in retried(), other in retried(), seed: u64,
    ) {
        let first = backoff.delay(retried, Draw::Seed(seed));
        let _ = backoff.delay(other, Draw::Seed(!seed));
        prop_assert_eq!(backoff.clone().delay(retried, Draw::Seed(seed)), first);
        prop_assert_eq!(backoff.delay(retried, Draw::Seed(seed)), first);
    }

    #[test]
    fn linear_delays_never_shrink(
        linear in linear_of(any_duration()), one in retried(), other in retried(),
    ) {
        let backoff = Backoff::from(linear);
        prop_assert!(backoff.nominal(one.min(other)) <= backoff.nominal(one.max(other)));
    }

    #[test]
    fn exponential_delays_never_shrink_with_a_multiplier_from_one_on(
        exponential in exponential_of(any_duration(), 1.0..10.0),
        one in retried(),
        other in retried(),
    ) {
        let backoff = Backoff::from(exponential);
        prop_assert!(backoff.nominal(one.min(other)) <= backoff.nominal(one.max(other)));
    }

    #[test]
    fn exponential_random_delays_never_shrink(
        initial in any_duration(), max in any_duration(), one in retried(), other in retried(),
    ) {
        let backoff = Backoff::from(ExponentialRandom::new(initial).with_max(max));
        prop_assert!(backoff.nominal(one.min(other)) <= backoff.nominal(one.max(other)));
    }

    #[test]
    fn a_maximum_holds_for_every_sort_that_has_one(
        base in any_duration(), max in any_duration(), retried in retried(), draw in draw(),
    ) {
        let sorts = [
            Backoff::from(Linear::new(base).with_max(max)),
            Backoff::from(Exponential::new(base).with_jitter(0.5).with_max(max)),
            Backoff::from(ExponentialRandom::new(base).with_max(max)),
        ];
        for backoff in sorts {
            prop_assert!(backoff.delay(retried, draw) <= rounded_up(max), "{:?}", backoff);
            prop_assert!(backoff.nominal(retried) <= rounded_up(max), "{:?}", backoff);
        }
    }

    #[test]
    fn a_minimum_holds_even_against_the_maximum(
        base in any_duration(),
        min in any_duration(),
        max in any_duration(),
        retried in retried(),
        draw in draw(),
    ) {
        let exponential = Exponential::new(base).with_jitter(1.0).with_min(min).with_max(max);
        let backoff = Backoff::from(exponential);
        prop_assert!(backoff.delay(retried, draw) >= min.min(MAX_DELAY));
        prop_assert!(backoff.nominal(retried) >= min.min(MAX_DELAY));
    }

    #[test]
    fn a_random_delay_lies_between_its_bounds(
        one in duration(), other in duration(), retried in retried(), seed: u64,
    ) {
        let backoff = Backoff::from(Random::between(one, other));
        let delay = backoff.delay(retried, Draw::Seed(seed));
        prop_assert!((one.min(other)..=one.max(other)).contains(&delay));
        prop_assert_eq!(backoff.nominal(retried), one.min(other));
    }

    #[test]
    fn doubling_is_exact_as_long_as_it_fits(initial in 1..100_000u64, retried in 0..20u32) {
        let grown = Duration::from_millis(initial << retried);
        let initial = Duration::from_millis(initial);
        prop_assert_eq!(Backoff::from(Exponential::new(initial)).nominal(retried), grown);
        let random = Backoff::from(ExponentialRandom::new(initial).with_max(MAX_DELAY));
        prop_assert_eq!(random.delay(retried, Draw::Lowest), grown);
        prop_assert_eq!(random.delay(retried, Draw::Highest), grown + initial);
        let linear = Backoff::from(Linear::new(initial));
        prop_assert_eq!(linear.nominal(retried), initial * (retried + 1));
    }

    #[test]
    fn a_list_repeats_its_last_delay(
        delays in prop::collection::vec(duration(), 1..6), retried in retried(), seed: u64,
    ) {
        let at = usize::try_from(retried).unwrap().min(delays.len() - 1);
        let expected = delays[at];
        prop_assert_eq!(Backoff::list(delays).delay(retried, Draw::Seed(seed)), expected);
    }

    #[test]
    fn jitter_is_a_share_of_the_delay(
        base in 1_000..10_000_000u64, jitter in 0.0..1.0f64, retried in 0..10u32, seed: u64,
    ) {
        let base = Duration::from_millis(base);
        let backoff = Backoff::from(Exponential::new(base).with_jitter(jitter));
        let (nominal, delay) = (backoff.nominal(retried), backoff.delay(retried, Draw::Seed(seed)));
        let half_a_millisecond = Duration::from_micros(501);
        prop_assert!(delay.abs_diff(nominal) <= nominal.mul_f64(jitter) + half_a_millisecond);
    }
}

/// A setting that is no sensible number is read as the documentation says.
#[test]
fn odd_multipliers_and_jitters_are_harmless() {
    let base = Duration::from_secs(1);
    for multiplier in [0.0, -3.0, f64::NAN, f64::NEG_INFINITY] {
        let backoff = Backoff::from(Exponential::new(base).with_multiplier(multiplier));
        assert_eq!(backoff.nominal(5), base, "{multiplier} counts as 1");
    }
    let boundless = Backoff::from(Exponential::new(base).with_multiplier(f64::INFINITY));
    assert_eq!(boundless.nominal(1), MAX_DELAY);
    for (jitter, lowest) in [(7.0, Duration::ZERO), (-1.0, base), (f64::NAN, base)] {
        let backoff = Backoff::from(Exponential::new(base).with_jitter(jitter));
        assert_eq!(backoff.delay(0, Draw::Lowest), lowest, "{jitter}");
    }
}

/// Seeds that differ by one, as counters do, still spread over the whole range.
#[test]
fn neighbouring_seeds_are_spread_evenly() {
    let backoff = Backoff::from(Random::between(Duration::ZERO, Duration::from_millis(999)));
    let mut tenths = [0; 10];
    for seed in 0..10_000 {
        let millis = backoff.delay(0, Draw::Seed(seed)).as_millis();
        tenths[usize::try_from(millis).unwrap() / 100] += 1;
    }
    assert!(tenths.iter().all(|count| (850..1_150).contains(count)), "{tenths:?}");
}

/// Neighbouring attempts of one seed are as independent as seeds are.
#[test]
fn attempts_of_one_seed_draw_anew() {
    let backoff = Backoff::from(Random::between(Duration::ZERO, Duration::from_millis(999)));
    let mut delays: Vec<_> =
        (0..100).map(|retried| backoff.delay(retried, Draw::Seed(5))).collect();
    delays.sort_unstable();
    delays.dedup();
    assert!(delays.len() > 80, "100 attempts share {} delays", delays.len());
}
