//! What to do about a class of failure.
//!
//! A policy has up to two parts, runs in place and delayed retries over a topic, and an end. Which
//! topic a delayed retry takes is the [strategy](crate::Strategy)'s business.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::failure::Failure;
use crate::text::cut;

/// What to do about a class of failure: runs in place, then delayed retries, then the end.
///
/// ```
/// use redrive_core::{Delayed, InMemory, Policy, Then};
///
/// let patient = Policy::named("Database").with_in_memory(InMemory::default()).with_delayed(Delayed::attempts(10));
/// let careless = Policy::named("Metrics").then(Then::Drop);
/// assert!(careless.is_no_retry() && !patient.is_no_retry());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// What the attempts are counted under.
    pub id: Identifier,
    /// Runs in place, before anything is published.
    pub in_memory: Option<InMemory>,
    /// Retries over a topic.
    pub delayed: Option<Delayed>,
    /// What happens when the attempts are spent.
    pub then: Then,
}

impl Policy {
    /// A policy of this name that does not retry, until it is told to.
    pub fn named(id: impl Into<Identifier>) -> Self {
        Self { id: id.into(), ..Self::default() }
    }

    /// What applies where nothing was configured: three runs in place, 100 ms apart, then the
    /// flow's retry topics, then the dead-letter topic. Its identifier is the name of the
    /// failure's error type.
    pub fn built_in() -> Self {
        Self::default().with_in_memory(InMemory::default()).with_delayed(Delayed::default())
    }

    /// Runs again in place first.
    #[must_use]
    pub fn with_in_memory(mut self, in_memory: InMemory) -> Self {
        self.in_memory = Some(in_memory);
        self
    }

    /// Retries over a topic, after the runs in place if there are any.
    #[must_use]
    pub fn with_delayed(mut self, delayed: Delayed) -> Self {
        self.delayed = Some(delayed);
        self
    }

    /// Ends like this when the attempts are spent, or at once where there are none.
    #[must_use]
    pub fn then(mut self, then: Then) -> Self {
        self.then = then;
        self
    }

    /// Whether it ends at once.
    pub fn is_no_retry(&self) -> bool {
        self.in_memory.as_ref().is_none_or(|it| it.attempts == 0)
            && self.delayed.as_ref().is_none_or(|it| it.attempts == Some(0))
    }
}

/// More runs in place, within the same delivery.
#[derive(Clone, Debug)]
pub struct InMemory {
    /// How many runs more.
    pub attempts: u32,
    /// How long to wait before each.
    pub backoff: Backoff,
}

impl InMemory {
    /// The wait before each run in place where none was set: 100 ms.
    pub const DEFAULT_BACKOFF: Backoff = Backoff::Fixed(Duration::from_millis(100));

    /// So many runs more, 100 ms apart.
    pub fn attempts(attempts: u32) -> Self {
        Self { attempts, backoff: Self::DEFAULT_BACKOFF }
    }

    /// Waits like this before each run.
    #[must_use]
    pub fn with_backoff(mut self, backoff: impl Into<Backoff>) -> Self {
        self.backoff = backoff.into();
        self
    }
}

/// # Defaults
///
/// Three runs, 100 ms apart.
impl Default for InMemory {
    fn default() -> Self {
        Self::attempts(3)
    }
}

/// Retries over a topic.
///
/// # Defaults
///
/// No cap of its own and no backoff: the retry topics' own delays and attempts count.
#[derive(Clone, Debug, Default)]
pub struct Delayed {
    /// How many publishes under this policy, if there is a cap.
    pub attempts: Option<u32>,
    /// How long to wait, where it is not the topic that says so.
    pub backoff: Option<Backoff>,
}

impl Delayed {
    /// At most so many publishes.
    pub fn attempts(attempts: u32) -> Self {
        Self { attempts: Some(attempts), backoff: None }
    }

    /// Waits like this, whatever the topics' own delays are.
    #[must_use]
    pub fn with_backoff(mut self, backoff: impl Into<Backoff>) -> Self {
        self.backoff = Some(backoff.into());
        self
    }
}

