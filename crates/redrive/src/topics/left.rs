//! Topics that nobody names any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::kafka::client::{Properties, Told};
use crate::kafka::offsets;

/// How long brokers may take to answer.
const ANSWER: Duration = Duration::from_secs(15);

/// Topics that these groups have read and that nobody names any more, with the records that they may still have.
///
/// A consumer asks, since librdkafka 2.12 crashes if another client is told that the coordinator has moved.
pub(crate) fn left_behind(
    properties: &Properties,
    told: &Told,
    groups: &BTreeSet<String>,
    is_named: impl Fn(&str) -> bool,
) -> BTreeMap<String, i64> {
    let mut left: BTreeMap<String, i64> = BTreeMap::new();
    for group in groups {
        let consumer: Result<BaseConsumer<Told>, _> =
            properties.reader(group).create_with_context(told.clone());
        let Ok(consumer) = consumer else {
            continue;
        };
        let committed = offsets::all_committed(consumer.client(), group, ANSWER);
        for committed in committed.unwrap_or_default() {
            let offsets::Committed { topic, partition, offset, .. } = committed;
            let Some(offset) = offset.filter(|_| !is_named(&topic)) else {
                continue;
            };
            // A topic that is gone has nothing left.
            let marks = offsets::marks(&consumer, (&topic, partition), ANSWER);
            let records = marks.map_or(0, |(start, end)| end - offset.max(start));
            if records > 0 {
                *left.entry(topic).or_default() += records;
            }
        }
    }
    left
}
