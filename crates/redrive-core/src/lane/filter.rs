//! A set of entities in a fixed amount of memory, which takes some for members that are none.

use super::entity::EntityId;

/// A Bloom filter.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// A power of two of them.
    words: Vec<u64>,
}

/// How many bits stand for one entity.
const HASHES: u64 = 4;
const LEAST_WORDS: usize = 16;
const MOST_WORDS: usize = 1 << 16;

impl Filter {
    /// A filter that tells well apart so many entities.
    pub(super) fn for_entities(count: usize) -> Self {
        let words = (count / 4).clamp(LEAST_WORDS, MOST_WORDS).next_power_of_two();
        Self { words: vec![0; words] }
    }

    pub(super) fn insert(&mut self, entity: EntityId) {
        for (word, bit) in self.bits(entity) {
            self.words[word] |= bit;
        }
    }

    /// Whether it may be a member. One that is always may.
    pub(super) fn may_have(&self, entity: EntityId) -> bool {
        self.bits(entity).all(|(word, bit)| self.words[word] & bit != 0)
    }

    fn bits(&self, entity: EntityId) -> impl Iterator<Item = (usize, u64)> + use<> {
        let (start, step) = entity.halves();
        let mask = self.words.len() - 1;
        (0..HASHES).map(move |index| {
            let hash = start.wrapping_add(index.wrapping_mul(step | 1));
            (usize::try_from(hash >> 6).unwrap_or(0) & mask, 1 << (hash & 63))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_and_few_others() {
        let mut filter = Filter::for_entities(10_000);
        let entity = |number: u32| EntityId::of(&number.to_be_bytes());
        (0..10_000).for_each(|it| filter.insert(entity(it)));
        assert!((0..10_000).all(|it| filter.may_have(entity(it))));
        let wrong = (10_000..110_000).filter(|it| filter.may_have(entity(*it))).count();
        assert!(wrong < 500, "{wrong} of 100,000");
        assert!(size_of_val(&*Filter::for_entities(usize::MAX).words) == 512 << 10);
    }
}
