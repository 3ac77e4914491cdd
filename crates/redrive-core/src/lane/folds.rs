//! Pending records of an ordered lane that there is no room for: of them only ranges of offsets and a filter of their
//! entities are kept.
//!
//! Entities that are needed last are folded away whole, and of those with many records the last ones: an entity then has a
//! *horizon*, from which on nothing is known of it. Nothing runs that is not before its entity's horizon. When there is room again,
//! and something of it is needed, the ranges are read again, and what there is no room for then is folded once more.

use std::time::Duration;

use super::entities::Part;
use super::entity::EntityId;
use super::filter::Filter;
use super::piece::Piece;
use crate::mutation::{self, Mutation};
use crate::time::Timestamp;

/// Records that are folded away.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    /// The first and the last offset in each part.
    ranges: Vec<Option<(i64, i64)>>,
    filter: Filter,
    /// When the first of them is needed.
    from: Timestamp,
}

impl Fold {
    pub(super) fn new(parts: usize, entities: usize) -> Self {
        let from = Timestamp::from_millis(i64::MAX);
        Self { ranges: vec![None; parts], filter: Filter::for_entities(entities), from }
    }

    pub(super) fn add(&mut self, part: Part, offset: i64, wake: Timestamp) {
        if let Some(range) = self.ranges.get_mut(part) {
            let (first, last) = range.unwrap_or((offset, offset));
            *range = Some((first.min(offset), last.max(offset)));
        }
        self.from = self.from.min(wake);
    }

    pub(super) fn add_entity(&mut self, entity: EntityId) {
        self.filter.insert(entity);
    }

    pub(super) fn may_have(&self, entity: EntityId) -> bool {
        !mutation::is(Mutation::IgnoreFilters) && self.filter.may_have(entity)
    }
}

/// A fold that is being read again, part after part.
#[derive(Clone, Debug)]
struct Scan {
    fold: Fold,
    /// What is being read: everything before was.
    at: (Part, i64),
    /// What was asked for.
    asked: Option<Asked>,
    /// How long reading took so far.
    took: Duration,
}

#[derive(Clone, Debug)]
struct Asked {
    ticket: u64,
    piece: Piece,
    at: Timestamp,
}

/// What is folded away, and what of it is being read again.
#[derive(Debug, Default)]
pub(super) struct Folds {
    fold: Option<Fold>,
    scan: Option<Scan>,
    /// When everything was last read again, and how long there is peace after that.
    ended: Timestamp,
    pause: Duration,
    /// Whether something was sent after an entity that a filter knows, and is due.
    is_sought: bool,
    /// Whether an entity has nothing left before its horizon.
    is_starved: bool,
}

/// Searches take at most this part of the time.
const SEARCH_SHARE: u32 = 20;
/// And there is so much time between two of them, if nothing is known to wait.
const LEAST_PAUSE: Duration = Duration::from_secs(1);
/// No piece counts for more than this: a clock that jumps, or a broker that does not answer, must not hold up entities for hours.
const LONGEST_PIECE: Duration = Duration::from_millis(250);
/// A part of the time that topics keep records. They are appended again when half of it is over, and must be found by then.
const RETENTION_SHARE: u32 = 16;

impl Folds {
    pub(super) fn is_empty(&self) -> bool {
        self.fold.is_none() && self.scan.is_none()
    }

    pub(super) fn is_scanning(&self) -> bool {
        self.scan.is_some()
    }

    /// Whether something of an entity may be folded away since the last scan began.
    pub(super) fn may_have_again(&self, entity: EntityId) -> bool {
        self.fold.as_ref().is_some_and(|it| it.may_have(entity))
    }

    /// Whether something of an entity may be folded away.
    pub(super) fn may_have(&self, entity: EntityId) -> bool {
        self.fold.as_ref().is_some_and(|it| it.may_have(entity))
            || self.scan.as_ref().is_some_and(|it| it.fold.may_have(entity))
    }

    pub(super) fn fold(&mut self, parts: usize, entities: usize) -> &mut Fold {
        self.fold.get_or_insert_with(|| Fold::new(parts, entities))
    }

    pub(super) fn seek(&mut self) {
        self.is_sought = true;
    }

    pub(super) fn starve(&mut self) {
        self.is_starved = true;
    }

