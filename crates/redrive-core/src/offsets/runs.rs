//! A set of offsets, kept as runs of neighbours.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of offsets. Neighbours cost nothing: each run of them is one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs(BTreeMap<i64, i64>);

impl Runs {
    /// No offsets.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many runs there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The lowest offset.
    pub fn first(&self) -> Option<i64> {
        self.0.first_key_value().map(|(start, _)| *start)
    }

    /// The runs in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<i64>> {
        self.0.iter().map(|(start, end)| *start..*end)
    }

    /// The parts of the runs that lie within a range.
    pub fn within(&self, range: Range<i64>) -> impl Iterator<Item = Range<i64>> {
        let first = self.run_of(range.start).map_or(range.start, |run| run.start);
        let runs = self.0.range(first..range.end.max(first));
        runs.map(move |(start, end)| (*start).max(range.start)..(*end).min(range.end))
    }

    /// Whether the offset is in the set.
    pub fn contains(&self, offset: i64) -> bool {
        self.run_of(offset).is_some()
    }

    fn run_of(&self, offset: i64) -> Option<Range<i64>> {
        let (start, end) = self.0.range(..=offset).next_back()?;
        (offset < *end).then_some(*start..*end)
    }

    /// Adds an offset; false if it was there.
    pub fn insert(&mut self, offset: i64) -> bool {
        // Most offsets come behind all others.
        match self.0.last_entry() {
            Some(mut last) if *last.get() == offset => {
                *last.get_mut() = offset + 1;
                return true;
            }
            Some(last) if *last.get() > offset => {}
            _ => {
                self.0.insert(offset, offset + 1);
                return true;
            }
        }
        let before = self.0.range_mut(..=offset).next_back();
        let after = |runs: &mut BTreeMap<i64, i64>| runs.remove(&(offset + 1));
        match before {
            Some((_, end)) if *end > offset => return false,
            Some((start, end)) if *end == offset => {
                let start = *start;
                *end = offset + 1;
                if let Some(joined) = after(&mut self.0) {
                    self.0.insert(start, joined);
                }
            }
            _ => {
                let end = after(&mut self.0).unwrap_or(offset + 1);
                self.0.insert(offset, end);
            }
        }
        true
    }

    /// Adds a run of which no offset is in the set, and joins it with its neighbours.
    pub(super) fn join(&mut self, run: Range<i64>) {
        if run.is_empty() {
            return;
        }
        let end = self.0.remove(&run.end).unwrap_or(run.end);
        match self.0.range_mut(..run.start).next_back() {
            Some((_, before)) if *before == run.start => *before = end,
            _ => _ = self.0.insert(run.start, end),
        }
    }

    /// Adds a run behind all others, as a decoder does.
    pub(super) fn push(&mut self, run: Range<i64>) {
        self.0.insert(run.start, run.end);
    }

    /// Takes an offset out; false if it was not there.
    pub fn remove(&mut self, offset: i64) -> bool {
        let Some((start, end)) = self.0.range_mut(..=offset).next_back() else {
            return false;
        };
        let run = *start..*end;
        if offset >= run.end {
            return false;
        }
        if run.start < offset {
            *end = offset;
        } else {
            self.0.remove(&run.start);
        }
        if offset + 1 < run.end {
            self.0.insert(offset + 1, run.end);
        }
        true
    }

    /// Takes all offsets of a range out.
    pub fn remove_range(&mut self, range: Range<i64>) {
        if range.is_empty() {
            return;
        }
        if let Some(run) = self.run_of(range.start) {
            self.remove_run(run, range.clone());
        }
        while let Some((start, end)) = self.0.range(range.clone()).next() {
            let run = *start..*end;
            self.remove_run(run, range.clone());
        }
    }

    fn remove_run(&mut self, run: Range<i64>, gone: Range<i64>) {
        self.0.remove(&run.start);
        if run.start < gone.start {
            self.0.insert(run.start, gone.start);
        }
        if gone.end < run.end {
            self.0.insert(gone.end, run.end);
        }
    }
}

impl FromIterator<i64> for Runs {
    fn from_iter<T: IntoIterator<Item = i64>>(offsets: T) -> Self {
        let mut runs = Self::new();
        for offset in offsets {
            runs.insert(offset);
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Change {
        Insert(i64),
        Remove(i64),
        RemoveRange(i64, i64),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            4 => (0..64i64).prop_map(Change::Insert),
            2 => (0..64i64).prop_map(Change::Remove),
            1 => (0..64i64, 0..20i64).prop_map(|(start, length)| Change::RemoveRange(start, start + length)),
        ]
    }

    proptest! {
        #[test]
        fn runs_hold_what_a_set_holds(changes in proptest::collection::vec(change(), 0..200)) {
            let mut runs = Runs::new();
            let mut set = BTreeSet::new();
            for change in changes {
                match change {
                    Change::Insert(it) => prop_assert_eq!(runs.insert(it), set.insert(it)),
                    Change::Remove(it) => prop_assert_eq!(runs.remove(it), set.remove(&it)),
                    Change::RemoveRange(start, end) => {
                        runs.remove_range(start..end);
                        set.retain(|it| !(start..end).contains(it));
                    }
                }
                prop_assert_eq!(runs.iter().flatten().collect::<Vec<_>>(), set.iter().copied().collect::<Vec<_>>());
                // Runs never touch each other.
                let ends: Vec<_> = runs.iter().collect();
                prop_assert!(ends.windows(2).all(|pair| pair[0].end < pair[1].start));
                prop_assert_eq!(runs.first(), set.first().copied());
                let inside: Vec<_> = runs.within(10..30).flatten().collect();
                prop_assert_eq!(inside, set.range(10..30).copied().collect::<Vec<_>>());
            }
        }
    }
}
