//! Threads for runs that are quick.
//!
//! A worker of tokio that is woken wakes another one to look for more, which costs more than quick runs do. So they have threads of
//! their own, out of tokio's pool for blocking work: one, unless it does not keep up. Each more would wake up for nothing, and
//! keep memory of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;

/// A thread that has been at one piece of work for as long is not waited for: it was not quick after all.
const STUCK: Duration = Duration::from_millis(1);

/// Work that waits for a thread.
pub(super) struct Quick<T> {
    queue: Mutex<Queue<T>>,
    /// How many threads there are at most, unless some are stuck.
    most: usize,
}

struct Queue<T> {
    work: VecDeque<T>,
    threads: usize,
    /// When somebody last took something.
    taken: Instant,
}

impl<T: Send + 'static> Quick<T> {
    pub(super) fn new(most: usize) -> Self {
        let queue = Queue { work: VecDeque::new(), threads: 0, taken: Instant::now() };
        Self { queue: Mutex::new(queue), most: most.max(1) }
    }

    /// Lets something be done soon, by a thread that does one after the other.
    pub(super) fn push(
        self: &Arc<Self>,
        work: T,
        runtime: &Handle,
        mut act: impl FnMut(T) + Send + 'static,
    ) {
        let mut queue = self.queue.lock();
        queue.work.push_back(work);
        let is_enough = queue.threads >= queue.work.len().min(self.most);
        if is_enough && queue.taken.elapsed() < STUCK {
            return;
        }
        queue.threads += 1;
        queue.taken = Instant::now();
        drop(queue);
        let quick = Arc::clone(self);
        runtime.spawn_blocking(move || {
            while let Some(work) = quick.take() {
                act(work);
            }
        });
    }

    /// What is to be done next. Without any the thread ends.
    fn take(&self) -> Option<T> {
        let mut queue = self.queue.lock();
        let next = queue.work.pop_front();
        match next {
            Some(_) => queue.taken = Instant::now(),
            None => queue.threads -= 1,
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn one_thread_does_what_it_can_do() {
        let quick = Arc::new(Quick::new(4));
        let (most, now) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (done, all) = channel();
        for number in 0..100 {
            let (most, now, done) = (Arc::clone(&most), Arc::clone(&now), done.clone());
            // The last is done before the next comes.
            quick.push(number, &Handle::current(), move |it| {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                now.fetch_sub(1, Ordering::SeqCst);
                done.send(it).unwrap();
            });
            assert_eq!(all.recv().unwrap(), number);
        }
        assert_eq!(most.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn nothing_waits_behind_what_is_stuck() {
        let quick = Arc::new(Quick::new(1));
        let (release, stuck) = channel::<()>();
        let stuck = Mutex::new(stuck);
        let stuck = Arc::new(stuck);
        let (done, all) = channel();
        for number in 0..3 {
            let (stuck, done) = (Arc::clone(&stuck), done.clone());
            quick.push(number, &Handle::current(), move |it| {
                if it == 0 {
                    _ = stuck.lock().recv();
                }
                _ = done.send(it);
            });
            std::thread::sleep(2 * STUCK);
        }
        let mut others = [all.recv().unwrap(), all.recv().unwrap()];
        others.sort_unstable();
        assert_eq!(others, [1, 2]);
        release.send(()).unwrap();
        assert_eq!(all.recv().unwrap(), 0);
    }
}
