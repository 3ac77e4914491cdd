//! Lanes of several partitions: of a source topic, and the same partitions of its retry topics.
//!
//! The group knows of the source topic alone. Whoever is assigned a partition of it reads the others, too, and gives them back with
//! it; what is committed for them is fenced by the group as anything else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rdkafka::consumer::BaseConsumer;
use rdkafka::error::KafkaResult;
use redrive_core::lane::{
    Assigned, OnDeadLetter, OrderedConfig, OrderedLane, Part, Payload, Routed,
};
use redrive_core::offsets::MapError;

use super::follow::{Followed, Follower};
use super::group::{ANSWER, HeldLane, LANES, Member, Partition, Subscribed, text_of};
use super::lifeline::Tethered;
use super::offsets::Committed;
use super::state::{self, Said};
use super::tails::Tails;
use super::{markers, offsets};
use crate::clock;
use crate::engine::inbox::{LaneKey, Letter};
use crate::event::Event;

/// What a topic has to do with lanes of several partitions.
#[derive(Clone, Debug)]
pub(crate) enum Joined {
    /// Its partitions are the sources of such lanes.
    Source {
        on_dead_letter: OnDeadLetter,
        /// The topics whose partitions belong to them: retry topics, then those that have yet to run dry.
        others: Vec<Arc<str>>,
    },
    /// Its partitions belong to others'.
    Other,
}

/// What such lanes need beside what others do.
#[derive(Clone)]
pub(crate) struct Ordered {
    pub(crate) tails: Arc<Tails>,
    pub(crate) follower: Arc<Follower>,
}

/// Where a partition's log begins and ends.
type Bounds = (i64, i64);

/// What is known of a partition before its lane is made.
type Found<'a> = (&'a Subscribed, &'a Committed, Bounds);

impl Member {
    /// The topics of the group's subscription.
    pub(super) fn subscription(&self) -> Vec<&str> {
        let is_subscribed = |it: &&Subscribed| !matches!(it.joined, Some(Joined::Other));
        self.plan.topics.iter().filter(is_subscribed).map(|it| &*it.topic).collect()
    }

    /// The topics outside of the subscription.
    pub(super) fn beside_subscription(&self) -> impl Iterator<Item = &Arc<str>> {
        let others = self.plan.topics.iter().filter(|it| matches!(it.joined, Some(Joined::Other)));
        others.map(|it| &it.topic)
    }

    /// A partition with those that belong to it.
    pub(super) fn parts(&self, home: &Partition) -> Vec<Partition> {
        let others = match self.subscribed(&home.0).and_then(|it| it.joined.as_ref()) {
            Some(Joined::Source { others, .. }) => others.as_slice(),
            _ => &[],
        };
        let others = others.iter().map(|it| (Arc::clone(it), home.1));
        std::iter::once(home.clone()).chain(others).collect()
    }

    /// The partition that another one belongs to, which may be itself.
    pub(super) fn home(&self, at: &Partition) -> Partition {
        let is_source = |it: &&Subscribed| match &it.joined {
            Some(Joined::Source { others, .. }) => others.contains(&at.0),
            _ => false,
        };
        let source = self.plan.topics.iter().find(is_source);
        (source.map_or_else(|| Arc::clone(&at.0), |it| Arc::clone(&it.topic)), at.1)
    }

    pub(super) fn is_joined(&self, at: &Partition) -> bool {
        self.subscribed(&at.0).is_some_and(|it| it.joined.is_some())
    }

