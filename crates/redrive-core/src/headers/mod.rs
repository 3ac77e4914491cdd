//! A record's state on its way from hop to hop, in headers.
//!
//! Redrive's own headers are always written. One other format, a *dialect*, may be written beside
//! them, and all of them are read, so that a team can move over with records in flight. Foreign
//! headers stay as they are, in their order.
//!
//! Headers come from outside. One that cannot be read is never a crash and never an early run:
//! counts that cannot be read are a first attempt, and a due time that cannot be read is reported
//! as [`Due::Unreadable`], so that the record goes to the dead-letter topic.

mod block;
mod iso8601;
mod name;
mod native;
mod number;
mod payload;
mod quafka;
mod spring;
mod tiered;
mod x;

use std::fmt;
use std::time::Duration;

pub use block::HeaderBlock;
pub use name::Name;
pub use native::VERSION;

use crate::failure::Failure;
use crate::state::{Origin, RetryState};
use crate::time::Timestamp;
use crate::verdict::Reason;

/// The longest error message and response that is written, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 1024;
/// The longest error detail that is written, in bytes.
pub const MAX_DETAIL_BYTES: usize = 4096;
/// The longest error type that is written, in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// One header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its value; Kafka allows a header without one.
    pub value: Option<&'a [u8]>,
}

impl<'a> Header<'a> {
    /// A header with a value.
    pub fn new(name: &'a str, value: &'a [u8]) -> Self {
        Self { name, value: Some(value) }
    }
}

/// The formats that a record's state can be read from and written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Dialect {
    /// Redrive's own headers alone.
    #[default]
    Native,
    /// `x-retry-attempt`, `x-process-after` …
    X,
    /// `retry-topic-index`, `retry-timestamp` …
    Tiered,
    /// `X-RetryAttempts`, `X-DelaySeconds` …
    Quafka,
    /// `retry_topic-attempts`, `kafka_original-topic` …
    Spring,
    /// `process_at` and `retry_count` in the JSON value itself.
    Payload,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Dialect; 6] = [
        Dialect::Native,
        Dialect::X,
        Dialect::Tiered,
        Dialect::Quafka,
        Dialect::Spring,
        Dialect::Payload,
    ];

    /// Its name in the config.
    pub const fn as_str(self) -> &'static str {
        match self {
            Dialect::Native => "native",
            Dialect::X => "x",
            Dialect::Tiered => "tiered",
            Dialect::Quafka => "quafka",
            Dialect::Spring => "spring",
            Dialect::Payload => "payload",
        }
    }

    /// The names it writes at each hop, and those that it writes if a failure caused the hop. What
    /// a record brings under one of them is replaced.
    fn names(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Dialect::Native | Dialect::Payload => (&[], &[]),
            Dialect::X => (&x::NAMES, &x::NAMES_OF_FAILURE),
            Dialect::Tiered => (&tiered::NAMES, &[]),
            Dialect::Quafka => (&quafka::NAMES, &quafka::NAMES_OF_FAILURE),
            Dialect::Spring => (&spring::NAMES, &spring::NAMES_OF_FAILURE),
        }
    }

    fn read<'a>(self, input: &Input<'_, 'a>) -> Option<Found<'a>> {
        match self {
            Dialect::Native => None,
            Dialect::X => x::read(input),
            Dialect::Tiered => tiered::read(input),
            Dialect::Quafka => quafka::read(input),
            Dialect::Spring => spring::read(input),
            Dialect::Payload => payload::read(input),
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a record was taken from, which decides whose headers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// A source topic. Its records are fresh, whatever headers somebody copied onto them.
    Source,
    /// The source topic of a flow whose strategy brings records back to it: headers count if they
    /// say that the record came from here.
    ReturnedToSource {
        /// That topic.
        topic: &'a str,
    },
    /// A tier: a retry topic or a delay topic. What it is in the flow's config counts, not what
    /// the header says, since configs change between two hops.
    Tier {
        /// Its index, from 0.
        index: u32,
        /// Its delay.
        delay: Option<Duration>,
    },
    /// The one topic that delay topics feed.
    Retry,
}

/// How to read a record's headers.
#[derive(Clone, Copy, Debug)]
pub struct ReadContext<'a> {
    /// The group that reads.
    pub group: &'a str,
    /// Where the record was taken from.
    pub place: Place<'a>,
    /// The dialect that the flow writes.
    pub dialect: Dialect,
    /// The record's own Kafka timestamp.
    pub timestamp: Timestamp,
}

