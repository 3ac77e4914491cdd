//! Hops that wait a little for others, so that they go together.
//!
//! A request costs the broker as much as hundreds of records, and each that comes to a retry topic has its readers answered, too. Where a few
//! records of many fail, such requests would cost more than everything else. So a hop that nobody needs for a while waits for more of
//! them; one that is needed soon goes at once, and takes the others along.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive_core::Timestamp;

use crate::kafka::publish::Outgoing;
use crate::record::Record;

/// How long a hop waits for others.
const PATIENCE: Duration = Duration::from_millis(25);
/// What is needed within this time does not wait: a broker may take its time, too.
const SOON: Duration = Duration::from_millis(250);
/// So many are enough, or so many bytes.
const MOST: usize = 2_000;
const MOST_BYTES: usize = 1 << 20;

/// A record on its way.
pub(super) struct Parcel {
    pub(super) lane: u64,
    pub(super) offset: i64,
    pub(super) record: Record,
    pub(super) outgoing: Arc<Outgoing>,
}

#[derive(Default)]
pub(super) struct Outbox {
    parcels: Vec<Parcel>,
    bytes: usize,
    /// When they are to go.
    until: Option<Instant>,
}

impl Outbox {
    /// Takes a record that may wait for others, unless it is urgent or needed soon.
    pub(super) fn put(&mut self, parcel: Parcel, is_urgent: bool, now: Timestamp) {
        let is_needed = is_urgent || parcel.outgoing.needed_at <= now.after(SOON);
        self.bytes += parcel.outgoing.bytes(Some(&parcel.record));
        self.parcels.push(parcel);
        let is_enough = self.parcels.len() >= MOST || self.bytes >= MOST_BYTES;
        if is_needed || is_enough {
            self.hurry();
        } else if self.until.is_none() {
            self.until = Some(Instant::now() + PATIENCE);
        }
    }

    /// What is here goes at once.
    pub(super) fn hurry(&mut self) {
        if !self.parcels.is_empty() {
            self.until = Some(Instant::now());
        }
    }

    /// How long there is until something is to go.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.until.map(|it| it.saturating_duration_since(Instant::now()))
    }

    /// Those that are to go now.
    pub(super) fn take(&mut self) -> Vec<Parcel> {
        if self.wait() != Some(Duration::ZERO) {
            return Vec::new();
        }
        (self.bytes, self.until) = (0, None);
        // The next are about as many.
        let room = Vec::with_capacity(self.parcels.len());
        std::mem::replace(&mut self.parcels, room)
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::MAX_TIMESTAMP;

    use super::*;
    use crate::pack::Pack;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn parcel(offset: i64, needed_at: Timestamp, size: usize) -> Parcel {
        let outgoing = Outgoing {
            topic: "retry".into(),
            partition: None,
            tier: None,
            needed_at,
            is_alone: false,
            headers: Pack::default(),
            body: None,
        };
        let record = Record::made_up("orders", 0, offset).with_value(vec![0; size]);
        Parcel { lane: 1, offset, record, outgoing: Arc::new(outgoing) }
    }

    fn offsets(outbox: &mut Outbox) -> Vec<i64> {
        outbox.take().iter().map(|it| it.offset).collect()
    }

    #[test]
    fn what_nobody_needs_yet_waits_a_little_and_goes_with_what_is_needed() {
        let mut outbox = Outbox::default();
        assert_eq!(outbox.wait(), None);
        let began = Instant::now();
        outbox.put(parcel(1, NOW.after(Duration::from_secs(1)), 1), false, NOW);
        let until = outbox.until;
        assert!(until >= Some(began + PATIENCE));
        outbox.put(parcel(2, MAX_TIMESTAMP, 1), false, NOW);
        assert_eq!(outbox.until, until);
        outbox.put(parcel(3, NOW.after(SOON), 1), false, NOW);
        assert_ne!(outbox.until, until);
        assert_eq!(offsets(&mut outbox), [1, 2, 3]);
        assert_eq!((outbox.wait(), outbox.take().len()), (None, 0));
    }

    #[test]
    fn nothing_waits_for_longer_though_more_keeps_coming() {
        let mut outbox = Outbox::default();
        let began = Instant::now();
        let mut offset = 0;
        while outbox.take().is_empty() {
            offset += 1;
            outbox.put(parcel(offset, MAX_TIMESTAMP, 0), false, NOW);
            std::thread::sleep(Duration::from_millis(1));
            assert!(began.elapsed() < Duration::from_secs(5));
        }
        assert!(began.elapsed() >= PATIENCE);
    }

    #[test]
    fn many_and_large_ones_and_urgent_ones_go_at_once() {
        let mut outbox = Outbox::default();
        outbox.put(parcel(0, MAX_TIMESTAMP, 1), false, NOW);
        let until = outbox.until;
        (2..MOST).for_each(|_| outbox.put(parcel(1, MAX_TIMESTAMP, 1), false, NOW));
        assert_eq!(outbox.until, until);
        outbox.put(parcel(2, MAX_TIMESTAMP, 1), false, NOW);
        assert_ne!(outbox.until, until);
        assert_eq!(outbox.take().len(), MOST);
        outbox.put(parcel(1, MAX_TIMESTAMP, MOST_BYTES), false, NOW);
        assert_eq!(outbox.take().len(), 1);
        outbox.put(parcel(1, MAX_TIMESTAMP, 1), true, NOW);
        assert_eq!(outbox.take().len(), 1);
    }

    #[test]
    fn where_a_lane_goes_nothing_waits() {
        let mut outbox = Outbox::default();
        outbox.hurry();
        assert_eq!(outbox.wait(), None);
        outbox.put(parcel(1, MAX_TIMESTAMP, 1), false, NOW);
        outbox.hurry();
        assert_eq!(outbox.take().len(), 1);
    }
}
