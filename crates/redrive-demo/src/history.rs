//! What happened, as two witnesses tell it who know nothing of Redrive: the service, which notes every request, and the topics,
//! which are read whole at the end.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::orders::Answer;

/// A record's place in the source topic: what it is known by wherever it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
}

/// A record as it stands in the source topic, or as the producer was told that it does.
#[derive(Clone, Debug)]
pub(crate) struct Produced {
    pub(crate) place: Place,
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    /// When, Unix time in ms.
    pub(crate) at: i64,
}

/// A request as the service saw it. Times are Unix times in µs, by the service's clock.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) place: Place,
    pub(crate) value: Bytes,
    /// How often the record was published before, as the request said.
    pub(crate) overall: u32,
    pub(crate) arrived: i64,
    /// What the service said, and when. None if the connection was gone before.
    pub(crate) said: Option<(Answer, i64)>,
}

impl Request {
    pub(crate) fn answer(&self) -> Option<Answer> {
        self.said.map(|it| it.0)
    }
}

/// A copy of a record in a retry topic.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) origin: Place,
    /// Which retry topic, from 0, and where in it.
    pub(crate) topic: usize,
    pub(crate) place: Place,
    pub(crate) overall: u32,
    /// From when on it may run, Unix time in ms.
    pub(crate) due: i64,
    /// The answer that it was retried for, where one arrived.
    pub(crate) status: Option<u16>,
    /// When it was written, Unix time in ms.
    pub(crate) at: i64,
}

/// A record in the dead-letter topic.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(crate) origin: Place,
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    pub(crate) reason: String,
    /// When it was written, Unix time in ms.
    pub(crate) at: i64,
}

/// Everything that is known of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// What the producer had acknowledged.
    pub(crate) sent: BTreeMap<Place, u32>,
    pub(crate) produced: Vec<Produced>,
    pub(crate) requests: Vec<Request>,
    pub(crate) copies: Vec<Copy>,
    pub(crate) letters: Vec<Letter>,
    /// What the group has committed, where that was asked for: by topic, the source topic first, and partition.
    pub(crate) committed: BTreeMap<(usize, i32), i64>,
    /// Records of retry topics and the dead-letter topic that do not say where they are from.
    pub(crate) strange: usize,
}

/// All that is known of one record, each in the order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life<'a> {
    pub(crate) produced: Option<&'a Produced>,
    pub(crate) requests: Vec<&'a Request>,
    pub(crate) copies: Vec<&'a Copy>,
    pub(crate) letters: Vec<&'a Letter>,
}

impl History {
    /// Record by record: those that were produced, and whatever else turned up.
    pub(crate) fn lives(&self) -> BTreeMap<Place, Life<'_>> {
        let mut lives: BTreeMap<Place, Life<'_>> = BTreeMap::new();
        for place in self.sent.keys() {
            lives.entry(*place).or_default();
        }
        for it in &self.produced {
            lives.entry(it.place).or_default().produced = Some(it);
        }
        for it in &self.requests {
            lives.entry(it.place).or_default().requests.push(it);
        }
        for it in &self.copies {
            lives.entry(it.origin).or_default().copies.push(it);
        }
        for it in &self.letters {
            lives.entry(it.origin).or_default().letters.push(it);
        }
        for life in lives.values_mut() {
            life.requests.sort_by_key(|it| it.arrived);
            life.copies.sort_by_key(|it| (it.overall, it.at));
        }
        lives
    }
}
