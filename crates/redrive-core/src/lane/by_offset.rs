//! A small table from offsets to what is there.
//!
//! Every record passes through it twice, which a tree makes dear. Its order is the same on every run, but means nothing.

/// Values by offset. Where a value is stands in an open table: an entry is where its offset belongs, or as near behind as
/// there was room. The values themselves, which are large, lie close together and stay where they are.
#[derive(Debug)]
pub(super) struct ByOffset<T> {
    /// A power of two, at least half of them empty.
    places: Vec<Place>,
    values: Vec<Option<T>>,
    /// Values that are none.
    free: Vec<u32>,
}

/// Where an offset's value is.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: i64,
    value: u32,
}

impl Place {
    const EMPTY: Self = Self { offset: 0, value: u32::MAX };

    fn is_empty(self) -> bool {
        self.value == u32::MAX
    }
}

const SMALLEST: usize = 16;

impl<T> ByOffset<T> {
    pub(super) fn new() -> Self {
        Self { places: vec![Place::EMPTY; SMALLEST], values: Vec::new(), free: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len() - self.free.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, &T)> {
        let held = self.places.iter().filter(|it| !it.is_empty());
        held.filter_map(|it| Some((it.offset, self.value(*it)?)))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|it| it.1)
    }

    pub(super) fn get(&self, offset: i64) -> Option<&T> {
        self.value(self.places[self.find(offset)])
    }

    pub(super) fn get_mut(&mut self, offset: i64) -> Option<&mut T> {
        let place = self.places[self.find(offset)];
        self.values.get_mut(index(place.value))?.as_mut()
    }

    pub(super) fn insert(&mut self, offset: i64, value: T) {
        if self.len() * 2 >= self.places.len() {
            let larger = vec![Place::EMPTY; self.places.len() * 2];
            for place in std::mem::replace(&mut self.places, larger) {
                if !place.is_empty() {
                    let at = self.find(place.offset);
                    self.places[at] = place;
                }
            }
        }
        let at = self.find(offset);
        if self.places[at].is_empty() {
            let value = self.free.pop().unwrap_or_else(|| {
                self.values.push(None);
                // No memory holds as many.
                u32::try_from(self.values.len() - 1).unwrap_or(u32::MAX)
            });
            self.places[at] = Place { offset, value };
        }
        self.values[index(self.places[at].value)] = Some(value);
    }

    pub(super) fn remove(&mut self, offset: i64) -> Option<T> {
        let mut hole = self.find(offset);
        let place = self.places[hole];
        let value = self.values.get_mut(index(place.value))?.take()?;
        self.free.push(place.value);
        // Those behind close up, so that none is sought in vain.
        let mut next = self.behind(hole);
        while !self.places[next].is_empty() {
            let home = self.home(self.places[next].offset);
            if self.distance(home, next) >= self.distance(hole, next) {
                self.places[hole] = self.places[next];
                hole = next;
            }
            next = self.behind(next);
        }
        self.places[hole] = Place::EMPTY;
        Some(value)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    fn value(&self, place: Place) -> Option<&T> {
        self.values.get(index(place.value))?.as_ref()
    }

    /// Where an offset is, or where it would be.
    fn find(&self, offset: i64) -> usize {
        let mut at = self.home(offset);
        while !self.places[at].is_empty() && self.places[at].offset != offset {
            at = self.behind(at);
        }
        at
    }

    /// Where an offset belongs. Neighbours, and offsets at any regular distance, are spread by a multiplication.
    fn home(&self, offset: i64) -> usize {
        let spread = offset.cast_unsigned().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        usize::try_from(spread).unwrap_or(0) & (self.places.len() - 1)
    }

    fn behind(&self, at: usize) -> usize {
        (at + 1) & (self.places.len() - 1)
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.places.len() - 1)
    }
}

fn index(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
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
