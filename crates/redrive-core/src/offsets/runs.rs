//! Sets of offsets.

use std::collections::BTreeMap;
use std::ops::Range;

use super::bits::{Bits, CHUNK_SHIFT, WORDS};

/// A set of offsets.
///
/// Offsets stand in chunks of 256, a bit each, so that they may come and go in any order at little cost. Chunks that have
/// all of theirs are joined to one entry, however many there are, and those that have none take no room.
#[derive(Clone, Debug)]
pub struct Runs {
    /// By the number of the first chunk.
    pieces: BTreeMap<i64, Piece>,
    /// The chunk behind all others, which most offsets come to and many soon leave again. It may have none or all of its
    /// offsets.
    tail: (i64, Bits),
}

#[derive(Clone, Copy, Debug)]
enum Piece {
    /// Some of one chunk.
    Some(Bits),
    /// All of the chunks up to this one.
    All(i64),
}

impl Runs {
    /// No offsets.
    pub const fn new() -> Self {
        Self { pieces: BTreeMap::new(), tail: (i64::MIN, Bits::NONE) }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// The lowest offset.
    pub fn first(&self) -> Option<i64> {
        self.iter().next().map(|run| run.start)
    }

    /// The runs in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<i64>> {
        self.within(i64::MIN..i64::MAX)
    }

    /// The parts of the runs that lie within a range.
    pub fn within(&self, range: Range<i64>) -> impl Iterator<Item = Range<i64>> {
        let pieces = self.pieces_within(&range);
        joined(pieces.flat_map(move |(at, piece)| piece.runs_within(at, range.clone())))
    }

    /// From the first to the last of the offsets that lie within a range.
    pub(super) fn bounds(&self, range: Range<i64>) -> Option<Range<i64>> {
        let first = self.within(range.clone()).next()?;
        let last = self
            .pieces_within(&range)
            .rev()
            .find_map(|(at, piece)| piece.runs_within(at, range.clone()).last())?;
        Some(first.start..last.end)
    }

    /// How many runs begin in each of the chunks that a range has a part of, by where those begin.
    pub(super) fn starts(&self, range: Range<i64>) -> impl Iterator<Item = (i64, usize)> {
        let mut joined = None;
        self.pieces_within(&range).map(move |(at, piece)| {
            let is_joined = joined == Some(at);
            let (starts, is_open) = match piece {
                Piece::Some(bits) => (bits.starts(is_joined), bits.has(u8::MAX)),
                Piece::All(_) => (usize::from(!is_joined), true),
            };
            joined = is_open.then(|| piece.end(at));
            (at << CHUNK_SHIFT, starts)
        })
    }

    /// A range as words of 64 offsets, a bit each.
    pub(super) fn words(&self, range: Range<i64>) -> Vec<u64> {
        let (first, last) = (range.start >> 6, (range.end - 1) >> 6);
        let index = |word: i64| usize::try_from(word - first).unwrap_or(0);
        let mut words = vec![0; index(last + 1)];
        let per_chunk = WORDS as i64;
        for (at, piece) in self.pieces_within(&range) {
            match piece {
                Piece::Some(bits) => {
                    for (at, word) in (at * per_chunk..).zip(bits.words()) {
                        if (first..=last).contains(&at) {
                            words[index(at)] = word;
                        }
                    }
                }
                Piece::All(end) => {
                    let (start, end) = (at * per_chunk, (end * per_chunk).min(last + 1));
                    words[index(start)..index(end)].fill(u64::MAX);
                }
            }
        }
        if let Some(word) = words.first_mut() {
            *word &= u64::MAX << (range.start & 63);
        }
        if let Some(word) = words.last_mut() {
            *word &= u64::MAX >> (63 - ((range.end - 1) & 63));
        }
        words
    }

