//! Owners that were deposed may still publish: what they publish too late is void.
//!
//! Each owner of an ordered lane has an epoch, higher than those before it. When it takes over, it notes the end of each
//! tier, reads what is below by the rules of the owner before, and commits its epoch and the ends before it runs or publishes
//! anything. Whatever an earlier owner appended from these ends on is void: its own commit was refused, since there was
//! a new owner already, so that the copy before it still stands and will be run.
//!
//! What is below was judged by then, and the map of that commit says what came of it. So one epoch and one end for each tier are
//! all that there is to know of the owners before.

use super::entities::Part;
use crate::mutation::{self, Mutation};
use crate::offsets::Fence;

/// Who owns the lane and who did. Part 0 stands for the state topic with its markers: nobody else writes to a source topic.
#[derive(Debug)]
pub(super) struct Epochs {
    own: Option<u64>,
    /// By the commit that was there when the lane was taken over.
    before: Vec<Option<Fence>>,
    /// Where each part ended then.
    ends: Vec<i64>,
    highest: u64,
}

impl Epochs {
    pub(super) fn new(before: Vec<Option<Fence>>, ends: Vec<i64>) -> Self {
        let highest = before.iter().flatten().map(|it| it.epoch).max().unwrap_or(0);
        Self { own: None, before, ends, highest }
    }

    /// Whether a copy, or a marker, was published too late.
    pub(super) fn is_void(&mut self, part: Part, offset: i64, epoch: Option<u64>) -> bool {
        // Other writers know no epoch, and nobody was deposed.
        let Some(epoch) = epoch else {
            return false;
        };
        self.highest = self.highest.max(epoch);
        if mutation::is(Mutation::IgnoreEpochs) {
            return false;
        }
        let is_since = |end: i64| offset >= end || mutation::is(Mutation::IgnoreEnds);
        let before = self.before.get(part).copied().flatten();
        let is_own = self.own.is_some_and(|own| epoch >= own);
        before.is_some_and(|it| is_since(it.end) && epoch < it.epoch)
            || (!is_own && self.ends.get(part).is_some_and(|end| offset >= *end))
    }

    /// Everything below the ends was read: this is the epoch of the new owner.
    pub(super) fn claim(&mut self) -> u64 {
        let own = *self.own.get_or_insert(self.highest + 1);
        self.highest = self.highest.max(own);
        own
    }

    pub(super) fn own(&self) -> Option<u64> {
        self.own
    }

    pub(super) fn fence(&self, part: Part) -> Option<Fence> {
        Some(Fence { epoch: self.own?, end: *self.ends.get(part)? })
    }
}