/// What a record's headers say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading<'a> {
    /// Its counts.
    pub state: RetryState<'a>,
    /// When it may run.
    pub due: Due,
    /// Whether that stands in Redrive's own header, and so will be read the same whatever the config says.
    pub is_dated: bool,
    /// Where it was produced. None: where it was just taken from.
    pub origin: Option<Origin<'a>>,
    /// When it was produced. None: at the time that the record itself has.
    pub produced_at: Option<Timestamp>,
    /// The number of its last hop.
    pub hop: u32,
    /// The epoch of the owner that published it.
    pub epoch: Option<u64>,
    /// How often an operator sent it back from the dead-letter topic.
    pub redriven: u32,
    /// Whose record it is.
    pub owner: Owner,
    /// The format that the counts were read from.
    pub format: Option<Dialect>,
    /// The first header that could not be read, if there was one.
    pub unreadable: Option<&'static str>,
}

/// From when on a record may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Due {
    /// No header holds it back.
    #[default]
    Now,
    /// From this time on.
    At(Timestamp),
    /// A header says when, but cannot be read: it must not run.
    Unreadable(&'static str),
}

impl Due {
    /// The later of two: never early. One that cannot be read is later than any.
    fn or_later(self, other: Due) -> Due {
        match (self, other) {
            (Due::Unreadable(name), _) | (_, Due::Unreadable(name)) => Due::Unreadable(name),
            (Due::At(one), Due::At(other)) => Due::At(one.max(other)),
            (Due::Now, due) | (due, Due::Now) => due,
        }
    }

    fn unreadable(self) -> Option<&'static str> {
        match self {
            Due::Unreadable(name) => Some(name),
            Due::Now | Due::At(_) => None,
        }
    }

    fn from_field(field: number::Field<Timestamp>, name: &'static str) -> Self {
        match field {
            number::Field::Absent => Due::Now,
            number::Field::Is(time) => Due::At(time),
            number::Field::Unreadable => Due::Unreadable(name),
        }
    }
}

/// Whose record it is. To be looked at first: what another group's headers say is its own affair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// The reading group's, or nobody's.
    #[default]
    Us,
    /// Another group's: it is settled and counted, not run.
    AnotherGroup,
}

/// All that a reader of one format looks at.
struct Input<'i, 'a> {
    headers: &'i [Header<'a>],
    value: Option<&'i [u8]>,
    context: &'i ReadContext<'i>,
}

/// What one format says.
#[derive(Clone, Debug, Default)]
struct Found<'a> {
    state: RetryState<'a>,
    due: Due,
    /// The topic it was produced to, which some formats know without partition and offset.
    topic: Option<&'a str>,
    origin: Option<Origin<'a>>,
    produced_at: Option<Timestamp>,
    unreadable: Option<&'static str>,
}

/// Whether Redrive itself writes a header of this name. On a record that was not retried it may be somebody else's.
pub fn is_native(name: &str) -> bool {
    native::is_native(name)
}

/// Whether a header of this name only tells people of the failure, at length or once more in this dialect: a record for which there is no
/// room with it can do without.
pub fn tells_at_length(name: &[u8], dialect: Dialect) -> bool {
    use Name::{ErrorDetail, ErrorMessage, Response};
    match Name::of(name) {
        Some(name) => matches!(name, ErrorMessage | ErrorDetail | Response),
        None => dialect.names().1.iter().any(|it| it.as_bytes() == name),
    }
}

