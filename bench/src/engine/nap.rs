//! Waiting as a call to a service waits: to the fraction of a millisecond. Tokio's own timers are a millisecond late.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Naps that all take the same time, so that they end in the order in which they began.
pub(crate) struct Naps {
    time: Duration,
    queue: Sender<(Instant, oneshot::Sender<()>)>,
}

impl Naps {
    pub(crate) fn new(time: Duration) -> Self {
        let (queue, naps) = channel();
        std::thread::spawn(move || wake(&naps));
        Self { time, queue }
    }

    pub(crate) async fn nap(&self) {
        let (wake, woken) = oneshot::channel();
        if self.queue.send((Instant::now() + self.time, wake)).is_ok() {
            _ = woken.await;
        }
    }
}

fn wake(naps: &Receiver<(Instant, oneshot::Sender<()>)>) {
    while let Ok((end, wake)) = naps.recv() {
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        _ = wake.send(());
    }
}