    /// Makes lanes for partitions of source topics that were assigned. What belongs to one is opened as a whole or not at all.
    pub(super) fn look_up_wholes(
        &self,
        consumer: &BaseConsumer<Self>,
        homes: &[Partition],
    ) -> KafkaResult<Vec<(Partition, HeldLane)>> {
        let Some(ordered) = self.plan.ordered.as_ref().filter(|_| !homes.is_empty()) else {
            return Ok(Vec::new());
        };
        let homes = self.complete(consumer, homes)?;
        let parts: Vec<_> = homes.iter().flat_map(|it| self.parts(it)).collect();
        let names: Vec<_> = parts.iter().map(|it| (&*it.0, it.1)).collect();
        self.pulse.may_take(
            ANSWER * 2 + offsets::watermarks_take(names.len(), ANSWER) + state::LIMIT * 2,
        );
        // In this order: whoever sends records back opens their entity after that, and who sees the one must see the other.
        let committed = self.begin(consumer, offsets::committed(consumer, &names, ANSWER)?)?;
        let state_end = self.state_end(ordered)?;
        let said = self.state_topic.read(&names, state_end)?;
        // Of the sources last: what a former owner read after that it cannot have published before the ends of the others.
        let (sources, others): (Vec<_>, Vec<_>) =
            names.iter().partition(|it| homes.iter().any(|home| (&*home.0, home.1) == **it));
        let mut bounds: BTreeMap<_, _> =
            others.iter().copied().zip(ordered.tails.bounds(&others, ANSWER)).collect();
        bounds.extend(sources.iter().copied().zip(ordered.tails.bounds(&sources, ANSWER)));
        let mut opened = Vec::new();
        for home in &homes {
            let mut found = Vec::new();
            for at in parts.iter().filter(|it| self.home(it) == *home) {
                let committed =
                    committed.iter().find(|it| it.topic == *at.0 && it.partition == at.1);
                match (self.subscribed(&at.0), committed, bounds.get(&(&*at.0, at.1))) {
                    (Some(subscribed), Some(committed), Some(Ok(bounds))) => {
                        found.push((subscribed, committed, *bounds));
                    }
                    (Some(_), Some(_), Some(Err(error))) => self.tell_unread(at, error.to_string()),
                    // Another member has to say where it begins.
                    _ => {}
                }
            }
            if found.len() == self.parts(home).len() {
                opened.extend(self.make_whole(ordered, home, &found, state_end, &said));
            }
        }
        Ok(opened)
    }

    /// Those whose partition all topics have that belong to it.
    fn complete(
        &self,
        consumer: &BaseConsumer<Self>,
        homes: &[Partition],
    ) -> KafkaResult<Vec<Partition>> {
        let mut complete = homes.to_vec();
        for topic in self.beside_subscription() {
            self.pulse.may_take(ANSWER);
            let count = offsets::partitions(consumer, topic, ANSWER)?;
            complete.retain(|home| {
                let is_there = home.1 < count || !self.parts(home).iter().any(|it| it.0 == *topic);
                if !is_there {
                    let error = format!(
                        "with `ordering: key` it is read together with the same partition of {topic}, which has {count} only: give {topic} as many partitions"
                    );
                    self.tell_unread(home, error);
                }
                is_there
            });
        }
        Ok(complete)
    }

    fn tell_unread(&self, at: &Partition, error: String) {
        let (topic, partition) = (Arc::clone(&at.0), at.1);
        self.tell(&at.0, &Event::Unread { topic, partition, error });
    }

    fn state_end(&self, ordered: &Ordered) -> KafkaResult<i64> {
        let topic = self.state_topic.name();
        let bounds = ordered.tails.bounds(&[(topic, markers::PARTITION)], ANSWER);
        bounds.into_iter().next().unwrap_or(Ok((0, 0))).map(|it| it.1)
    }