    fn pieces_within(
        &self,
        range: &Range<i64>,
    ) -> impl DoubleEndedIterator<Item = (i64, Piece)> + use<'_> {
        let start = self.all_over(chunk(range.start)).unwrap_or(chunk(range.start));
        let chunks = start..if range.is_empty() { start } else { chunk(range.end - 1) + 1 };
        let tail = Some(self.tail.0).filter(|it| chunks.contains(it));
        let pieces = self.pieces.range(chunks).map(|(at, piece)| (*at, *piece));
        pieces.chain(tail.map(|at| (at, Piece::Some(self.tail.1))))
    }

    /// Whether the offset is in the set.
    pub fn contains(&self, offset: i64) -> bool {
        let chunk = chunk(offset);
        if chunk == self.tail.0 {
            return self.tail.1.has(bit(offset));
        }
        match self.pieces.get(&chunk) {
            Some(Piece::Some(bits)) => bits.has(bit(offset)),
            _ => self.all_over(chunk).is_some(),
        }
    }

    /// Adds an offset; false if it was there.
    pub fn insert(&mut self, offset: i64) -> bool {
        let chunk = chunk(offset);
        if chunk == self.tail.0 {
            return self.tail.1.set(bit(offset));
        }
        if chunk > self.tail.0 {
            let (at, bits) =
                std::mem::replace(&mut self.tail, (chunk, Bits::between(bit(offset), bit(offset))));
            self.put(at, bits);
            return true;
        }
        if let Some(Piece::Some(bits)) = self.pieces.get_mut(&chunk) {
            let is_new = bits.set(bit(offset));
            if bits.is_full() {
                self.put_all(chunk..chunk + 1);
            }
            return is_new;
        }
        let is_new = self.all_over(chunk).is_none();
        if is_new {
            self.put(chunk, Bits::between(bit(offset), bit(offset)));
        }
        is_new
    }

    /// Takes an offset out; false if it was not there.
    pub fn remove(&mut self, offset: i64) -> bool {
        let chunk = chunk(offset);
        if chunk == self.tail.0 {
            return self.tail.1.clear(bit(offset));
        }
        if let Some(Piece::Some(bits)) = self.pieces.get_mut(&chunk) {
            let (was_there, is_empty) = bits.clear_and_look(bit(offset));
            if is_empty {
                self.pieces.remove(&chunk);
            }
            return was_there;
        }
        let was_there = self.all_over(chunk).is_some();
        if was_there {
            let bits = self.take(chunk);
            self.put(chunk, bits.without(Bits::between(bit(offset), bit(offset))));
        }
        was_there
    }

    /// Adds all offsets of a range.
    pub(crate) fn insert_range(&mut self, range: Range<i64>) {
        self.replace(range, Bits::or, |runs, chunks| runs.put_all(chunks));
    }

    /// Takes all offsets of a range out.
    pub fn remove_range(&mut self, range: Range<i64>) {
        self.replace(range, Bits::without, |_, _| ());
    }

    /// Takes all offsets below this one out. There seldom are any.
    pub(super) fn remove_below(&mut self, offset: i64) {
        if self.first().is_some_and(|first| first < offset) {
            self.remove_range(i64::MIN..offset);
        }
    }

    /// Adds the offsets of a range that are not in the set, and takes the others out.
    pub(super) fn toggle_range(&mut self, range: Range<i64>) {
        let inside: Vec<_> = self.within(range.clone()).collect();
        self.insert_range(range);
        for run in inside {
            self.remove_range(run);
        }
    }

    /// The same for the offsets of a word of 64, by its number.
    pub(super) fn toggle_word(&mut self, at: i64, word: u64) {
        let per_chunk = WORDS as i64;
        let (chunk, index) = (at.div_euclid(per_chunk), at.rem_euclid(per_chunk));
        let toggled = Bits::of_word(usize::try_from(index).unwrap_or(0), word);
        self.put_tail();
        let bits = self.take(chunk);
        self.put(chunk, bits.xor(toggled));
        self.renew_tail();
    }

    /// Adds an offset, or takes it out.
    pub(super) fn toggle(&mut self, offset: i64) {
        if !self.insert(offset) {
            self.remove(offset);
        }
    }

    /// Changes the chunks that the range has a part of with `some`. Those that it has all of are emptied and given to `all`.
    fn replace(
        &mut self,
        range: Range<i64>,
        some: impl Fn(Bits, Bits) -> Bits,
        all: impl Fn(&mut Self, Range<i64>),
    ) {
        if range.is_empty() {
            return;
        }
        let last = range.end - 1;
        // Most of what goes is far from the tail, which is best left where it is.
        let has_tail = chunk(last) >= self.tail.0;
        if has_tail {
            self.put_tail();
        }
        let (mut chunks, mut from) = (chunk(range.start)..chunk(last), bit(range.start));
        if !chunks.is_empty() {
            let bits = self.take(chunks.start);
            self.put(chunks.start, some(bits, Bits::between(from, u8::MAX)));
            (chunks.start, from) = (chunks.start + 1, 0);
        }
        if !chunks.is_empty() {
            self.split(chunks.start);
            self.split(chunks.end);
            self.pieces.extract_if(chunks.clone(), |_, _| true).for_each(drop);
            all(self, chunks.clone());
        }
        let bits = self.take(chunks.end);
        self.put(chunks.end, some(bits, Bits::between(from, bit(last))));
        if has_tail {
            self.renew_tail();
        }
    }

    /// Puts the tail among the others.
    fn put_tail(&mut self) {
        self.put(self.tail.0, self.tail.1);
    }

    /// The tail is behind all others again.
    fn renew_tail(&mut self) {
        let end = self.pieces.last_key_value().map_or(i64::MIN, |(at, piece)| piece.end(*at));
        self.tail = (end, Bits::NONE);
    }

    /// Where the chunks begin that have all of theirs, if this is one of them.
    fn all_over(&self, chunk: i64) -> Option<i64> {
        match self.pieces.range(..=chunk).next_back() {
            Some((start, Piece::All(end))) if chunk < *end => Some(*start),
            _ => None,
        }
    }

    /// Takes a chunk out.
    fn take(&mut self, chunk: i64) -> Bits {
        self.split(chunk);
        self.split(chunk + 1);
        match self.pieces.remove(&chunk) {
            None => Bits::NONE,
            Some(Piece::Some(bits)) => bits,
            Some(Piece::All(_)) => Bits::ALL,
        }
    }

    /// Lets no entry reach over the beginning of a chunk.
    fn split(&mut self, chunk: i64) {
        if let Some((_, Piece::All(end))) = self.pieces.range_mut(..chunk).next_back()
            && *end > chunk
        {
            let end = std::mem::replace(end, chunk);
            self.pieces.insert(chunk, Piece::All(end));
        }
    }

    fn put(&mut self, chunk: i64, bits: Bits) {
        if bits.is_full() {
            self.put_all(chunk..chunk + 1);
        } else if !bits.is_empty() {
            self.pieces.insert(chunk, Piece::Some(bits));
        }
    }

    /// Puts chunks that have all of theirs, and joins them with their neighbours.
    fn put_all(&mut self, mut chunks: Range<i64>) {
        if let Some(Piece::All(end)) = self.pieces.get(&chunks.end) {
            let end = *end;
            self.pieces.remove(&chunks.end);
            chunks.end = end;
        }
        match self.pieces.range_mut(..chunks.start).next_back() {
            Some((_, Piece::All(end))) if *end == chunks.start => {
                *end = chunks.end;
                self.pieces.remove(&chunks.start);
            }
            _ => _ = self.pieces.insert(chunks.start, Piece::All(chunks.end)),
        }
    }
}

