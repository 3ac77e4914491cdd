//! A small table from offsets to what is there.
//!
//! Every record passes through it twice, which a tree makes dear. Its order is the same on every run, but means nothing.

/// Values by offset, in an open table: an entry stands where its offset belongs, or as near behind as there was room.
#[derive(Debug)]
pub(super) struct ByOffset<T> {
    /// A power of two, at least half of them empty.
    entries: Vec<Option<(i64, T)>>,
    len: usize,
}

const SMALLEST: usize = 16;

impl<T> ByOffset<T> {
    pub(super) fn new() -> Self {
        Self { entries: empty(SMALLEST), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, &T)> {
        self.entries.iter().flatten().map(|(offset, value)| (*offset, value))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|it| it.1)
    }

    pub(super) fn get(&self, offset: i64) -> Option<&T> {
        self.entries[self.place(offset)].as_ref().map(|it| &it.1)
    }

    pub(super) fn get_mut(&mut self, offset: i64) -> Option<&mut T> {
        let place = self.place(offset);
        self.entries[place].as_mut().map(|it| &mut it.1)
    }

    pub(super) fn insert(&mut self, offset: i64, value: T) {
        if self.len * 2 >= self.entries.len() {
            let larger = empty(self.entries.len() * 2);
            for entry in std::mem::replace(&mut self.entries, larger).into_iter().flatten() {
                let place = self.place(entry.0);
                self.entries[place] = Some(entry);
            }
        }
        let place = self.place(offset);
        self.len += usize::from(self.entries[place].is_none());
        self.entries[place] = Some((offset, value));
    }

    pub(super) fn remove(&mut self, offset: i64) -> Option<T> {
        let mut hole = self.place(offset);
        let (_, value) = self.entries[hole].take()?;
        self.len -= 1;
        // Those behind close up, so that none is sought in vain.
        let mut next = self.behind(hole);
        while let Some((offset, _)) = &self.entries[next] {
            if self.distance(self.home(*offset), next) >= self.distance(hole, next) {
                self.entries.swap(hole, next);
                hole = next;
            }
            next = self.behind(next);
        }
        Some(value)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Where an offset is, or where it would be.
    fn place(&self, offset: i64) -> usize {
        let mut place = self.home(offset);
        while self.entries[place].as_ref().is_some_and(|it| it.0 != offset) {
            place = self.behind(place);
        }
        place
    }

    /// Where an offset belongs. Neighbours, and offsets at any regular distance, are spread by a multiplication.
    fn home(&self, offset: i64) -> usize {
        let spread = offset.cast_unsigned().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        usize::try_from(spread).unwrap_or(0) & (self.entries.len() - 1)
    }

    fn behind(&self, place: usize) -> usize {
        (place + 1) & (self.entries.len() - 1)
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.entries.len() - 1)
    }
}

fn empty<T>(length: usize) -> Vec<Option<(i64, T)>> {
    std::iter::repeat_with(|| None).take(length).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Offsets that are near each other, and some that are far apart and meet in the table.
    fn offset() -> impl Strategy<Value = i64> {
        prop_oneof![0..40i64, (0..40i64).prop_map(|it| it << 40), Just(i64::MAX), Just(i64::MIN)]
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_holds(
            changes in proptest::collection::vec((offset(), any::<bool>()), 0..300)
        ) {
            let (mut table, mut map) = (ByOffset::new(), BTreeMap::new());
            for (count, (offset, is_new)) in changes.into_iter().enumerate() {
                if is_new {
                    table.insert(offset, count);
                    map.insert(offset, count);
                } else {
                    prop_assert_eq!(table.remove(offset), map.remove(&offset));
                }
                prop_assert_eq!(table.len(), map.len());
                prop_assert_eq!(table.iter().map(|(it, value)| (it, *value)).collect::<BTreeMap<_, _>>(), map.clone());
                for (offset, value) in &map {
                    prop_assert_eq!(table.get(*offset), Some(value));
                }
            }
        }
    }
}
