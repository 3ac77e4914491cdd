//! A record in a lane.

use std::mem;

use redrive_core::lane::Payload;

use crate::kafka::message::Message;
use crate::record::Record;

/// What a payload costs beside its bytes.
const OVERHEAD: usize = 160;

/// How much memory a record takes, without its headers.
pub(super) fn bytes_of(key: Option<&[u8]>, value: Option<&[u8]>) -> usize {
    key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len) + OVERHEAD
}

/// A record in a lane.
pub(crate) enum Load {
    /// As it was fetched, and nobody else has it. Nearly all records go from here to their runs, which make of it what
    /// handlers share, on their own threads.
    Fresh(Message),
    /// Others may have it, too.
    Shared(Record),
    /// A run has it.
    Lent,
}

impl Load {
    /// The record. None if a run has it.
    pub(crate) fn into_record(self) -> Option<Record> {
        match self {
            Self::Fresh(message) => Some(Record::new(message)),
            Self::Shared(record) => Some(record),
            Self::Lent => None,
        }
    }

    /// The record, where it is shared: as that of every failed run is.
    pub(crate) fn record(&self) -> Option<&Record> {
        match self {
            Self::Shared(record) => Some(record),
            Self::Fresh(_) | Self::Lent => None,
        }
    }

    /// Lets the processor fetch it from whichever core has it, without waiting for it.
    #[inline]
    pub(crate) fn prefetch(&self) {
        match self {
            Self::Fresh(message) => message.prefetch_whole(),
            Self::Shared(record) => record.prefetch(),
            Self::Lent => {}
        }
    }

    /// The same for its value, once the record is there.
    #[inline]
    pub(crate) fn prefetch_value(&self) {
        if let Self::Fresh(message) = self {
            message.prefetch_value();
        }
    }
}

impl Payload for Load {
    #[inline]
    fn lend(&mut self) -> Self {
        mem::replace(self, Self::Lent)
    }

    fn share(&mut self) -> Self {
        let Some(record) = self.lend().into_record() else {
            return Self::Lent;
        };
        *self = Self::Shared(record.clone());
        Self::Shared(record)
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Fresh(message) => bytes_of(message.key(), message.value()),
            Self::Shared(record) => bytes_of(record.key(), record.value()),
            Self::Lent => 0,
        }
    }

    fn kept(self) -> Self {
        self.into_record().map_or(Self::Lent, |it| Self::Shared(it.into_kept()))
    }
}