/// What happens to a record whose attempts are spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// It goes to the dead-letter topic.
    #[default]
    DeadLetter,
    /// It is settled and counted.
    Drop,
    /// The flow halts, or the process ends.
    Stop {
        /// Whether the process ends.
        exit: bool,
    },
}

/// What a policy's attempts are counted under: a fixed name, or one made from the failure.
#[derive(Clone, Debug, Default)]
pub struct Identifier(Naming);

#[derive(Clone, Default)]
enum Naming {
    /// The simple name of the failure's error type.
    #[default]
    ErrorType,
    Fixed(Arc<str>),
    Template(Arc<[Piece]>),
    Function(Arc<dyn Fn(&Failure) -> String + Send + Sync>),
}

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    Status,
    Kind,
    Error,
}

impl Identifier {
    /// The longest identifier in bytes; what is longer is cut.
    pub const MAX_BYTES: usize = 255;

    /// What stands for a part that the failure does not have.
    const UNKNOWN: &str = "unknown";
    /// The name of a policy without an identifier where the failure has no error type.
    const DEFAULT: &str = "default";

    /// A name in which `{status}`, `{kind}` and `{error}` stand for what the failure has.
    ///
    /// # Errors
    ///
    /// An empty name, an unknown placeholder or a brace without its partner.
    pub fn parse(text: &str) -> Result<Self, IdentifierError> {
        if text.trim().is_empty() {
            return Err(IdentifierError::Empty);
        }
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find(['{', '}']) {
            let inner = rest[open..].strip_prefix('{').ok_or(IdentifierError::Unbalanced)?;
            let close = inner.find('}').ok_or(IdentifierError::Unbalanced)?;
            if open > 0 {
                pieces.push(Piece::Text(rest[..open].to_owned()));
            }
            pieces.push(match &inner[..close] {
                "status" => Piece::Status,
                "kind" => Piece::Kind,
                "error" => Piece::Error,
                other => return Err(IdentifierError::Placeholder(other.to_owned())),
            });
            rest = &inner[close + 1..];
        }
        if pieces.is_empty() {
            return Ok(Self::from(text));
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Self(Naming::Template(pieces.into())))
    }

    /// The part of a name that counts.
    pub(crate) fn cut(name: &str) -> &str {
        cut(name, Self::MAX_BYTES)
    }

    /// A name that the function makes from the failure.
    pub fn from_failure(function: impl Fn(&Failure) -> String + Send + Sync + 'static) -> Self {
        Self(Naming::Function(Arc::new(function)))
    }

    /// The name for this failure, at most [`Identifier::MAX_BYTES`] long.
    pub fn resolve<'a>(&'a self, failure: &'a Failure) -> Cow<'a, str> {
        let name = match &self.0 {
            Naming::ErrorType => failure.simple_name().unwrap_or(Cow::Borrowed(Self::DEFAULT)),
            Naming::Fixed(name) => Cow::Borrowed(&**name),
            Naming::Template(pieces) => Cow::Owned(Self::fill(pieces, failure)),
            Naming::Function(function) => Cow::Owned(function(failure)),
        };
        match name {
            Cow::Borrowed(name) => Cow::Borrowed(Self::cut(name)),
            Cow::Owned(name) if name.is_empty() => Cow::Borrowed(Self::DEFAULT),
            Cow::Owned(mut name) => {
                name.truncate(Self::cut(&name).len());
                Cow::Owned(name)
            }
        }
    }

    /// Whether it could be this name for some failure, as far as that can be said: not of one that is named after the error's
    /// type, or by a function.
    pub(crate) fn may_be(&self, name: &str) -> bool {
        match &self.0 {
            Naming::Fixed(fixed) => Self::cut(fixed) == name,
            Naming::Template(pieces) => {
                let text = |it: Option<&Piece>| match it {
                    Some(Piece::Text(text)) => text.clone(),
                    _ => String::new(),
                };
                let (first, last) = (text(pieces.first()), text(pieces.last()));
                name.starts_with(&first) && (name.ends_with(&last) || name.len() == Self::MAX_BYTES)
            }
            Naming::ErrorType | Naming::Function(_) => false,
        }
    }

