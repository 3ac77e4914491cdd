//! Entities whose head is in the dead-letter topic, and that wait for an operator.
//!
//! A closed entity has a marker in the state topic. The marker is there before the dead letter is, and the dead letter before
//! its record is settled: else an owner that dies in between would leave an entity open whose followers must not run. A
//! marker's key has all that it says, so that no deposed owner can overwrite one.

use std::collections::BTreeMap;

use super::entity::{EntityId, Identity};

/// What a marker of the state topic says, and its key there, together with the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Marker {
    /// Which entity is closed.
    pub entity: EntityId,
    /// The record that was dead-lettered.
    pub head: Identity,
    /// The epoch of the owner that wrote it. There is none with exactly-once.
    pub epoch: Option<u64>,
}

/// The closed entities of a lane.
#[derive(Debug, Default)]
pub(super) struct Closed {
    /// The markers of each, and where they are in the state topic.
    heads: BTreeMap<EntityId, BTreeMap<Marker, i64>>,
}

impl Closed {
    /// The record that an entity's others follow: the first, if there are more.
    pub(super) fn head(&self, entity: EntityId) -> Option<Identity> {
        self.heads.get(&entity)?.first_key_value().map(|it| it.0.head)
    }

    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (EntityId, Identity)> {
        self.heads.iter().filter_map(|(id, it)| it.first_key_value().map(|it| (*id, it.0.head)))
    }

    pub(super) fn close(&mut self, marker: Marker, offset: i64) {
        self.heads.entry(marker.entity).or_default().insert(marker, offset);
    }

    /// A marker was deleted at this offset. It may have been written once more since.
    pub(super) fn open(&mut self, marker: Marker, deleted_at: i64) {
        if let Some(markers) = self.heads.get_mut(&marker.entity) {
            if markers.get(&marker).is_some_and(|it| *it < deleted_at) {
                markers.remove(&marker);
            }
            if markers.is_empty() {
                self.heads.remove(&marker.entity);
            }
        }
    }

    /// The markers that an entity has because of a record.
    pub(super) fn of(&self, entity: EntityId, head: Identity) -> Vec<Marker> {
        let markers = self.heads.get(&entity).into_iter().flat_map(BTreeMap::keys);
        markers.filter(|it| it.head == head).copied().collect()
    }
}
