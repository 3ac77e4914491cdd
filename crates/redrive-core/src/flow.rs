//! One source topic with all that decides about its failures.

use std::sync::Arc;
use std::time::Duration;

use crate::backoff::Draw;
use crate::policy::Policy;
use crate::rule::{Rule, Rules};
use crate::strategy::Strategy;

/// One source topic with its retry topics, dead-letter topic, policies and caps.
///
/// # Defaults
///
/// No retry topics, the dead-letter topic `{topic}.dlt`, no rules, the
/// [built-in](Policy::built_in) default policy, no cap on time, and at most an hour of
/// `Retry-After`. The cap on publishes overall is the largest of 10, any policy's attempts and
/// the sum of the tiers' attempts.
#[derive(Clone, Debug)]
pub struct Flow {
    source: Arc<str>,
    dead_letter: Arc<str>,
    strategy: Strategy,
    rules: Rules,
    default: Policy,
    max_overall_attempts: Option<u32>,
    max_elapsed: Option<Duration>,
    retry_after_max: Duration,
    derived_overall_attempts: u32,
}

impl Flow {
    /// The cap on publishes overall is never derived below this.
    pub const LEAST_OVERALL_ATTEMPTS: u32 = 10;
    /// How long a `Retry-After` may be where the policy has no bound.
    pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);

    /// The flow of this source topic.
    pub fn new(source: impl Into<Arc<str>>) -> Self {
        let source = source.into();
        Self {
            dead_letter: format!("{source}.dlt").into(),
            source,
            strategy: Strategy::None,
            rules: Rules::default(),
            default: Policy::built_in(),
            max_overall_attempts: None,
            max_elapsed: None,
            retry_after_max: Self::RETRY_AFTER_MAX,
            derived_overall_attempts: Self::LEAST_OVERALL_ATTEMPTS,
        }
    }

    /// Sends what cannot be helped to this topic.
    #[must_use]
    pub fn with_dead_letter(mut self, topic: impl Into<Arc<str>>) -> Self {
        self.dead_letter = topic.into();
        self
    }

    /// Lays the retry topics out like this.
    #[must_use]
    pub fn with_strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self.derive()
    }

    /// Looks for a policy in these rules.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self.derive()
    }

    /// Applies this where no rule matched a retryable failure.
    #[must_use]
    pub fn with_default(mut self, policy: Policy) -> Self {
        self.default = policy;
        self.derive()
    }

    /// Publishes a record at most so many times, whatever its policies say.
    #[must_use]
    pub fn with_max_overall_attempts(mut self, attempts: u32) -> Self {
        self.max_overall_attempts = Some(attempts);
        self
    }

    /// Publishes a record only if it is due within this time of its first failure.
    #[must_use]
    pub fn with_max_elapsed(mut self, elapsed: Duration) -> Self {
        self.max_elapsed = Some(elapsed);
        self
    }

    /// Takes no longer `Retry-After` than this from a policy without a bound.
    #[must_use]
    pub fn with_retry_after_max(mut self, max: Duration) -> Self {
        self.retry_after_max = max;
        self
    }

    /// The topic that records come from.
    pub fn source(&self) -> &Arc<str> {
        &self.source
    }

    /// The topic for what cannot be helped.
    pub fn dead_letter(&self) -> &Arc<str> {
        &self.dead_letter
    }

    /// How the retry topics are laid out.
    pub fn strategy(&self) -> &Strategy {
        &self.strategy
    }

    /// The flow's own rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What applies where no rule matched.
    pub fn default_policy(&self) -> &Policy {
        &self.default
    }

    /// The cap on time since the first failure.
    pub fn max_elapsed(&self) -> Option<Duration> {
        self.max_elapsed
    }

    /// How long a `Retry-After` may be where the policy has no bound.
    pub fn retry_after_max(&self) -> Duration {
        self.retry_after_max
    }

    /// The cap on publishes overall.
    pub fn max_overall_attempts(&self) -> u32 {
        self.max_overall_attempts.unwrap_or(self.derived_overall_attempts)
    }

    /// The cap on publishes overall, with room for a policy that is not among the flow's own.
    pub(crate) fn max_overall_attempts_with(&self, policy: &Policy) -> u32 {
        let attempts = || self.derived_overall_attempts.max(attempts_of(policy));
        self.max_overall_attempts.unwrap_or_else(attempts)
    }

    /// The longest that a record could wait in a retry topic, as far as that can be known.
    pub fn longest_delay(&self) -> Duration {
        let tiers = self.strategy.tiers().iter().filter_map(|it| it.delay);
        let policies = self.rules.iter().map(Rule::policy).chain([&self.default]);
        let backoffs = policies.filter_map(|it| {
            let delayed = it.delayed.as_ref()?;
            let attempts = delayed.attempts.unwrap_or(self.max_overall_attempts()).min(100);
            let backoff = delayed.backoff.as_ref()?;
            (0..attempts).map(|retried| backoff.delay(retried, Draw::Highest)).max()
        });
        tiers.chain(backoffs).chain([self.retry_after_max]).max().unwrap_or_default()
    }

    fn derive(mut self) -> Self {
        let policies = self.rules.iter().map(Rule::policy).chain([&self.default]);
        let attempts = policies.map(attempts_of).max().unwrap_or(0);
        self.derived_overall_attempts =
            attempts.max(self.strategy.attempts()).max(Self::LEAST_OVERALL_ATTEMPTS);
        self
    }
}

fn attempts_of(policy: &Policy) -> u32 {
    policy.delayed.as_ref().and_then(|it| it.attempts).unwrap_or(0)
}
