//! Faults to be put into the lane on purpose, to see that the simulation notices.
//!
//! Without the feature `mutations` none of this is compiled in: [`is`] is a constant.

/// A fault in the lane's own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A record is settled when its publish starts, not when it was acknowledged.
    SettleBeforePublished,
    /// A record is due a little before its time.
    RunEarly,
    /// The mark passes records that are running.
    ForgetRunning,
    /// The mark moves on over records that were not read again yet.
    AdvanceWhileCatchingUp,
    /// The commit point passes records that are folded away.
    CommitPastFolded,
    /// What is settled above the commit point is forgotten at a restart.
    IgnoreMap,
    /// A scan takes records that are settled.
    ScanSettled,
    /// A slot is never given back.
    KeepSlots,
    /// A wait in place that ends with the partition is forgotten.
    DropWaits,
    /// Nothing is appended again before retention deletes it.
    NeverReappend,
    /// A commit is sent before the blocks that it names are stored.
    CommitBeforeBlocks,
    /// Any number of records is made ready.
    UnboundedReady,
    /// A lane that is told another budget goes on with the one that it has.
    KeepBudget,
    /// The clock is not looked at again when a record starts.
    TrustTheClock,
    /// A publish that failed counts as done.
    IgnorePublishFailure,
    /// What an old ticket did not bring counts as gone, though it was asked for again since.
    TrustOldTickets,
    /// What was part of a transaction that was aborted stays settled.
    KeepAborted,
    /// A transaction ends with a commit that was built before its hops.
    CommitWithoutHops,
    /// Copies that a deposed owner published too late count.
    IgnoreEpochs,
    /// Copies of earlier owners are void wherever they are.
    IgnoreEnds,
    /// Of two copies the one that was read first counts.
    IgnoreHops,
    /// Copies in a tier do not wait for the source to be read past their origin.
    IgnoreSource,
    /// A marker is written with the dead letter, not before it.
    MarkLate,
    /// A head that was not dead-lettered after all runs before its marker is deleted.
    UnmarkLate,
    /// Markers that are void are not deleted.
    KeepVoidMarkers,
    /// An entity is opened before everything is read that an operator sent back.
    OpenAtOnce,
    /// Entities of which something is folded away are taken for free.
    IgnoreFilters,
    /// Records run before everything pending was read.
    SkipRebuild,
}

#[cfg(feature = "mutations")]
impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 28] = [
        Mutation::SettleBeforePublished,
        Mutation::RunEarly,
        Mutation::ForgetRunning,
        Mutation::AdvanceWhileCatchingUp,
        Mutation::CommitPastFolded,
        Mutation::IgnoreMap,
        Mutation::ScanSettled,
        Mutation::KeepSlots,
        Mutation::DropWaits,
        Mutation::NeverReappend,
        Mutation::CommitBeforeBlocks,
        Mutation::UnboundedReady,
        Mutation::KeepBudget,
        Mutation::TrustTheClock,
        Mutation::IgnorePublishFailure,
        Mutation::TrustOldTickets,
        Mutation::KeepAborted,
        Mutation::CommitWithoutHops,
        Mutation::IgnoreEpochs,
        Mutation::IgnoreEnds,
        Mutation::IgnoreHops,
        Mutation::IgnoreSource,
        Mutation::MarkLate,
        Mutation::UnmarkLate,
        Mutation::KeepVoidMarkers,
        Mutation::OpenAtOnce,
        Mutation::IgnoreFilters,
        Mutation::SkipRebuild,
    ];
}

#[cfg(feature = "mutations")]
mod active {
    use std::cell::Cell;

    use super::Mutation;

    thread_local! {
        static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Puts a fault into every lane of this thread, or takes it out again.
    pub fn mutate(mutation: Option<Mutation>) {
        ACTIVE.set(mutation);
    }

    pub(crate) fn is(mutation: Mutation) -> bool {
        ACTIVE.get() == Some(mutation)
    }
}

#[cfg(feature = "mutations")]
pub(crate) use active::is;
#[cfg(feature = "mutations")]
pub use active::mutate;

/// Whether a fault is put in: never.
#[cfg(not(feature = "mutations"))]
pub(crate) const fn is(_: Mutation) -> bool {
    false
}