/// Reads a record's state.
///
/// Redrive's own headers come first, then the flow's dialect, then the others. Where the flow's
/// dialect counts more publishes than Redrive's own headers, somebody else made a hop in between,
/// and the dialect wins. Only the flow's own dialect can do so: whatever stands in the others may
/// have been there since before the first hop.
pub fn read<'a>(
    headers: &[Header<'a>],
    value: Option<&[u8]>,
    context: &ReadContext<'_>,
) -> Reading<'a> {
    let mut reading = match context.place {
        Place::Source => return Reading::default(),
        Place::ReturnedToSource { topic } => read_returned(headers, value, context, topic),
        Place::Tier { .. } | Place::Retry => read_retry(headers, value, context),
    };
    if let Place::Tier { index, .. } = context.place {
        reading.state.tier = Some(index);
    }
    reading
}

fn read_retry<'a>(
    headers: &[Header<'a>],
    value: Option<&[u8]>,
    context: &ReadContext<'_>,
) -> Reading<'a> {
    let input = Input { headers, value, context };
    let native = native::read(headers, context.group);
    let chosen = context.dialect.read(&input);
    match (native, chosen) {
        (Some(native), chosen) => native.overruled_by(chosen, context.dialect),
        (None, Some(chosen)) => Reading::from_dialect(chosen, context.dialect),
        (None, None) => {
            let others = Dialect::ALL.iter().filter(|it| **it != context.dialect);
            let mut found = others.filter_map(|it| it.read(&input).map(|found| (found, *it)));
            let Some((mut first, dialect)) = found.next() else {
                return Reading::default();
            };
            first.due = found.fold(first.due, |due, (other, _)| due.or_later(other.due));
            Reading::from_dialect(first, dialect)
        }
    }
}

/// On a source topic headers count only if they are about this very topic.
fn read_returned<'a>(
    headers: &[Header<'a>],
    value: Option<&[u8]>,
    context: &ReadContext<'_>,
    topic: &str,
) -> Reading<'a> {
    let native = native::read(headers, context.group)
        .filter(|it| it.owner == Owner::Us && it.origin.is_some_and(|o| o.topic == topic));
    let chosen = context.dialect.read(&Input { headers, value, context });
    let chosen = chosen.filter(|it| it.topic.is_none_or(|it| it == topic));
    match (native, chosen) {
        (Some(native), chosen) => native.overruled_by(chosen, context.dialect),
        (None, Some(chosen)) => Reading::from_dialect(chosen, context.dialect),
        (None, None) => Reading::default(),
    }
}

impl<'a> Reading<'a> {
    fn from_dialect(found: Found<'a>, dialect: Dialect) -> Self {
        Reading {
            state: found.state,
            due: found.due,
            origin: found.origin,
            produced_at: found.produced_at,
            format: Some(dialect),
            unreadable: found.due.unreadable().or(found.unreadable),
            ..Reading::default()
        }
    }

    /// Takes the dialect's word where somebody else made a hop since our own headers were written.
    fn overruled_by(mut self, found: Option<Found<'a>>, dialect: Dialect) -> Self {
        let Some(found) = found else {
            return self;
        };
        if found.state.overall <= self.state.overall {
            // Our own due time is the finer one, if there is one.
            if self.due == Due::Now {
                self.due = found.due;
            }
            return self;
        }
        let hops = found.state.overall - self.state.overall;
        let state = RetryState {
            overall: found.state.overall,
            policy_attempts: match found.state.policy {
                Some(_) => found.state.policy_attempts,
                None => self.state.policy_attempts.saturating_add(hops),
            },
            policy: found.state.policy.or(self.state.policy),
            tier: found.state.tier.or(self.state.tier),
            tier_attempts: match found.state.tier {
                Some(_) => found.state.tier_attempts,
                None => self.state.tier_attempts.saturating_add(hops),
            },
            first_failed_at: self.state.first_failed_at.or(found.state.first_failed_at),
        };
        let due = self.due.or_later(found.due);
        Reading {
            state,
            is_dated: self.is_dated && due == self.due,
            due,
            origin: self.origin.or(found.origin),
            produced_at: self.produced_at.or(found.produced_at),
            format: Some(dialect),
            unreadable: self.unreadable.or(found.due.unreadable()).or(found.unreadable),
            ..self
        }
    }
}

