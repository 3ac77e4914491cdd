//! From an answer to what becomes of the record.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, header};
use redrive::{Failure, Outcome};

/// How much of a response is kept.
pub(crate) const KEPT: usize = 1024;

/// The header by which a service says itself what is to be done.
const ACTION: &str = "redrive-action";

/// What a service asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Retry,
    DeadLetter,
    Drop,
    Stop,
}

/// What an answer means.
pub(crate) fn outcome(
    status: StatusCode,
    headers: &HeaderMap,
    response: Option<String>,
    now: SystemTime,
) -> Outcome {
    let action = action(headers);
    if status.is_success() && action == Ok(None) {
        return Outcome::Done;
    }
    let mut message = format!("answered {}", shown(status));
    match &action {
        Err(text) => {
            message += &format!(
                ", with the {ACTION} {text:?}, which is none of retry, dead_letter, drop and stop"
            );
        }
        Ok(Some(_)) => message += &format!(", with a {ACTION}"),
        Ok(None) if status.is_redirection() => message += ": redirects are not followed",
        Ok(None) => {}
    }
    let mut failure = Failure::of_status(status.as_u16()).with_message(message);
    failure.response = response.filter(|it| !it.is_empty());
    failure.retry_after =
        headers.get(header::RETRY_AFTER).and_then(|it| retry_after(it.as_bytes(), now));
    match action {
        Ok(Some(Action::Retry)) => Outcome::retry(failure),
        Ok(Some(Action::DeadLetter)) => Outcome::dead_letter(failure),
        Ok(Some(Action::Drop)) => Outcome::drop(failure),
        Ok(Some(Action::Stop)) => Outcome::stop(failure),
        Ok(None) | Err(_) => Outcome::Failed(failure),
    }
}

/// The status with its usual name.
pub(crate) fn shown(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

/// What was asked for; what was said instead, if that is nothing that can be done.
fn action(headers: &HeaderMap) -> Result<Option<Action>, String> {
    let mut values = headers.get_all(ACTION).iter();
    let Some(first) = values.next() else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(first.as_bytes()).trim().to_ascii_lowercase();
    if values.next().is_some() {
        return Err("said twice".to_owned());
    }
    match text.as_str() {
        "retry" => Ok(Some(Action::Retry)),
        "dead_letter" => Ok(Some(Action::DeadLetter)),
        "drop" => Ok(Some(Action::Drop)),
        "stop" => Ok(Some(Action::Stop)),
        _ => Err(text.chars().take(40).collect()),
    }
}

/// How long to wait, from a number of seconds or any of the three forms of a date. None where it is neither.
fn retry_after(value: &[u8], now: SystemTime) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim();
    if !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit()) {
        // More than can be counted is for ever, which the policy's bounds cut.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let then = httpdate::parse_http_date(text).ok()?;
    // What is over may be tried at once.
    Some(then.duration_since(now).unwrap_or_default())
}

