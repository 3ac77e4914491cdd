//! Numbers in headers, as text and as big-endian bytes.

use super::Header;
use crate::time::{MAX_TIMESTAMP, Timestamp};

/// No number is longer; what is longer is no number.
const MAX_DIGITS: usize = 64;

/// So many digits fit into 64 bits, whichever they are.
const SHORT: usize = 19;

/// Digits alone, saturating. A sign, a point or a letter makes it unreadable.
fn digits(bytes: &[u8]) -> Option<u128> {
    let bytes = bytes.trim_ascii();
    if bytes.is_empty() || bytes.len() > MAX_DIGITS {
        return None;
    }
    let mut digits = bytes.iter().map(|byte| byte.is_ascii_digit().then(|| u64::from(byte - b'0')));
    if bytes.len() <= SHORT {
        // All but a few of those that there are, and several times as fast.
        return digits.try_fold(0, |number, digit| Some(number * 10 + digit?)).map(u128::from);
    }
    digits.try_fold(0u128, |number, digit| {
        Some(number.saturating_mul(10).saturating_add(digit?.into()))
    })
}

/// A count; one too large to hold is as large as can be, so that caps are reached, not missed.
pub(super) fn count(bytes: &[u8]) -> Option<u32> {
    digits(bytes).map(|it| u32::try_from(it).unwrap_or(u32::MAX))
}

/// A whole number that fits.
pub(super) fn whole<T: TryFrom<u128>>(bytes: &[u8]) -> Option<T> {
    T::try_from(digits(bytes)?).ok()
}

/// Milliseconds since the epoch, up to the year 9999.
pub(super) fn millis(bytes: &[u8]) -> Option<Timestamp> {
    readable(i64::try_from(digits(bytes)?).ok()?)
}

/// From here on a number means milliseconds: as seconds it would be the year 5138.
const FIRST_MILLIS: i64 = 100_000_000_000;

/// Seconds since the epoch; values of 10¹¹ and more are milliseconds.
pub(super) fn seconds(bytes: &[u8]) -> Option<Timestamp> {
    let number = i64::try_from(digits(bytes)?).ok()?;
    readable(if number >= FIRST_MILLIS { number } else { number.checked_mul(1000)? })
}

/// Seconds with a fraction, rounded up to a millisecond; from 10¹¹ on milliseconds.
pub(super) fn fractional_seconds(number: f64) -> Option<Timestamp> {
    let millis = if number >= FIRST_MILLIS as f64 { number } else { number * 1000.0 };
    if !(0.0..=MAX_TIMESTAMP.as_millis() as f64).contains(&millis) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "within the bounds that were just checked")]
    readable(millis.ceil() as i64)
}

/// The number that [`seconds`] reads as this time, rounded up to a second where it can be.
pub(super) fn to_seconds(time: Timestamp) -> i64 {
    let seconds = time.as_secs_rounded_up();
    if seconds >= FIRST_MILLIS { time.as_millis() } else { seconds }
}

fn readable(millis: i64) -> Option<Timestamp> {
    let time = Timestamp::from_millis(millis);
    (millis >= 0 && time <= MAX_TIMESTAMP).then_some(time)
}

/// A signed big-endian number of one to eight bytes, as Java's `BigInteger` writes it.
pub(super) fn big_endian(bytes: &[u8]) -> Option<i64> {
    if bytes.is_empty() || bytes.len() > 8 {
        return None;
    }
    let sign = if bytes[0] & 0x80 == 0 { 0 } else { -1 };
    Some(bytes.iter().fold(sign, |number, byte| (number << 8) | i64::from(*byte)))
}

pub(super) fn big_endian_time(bytes: &[u8]) -> Option<Timestamp> {
    readable(big_endian(bytes)?)
}

/// The fewest bytes that hold the number, as Java's `BigInteger` writes it.
pub(super) fn to_big_endian(number: i64, mut write: impl FnMut(&[u8])) {
    let bytes = number.to_be_bytes();
    let is_padding = |pair: &[u8]| {
        (pair[0] == 0 && pair[1] & 0x80 == 0) || (pair[0] == 0xFF && pair[1] & 0x80 != 0)
    };
    let padding = bytes.windows(2).take_while(|pair| is_padding(pair)).count();
    write(&bytes[padding..]);
}

/// What one header says, given that it may be there twice or be unreadable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field<T> {
    Absent,
    Is(T),
    Unreadable,
}