    fn fill(pieces: &[Piece], failure: &Failure) -> String {
        let mut name = String::with_capacity(Self::MAX_BYTES);
        for piece in pieces {
            match piece {
                Piece::Text(text) => name.push_str(text),
                Piece::Status => match failure.status {
                    // Writing to a String does not fail.
                    Some(status) => _ = write!(name, "{status}"),
                    None => name.push_str(Self::UNKNOWN),
                },
                Piece::Kind => {
                    name.push_str(failure.kind.as_ref().map_or(Self::UNKNOWN, |it| it.as_str()));
                }
                Piece::Error => {
                    name.push_str(failure.simple_name().as_deref().unwrap_or(Self::UNKNOWN));
                }
            }
        }
        name
    }
}

/// A fixed name, taken as it stands: braces have no meaning here.
impl From<&str> for Identifier {
    fn from(name: &str) -> Self {
        Self(Naming::Fixed(name.into()))
    }
}

impl fmt::Debug for Naming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Naming::ErrorType => f.write_str("ErrorType"),
            Naming::Fixed(name) => f.debug_tuple("Fixed").field(name).finish(),
            Naming::Template(pieces) => f.debug_tuple("Template").field(pieces).finish(),
            Naming::Function(_) => f.write_str("Function(..)"),
        }
    }
}

/// Why a text is no policy identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdentifierError {
    /// There is nothing in it.
    Empty,
    /// A brace has no partner.
    Unbalanced,
    /// Braces around something other than `status`, `kind` or `error`.
    Placeholder(String),
}

impl fmt::Display for IdentifierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdentifierError::Empty => f.write_str("a policy's identifier is empty"),
            IdentifierError::Unbalanced => f.write_str("a brace in the identifier has no partner"),
            IdentifierError::Placeholder(name) => {
                write!(f, "the placeholder {{{name}}} is none of {{status}}, {{kind}}, {{error}}")
            }
        }
    }
}

impl std::error::Error for IdentifierError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Kind;

    #[test]
    fn a_policy_without_identifier_has_the_error_types_simple_name() {
        let unnamed = Identifier::default();
        assert_eq!(unnamed.resolve(&Failure::of_type("shop::PaymentTimeout")), "PaymentTimeout");
        assert_eq!(unnamed.resolve(&Failure::of_status(503)), "default");
    }

    #[test]
    fn templates_are_filled_from_the_failure() {
        let id = Identifier::parse("{kind}/ServerError-{status}-{error}!").unwrap();
        let mut failure = Failure::of_type("a::B<C>");
        assert_eq!(id.resolve(&failure), "unknown/ServerError-unknown-B!");
        failure.status = Some(503);
        failure.kind = Some(Kind::TIMEOUT);
        assert_eq!(id.resolve(&failure), "timeout/ServerError-503-B!");
    }

    #[test]
    fn wrong_templates_are_refused() {
        let wrong = |text| Identifier::parse(text).unwrap_err();
        assert_eq!(wrong(" "), IdentifierError::Empty);
        assert_eq!(wrong("a{status"), IdentifierError::Unbalanced);
        assert_eq!(wrong("a}"), IdentifierError::Unbalanced);
        assert_eq!(wrong("{code}"), IdentifierError::Placeholder("code".into()));
    }

    #[test]
    fn long_identifiers_are_cut_the_same_way_each_time() {
        let long = "я".repeat(400);
        let fixed = Identifier::from(long.as_str());
        let made = Identifier::from_failure(move |_| long.clone());
        let failure = Failure::default();
        assert_eq!(fixed.resolve(&failure), made.resolve(&failure));
        assert_eq!(fixed.resolve(&failure).len(), 254);
    }
}
