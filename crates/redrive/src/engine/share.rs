//! How a flow's payload budget is shared by its lanes.
//!
//! All lanes whose records wait have the same share, whatever they need of it, so that together they never keep more than the
//! budget. The lanes of a source topic keep nothing for later. What was read of them and has not started is bounded by a
//! budget of the same size, so that they take nothing from those that wait.

use redrive_core::{Strategy, Timestamp};

use super::Engine;
use super::plan::Role;

/// No share is smaller, unless the budget is: with very many partitions records would be read one by one.
const LEAST: usize = 256 << 10;

/// The share of each of so many lanes.
fn share(budget: usize, lanes: usize) -> usize {
    (budget / lanes.max(1)).max(budget.min(LEAST))
}

impl Engine {
    /// Gives each lane its share, where lanes came or went.
    pub(super) fn share_budget(&mut self, now: Timestamp) {
        if !std::mem::take(&mut self.is_to_share) {
            return;
        }
        let is_returned = matches!(self.plan.flow.strategy(), Strategy::BackToSource(_));
        let (waiting, others): (Vec<u64>, Vec<u64>) =
            self.lanes.keys().partition(|it| is_returned || self.role(**it) != Role::Source);
        for lanes in [waiting, others] {
            let bytes = share(self.tools.payload_budget, lanes.len());
            for lane in lanes {
                self.feed(lane, |machine, slots| machine.set_byte_budget(bytes, now, slots));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_equal_and_no_more_than_the_budget_together() {
        for lanes in 1..=256 {
            let each = share(64 << 20, lanes);
            assert!(each * lanes <= 64 << 20 && (each + 1) * lanes > 64 << 20, "{lanes}: {each}");
        }
    }

    #[test]
    fn no_share_is_too_small_for_progress_unless_the_budget_is() {
        assert_eq!(share(64 << 20, 1000), LEAST);
        assert_eq!(share(1 << 20, 100), LEAST);
        assert_eq!(share(1000, 100), 1000);
        assert_eq!(share(0, 7), 0);
        assert_eq!(share(1000, 0), 1000);
    }
}
