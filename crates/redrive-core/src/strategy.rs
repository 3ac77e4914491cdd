//! How a flow's retry topics are laid out, and which of them a record takes next.

use std::sync::Arc;
use std::time::Duration;

/// One retry topic, or one delay topic, with its delay and attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Its name.
    pub topic: Arc<str>,
    /// How long records wait in it, unless their policy says otherwise.
    pub delay: Option<Duration>,
    /// How many times a record is published to it by policies without a backoff, if there is a
    /// cap.
    pub attempts: Option<u32>,
}

impl Tier {
    /// A topic where records wait for `delay`, taken once.
    pub fn new(topic: impl Into<Arc<str>>, delay: Duration) -> Self {
        Self { topic: topic.into(), delay: Some(delay), attempts: Some(1) }
    }

    /// The one topic of [`Strategy::Single`] or [`Strategy::BackToSource`]: no delay of its own
    /// and no cap.
    pub fn endless(topic: impl Into<Arc<str>>) -> Self {
        Self { topic: topic.into(), delay: None, attempts: None }
    }

    /// Takes a record so many times.
    #[must_use]
    pub fn with_attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// Lets records wait for `delay`.
    #[must_use]
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    fn has_room(&self, taken: u32) -> bool {
        self.attempts.is_none_or(|attempts| taken < attempts)
    }
}

/// How a flow's retry topics are laid out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// No retry topic: source → dead letter.
    #[default]
    None,
    /// One retry topic, again and again.
    Single(Tier),
    /// One retry topic after the other.
    Tiers(Vec<Tier>),
    /// Delay topics, one after the other, and after each the one retry topic.
    DelayThenRetry {
        /// Where records wait.
        delays: Vec<Tier>,
        /// Where they run.
        retry: Arc<str>,
    },
    /// One topic where records wait, then the source again.
    BackToSource(Tier),
}

impl Strategy {
    /// The topics that records are published to when they fail, in order.
    pub fn tiers(&self) -> &[Tier] {
        match self {
            Strategy::None => &[],
            Strategy::Single(tier) | Strategy::BackToSource(tier) => std::slice::from_ref(tier),
            Strategy::Tiers(tiers) | Strategy::DelayThenRetry { delays: tiers, .. } => tiers,
        }
    }

    /// The sum of the tiers' attempts.
    pub fn attempts(&self) -> u32 {
        let attempts = self.tiers().iter().filter_map(|tier| tier.attempts);
        attempts.fold(0, u32::saturating_add)
    }

    /// Where a due record is moved to, if the tiers are not where it runs.
    pub fn relay_target<'a>(&'a self, source: &'a Arc<str>) -> Option<&'a Arc<str>> {
        match self {
            Strategy::DelayThenRetry { retry, .. } => Some(retry),
            Strategy::BackToSource(_) => Some(source),
            Strategy::None | Strategy::Single(_) | Strategy::Tiers(_) => None,
        }
    }

    /// The next tier of a record that walks them: it stays while there is room, then takes the
    /// next, and after the last there is none.
    pub(crate) fn walk(&self, at: Option<u32>, taken: u32) -> Option<(u32, &Tier)> {
        let here = at.and_then(|at| self.tier(at).map(|tier| (at, tier)));
        if let Some((at, tier)) = here.filter(|(_, tier)| tier.has_room(taken)) {
            return Some((at, tier));
        }
        let next = at.map_or(Some(0), |at| at.checked_add(1))?;
        (0u32..).zip(self.tiers()).find(|(index, tier)| *index >= next && tier.has_room(0))
    }

    /// The tier for a record whose policy has a delay of its own: the first whose delay is at
    /// least as long, else the longest.
    pub(crate) fn tier_for(&self, delay: Duration) -> Option<(u32, &Tier)> {
        let tiers = || (0u32..).zip(self.tiers());
        let fits = |tier: &Tier| tier.delay.is_none_or(|it| it >= delay);
        let longest =
            || tiers().reduce(|best, it| if it.1.delay > best.1.delay { it } else { best });
        tiers().find(|(_, tier)| fits(tier)).or_else(longest)
    }

    pub(crate) fn tier(&self, index: u32) -> Option<&Tier> {
        self.tiers().get(usize::try_from(index).ok()?)
    }
}
