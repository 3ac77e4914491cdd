//! Waiting as a call to a service waits: to the fraction of a millisecond. Tokio's own timers are a millisecond late.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Naps that all take the same time, so that they end in the order in which they began.
pub(crate) struct Naps {
    time: Duration,
    queue: Sender<(Instant, oneshot::Sender<Instant>)>,
}

impl Naps {
    pub(crate) fn new(time: Duration) -> Self {
        let (queue, naps) = channel();
        std::thread::spawn(move || wake(&naps));
        Self { time, queue }
    }

    /// Naps, and tells how long that took: until it was over, and not until somebody had time to go on.
    pub(crate) async fn nap(&self) -> Duration {
        let began = Instant::now();
        let (wake, woken) = oneshot::channel();
        if self.queue.send((began + self.time, wake)).is_err() {
            return Duration::ZERO;
        }
        woken.await.map_or(Duration::ZERO, |it| it - began)
    }
}

fn wake(naps: &Receiver<(Instant, oneshot::Sender<Instant>)>) {
    while let Ok((end, wake)) = naps.recv() {
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        _ = wake.send(Instant::now());
    }
}
