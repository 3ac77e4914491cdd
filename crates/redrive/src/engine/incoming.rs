//! What was read, on its way to an engine.

use redrive_core::Timestamp;

use super::load::bytes_of;
use super::plan::{FlowPlan, Role, Taken};
use crate::kafka::message::Message;
use crate::prefetch::prefetch;

/// What was read of a partition: an engine gets what it has to know without looking for it in another core's memory, and a flow has one engine.
pub(crate) enum Incoming {
    /// It is there for the first time.
    New(New),
    /// It was retried. To take its headers apart takes longer than all that its lane does with it, so that is done by whoever reads.
    Taken(Box<Taken>),
    /// No record, but what went wrong.
    Error(Message),
}

/// A record that is there for the first time.
pub(crate) struct New {
    pub(super) message: Message,
    pub(super) offset: i64,
    /// How much memory it takes.
    pub(super) bytes: usize,
}

impl Incoming {
    /// A message that is there for the first time.
    pub(crate) fn new(message: Message) -> Self {
        match message.error() {
            None => Self::New(New {
                offset: message.offset(),
                bytes: bytes_of(message.key(), message.value()),
                message,
            }),
            Some(_) => Self::Error(message),
        }
    }

    /// Makes of a message what its lane takes, unless it tells of an error.
    pub(crate) fn taken(
        message: Message,
        plan: &FlowPlan,
        role: Role,
        is_kept: impl FnOnce(Timestamp) -> bool,
    ) -> Self {
        match message.error() {
            None => Self::Taken(Box::new(plan.item(role, message, is_kept))),
            Some(_) => Self::Error(message),
        }
    }

    /// Where it is and when it was appended, if it is a record that has such a time.
    pub(super) fn appended(&self) -> Option<(i64, i64)> {
        match self {
            Self::New(it) => Some((it.offset, it.message.timestamp()?)),
            // Without a time it is that of the epoch.
            Self::Taken(it) => {
                Some((it.item.offset, it.item.appended_at.as_millis())).filter(|(_, at)| *at > 0)
            }
            Self::Error(_) => None,
        }
    }

    /// Lets the processor fetch it from whichever core has it, without waiting for it. New ones only where somebody looks at them.
    #[inline]
    pub(super) fn prefetch(&self, is_looked_at: bool) {
        match self {
            Self::New(new) if is_looked_at => new.message.prefetch(),
            Self::Taken(taken) => prefetch(&raw const **taken),
            Self::New(_) | Self::Error(_) => {}
        }
    }
}
