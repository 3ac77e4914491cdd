//! Which policy a failure gets from a flow's own rules.
//!
//! The most specific sort of rule wins: a predicate, then a match by error type, status, kind or
//! header, then what matches anything. Within one sort the first declared wins. So a catch-all in
//! a shared set never hides a flow's own rule, wherever the set is put.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::failure::{Failure, Kind, without_generics};
use crate::headers::Header;
use crate::policy::Policy;

/// The record that a handler failed on, as far as rules look at it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordView<'a> {
    /// The topic it was taken from.
    pub topic: &'a str,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value.
    pub value: Option<&'a [u8]>,
    /// Its headers.
    pub headers: &'a [Header<'a>],
}

/// A policy and what it is for.
#[derive(Clone, Debug)]
pub struct Rule {
    on: On,
    policy: Arc<Policy>,
}

impl Rule {
    /// `policy` for what `on` matches.
    pub fn new(on: On, policy: Policy) -> Self {
        Self { on, policy: Arc::new(policy) }
    }

    /// What it matches.
    pub fn on(&self) -> &On {
        &self.on
    }

    /// What it does.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}

/// What a rule matches: any of several alternatives.
#[derive(Clone, Debug)]
pub struct On(Vec<Alternative>);

#[derive(Clone, Debug)]
enum Alternative {
    Predicate(Predicate),
    Match(Match),
}

impl On {
    /// Every failure.
    pub fn any() -> Self {
        Self::from(Match::default())
    }

    /// Failures of this error type, by simple name or full path.
    pub fn error(name: impl Into<String>) -> Self {
        Self::from(Match { errors: vec![name.into()], ..Match::default() })
    }

    /// One HTTP status.
    pub fn status(status: u16) -> Self {
        Self::statuses(status..=status)
    }

    /// HTTP statuses from one to another, both included.
    pub fn statuses(range: RangeInclusive<u16>) -> Self {
        Self::from(Match { statuses: vec![range], ..Match::default() })
    }

    /// Failures of this kind.
    pub fn kind(kind: Kind) -> Self {
        Self::from(Match { kinds: vec![kind], ..Match::default() })
    }

    /// Records with this header, and with this value if one is given.
    pub fn header(name: impl Into<String>, value: Option<&str>) -> Self {
        let value = value.map(str::to_owned);
        Self::from(Match {
            headers: vec![HeaderMatch { name: name.into(), value }],
            ..Match::default()
        })
    }

    /// Whatever the function says yes to.
    pub fn predicate(
        function: impl Fn(&RecordView<'_>, &Failure) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self(vec![Alternative::Predicate(Predicate(Arc::new(function)))])
    }

    /// This or the other.
    #[must_use]
    pub fn or(mut self, other: On) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The alternatives that are not predicates.
    pub fn matches(&self) -> impl Iterator<Item = &Match> {
        self.0.iter().filter_map(|it| match it {
            Alternative::Match(it) => Some(it),
            Alternative::Predicate(_) => None,
        })
    }

    /// How specific the best alternative is that matches, if one does.
    fn rank(&self, record: &RecordView<'_>, failure: &Failure) -> Option<Rank> {
        let ranks = self.0.iter().filter_map(|alternative| match alternative {
            Alternative::Predicate(Predicate(says)) => {
                says(record, failure).then_some(Rank::Predicate)
            }
            Alternative::Match(it) => it.accepts(record, failure).then(|| it.rank()),
        });
        ranks.min()
    }
}

impl From<Match> for On {
    fn from(it: Match) -> Self {
        Self(vec![Alternative::Match(it)])
    }
}

/// How specific a match is, the most specific first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// A predicate.
    Predicate,
    /// A match by error type, status, kind or header.
    Named,
    /// A match that names nothing: `any`, or `retryable` alone.
    Any,
}

/// A match by what failure and record look like. Each list that is not empty must have one entry
/// that fits; with nothing set it matches everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Match {
    /// Error types, by simple name or full path.
    pub errors: Vec<String>,
    /// Ranges of HTTP statuses.
    pub statuses: Vec<RangeInclusive<u16>>,
    /// Kinds.
    pub kinds: Vec<Kind>,
    /// Headers of the record.
    pub headers: Vec<HeaderMatch>,
    /// Whether the failure is retryable by its class.
    pub retryable: Option<bool>,
}

