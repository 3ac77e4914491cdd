//! What went wrong in a run, and whether trying again could help.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// What went wrong in one run of a handler.
///
/// ```
/// use redrive_core::{Failure, Kind};
///
/// assert!(Failure::default().is_retryable());
/// assert!(Failure::of_status(503).is_retryable());
/// assert!(!Failure::of_status(404).is_retryable());
/// assert!(!Failure::of_kind(Kind::VALIDATION).is_retryable());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Failure {
    /// The error's type with its full path, such as `shop::PaymentTimeout`.
    pub error_type: Option<Cow<'static, str>>,
    /// The HTTP status that was answered.
    pub status: Option<u16>,
    /// What sort of trouble it was.
    pub kind: Option<Kind>,
    /// What the error says, in a line.
    pub message: Option<Cow<'static, str>>,
    /// All that the error says: causes, a stack trace, whatever helps.
    pub detail: Option<String>,
    /// The beginning of what the other side answered.
    pub response: Option<String>,
    /// How long the other side asked to be left alone.
    pub retry_after: Option<Duration>,
    /// Whether trying again could help, where the handler knows better than the classes.
    pub retryable: Option<bool>,
}

impl Failure {
    /// A failure known by its error type's full path.
    pub fn of_type(error_type: impl Into<Cow<'static, str>>) -> Self {
        Self { error_type: Some(error_type.into()), ..Self::default() }
    }

    /// A failure known by the HTTP status that was answered.
    pub fn of_status(status: u16) -> Self {
        Self { status: Some(status), ..Self::default() }
    }

    /// A failure of a sort that needs no error type.
    pub fn of_kind(kind: Kind) -> Self {
        Self { kind: Some(kind), ..Self::default() }
    }

    /// Sets what the error says.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Sets how long the other side asked to be left alone.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Says whether trying again could help, whatever the classes say.
    #[must_use]
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.retryable = Some(retryable);
        self
    }

    /// Whether trying again could help.
    ///
    /// What the handler said counts first. Else a failure is not retryable if its status is a 4xx
    /// other than 408, 425 and 429, or its kind is `decode`, `validation`, `auth` or `business`;
    /// everything else is retryable, an error type of any name included.
    pub fn is_retryable(&self) -> bool {
        self.retryable.unwrap_or_else(|| {
            self.status.is_none_or(is_retryable_status)
                && self.kind.as_ref().is_none_or(Kind::is_retryable)
        })
    }

    /// The error type without path and generics.
    pub fn simple_name(&self) -> Option<Cow<'_, str>> {
        self.error_type.as_deref().map(simple_name).filter(|name| !name.is_empty())
    }
}

/// What can be told as a failure: any error, or a failure itself.
pub trait IntoFailure {
    /// The failure that it stands for.
    fn into_failure(self) -> Failure;
}

impl IntoFailure for Failure {
    fn into_failure(self) -> Failure {
        self
    }
}

/// With the error's type, what it says, and its causes as the detail.
impl<E: std::error::Error> IntoFailure for E {
    fn into_failure(self) -> Failure {
        let causes = std::iter::successors(self.source(), |it| it.source());
        let detail: Vec<_> = causes.map(|it| format!("caused by: {it}")).collect();
        Failure {
            detail: (!detail.is_empty()).then(|| detail.join("\n")),
            ..Failure::of_type(std::any::type_name::<E>()).with_message(self.to_string())
        }
    }
}

/// Whether a status is worth another try: 408, 425, 429 and all outside 400–499.
pub fn is_retryable_status(status: u16) -> bool {
    matches!(status, 408 | 425 | 429) || !(400..=499).contains(&status)
}

/// The sort of trouble: one of the known ones or a user's own word.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind(Cow<'static, str>);

impl Kind {
    /// No answer in time.
    pub const TIMEOUT: Kind = Kind::known("timeout");
    /// No connection.
    pub const CONNECT: Kind = Kind::known("connect");
    /// A connection that broke.
    pub const NETWORK: Kind = Kind::known("network");
    /// The other side is down or overloaded.
    pub const UNAVAILABLE: Kind = Kind::known("unavailable");
    /// Too many requests.
    pub const RATE_LIMIT: Kind = Kind::known("rate-limit");
    /// Somebody else changed it first: an optimistic lock.
    pub const CONFLICT: Kind = Kind::known("conflict");
    /// The handler panicked.
    pub const PANIC: Kind = Kind::known("panic");
    /// The value cannot be decoded.
    pub const DECODE: Kind = Kind::known("decode");
    /// The value is decoded but wrong.
    pub const VALIDATION: Kind = Kind::known("validation");
    /// Not allowed.
    pub const AUTH: Kind = Kind::known("auth");
    /// Against the rules of the business.
    pub const BUSINESS: Kind = Kind::known("business");