impl Piece {
    /// The chunk behind it, if it begins with this one.
    fn end(self, chunk: i64) -> i64 {
        match self {
            Piece::Some(_) => chunk + 1,
            Piece::All(end) => end,
        }
    }

    /// The parts of its runs that lie within a range, if it begins with this chunk.
    fn runs_within(self, chunk: i64, range: Range<i64>) -> impl Iterator<Item = Range<i64>> {
        let clip = move |run: Range<i64>| run.start.max(range.start)..run.end.min(range.end);
        self.runs(chunk).map(clip).filter(|run| !run.is_empty())
    }

    /// Its runs, if it begins with this chunk.
    fn runs(self, chunk: i64) -> impl Iterator<Item = Range<i64>> {
        let start = chunk << CHUNK_SHIFT;
        let mut from = Some(0);
        std::iter::from_fn(move || match self {
            Piece::All(end) => from.take().map(|_| start..end << CHUNK_SHIFT),
            Piece::Some(bits) => {
                let run = bits.run_from(from?)?;
                from = Some(run.end);
                Some(start + i64::from(run.start)..start + i64::from(run.end))
            }
        })
    }
}

/// Joins runs that touch.
fn joined(runs: impl Iterator<Item = Range<i64>>) -> impl Iterator<Item = Range<i64>> {
    let mut runs = runs.peekable();
    std::iter::from_fn(move || {
        let mut run = runs.next()?;
        while let Some(next) = runs.next_if(|next| next.start == run.end) {
            run.end = next.end;
        }
        Some(run)
    })
}

