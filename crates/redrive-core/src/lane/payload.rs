//! How payloads leave a lane, and come back.

use std::rc::Rc;
use std::sync::Arc;

use super::Ranked;

/// What a lane does with the payload of a record.
///
/// Most runs succeed, and then nobody asks for the payload again. So it goes to the run as a whole, and whoever runs it need not share
/// it with the lane, which lives on another thread.
pub trait Payload: Sized {
    /// The payload for a run. If that fails, it has to come back by [`given_back`](super::Lane::given_back); until then nobody looks at what is left here.
    fn lend(&mut self) -> Self;

    /// The payload for a publish. It stays here, too.
    fn share(&mut self) -> Self;

    /// How much memory it takes.
    fn bytes(&self) -> usize;

    /// The same, fit for being kept while its record waits: such as copied out of a larger buffer.
    #[must_use]
    fn kept(self) -> Self {
        self
    }
}

/// For what is cheap to clone, and never goes away.
macro_rules! cloned {
    () => {
        fn lend(&mut self) -> Self {
            self.clone()
        }

        fn share(&mut self) -> Self {
            self.clone()
        }

        fn bytes(&self) -> usize {
            size_of::<Self>()
        }
    };
}

impl Payload for () {
    cloned!();
}

impl Payload for i64 {
    cloned!();
}

impl<T: ?Sized> Payload for Rc<T> {
    cloned!();
}

impl<T: ?Sized> Payload for Arc<T> {
    cloned!();
}

impl<P: Payload> Payload for Ranked<P> {
    fn lend(&mut self) -> Self {
        Self { rank: self.rank, payload: self.payload.lend() }
    }

    fn share(&mut self) -> Self {
        Self { rank: self.rank, payload: self.payload.share() }
    }

    fn bytes(&self) -> usize {
        self.payload.bytes()
    }

    fn kept(self) -> Self {
        Self { rank: self.rank, payload: self.payload.kept() }
    }
}
