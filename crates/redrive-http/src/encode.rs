//! Bytes as what a request's header can carry, so that they can be had back.

use std::fmt::Write;

use http::{HeaderName, HeaderValue};

/// A header's value: visible ASCII as it is, all else and `%` percent-encoded.
pub(crate) fn value(bytes: &[u8]) -> HeaderValue {
    header_value(encode(bytes, |it| it.is_ascii_graphic() && it != b'%'))
}

/// The value of an attribute, as the HTTP binding of CloudEvents has it: `"` is encoded, too.
pub(crate) fn attribute(bytes: &[u8]) -> HeaderValue {
    header_value(encode(bytes, |it| it.is_ascii_graphic() && it != b'%' && it != b'"'))
}

/// A header's name behind a prefix: in lower case, and what no name can have percent-encoded. None if it is too long.
pub(crate) fn name(prefix: &str, bytes: &[u8]) -> Option<HeaderName> {
    let is_kept = |it: u8| it.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&it);
    let name = prefix.to_owned() + &encode(bytes, is_kept);
    HeaderName::from_bytes(name.as_bytes()).ok()
}

/// The name alone, for where it stands in a value.
pub(crate) fn name_text(bytes: &[u8]) -> HeaderValue {
    value(&bytes.to_ascii_lowercase())
}

/// A value that can stand in a request as it is.
pub(crate) fn as_it_is(bytes: &[u8]) -> Option<HeaderValue> {
    let is_plain = bytes.iter().all(|it| matches!(it, b' '..=b'~'));
    HeaderValue::from_bytes(bytes.trim_ascii()).ok().filter(|it| is_plain && !it.is_empty())
}

fn encode(bytes: &[u8], is_kept: impl Fn(u8) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if is_kept(*byte) {
            text.push(char::from(*byte));
        } else {
            // Writing to a String does not fail.
            _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// What is encoded is always legal.
fn header_value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// The bytes behind a percent-encoded text; a `%` without two digits stands for itself.
pub(crate) fn decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let digit = |at: usize| {
        let digit = bytes.get(at).and_then(|it| char::from(*it).to_digit(16));
        digit.and_then(|it| u8::try_from(it).ok())
    };
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(high << 4 | low);
                at += 3;
            }
            _ => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        for encoded in [value(&all), attribute(&all)] {
            let text = encoded.to_str().unwrap();
            assert!(text.bytes().all(|it| it.is_ascii_graphic()), "{text}");
            assert_eq!(decode(text), all);
        }
        let upper = name("x-", &all).unwrap();
        let text = upper.as_str().strip_prefix("x-").unwrap();
        assert_eq!(decode(text), all.to_ascii_lowercase());
    }

    #[test]
    fn what_is_visible_stays_as_it_is() {
        assert_eq!(value(b"a/b,c=\"d\""), "a/b,c=\"d\"");
        assert_eq!(value("50% ü".as_bytes()), "50%25%20%C3%BC");
        assert_eq!(value(b""), "");
        // The example of the CloudEvents HTTP binding.
        assert_eq!(attribute("Euro € 😀".as_bytes()), "Euro%20%E2%82%AC%20%F0%9F%98%80");
        assert_eq!(name("redrive-header-", b"Trace Id").unwrap(), "redrive-header-trace%20id");
        assert_eq!(name("redrive-header-", b"").unwrap(), "redrive-header-");
        assert_eq!(name("x-", &[b'a'; 70_000]), None);
    }

    #[test]
    fn a_percent_sign_that_encodes_nothing_stands_for_itself() {
        assert_eq!(decode("100%"), b"100%");
        assert_eq!(decode("%zz%4"), b"%zz%4");
        assert_eq!(decode("%c3%BC"), "ü".as_bytes());
    }

    #[test]
    fn only_what_is_legal_goes_as_it_is() {
        assert_eq!(as_it_is(b"text/plain; charset=utf-8").unwrap(), "text/plain; charset=utf-8");
        for text in [&b"a\r\nb"[..], b"\xff", b"", b" ", "ü".as_bytes()] {
            assert_eq!(as_it_is(text), None);
        }
    }
}