fn chunk(offset: i64) -> i64 {
    offset >> CHUNK_SHIFT
}

/// The place in its chunk.
fn bit(offset: i64) -> u8 {
    let [bit, ..] = offset.to_le_bytes();
    bit
}

impl Default for Runs {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Runs {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Runs {}

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
        InsertRange(Range<i64>),
        RemoveRange(Range<i64>),
    }

    /// Offsets of six chunks, mostly near where two of them meet.
    fn offset() -> impl Strategy<Value = i64> {
        prop_oneof![
            3 => (-3..3i64, -4..4i64).prop_map(|(chunk, offset)| chunk * 256 + offset),
            1 => -768..768i64,
        ]
    }

    fn change() -> impl Strategy<Value = Change> {
        let range = || (offset(), offset()).prop_map(|(start, end)| start..end);
        prop_oneof![
            4 => offset().prop_map(Change::Insert),
            4 => offset().prop_map(Change::Remove),
            1 => range().prop_map(Change::InsertRange),
            1 => range().prop_map(Change::RemoveRange),
        ]
    }

    proptest! {
        #[test]
        fn runs_hold_what_a_set_holds(
            changes in proptest::collection::vec(change(), 0..100),
            (start, end) in (offset(), offset()),
        ) {
            let mut runs = Runs::new();
            let mut set = BTreeSet::new();
            for change in changes {
                match change {
                    Change::Insert(it) => prop_assert_eq!(runs.insert(it), set.insert(it)),
                    Change::Remove(it) => prop_assert_eq!(runs.remove(it), set.remove(&it)),
                    Change::InsertRange(range) => {
                        runs.insert_range(range.clone());
                        set.extend(range);
                    }
                    Change::RemoveRange(range) => {
                        runs.remove_range(range.clone());
                        set.retain(|it| !range.contains(it));
                    }
                }
                prop_assert_eq!(runs.iter().flatten().collect::<Vec<_>>(), set.iter().copied().collect::<Vec<_>>());
                // Runs never touch each other.
                let ends: Vec<_> = runs.iter().collect();
                prop_assert!(ends.windows(2).all(|pair| pair[0].end < pair[1].start));
                prop_assert_eq!((runs.first(), runs.is_empty()), (set.first().copied(), set.is_empty()));
                prop_assert!((-800..800).all(|it| runs.contains(it) == set.contains(&it)));
                let inside: Vec<_> = runs.within(start..end).flatten().collect();
                prop_assert_eq!(inside, (start..end).filter(|it| set.contains(it)).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_largest_set_is_small() {
        let mut runs = Runs::new();
        runs.insert_range(i64::MIN..i64::MAX);
        assert!(runs.contains(i64::MIN) && runs.contains(i64::MAX - 1) && !runs.contains(i64::MAX));
        assert!(runs.iter().eq(std::iter::once(i64::MIN..i64::MAX)));
        assert!(runs.pieces.len() <= 3);
        runs.remove_range(i64::MIN..i64::MAX);
        assert!(runs.is_empty() && runs.pieces.is_empty());
    }

    #[test]
    fn offsets_that_come_and_go_leave_no_chunks_behind() {
        let mut runs = Runs::new();
        for offset in 0..10_000 {
            assert!(runs.insert(offset) && runs.remove(offset));
            assert!(runs.is_empty() && runs.pieces.len() <= 1);
        }
    }
}
