//! How many partitions topics have, while they are used.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::Cluster;
use crate::engine::Partitions;

/// How many partitions topics have: a record stays in its partition where its next stop has it, too.
pub(crate) struct Counts(RwLock<BTreeMap<Arc<str>, i32>>);

impl Counts {
    pub(crate) fn new(counts: BTreeMap<Arc<str>, i32>) -> Self {
        Self(RwLock::new(counts))
    }

    /// Topics may grow while they are used. Where nobody answers, what was known stays.
    pub(crate) async fn look_again(&self, cluster: &impl Cluster) {
        let topics: Vec<_> = self.0.read().keys().cloned().collect();
        if let Ok(found) = cluster.partitions(&topics).await {
            self.0.write().extend(found);
        }
    }
}

impl Partitions for Counts {
    fn has(&self, topic: &str, partition: i32) -> bool {
        let counts = self.0.read();
        counts.get(topic).is_some_and(|count| partition < *count)
    }
}