    /// When the first of a part is needed.
    pub(super) fn from(&self, part: Part) -> Option<Timestamp> {
        let fold = self.fold.as_ref().filter(|it| it.ranges[part].is_some());
        let scan = self.scan.as_ref().filter(|it| part >= it.at.0).map(|it| &it.fold);
        let scan = scan.filter(|it| it.ranges[part].is_some());
        fold.into_iter().chain(scan).map(|it| it.from).min()
    }

    /// Whether something that is folded away is needed by `until`.
    pub(super) fn is_needed(&self, until: Timestamp) -> bool {
        self.scan.is_none() && self.fold.as_ref().is_some_and(|it| it.from <= until)
    }

    /// Whether something that is folded away keeps others waiting, and there was peace for long enough.
    pub(super) fn is_wanted(&self, now: Timestamp) -> bool {
        let is_late = self.fold.as_ref().is_some_and(|it| it.from <= now);
        let is_awaited = (self.is_starved || is_late) && self.is_rested(self.pause, now);
        let is_sought = self.is_sought && self.is_rested(self.pause.max(LEAST_PAUSE), now);
        self.scan.is_none() && self.fold.is_some() && (is_awaited || is_sought)
    }

    /// Whether there was peace for so long. The clock may have gone back.
    fn is_rested(&self, pause: Duration, now: Timestamp) -> bool {
        now >= self.ended.after(pause) || now < self.ended
    }

    /// Begins to read what is folded away again.
    pub(super) fn begin(&mut self) {
        self.is_sought = false;
        self.is_starved = false;
        if let Some(fold) = self.fold.take() {
            let (at, took) = ((0, i64::MIN), Duration::ZERO);
            self.scan = Some(Scan { fold, at, asked: None, took });
        }
    }

    /// What is to be read next. None: everything was, or is being read.
    pub(super) fn next(&mut self) -> Option<(Part, Piece)> {
        let scan = self.scan.as_mut().filter(|it| it.asked.is_none())?;
        while let Some(range) = scan.fold.ranges.get(scan.at.0) {
            if let Some((first, last)) = *range {
                let start = scan.at.1.max(first);
                if start <= last {
                    return Some((scan.at.0, Piece::from(start, last)));
                }
            }
            scan.at = (scan.at.0 + 1, i64::MIN);
        }
        None
    }

    /// Whether something was asked for and has not come yet.
    pub(super) fn is_asking(&self) -> bool {
        self.scan.as_ref().is_some_and(|it| it.asked.is_some())
    }

    pub(super) fn asked(&mut self, ticket: u64, piece: Piece, now: Timestamp) {
        if let Some(scan) = &mut self.scan {
            scan.asked = Some(Asked { ticket, piece, at: now });
        }
    }

    /// A record was read again. Returns whether it belongs to what was asked for and comes for the first time.
    pub(super) fn came(&mut self, part: Part, offset: i64) -> bool {
        let scan = self.scan.as_mut().filter(|it| it.at.0 == part);
        let asked = scan.and_then(|it| it.asked.as_mut());
        asked.is_some_and(|it| it.piece.came(offset))
    }

    /// What was asked for was read to its end, or is to be asked for again. Returns it if it was this that was asked for.
    pub(super) fn read(
        &mut self,
        part: Part,
        ticket: u64,
        is_whole: bool,
        now: Timestamp,
    ) -> Option<Piece> {
        let scan = self.scan.as_mut().filter(|it| it.at.0 == part)?;
        let asked = scan.asked.take_if(|it| it.ticket == ticket)?;
        scan.took += now.since(asked.at).min(LONGEST_PIECE);
        if is_whole {
            scan.at.1 = asked.piece.range().end;
        }
        Some(asked.piece)
    }

    /// Everything was read again.
    pub(super) fn end(&mut self, retention: Option<Duration>, now: Timestamp) {
        if let Some(scan) = self.scan.take() {
            let longest = retention.map_or(Duration::MAX, |it| it / RETENTION_SHARE);
            self.pause = scan.took.saturating_mul(SEARCH_SHARE).min(longest);
            self.ended = now;
        }
    }

    /// When to look whether something is needed.
    pub(super) fn wake(&self, lead: Duration) -> Option<Timestamp> {
        let starved = self.is_starved.then(|| self.ended.after(self.pause));
        let sought = self.is_sought.then(|| self.ended.after(self.pause.max(LEAST_PAUSE)));
        let search = starved.into_iter().chain(sought).min().filter(|_| self.scan.is_none());
        let from = self.fold.as_ref().map(|it| it.from.before(lead));
        [search, from].into_iter().flatten().min()
    }
}
