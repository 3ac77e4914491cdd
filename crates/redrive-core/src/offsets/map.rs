//! What is settled above the commit point, and how it is written.

use std::fmt;

use super::blocks::BlockId;
use super::runs::Runs;
use super::wire::{Reader, Writer, bytes_in, from_text, hash, to_text};
use crate::time::Timestamp;

/// The version of the format.
const VERSION: u8 = 1;
/// The version of a map with a fence. Who does not know it must not go on: it would take void copies for good ones.
const FENCED: u8 = 2;

/// Up to where an owner found its partition when it took over, and which owner that was.
///
/// A copy from there on that an earlier owner published came too late: it is void. What is below was judged by then, and
/// the map says what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Which owner: each has a higher epoch than those before it.
    pub epoch: u64,
    /// The end of the partition when it took over.
    pub end: i64,
}

/// A place in the order in which waiting records run: by due time, then by offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// The due time that stands in the record's header.
    pub due: Timestamp,
    /// The record's offset.
    pub offset: i64,
}

/// What is settled between the commit point and what was read.
///
/// Of the records below [`high`](Self::high), those without a due time in their header are settled unless they
/// are in `open`; those with one are settled before the [`mark`](Self::mark), unless they are in `open`, and not
/// settled from it on, unless they are in `early`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledMap {
    /// The offset that it was committed with. Everything below is settled.
    pub commit_point: i64,
    /// Everything from here on was not read yet.
    pub high: i64,
    /// Before this place records with a due time are settled.
    pub mark: Option<Mark>,
    /// Not settled all the same.
    pub open: Runs,
    /// Settled all the same.
    pub early: Runs,
    /// Who owns the partition, where that matters.
    pub fence: Option<Fence>,
}

/// Why metadata is no map.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapError {
    /// There is none: nothing above the commit point is settled.
    Empty,
    /// Somebody else's metadata, or a broken one.
    Unreadable,
    /// A version that is not known here. To go on would run records twice.
    NewerVersion(u8),
    /// It was made on another cluster: a mirrored group.
    AnotherCluster,
    /// It was made for another commit point: the group was reset.
    AnotherCommitPoint(i64),
    /// It claims to know more than the log has.
    BeyondLogEnd(i64),
    /// A block that it names is not there.
    MissingBlock(BlockId),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::Empty => f.write_str("the commit has no map"),
            MapError::Unreadable => {
                f.write_str("the commit's metadata is not a map that can be read")
            }
            MapError::NewerVersion(version) => {
                write!(
                    f,
                    "the map has version {version}, but this Redrive knows only {VERSION} and {FENCED}"
                )
            }
            MapError::AnotherCluster => f.write_str("the map was made on another cluster"),
            MapError::AnotherCommitPoint(offset) => {
                write!(
                    f,
                    "the map was made for the commit point {offset}, which is not the group's"
                )
            }
            MapError::BeyondLogEnd(high) => {
                write!(f, "the map speaks of offsets up to {high}, which is beyond the log's end")
            }
            MapError::MissingBlock(id) => {
                write!(
                    f,
                    "the map names the block {}/{:016x}, which is not there",
                    id.stretch, id.hash
                )
            }
        }
    }
}

impl std::error::Error for MapError {}

impl SettledMap {
    /// A map that says nothing: everything from `offset` on is to be read.
    pub fn starting_at(offset: i64) -> Self {
        Self {
            commit_point: offset,
            high: offset,
            mark: None,
            open: Runs::new(),
            early: Runs::new(),
            fence: None,
        }
    }

    /// Whether the record at this offset is settled, given the due time in its own header.
    pub fn is_settled(&self, offset: i64, due: Option<Timestamp>) -> bool {
        if offset < self.commit_point {
            return true;
        }
        if offset >= self.high {
            return false;
        }
        let passed = match (due, self.mark) {
            (None, _) => true,
            (Some(due), Some(mark)) => Mark { due, offset } < mark,
            (Some(_), None) => false,
        };
        if passed { !self.open.contains(offset) } else { self.early.contains(offset) }
    }

    /// Reads the metadata of a commit.
    ///
    /// # Errors
    ///
    /// It is none of ours, or does not fit the cluster, the commit point or the log: then nothing above the commit
    /// point counts as settled. [`MapError::NewerVersion`] alone must not be passed over.
    pub fn read(
        metadata: &str,
        cluster: &str,
        commit_point: i64,
        log_end: i64,
        block: impl Fn(BlockId) -> Option<Vec<u8>>,
    ) -> Result<Self, MapError> {
        if metadata.is_empty() {
            return Err(MapError::Empty);
        }
        let bytes = from_text(metadata).ok_or(MapError::Unreadable)?;
        let (body, check) = bytes.split_last_chunk::<4>().ok_or(MapError::Unreadable)?;
        if checksum(body) != *check {
            return Err(MapError::Unreadable);
        }
        let mut reader = Reader(body);
        let version = reader.byte().ok_or(MapError::Unreadable)?;
        if version != VERSION && version != FENCED {
            return Err(MapError::NewerVersion(version));
        }
        if reader.bytes(4).ok_or(MapError::Unreadable)? != checksum(cluster.as_bytes()) {
            return Err(MapError::AnotherCluster);
        }
        let (mut map, blocks) =
            Self::read_body(&mut reader, version == FENCED).ok_or(MapError::Unreadable)?;
        if map.commit_point != commit_point {
            return Err(MapError::AnotherCommitPoint(map.commit_point));
        }
        if map.high > log_end {
            return Err(MapError::BeyondLogEnd(map.high));
        }
        for id in blocks {
            let bytes =
                block(id).filter(|it| hash(it) == id.hash).ok_or(MapError::MissingBlock(id))?;
            map.add_block(id, &bytes).ok_or(MapError::MissingBlock(id))?;
        }
        map.forget_below(commit_point);
        Ok(map)
    }

