//! Lengths of time as people write them: `1h30m`, `00:05:00`, `PT5M`.

use std::fmt::Write;
use std::time::Duration;

use redrive_core::MAX_DELAY;

/// Why a text is no length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurationError {
    /// A number, but of what?
    NoUnit,
    /// None of the three forms.
    Malformed,
    /// Years and months have no fixed length.
    YearsOrMonths,
    /// Longer than [`MAX_DELAY`].
    TooLong,
}

const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Reads a length of time, in whole milliseconds.
///
/// Three forms are known: numbers with units (`250ms`, `30s`, `1h30m`, `2d`; whole numbers, units
/// in falling order, each once, no spaces), `HH:mm:ss` with hours beyond 23 allowed, and ISO 8601
/// without years and months (`PT5M`, `P1DT12H`).
///
/// ```
/// use std::time::Duration;
/// use redrive::config::parse_duration;
///
/// assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
/// assert_eq!(parse_duration("00:05:00"), Ok(Duration::from_secs(300)));
/// assert_eq!(parse_duration("PT5M"), Ok(Duration::from_secs(300)));
/// assert!(parse_duration("5").is_err());
/// ```
///
/// # Errors
///
/// The text is none of the three, or longer than 1,000 years.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let millis = if let Some(iso) = text.strip_prefix('P') {
        iso8601(iso)
    } else if text.contains(':') {
        clock(text)
    } else {
        units(text)
    }?;
    let duration = Duration::from_millis(millis);
    if duration > MAX_DELAY { Err(DurationError::TooLong) } else { Ok(duration) }
}

