//! What was read, on its way to an engine.

use redrive_core::Timestamp;

use super::plan::{FlowPlan, Role, Taken};
use crate::kafka::message::Message;
use crate::prefetch::prefetch;

/// A message, or what was made of it already: to take a retried record's headers apart takes longer than all that its lane does with
/// it, and a flow has one engine. So that is done by whoever reads.
pub(crate) enum Incoming {
    Message(Message),
    Taken(Box<Taken>),
}

impl Incoming {
    /// Makes of a message what its lane takes, unless it tells of an error.
    pub(crate) fn taken(
        message: Message,
        plan: &FlowPlan,
        role: Role,
        is_kept: impl FnOnce(Timestamp) -> bool,
    ) -> Self {
        match message.error() {
            None => Self::Taken(Box::new(plan.item(role, message, is_kept))),
            Some(_) => Self::Message(message),
        }
    }

    /// Where it is and when it was appended, if it is a record that has such a time.
    pub(super) fn appended(&self) -> Option<(i64, i64)> {
        match self {
            Self::Message(it) if it.error().is_some() => None,
            Self::Message(it) => Some((it.offset(), it.timestamp()?)),
            // Without a time it is that of the epoch.
            Self::Taken(it) => {
                Some((it.item.offset, it.item.appended_at.as_millis())).filter(|(_, at)| *at > 0)
            }
        }
    }

    /// Lets the processor fetch it from whichever core has it, without waiting for it.
    #[inline]
    pub(super) fn prefetch(&self) {
        match self {
            Self::Message(message) => message.prefetch(),
            Self::Taken(taken) => prefetch(&raw const **taken),
        }
    }
}
