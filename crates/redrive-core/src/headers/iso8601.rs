//! Times as ISO 8601 writes them, such as `2026-11-15T09:30:00.125Z`.

use std::fmt;

use crate::time::{MAX_TIMESTAMP, Timestamp};

const DAY_MS: i64 = 86_400_000;

/// A time with zone. Fractions finer than a millisecond are rounded up. Without a zone nobody can
/// say when it is, so it is unreadable.
pub(super) fn parse(bytes: &[u8]) -> Option<Timestamp> {
    let mut rest = Scan(bytes.trim_ascii());
    let year = rest.number(4)?;
    rest.expect(b"-")?;
    let month = rest.number(2)?;
    rest.expect(b"-")?;
    let day = rest.number(2)?;
    rest.expect(b"Tt ")?;
    let hour = rest.number(2)?;
    rest.expect(b":")?;
    let minute = rest.number(2)?;
    rest.expect(b":")?;
    let second = rest.number(2)?;
    let fraction = if rest.expect(b".,").is_some() { rest.fraction()? } else { 0 };
    let offset_minutes = rest.zone()?;
    // 60 is a leap second, and hour 24 midnight at the end of a day.
    let in_range = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && (hour < 24 || (hour == 24 && minute == 0 && second == 0 && fraction == 0))
        && minute < 60
        && second <= 60;
    if !in_range || !rest.0.is_empty() {
        return None;
    }
    let minutes = (hour * 60 + minute) - offset_minutes;
    let millis = days_since_epoch(year, month, day) * DAY_MS + minutes * 60_000 + second * 1000;
    let time = Timestamp::from_millis(millis + fraction);
    (time.as_millis() >= 0 && time <= MAX_TIMESTAMP).then_some(time)
}

impl Timestamp {
    /// A time as RFC 3339 writes it, with its zone, such as `2026-11-15T09:30:00Z`. None if it is not one.
    pub fn from_rfc3339(text: &str) -> Option<Self> {
        parse(text.as_bytes())
    }
}

/// Writes the time in UTC, to the millisecond.
pub(super) struct Iso8601(pub(super) Timestamp);

impl fmt::Display for Iso8601 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis().clamp(0, MAX_TIMESTAMP.as_millis());
        let (days, rest) = (millis / DAY_MS, millis % DAY_MS);
        let (year, month, day) = date(days);
        let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60);
        let fraction = rest % 1000;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:03}Z")
    }
}

struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    fn number(&mut self, digits: usize) -> Option<i64> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        number.iter().try_fold(0, |sum, byte| {
            byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0'))
        })
    }

    fn expect(&mut self, any_of: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        any_of.contains(first).then(|| {
            self.0 = rest;
            *first
        })
    }

    /// Milliseconds, rounded up.
    fn fraction(&mut self) -> Option<i64> {
        let length = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at_checked(length)?;
        if digits.is_empty() {
            return None;
        }
        self.0 = rest;
        let digit = |at: usize| digits.get(at).map_or(0, |byte| i64::from(byte - b'0'));
        let finer = digits.iter().skip(3).any(|byte| *byte != b'0');
        Some(digit(0) * 100 + digit(1) * 10 + digit(2) + i64::from(finer))
    }

    /// Minutes east of UTC.
    fn zone(&mut self) -> Option<i64> {
        match self.expect(b"Zz+-")? {
            b'Z' | b'z' => Some(0),
            sign => {
                let hours = self.number(2)?;
                let colon = self.expect(b":").is_some();
                let minutes = if self.0.is_empty() && !colon { 0 } else { self.number(2)? };
                let offset = hours * 60 + minutes;
                (hours < 24 && minutes < 60).then_some(if sign == b'-' { -offset } else { offset })
            }
        }
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar. Years start in March here, so that
/// the leap day is the last day of one.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year
        - 719_468
}

/// The date so many days after 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Option<i64> {
        parse(text.as_bytes()).map(Timestamp::as_millis)
    }

    #[test]
    fn reads_what_others_write() {
        assert_eq!(read("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(read("2024-02-29T12:00:00.000Z"), Some(1_709_208_000_000));
        assert_eq!(read("2024-02-29T15:00:00+03:00"), Some(1_709_208_000_000));
        assert_eq!(read("2024-02-29T07:00:00-0500"), Some(1_709_208_000_000));
        assert_eq!(read("2024-02-29T15:00:00+03"), Some(1_709_208_000_000));
        // What .NET's round-trip format and Java's Instant give, finer than a millisecond.
        assert_eq!(read("2024-02-29T12:00:00.0000001Z"), Some(1_709_208_000_001));
        assert_eq!(read("2024-02-29T12:00:00.123456789Z"), Some(1_709_208_000_124));
    }

    #[test]
    fn refuses_what_is_no_time() {
        for wrong in [
            "",
            "now",
            "2024-02-30T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-01T25:00:00Z",
            "2024-01-01T00:60:00Z",
            "2024-01-01T00:00:00",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00Zjunk",
            "2024-01-01",
            "1620000000",
            "1969-12-31T23:59:59Z",
            "+200000-01-01T00:00:00Z",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn every_time_comes_back(millis in 0..=MAX_TIMESTAMP.as_millis()) {
            let text = Iso8601(Timestamp::from_millis(millis)).to_string();
            prop_assert_eq!(read(&text), Some(millis));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            parse(&bytes);
        }
    }
}
