//! Offsets that are read again, to find what was folded away.

use std::ops::Range;

use crate::offsets::Runs;

/// How many offsets are asked for at once.
const OFFSETS: i64 = 4096;

/// Offsets that were asked for, and what came of them.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    range: Range<i64>,
    came: Runs,
}

impl Piece {
    /// As many as are asked for at once, up to the last.
    pub(super) fn from(first: i64, last: i64) -> Self {
        Self { range: first..first.saturating_add(OFFSETS).min(last + 1), came: Runs::new() }
    }

    pub(super) fn range(&self) -> Range<i64> {
        self.range.clone()
    }

    /// A record came. Returns whether it is one of these and comes for the first time.
    pub(super) fn came(&mut self, offset: i64) -> bool {
        self.range.contains(&offset) && self.came.insert(offset)
    }

    /// What is folded away and did not come: once everything was read, the log does not have it any more. What is folded away
    /// and did come may have been so meanwhile.
    pub(super) fn missing(&self, folded: &Runs) -> Runs {
        let mut missing = Runs::new();
        folded.within(self.range()).for_each(|run| missing.insert_range(run));
        self.came.iter().for_each(|run| missing.remove_range(run));
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_folded_away_and_did_not_come_is_missing() {
        let folded: Runs = [3, 4, 5, 9, 5000].into_iter().collect();
        let mut piece = Piece::from(3, 6000);
        assert_eq!(piece.range(), 3..4099);
        assert!(piece.came(4) && !piece.came(4) && !piece.came(2));
        assert!(piece.came(7));
        assert_eq!(piece.missing(&folded).iter().collect::<Vec<_>>(), [3..4, 5..6, 9..10]);
    }
}