impl<T: Ord + Copy> Field<T> {
    /// Adds one more value: the highest counts, and one that cannot be read spoils them all.
    pub(super) fn add(&mut self, value: Option<T>) {
        *self = match (*self, value) {
            (Field::Unreadable, _) | (_, None) => Field::Unreadable,
            (Field::Absent, Some(value)) => Field::Is(value),
            (Field::Is(old), Some(value)) => Field::Is(old.max(value)),
        };
    }

    /// Adds one more value that must be the same as those before it.
    pub(super) fn add_same(&mut self, value: Option<T>) {
        *self = match (*self, value) {
            (Field::Absent, Some(value)) => Field::Is(value),
            (Field::Is(old), Some(value)) if old == value => Field::Is(old),
            _ => Field::Unreadable,
        };
    }

    pub(super) fn get(self) -> Option<T> {
        match self {
            Field::Is(value) => Some(value),
            Field::Absent | Field::Unreadable => None,
        }
    }

    /// Reads every header of this name.
    pub(super) fn read(
        headers: &[Header<'_>],
        name: &str,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> Self {
        Self::collect(headers, name, parse, Self::add)
    }

    /// Reads every header of this name, which must all say the same.
    pub(super) fn read_same(
        headers: &[Header<'_>],
        name: &str,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> Self {
        Self::collect(headers, name, parse, Self::add_same)
    }

    fn collect(
        headers: &[Header<'_>],
        name: &str,
        parse: impl Fn(&[u8]) -> Option<T>,
        add: fn(&mut Self, Option<T>),
    ) -> Self {
        let mut field = Field::Absent;
        for header in headers.iter().filter(|it| it.name == name) {
            add(&mut field, header.value.and_then(&parse));
        }
        field
    }

    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Field::Absent)
    }
}

/// The last header of this name, if it is text.
pub(super) fn text<'a>(headers: &[Header<'a>], name: &str) -> Option<&'a str> {
    let named = headers.iter().rev().find(|it| it.name == name)?;
    std::str::from_utf8(named.value?).ok()
}

/// The headers of this name, if they are text and all say the same.
pub(super) fn same_text<'a>(headers: &[Header<'a>], name: &str) -> Option<&'a str> {
    let mut field = Field::Absent;
    for header in headers.iter().filter(|it| it.name == name) {
        field.add_same(header.value.and_then(|it| std::str::from_utf8(it).ok()));
    }
    field.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_saturate_and_refuse_what_is_no_number() {
        assert_eq!(count(b"7"), Some(7));
        assert_eq!(count(b"99999999999999999999999999"), Some(u32::MAX));
        for wrong in [&b"-1"[..], b"", b" ", b"1.5", b"0x10", b"\xff", &[b'9'; 65]] {
            assert_eq!(count(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn long_numbers_are_read_as_short_ones_are() {
        assert_eq!(whole(b"9999999999999999999"), Some(9_999_999_999_999_999_999u64));
        assert_eq!(whole(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(whole::<u64>(b"18446744073709551616"), None);
        assert_eq!(whole(b"00000000000000000000000000000007"), Some(7u8));
        for wrong in [&b"123456789012345678x"[..], b"1234567890123456789x"] {
            assert_eq!(whole::<u64>(wrong), None);
        }
    }

    #[test]
    fn times_end_with_the_year_9999() {
        assert_eq!(millis(b"253402300799999"), Some(MAX_TIMESTAMP));
        assert_eq!(millis(b"253402300800000"), None);
        assert_eq!(millis(b"6249223180800000"), None, "the year 200000");
        assert_eq!(seconds(b"1620001000").unwrap().as_millis(), 1_620_001_000_000);
        assert_eq!(seconds(b"99999999999").unwrap().as_millis(), 99_999_999_999_000);
        assert_eq!(seconds(b"100000000000").unwrap().as_millis(), 100_000_000_000);
    }

    #[test]
    fn big_endian_numbers_are_as_short_as_javas() {
        let bytes = |number| {
            let mut written = Vec::new();
            to_big_endian(number, |it| written = it.to_vec());
            written
        };
        assert_eq!(bytes(0), [0]);
        assert_eq!(bytes(127), [0x7F]);
        assert_eq!(bytes(128), [0, 0x80]);
        assert_eq!(bytes(-1), [0xFF]);
        assert_eq!(bytes(-129), [0xFF, 0x7F]);
        assert_eq!(bytes(1_700_000_000_000).len(), 6);
        for number in [0, 1, -1, 255, 65_536, i64::MAX, i64::MIN] {
            assert_eq!(big_endian(&bytes(number)), Some(number));
        }
        assert_eq!(big_endian(&[]), None);
        assert_eq!(big_endian(&[0; 9]), None);
    }
}
