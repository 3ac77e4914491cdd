//! Records that settled before it was their turn, until the mark passes them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::map::Mark;

/// The places of records in due order.
#[derive(Debug)]
pub(super) struct Ahead {
    places: BinaryHeap<Reverse<Mark>>,
    /// None is below this offset.
    lowest: i64,
    /// How many there were when those below the commit point were last forgotten.
    kept: usize,
}

/// So few are not worth forgetting.
const FEW: usize = 1024;

impl Ahead {
    pub(super) const fn new() -> Self {
        Self { places: BinaryHeap::new(), lowest: i64::MAX, kept: 0 }
    }

    pub(super) fn note(&mut self, place: Mark) {
        self.lowest = self.lowest.min(place.offset);
        self.places.push(Reverse(place));
    }

    /// Takes out the places before `mark`, in any order.
    pub(super) fn pass(&mut self, mark: Mark, mut passed: impl FnMut(i64)) {
        // To take out one is to find the next. From a certain part of them on, going through all is cheaper.
        let mut one_by_one = self.places.len() / 16;
        while let Some(Reverse(first)) = self.places.peek().filter(|it| it.0 < mark) {
            if one_by_one == 0 {
                self.places.retain(|Reverse(it)| {
                    let stays = *it >= mark;
                    if !stays {
                        passed(it.offset);
                    }
                    stays
                });
                break;
            }
            one_by_one -= 1;
            passed(first.offset);
            self.places.pop();
        }
        self.kept = self.kept.min(self.places.len());
    }

    /// Forgets the places below the commit point, once it may be half of them.
    pub(super) fn forget_below(&mut self, commit_point: i64) {
        if self.lowest < commit_point && self.places.len() > self.kept * 2 + FEW {
            self.places.retain(|it| it.0.offset >= commit_point);
            self.lowest = commit_point;
            self.kept = self.places.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;
    use proptest::prelude::*;

    fn place(due: i64, offset: i64) -> Mark {
        Mark { due: Timestamp::from_millis(due), offset }
    }

    proptest! {
        #[test]
        fn each_place_is_passed_once_and_in_time(
            dues in proptest::collection::vec(0..100i64, 0..100),
            marks in proptest::collection::vec((0..110i64, 0..100i64), 0..20),
        ) {
            let mut ahead = Ahead::new();
            let mut left: Vec<_> = dues.into_iter().zip(0..).map(|(due, offset)| place(due, offset)).collect();
            left.iter().for_each(|it| ahead.note(*it));
            for (due, offset) in marks {
                let mark = place(due, offset);
                let mut passed = Vec::new();
                ahead.pass(mark, |offset| passed.push(offset));
                passed.sort_unstable();
                let expected: Vec<_> = left.extract_if(.., |it| *it < mark).map(|it| it.offset).collect();
                prop_assert_eq!(passed, expected);
            }
        }
    }

    #[test]
    fn what_is_below_the_commit_point_takes_no_memory_for_long() {
        let mut ahead = Ahead::new();
        for offset in 0..100_000 {
            ahead.note(place(i64::MAX, offset));
            ahead.forget_below(offset - 100);
            assert!(ahead.places.len() <= 100 * 2 + FEW + 2);
        }
    }
}