    /// The kinds that Redrive itself knows.
    pub const KNOWN: [Kind; 11] = [
        Kind::TIMEOUT,
        Kind::CONNECT,
        Kind::NETWORK,
        Kind::UNAVAILABLE,
        Kind::RATE_LIMIT,
        Kind::CONFLICT,
        Kind::PANIC,
        Kind::DECODE,
        Kind::VALIDATION,
        Kind::AUTH,
        Kind::BUSINESS,
    ];

    const fn known(name: &'static str) -> Self {
        Kind(Cow::Borrowed(name))
    }

    /// A kind of this name.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Kind(name.into())
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether another try could help: all but `decode`, `validation`, `auth` and `business`.
    pub fn is_retryable(&self) -> bool {
        ![Kind::DECODE, Kind::VALIDATION, Kind::AUTH, Kind::BUSINESS].contains(self)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The last part of a type's path, without generics: `Timeout` of `shop::pay::Timeout<u8>`.
///
/// Paths of other languages are taken apart too: `com.shop.Timeout`, `Shop\Timeout`,
/// `Shop.Pay+Timeout`, `shop.Pay$Timeout`.
pub fn simple_name(full_path: &str) -> Cow<'_, str> {
    const SEPARATORS: [char; 5] = [':', '.', '\\', '+', '$'];
    let path = without_generics(full_path);
    match path {
        Cow::Borrowed(path) => Cow::Borrowed(path.rsplit(SEPARATORS).next().unwrap_or(path).trim()),
        Cow::Owned(path) => {
            Cow::Owned(path.rsplit(SEPARATORS).next().unwrap_or(&path).trim().to_owned())
        }
    }
}

/// A type's path with everything in angle or square brackets taken out, and .NET's arity mark.
pub(crate) fn without_generics(path: &str) -> Cow<'_, str> {
    let Some(first) = path.find(['<', '[', '`']) else {
        return Cow::Borrowed(path);
    };
    let rest = &path[first..];
    // The usual case: one group that reaches to the end.
    if rest.starts_with('`') || closing(rest) == Some(rest.len()) {
        return Cow::Borrowed(&path[..first]);
    }
    let mut depth = 0usize;
    let kept = path.chars().filter(|&c| {
        match c {
            '<' | '[' => depth += 1,
            '>' | ']' => {
                depth = depth.saturating_sub(1);
                return false;
            }
            _ => {}
        }
        depth == 0
    });
    Cow::Owned(kept.collect())
}

/// How long the bracket group is that `text` starts with.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '<' | '[' => depth += 1,
            '>' | ']' if depth == 1 => return Some(at + 1),
            '>' | ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_names_drop_path_and_generics() {
        for (path, name) in [
            ("shop::PaymentTimeout", "PaymentTimeout"),
            ("PaymentTimeout", "PaymentTimeout"),
            ("shop::Error<std::io::Error>", "Error"),
            ("shop::Error<A, shop::B<C>>", "Error"),
            ("<T as shop::Service>::Error", "Error"),
            ("com.shop.PaymentTimeoutException", "PaymentTimeoutException"),
            ("java.util.Map$Entry", "Entry"),
            ("System.Collections.Generic.List`1[System.String]", "List"),
            ("Shop\\Payment\\Timeout", "Timeout"),
            ("Outer+Inner", "Inner"),
            ("", ""),
            ("::", ""),
            ("<<<", ""),
            ("оплата::Сбой", "Сбой"),
        ] {
            assert_eq!(simple_name(path), name, "{path}");
        }
    }

    /// "Retrayable and Non-retrayable exceptions" of the consumer retry article.
    #[test]
    fn classes_follow_the_consumer_retry_article() {
        for kind in [
            Kind::NETWORK,
            Kind::CONNECT,
            Kind::TIMEOUT,
            Kind::UNAVAILABLE,
            Kind::RATE_LIMIT,
            Kind::CONFLICT,
            Kind::PANIC,
            Kind::new("anything else"),
        ] {
            assert!(Failure::of_kind(kind.clone()).is_retryable(), "{kind}");
        }
        for kind in [Kind::VALIDATION, Kind::AUTH, Kind::BUSINESS, Kind::DECODE] {
            assert!(!Failure::of_kind(kind.clone()).is_retryable(), "{kind}");
        }
        assert!(Failure::of_type("shop::ValidationError").is_retryable());
    }

    #[test]
    fn every_status_has_its_class() {
        for status in 0..=u16::MAX {
            let expected = !(400..500).contains(&status) || [408, 425, 429].contains(&status);
            assert_eq!(Failure::of_status(status).is_retryable(), expected, "{status}");
        }
    }

    #[test]
    fn either_class_can_say_no_and_the_handler_has_the_last_word() {
        let mut failure = Failure::of_status(503);
        failure.kind = Some(Kind::DECODE);
        assert!(!failure.is_retryable());
        assert!(failure.with_retryable(true).is_retryable());
        assert!(!Failure::of_status(503).with_retryable(false).is_retryable());
    }
}