/// Writes a length of time with units, to the millisecond: `1h30m`, `250ms`, `0s`.
pub fn format_duration(duration: Duration) -> String {
    let mut rest = duration.as_millis();
    let mut text = String::new();
    for (unit, length) in UNITS {
        let count = rest / u128::from(length);
        rest %= u128::from(length);
        if count > 0 {
            let _ = write!(text, "{count}{unit}");
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

fn units(text: &str) -> Result<u64, DurationError> {
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut sum = 0u64;
    while !rest.is_empty() {
        let digits = leading_digits(rest);
        let number = digits_to_number(&rest[..digits])?;
        let word_end = rest[digits..].find(|it: char| it.is_ascii_digit());
        let word = &rest[digits..word_end.map_or(rest.len(), |it| digits + it)];
        if word.is_empty() {
            return Err(if sum == 0 { DurationError::NoUnit } else { DurationError::Malformed });
        }
        // Only units after the one before: in falling order, each once.
        let (_, length) = units.find(|it| it.0 == word).ok_or(DurationError::Malformed)?;
        sum = number
            .checked_mul(*length)
            .and_then(|it| sum.checked_add(it))
            .ok_or(DurationError::TooLong)?;
        rest = &rest[digits + word.len()..];
    }
    if text.is_empty() { Err(DurationError::Malformed) } else { Ok(sum) }
}

fn clock(text: &str) -> Result<u64, DurationError> {
    let mut parts = text.split(':');
    let (Some(hours), Some(minutes), Some(seconds), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(DurationError::Malformed);
    };
    if hours.len() < 2 || minutes.len() != 2 || seconds.len() != 2 {
        return Err(DurationError::Malformed);
    }
    let (hours, minutes, seconds) =
        (digits_to_number(hours)?, digits_to_number(minutes)?, digits_to_number(seconds)?);
    if minutes > 59 || seconds > 59 {
        return Err(DurationError::Malformed);
    }
    let millis = hours.checked_mul(3_600_000).ok_or(DurationError::TooLong)?;
    millis.checked_add((minutes * 60 + seconds) * 1000).ok_or(DurationError::TooLong)
}

/// What comes after the `P`.
fn iso8601(text: &str) -> Result<u64, DurationError> {
    let (date, time) = match text.split_once('T') {
        Some((date, time)) if !time.is_empty() => (date, time),
        Some(_) => return Err(DurationError::Malformed),
        None => (text, ""),
    };
    if date.is_empty() && time.is_empty() {
        return Err(DurationError::Malformed);
    }
    if date.contains(['Y', 'M']) {
        return Err(DurationError::YearsOrMonths);
    }
    if let Some(weeks) = date.strip_suffix('W').filter(|_| time.is_empty()) {
        let weeks = digits_to_number(weeks)?;
        return weeks.checked_mul(7 * 86_400_000).ok_or(DurationError::TooLong);
    }
    let days = iso_parts(date, &[('D', 86_400_000)])?;
    let clock = iso_parts(time, &[('H', 3_600_000), ('M', 60_000), ('S', 1000)])?;
    days.checked_add(clock).ok_or(DurationError::TooLong)
}

fn iso_parts(text: &str, units: &[(char, u64)]) -> Result<u64, DurationError> {
    let mut rest = text;
    let mut units = units.iter();
    let mut sum = 0u64;
    while !rest.is_empty() {
        let end = rest.find(|it: char| it.is_ascii_uppercase()).ok_or(DurationError::Malformed)?;
        let mut after = rest[end..].chars();
        let word = after.next().ok_or(DurationError::Malformed)?;
        let (_, length) = units.find(|it| it.0 == word).ok_or(DurationError::Malformed)?;
        let part = match rest[..end].split_once(['.', ',']) {
            Some((whole, fraction)) if word == 'S' => {
                let thousandths =
                    digits_to_number(fraction.get(..3.min(fraction.len())).unwrap_or(fraction))?
                        * match fraction.len() {
                            1 => 100,
                            2 => 10,
                            3 => 1,
                            _ => return Err(DurationError::Malformed),
                        };
                digits_to_number(whole)?
                    .checked_mul(1000)
                    .and_then(|it| it.checked_add(thousandths))
            }
            _ => digits_to_number(&rest[..end])?.checked_mul(*length),
        };
        sum = part.and_then(|it| sum.checked_add(it)).ok_or(DurationError::TooLong)?;
        rest = after.as_str();
    }
    Ok(sum)
}

fn leading_digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Digits alone. Too many of them are too long a time.
fn digits_to_number(text: &str) -> Result<u64, DurationError> {
    if text.is_empty() || leading_digits(text) != text.len() {
        return Err(DurationError::Malformed);
    }
    text.parse().map_err(|_| DurationError::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn millis(text: &str) -> Result<u128, DurationError> {
        parse_duration(text).map(|it| it.as_millis())
    }

    #[test]
    fn the_three_forms_are_read() {
        for (text, expected) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("90m", 5_400_000),
            ("0s", 0),
            ("PT5M", 300_000),
            ("PT1.5S", 1_500),
            ("PT0,25S", 250),
            ("P1DT12H", 129_600_000),
            ("P2W", 1_209_600_000),
            ("PT36H", 129_600_000),
            ("48:00:00", 172_800_000),
            ("100:00:01", 360_001_000),
            ("3650d", 315_360_000_000),
        ] {
            assert_eq!(millis(text), Ok(expected), "{text}");
        }
    }

    /// The table under "Delay Format" of the tiered retry topics document.
    #[test]
    fn the_tiered_documents_delay_formats_are_read() {
        for (text, seconds) in [
            ("00:00:30", 30),
            ("00:05:00", 300),
            ("00:25:00", 1500),
            ("01:00:00", 3600),
            ("02:30:00", 9000),
        ] {
            assert_eq!(millis(text), Ok(seconds * 1000), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in ["5", "0", "30000"] {
            assert_eq!(millis(text), Err(DurationError::NoUnit), "{text}");
        }
        for text in ["P1Y", "P1M", "P1Y2M3D"] {
            assert_eq!(millis(text), Err(DurationError::YearsOrMonths), "{text}");
        }
        for text in ["400000d", "99999999999999999999s", "9000000000:00:00", "P99999999W"] {
            assert_eq!(millis(text), Err(DurationError::TooLong), "{text}");
        }
        for text in [
            "",
            " ",
            "5 m",
            "1.5h",
            "-5s",
            "+5s",
            "30m1h",
            "1s1s",
            "5min",
            "5S",
            "h",
            "1h30",
            "00:61:00",
            "00:00:60",
            "5:00",
            "1:2:3",
            "1:00:00",
            "00:00:00:00",
            "::",
            "P",
            "PT",
            "P1DT",
            "PT5",
            "PT1.5M",
            "PT1S1M",
            "pt5m",
            "PT1.S",
            "PT.5S",
            "PT1.2345S",
            "P1W2D",
            "٣s",
            "1\u{3bc}s",
        ] {
            assert_eq!(millis(text), Err(DurationError::Malformed), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(ms in 0..=u64::try_from(MAX_DELAY.as_millis()).unwrap()) {
            let duration = Duration::from_millis(ms);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in any::<String>(), near in "[P0-9TDHMSWdhms:.,]{0,24}") {
            let _ = parse_duration(&text);
            let _ = parse_duration(&near);
        }
    }
}