    fn make_whole(
        &self,
        ordered: &Ordered,
        home: &Partition,
        found: &[Found<'_>],
        state_end: i64,
        said: &Said,
    ) -> Vec<(Partition, HeldLane)> {
        let Some((source, ..)) = found.first() else {
            return Vec::new();
        };
        let Some(Joined::Source { on_dead_letter, others }) = &source.joined else {
            return Vec::new();
        };
        let parts = self.parts(home);
        let assigned: Vec<_> = parts
            .iter()
            .zip(found)
            .map(|(at, (subscribed, committed, bounds))| {
                self.assigned(at, subscribed, committed, *bounds)
            })
            .collect();
        let config = OrderedConfig {
            lane: source.lanes.clone(),
            on_dead_letter: *on_dead_letter,
            is_exactly_once: self.plan.is_exactly_once,
        };
        let names: Vec<_> = parts.iter().map(|it| (&*it.0, it.1)).collect();
        let made = open(config, &names, &assigned, state_end, said);
        let machine = match made {
            Ok(machine) => Box::new(machine),
            Err(error) => {
                _ = self.pulse.fatal.set(format!("{}/{}: {error}", home.0, home.1));
                return Vec::new();
            }
        };
        let mut opened = Vec::new();
        let (mut lanes, mut owned) = (Vec::new(), Vec::new());
        for (part, (at, (subscribed, ..))) in parts.iter().zip(found).enumerate() {
            let number = LANES.fetch_add(1, Ordering::Relaxed);
            let (position, inbox) = (machine.position(part), Arc::clone(&subscribed.inbox));
            owned.push((number, Arc::clone(&at.0), at.1, Arc::clone(&inbox)));
            lanes.push((number, LaneKey { stop: subscribed.stop, partition: at.1 }));
            // Before anybody lets it come.
            if let Some(queue) = self.queue() {
                if part == 0 {
                    queue.hold_back(&at.0, at.1);
                } else {
                    queue.forward(&at.0, at.1);
                }
            }
            let (topic, partition) = (Arc::clone(&at.0), at.1);
            subscribed.events.tell(&Event::Assigned { topic, partition, position });
            opened.push((at.clone(), HeldLane { number, position, inbox }));
        }
        self.commits.own_together(owned);
        let (lane, inbox) = (lanes.first().map_or(0, |it| it.0), Arc::clone(&source.inbox));
        let group = self.plan.index;
        inbox.send(Letter::OpenWhole { parts: lanes, group, machine });
        ordered.follower.follow(Followed {
            lane,
            topic: Arc::clone(&home.0),
            partition: home.1,
            first_tier: others.first().cloned(),
            inbox,
            from: state_end,
        });
        opened
    }

    /// What a partition looks like.
    pub(super) fn assigned<'a>(
        &self,
        at: &Partition,
        subscribed: &Subscribed,
        committed: &'a Committed,
        (log_start, log_end): Bounds,
    ) -> Assigned<'a> {
        let is_beyond = |it: &i64| *it > log_end;
        if let Some(position) = committed.offset.filter(is_beyond) {
            let (topic, partition) = (Arc::clone(&at.0), at.1);
            let event = Event::Truncated { topic, partition, position, end: log_end };
            subscribed.events.tell(&event);
        }
        let metadata = text_of(&committed.metadata);
        let committed = committed.offset.filter(|it| !is_beyond(it));
        Assigned { committed, metadata, log_start, log_end, start: log_start }
    }

    /// From now on nothing is done for these lanes.
    pub(super) fn forget(&self, lanes: &[u64]) {
        self.commits.forget(lanes, || self.lifeline().pull());
        if let Some(ordered) = &self.plan.ordered {
            ordered.follower.forget(lanes);
        }
    }
}

/// A lane for partitions that belong together, the source's first, by what Kafka says of them.
pub(crate) fn open<P: Payload, H: Clone + Routed>(
    config: OrderedConfig,
    parts: &[(&str, i32)],
    assigned: &[Assigned<'_>],
    state_end: i64,
    said: &Said,
) -> Result<OrderedLane<P, H>, MapError> {
    let of = |it: &(&str, i32)| (it.0.to_owned(), it.1);
    let markers = parts.first().and_then(|it| said.markers.get(&of(it))).into_iter().flatten();
    let blocks = |part: Part| parts.get(part).and_then(|it| said.blocks.get(&of(it)));
    OrderedLane::assigned(
        config,
        assigned,
        state_end,
        markers.map(|(marker, offset)| (*marker, *offset)),
        clock::now(),
        |part| blocks(part).into_iter().flat_map(|it| it.keys().copied()).collect(),
        |part, id| blocks(part).and_then(|it| it.get(&id).cloned()),
    )
}