/// A header by name, and by value if one is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    /// The header's name.
    pub name: String,
    /// The value it must have.
    pub value: Option<String>,
}

impl HeaderMatch {
    fn accepts(&self, header: &Header<'_>) -> bool {
        header.name == self.name
            && self
                .value
                .as_ref()
                .is_none_or(|value| header.value.is_some_and(|it| it == value.as_bytes()))
    }
}

impl Match {
    /// How specific it is.
    pub fn rank(&self) -> Rank {
        let names_something = !self.errors.is_empty()
            || !self.statuses.is_empty()
            || !self.kinds.is_empty()
            || !self.headers.is_empty();
        if names_something { Rank::Named } else { Rank::Any }
    }

    fn accepts(&self, record: &RecordView<'_>, failure: &Failure) -> bool {
        self.accepts_failure(failure)
            && (self.headers.is_empty()
                || record.headers.iter().any(|it| self.headers.iter().any(|h| h.accepts(it))))
    }

    fn accepts_failure(&self, failure: &Failure) -> bool {
        (self.errors.is_empty() || self.accepts_error(failure))
            && (self.statuses.is_empty()
                || failure.status.is_some_and(|it| self.statuses.iter().any(|r| r.contains(&it))))
            && (self.kinds.is_empty()
                || failure.kind.as_ref().is_some_and(|it| self.kinds.contains(it)))
            && self.retryable.is_none_or(|it| it == failure.is_retryable())
    }

    fn accepts_error(&self, failure: &Failure) -> bool {
        let Some(full) = failure.error_type.as_deref() else {
            return false;
        };
        let simple = failure.simple_name().unwrap_or(Cow::Borrowed(""));
        let bare = without_generics(full);
        self.errors.iter().any(|it| *it == full || *it == *bare || *it == *simple)
    }
}

#[derive(Clone)]
struct Predicate(Arc<PredicateFn>);

type PredicateFn = dyn Fn(&RecordView<'_>, &Failure) -> bool + Send + Sync;

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate(..)")
    }
}

/// A list of rules: a flow's own, or a set that several flows share.
///
/// ```
/// use redrive_core::{Failure, On, Policy, RecordView, Rule, Rules};
///
/// let common = Rules::from(vec![Rule::new(On::any(), Policy::named("Anything"))]);
/// let rules = common.with(Rule::new(On::status(429), Policy::named("RateLimit")));
/// let found = rules.find(&RecordView::default(), &Failure::of_status(429)).unwrap();
/// assert_eq!(found.id.resolve(&Failure::default()), "RateLimit");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// These rules and one more behind them.
    #[must_use]
    pub fn with(mut self, rule: Rule) -> Self {
        self.0.push(rule);
        self
    }

    /// These rules and another set behind them.
    #[must_use]
    pub fn with_all(mut self, others: &Rules) -> Self {
        self.0.extend(others.0.iter().cloned());
        self
    }

    /// The rules in the order they were declared.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter()
    }

    /// The policy for this failure: of the most specific rules that match, the first.
    pub fn find(&self, record: &RecordView<'_>, failure: &Failure) -> Option<&Policy> {
        let mut best: Option<(Rank, &Policy)> = None;
        for rule in &self.0 {
            let Some(rank) = rule.on.rank(record, failure) else {
                continue;
            };
            if rank == Rank::Predicate {
                return Some(rule.policy());
            }
            if best.is_none_or(|(so_far, _)| rank < so_far) {
                best = Some((rank, rule.policy()));
            }
        }
        best.map(|(_, policy)| policy)
    }
}

impl From<Vec<Rule>> for Rules {
    fn from(rules: Vec<Rule>) -> Self {
        Self(rules)
    }
}

impl FromIterator<Rule> for Rules {
    fn from_iter<T: IntoIterator<Item = Rule>>(rules: T) -> Self {
        Self(rules.into_iter().collect())
    }
}
