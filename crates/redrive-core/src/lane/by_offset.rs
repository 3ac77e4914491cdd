//! A small table from offsets to what is there.
//!
//! Every record passes through it twice, which a tree makes dear. Its order is the same on every run, but means nothing.

/// Values by offset.
///
/// Offsets that are under way are mostly neighbours, so that each has a place of its own, next to that of its neighbours: the processor
/// has it at hand before it is asked for. Those whose place is taken go to an open table. The values themselves, which are
/// large, lie close together and stay where they are.
#[derive(Debug)]
pub(super) struct ByOffset<T> {
    /// A power of two, and at least twice as many as there are values.
    own: Vec<Place>,
    others: Others,
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

    fn is_of(self, offset: i64) -> bool {
        self.offset == offset && !self.is_empty()
    }
}

const SMALLEST: usize = 16;

impl<T> ByOffset<T> {
    pub(super) fn new() -> Self {
        Self {
            own: vec![Place::EMPTY; SMALLEST],
            others: Others::new(),
            values: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len() - self.free.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, &T)> {
        let all = self.own.iter().chain(&self.others.places).filter(|it| !it.is_empty());
        all.filter_map(|it| Some((it.offset, self.values.get(index(it.value))?.as_ref()?)))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|it| it.1)
    }

    pub(super) fn get(&self, offset: i64) -> Option<&T> {
        self.values.get(self.find(offset)?)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, offset: i64) -> Option<&mut T> {
        let value = self.find(offset)?;
        self.values.get_mut(value)?.as_mut()
    }

    pub(super) fn insert(&mut self, offset: i64, value: T) {
        let at = self.find(offset).unwrap_or_else(|| self.make_place(offset));
        self.values[at] = Some(value);
    }

    pub(super) fn remove(&mut self, offset: i64) -> Option<T> {
        let at = self.take_place(offset)?;
        self.values[index(at)].take()
    }

    /// Drops a value where it is.
    pub(super) fn discard(&mut self, offset: i64) {
        if let Some(at) = self.take_place(offset) {
            self.values[index(at)] = None;
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    fn find(&self, offset: i64) -> Option<usize> {
        let own = self.own[own(offset, self.own.len())];
        if own.is_of(offset) {
            return Some(index(own.value));
        }
        self.others.find(offset)
    }

    fn make_place(&mut self, offset: i64) -> usize {
        if self.len() * 2 >= self.own.len() {
            self.grow();
        }
        let value = self.free.pop().unwrap_or_else(|| {
            self.values.push(None);
            // No memory holds as many.
            u32::try_from(self.values.len() - 1).unwrap_or(u32::MAX)
        });
        self.put(Place { offset, value });
        index(value)
    }

    /// Gives a place to somebody else, and says where its value is.
    fn take_place(&mut self, offset: i64) -> Option<u32> {
        let at = own(offset, self.own.len());
        let value = if self.own[at].is_of(offset) {
            std::mem::replace(&mut self.own[at], Place::EMPTY).value
        } else {
            self.others.remove(offset)?
        };
        self.free.push(value);
        Some(value)
    }

    fn put(&mut self, place: Place) {
        let at = own(place.offset, self.own.len());
        if self.own[at].is_empty() {
            self.own[at] = place;
        } else {
            self.others.insert(place);
        }
    }

    fn grow(&mut self) {
        let larger = vec![Place::EMPTY; self.own.len() * 2];
        let own = std::mem::replace(&mut self.own, larger);
        let others = std::mem::replace(&mut self.others, Others::new());
        for place in own.into_iter().chain(others.places).filter(|it| !it.is_empty()) {
            self.put(place);
        }
    }
}

/// Places of offsets whose own is taken: each is where its offset belongs, or as near behind as there was room.
#[derive(Debug)]
struct Others {
    /// A power of two, at least half of them empty.
    places: Vec<Place>,
    count: usize,
}

impl Others {
    fn new() -> Self {
        Self { places: vec![Place::EMPTY; SMALLEST], count: 0 }
    }

    fn find(&self, offset: i64) -> Option<usize> {
        let place = self.places[self.place(offset)];
        (!place.is_empty()).then(|| index(place.value))
    }

    fn insert(&mut self, place: Place) {
        if self.count * 2 >= self.places.len() {
            let larger = vec![Place::EMPTY; self.places.len() * 2];
            for place in std::mem::replace(&mut self.places, larger) {
                if !place.is_empty() {
                    let at = self.place(place.offset);
                    self.places[at] = place;
                }
            }
        }
        let at = self.place(place.offset);
        self.places[at] = place;
        self.count += 1;
    }

    fn remove(&mut self, offset: i64) -> Option<u32> {
        let mut hole = self.place(offset);
        let removed = self.places[hole];
        if removed.is_empty() {
            return None;
        }
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
        self.count -= 1;
        Some(removed.value)
    }

    /// Where an offset is, or where it would be.
    fn place(&self, offset: i64) -> usize {
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

/// The place of an offset's own, of so many.
fn own(offset: i64, places: usize) -> usize {
    usize::try_from(offset.cast_unsigned() & (places as u64 - 1)).unwrap_or(0)
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
                } else if count % 2 == 0 {
                    prop_assert_eq!(table.remove(offset), map.remove(&offset));
                } else {
                    table.discard(offset);
                    map.remove(&offset);
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