    fn read_body(reader: &mut Reader<'_>, is_fenced: bool) -> Option<(Self, Vec<BlockId>)> {
        let fence = if is_fenced {
            Some(Fence { epoch: reader.number()?, end: reader.distance(0)? })
        } else {
            None
        };
        let commit_point = reader.distance(0)?;
        let high = reader.distance(commit_point)?;
        let mark = match reader.byte()? {
            0 => None,
            1 => {
                let due = Timestamp::from_millis(reader.distance(0)?);
                Some(Mark { due, offset: reader.distance(0)? })
            }
            _ => return None,
        };
        let (mut open, mut early) = (Runs::new(), Runs::new());
        reader.runs(commit_point..i64::MAX, &mut open)?;
        reader.runs(commit_point..i64::MAX, &mut early)?;
        let mut blocks = Vec::new();
        let mut stretch = 0u64;
        for _ in 0..reader.number()? {
            stretch = stretch.checked_add(reader.number()?)?;
            let hash = u64::from_be_bytes(reader.bytes(8)?.try_into().ok()?);
            blocks.push(BlockId { stretch, hash });
        }
        let map = Self { commit_point, high, mark, open, early, fence };
        reader.0.is_empty().then_some((map, blocks))
    }

    /// Adds what a block says. What the metadata lists of its stretch has changed since the block was written.
    fn add_block(&mut self, id: BlockId, bytes: &[u8]) -> Option<()> {
        let offsets = id.offsets()?;
        let mut reader = Reader(bytes);
        reader.runs(offsets.clone(), &mut self.open)?;
        reader.runs(offsets, &mut self.early)?;
        reader.0.is_empty().then_some(())
    }

    /// Below the commit point everything is settled, so nothing need be said of it.
    pub(super) fn forget_below(&mut self, commit_point: i64) {
        self.open.remove_below(commit_point);
        self.early.remove_below(commit_point);
    }

    /// The whole map as text, if it fits in so many characters.
    pub(super) fn write(&self, cluster: &str, max_chars: usize) -> Option<String> {
        let listed = [&self.open, &self.early];
        let body = self.body(cluster, self.high, listed, &[], bytes_in(max_chars))?;
        Some(to_text(&body))
    }

    /// The map up to `high` as it is committed, if it fits: names of blocks, and where open and early differ from what
    /// the blocks say.
    pub(super) fn body(
        &self,
        cluster: &str,
        high: i64,
        listed: [&Runs; 2],
        names: &[BlockId],
        max_bytes: usize,
    ) -> Option<Vec<u8>> {
        let mut writer = Writer::default();
        writer.byte(if self.fence.is_some() { FENCED } else { VERSION });
        writer.bytes(&checksum(cluster.as_bytes()));
        if let Some(fence) = self.fence {
            writer.number(fence.epoch);
            writer.distance(0, fence.end.max(0));
        }
        writer.distance(0, self.commit_point);
        writer.distance(self.commit_point, high);
        match self.mark {
            None => writer.byte(0),
            Some(mark) => {
                writer.byte(1);
                writer.distance(0, mark.due.as_millis().max(0));
                writer.distance(0, mark.offset.max(0));
            }
        }
        let room = max_bytes.checked_sub(writer.0.len() + 16)?;
        for runs in listed {
            if !writer.runs(self.commit_point, runs, self.commit_point..high, room) {
                return None;
            }
        }
        writer.number(names.len() as u64);
        let mut last = 0;
        for id in names {
            writer.number(id.stretch - last);
            writer.bytes(&id.hash.to_be_bytes());
            last = id.stretch;
        }
        let check = checksum(&writer.0);
        writer.bytes(&check);
        (writer.0.len() <= max_bytes).then_some(writer.0)
    }
}

/// FNV-1a, folded. It stays as it is in all versions, so that each can tell a newer one from a broken one.
fn checksum(bytes: &[u8]) -> [u8; 4] {
    let hash = bytes.iter().fold(0xCBF2_9CE4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    let folded = (hash >> 32) ^ (hash & 0xFFFF_FFFF);
    let [_, _, _, _, a, b, c, d] = folded.to_be_bytes();
    [a, b, c, d]
}
