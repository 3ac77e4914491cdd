//! Whose events run in order, and which copy of which event a record is.

use std::fmt;

/// An entity: a hash of the bytes that name it, such as a key or the id of an order.
///
/// Two entities with the same hash would be taken for one, which costs time and breaks no order. With 128 bits that does not
/// happen by chance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntityId(u128);

impl EntityId {
    /// None comes before it.
    pub(super) const FIRST: Self = Self(0);

    /// The entity with this name. It is the same everywhere and in every version, since it stands in the state topic.
    pub fn of(name: &[u8]) -> Self {
        let (words, rest) = name.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let length = name.len() as u64;
        let (mut low, mut high) = (length ^ 0x243F_6A88_85A3_08D3, !length);
        for word in words.iter().chain([&last]).map(|it| u64::from_le_bytes(*it)) {
            low = mix(low ^ word, 0x9E37_79B9_7F4A_7C15);
            high = mix(high.wrapping_add(word) ^ low, 0xD6E8_FEB8_6659_FD93);
        }
        let (low, high) =
            (mix(low ^ high, 0xBF58_476D_1CE4_E5B9), mix(high, 0x94D0_49BB_1331_11EB));
        Self(u128::from(high) << 64 | u128::from(low))
    }

    /// From what [`EntityId::bytes`] gave.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// Its bytes, for a key of the state topic.
    pub const fn bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Stands for a record of a tier that belongs to none.
    pub(super) fn of_place(part: usize, offset: i64) -> Self {
        let mut name = [0; 17];
        name[0] = u8::try_from(part).unwrap_or(u8::MAX);
        name[1..9].copy_from_slice(&offset.to_be_bytes());
        Self::of(&name)
    }

    /// Two numbers that have nothing to do with each other.
    pub(super) fn halves(self) -> (u64, u64) {
        let [high, low] = [self.0 >> 64, self.0 & u128::from(u64::MAX)];
        (u64::try_from(high).unwrap_or(0), u64::try_from(low).unwrap_or(0))
    }
}

fn mix(word: u64, by: u64) -> u64 {
    let mixed = (word ^ (word >> 32)).wrapping_mul(by);
    mixed ^ (mixed >> 29)
}

impl fmt::Debug for EntityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Which event a record is, in its lane. Events of one entity run in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// Its offset in the source topic.
    pub origin: i64,
    /// How often an operator sent it back.
    pub redriven: u32,
}

impl Identity {
    /// None comes before it.
    pub(super) const FIRST: Self = Self { origin: i64::MIN, redriven: 0 };
}

/// Where a record stands among the others of its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Whose event it is.
    pub entity: EntityId,
    /// Which one.
    pub identity: Identity,
    /// The number of its last hop: 0 in the source topic.
    pub hop: u32,
    /// The epoch of the owner that published it. Other writers know none.
    pub epoch: Option<u64>,
}

/// A record with its rank. One without a rank is not ordered: it has no entity, or nobody knows where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranked<P> {
    /// Where it stands.
    pub rank: Option<Rank>,
    /// The record.
    pub payload: P,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_that_are_alike_are_different_entities() {
        let mut seen = BTreeSet::new();
        for number in 0..100_000u32 {
            assert!(seen.insert(EntityId::of(format!("order-{number}").as_bytes())));
            assert!(seen.insert(EntityId::of(&number.to_be_bytes())));
        }
        for length in 0..100 {
            assert!(seen.insert(EntityId::of(&vec![0; length])) || length == 4);
        }
        let (highs, lows): (BTreeSet<_>, BTreeSet<_>) = seen.iter().map(|it| it.halves()).unzip();
        assert_eq!((highs.len(), lows.len()), (seen.len(), seen.len()));
    }

    #[test]
    fn a_name_stays_the_same_entity() {
        let id = EntityId::of(b"order-7");
        assert_eq!(EntityId::from_bytes(id.bytes()), id);
        assert_eq!(format!("{id:?}"), format!("{:?}", EntityId::of(b"order-7")));
    }
}