/// The beginning of a response, made readable. `is_all` if there was no more of it.
pub(crate) fn readable(bytes: &[u8], is_all: bool) -> String {
    let whole = if is_all { bytes.len() } else { without_half(bytes) };
    let bytes = bytes.get(..whole).unwrap_or(bytes);
    let text = String::from_utf8_lossy(bytes);
    let is_readable = |it: char| !it.is_control() || matches!(it, '\n' | '\r' | '\t');
    text.chars().map(|it| if is_readable(it) { it } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// How many bytes there are without a character at the end that was cut in two.
fn without_half(bytes: &[u8]) -> usize {
    let is_lead = |it: &u8| it & 0b1100_0000 != 0b1000_0000;
    let Some(at) = bytes.iter().rposition(is_lead) else {
        return bytes.len();
    };
    let length = match bytes.get(at) {
        Some(0b1100_0000..=0b1101_1111) => 2,
        Some(0b1110_0000..=0b1110_1111) => 3,
        Some(0b1111_0000..=0b1111_0111) => 4,
        _ => 1,
    };
    if bytes.len() - at < length { at } else { bytes.len() }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use http::HeaderValue;
    use redrive::Ask;

    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    fn then() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(784_111_777)
    }

    fn answered(status: u16, headers: &[(&'static str, &str)]) -> Outcome {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        outcome(StatusCode::from_u16(status).unwrap(), &map, None, then())
    }

    fn failed(outcome: Outcome) -> Failure {
        match outcome {
            Outcome::Failed(failure) => failure,
            other => panic!("a failure was expected, not {other:?}"),
        }
    }

    #[test]
    fn all_of_2xx_is_done_and_nothing_else() {
        for status in 200..600 {
            let outcome = answered(status, &[]);
            if status < 300 {
                assert_eq!(outcome, Outcome::Done, "{status}");
                continue;
            }
            let failure = failed(outcome);
            assert_eq!(failure.status, Some(status));
            let is_final = (400..500).contains(&status) && ![408, 425, 429].contains(&status);
            assert_eq!(failure.is_retryable(), !is_final, "{status}");
        }
        let message = failed(answered(302, &[("location", "http://h/secret")])).message.unwrap();
        assert_eq!(message, "answered 302 Found: redirects are not followed");
    }

    #[test]
    fn a_service_may_say_itself_what_is_to_be_done() {
        for (text, ask) in [
            ("retry", Ask::Retry),
            ("dead_letter", Ask::DeadLetter),
            (" DROP ", Ask::Drop),
            ("stop", Ask::Stop { exit: false }),
        ] {
            for status in [200, 404, 503] {
                match answered(status, &[(ACTION, text)]) {
                    Outcome::Asked(failure, asked) => {
                        assert_eq!((failure.status, asked), (Some(status), ask));
                    }
                    other => panic!("{text} {status}: {other:?}"),
                }
            }
        }
        match answered(404, &[(ACTION, "retry"), ("retry-after", "7")]) {
            Outcome::Asked(failure, Ask::Retry) => {
                assert_eq!(failure.retry_after, Some(Duration::from_secs(7)));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_action_that_is_none_is_told_and_never_done() {
        for (headers, words) in [
            (&[(ACTION, "retyr")][..], "\"retyr\", which is none of"),
            (&[(ACTION, "")], "\"\", which is none of"),
            (&[(ACTION, "drop"), (ACTION, "retry")], "said twice"),
            (&[(ACTION, "retry, drop")], "\"retry, drop\""),
        ] {
            let failure = failed(answered(200, headers));
            assert!(failure.is_retryable());
            assert!(failure.message.as_deref().unwrap().contains(words), "{failure:?}");
            assert!(!failed(answered(422, headers)).is_retryable());
        }
    }

    #[test]
    fn a_retry_after_is_seconds_or_a_date_of_any_form() {
        let after = |text: &str| failed(answered(503, &[("retry-after", text)])).retry_after;
        let seconds = |it| Some(Duration::from_secs(it));
        assert_eq!(after("120"), seconds(120));
        assert_eq!(after(" 0 "), seconds(0));
        assert_eq!(after("99999999999999999999999"), seconds(u64::MAX));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:47 GMT"), seconds(10));
        assert_eq!(after("Sunday, 06-Nov-94 08:49:47 GMT"), seconds(10));
        assert_eq!(after("Sun Nov  6 08:49:47 1994"), seconds(10));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:30 GMT"), seconds(0));
        for text in ["", "-1", "1.5", "soon", "1s", "Sun, 32 Nov 1994 08:49:47 GMT"] {
            assert_eq!(after(text), None, "{text}");
        }
    }

    #[test]
    fn a_response_is_made_readable() {
        assert_eq!(readable(b"a\tb\r\n", true), "a\tb\r\n");
        assert_eq!(readable(b"\x1b[31m\0\xff", true), "\u{fffd}[31m\u{fffd}\u{fffd}");
        let text = "äöü€😀".as_bytes();
        for end in 0..text.len() {
            let cut = readable(&text[..end], false);
            assert!("äöü€😀".starts_with(&cut) && cut.len() + 4 > end, "{cut}");
        }
        assert_eq!(readable(&text[..1], true), "\u{fffd}");
        assert_eq!(readable(b"\xff\xff\xff\xff\xff", false), "\u{fffd}".repeat(5));
    }
}