/// What a hop writes on a record.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    /// The group whose record it is.
    pub group: &'a str,
    /// Where it was produced.
    pub origin: Origin<'a>,
    /// When it was produced.
    pub produced_at: Option<Timestamp>,
    /// Where it was just taken from: topic, partition, offset.
    pub from: (&'a str, i32, i64),
    /// Its counts, with this hop.
    pub state: &'a RetryState<'a>,
    /// The number of this hop.
    pub hop: u32,
    /// The epoch of the owner.
    pub epoch: Option<u64>,
    /// How often an operator sent it back.
    pub redriven: u32,
    /// The failure that caused the hop. None leaves what is on the record.
    pub failure: Option<Failed<'a>>,
    /// Where it goes.
    pub stop: Stop<'a>,
    /// The time of the publish.
    pub now: Timestamp,
}

impl Stamp<'_> {
    /// When it was produced, where Kafka knows.
    fn produced_at(&self) -> Option<Timestamp> {
        self.produced_at.filter(|it| it.as_millis() >= 0)
    }
}

/// A failure and its time.
#[derive(Clone, Copy, Debug)]
pub struct Failed<'a> {
    /// What went wrong.
    pub failure: &'a Failure,
    /// When.
    pub at: Timestamp,
}

/// A record's next stop.
#[derive(Clone, Copy, Debug)]
pub enum Stop<'a> {
    /// A tier.
    Tier {
        /// From when on it may run.
        due: Timestamp,
        /// The tier's own delay.
        delay: Option<Duration>,
        /// Where a relay will move it when it is due.
        forward_to: Option<&'a str>,
    },
    /// The dead-letter topic.
    DeadLetter {
        /// Why.
        reason: Reason,
        /// The head that it follows, if it is a follower.
        follows: Option<Origin<'a>>,
    },
}

/// The record's headers for its next stop: the foreign ones as they came, then Redrive's own, then
/// the dialect's.
pub fn write<'a>(headers: &[Header<'a>], stamp: &Stamp<'_>, dialect: Dialect) -> HeaderBlock<'a> {
    let mut block = HeaderBlock::with_room_for(headers.len() + 32);
    let (always, of_failure) = dialect.names();
    for header in headers {
        let is_replaced = native::is_replaced(header.name, stamp)
            || always.contains(&header.name)
            || (stamp.failure.is_some() && of_failure.contains(&header.name));
        if !is_replaced {
            block.keep(*header);
        }
    }
    native::write(&mut block, stamp);
    match dialect {
        Dialect::Native | Dialect::Payload => {}
        Dialect::X => x::write(&mut block, stamp),
        Dialect::Tiered => tiered::write(&mut block, stamp),
        Dialect::Quafka => quafka::write(&mut block, stamp),
        Dialect::Spring => spring::write(&mut block, stamp),
    }
    block
}

/// The record's value for its next stop, where the dialect changes it: only [`Dialect::Payload`]
/// does, on its way to a tier, and only the bytes of its own fields. A value that is no JSON
/// object stays as it is.
pub fn write_value(value: Option<&[u8]>, stamp: &Stamp<'_>, dialect: Dialect) -> Option<Vec<u8>> {
    match (dialect, stamp.stop) {
        (Dialect::Payload, Stop::Tier { due, .. }) => {
            payload::rewrite(value?, due, stamp.state.overall)
        }
        _ => None,
    }
}
