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

/// How often in a row what comes first goes before other work: that must not wait for ever.
const IN_A_ROW: u8 = 2;

/// Work that waits for a thread.
pub(super) struct Quick<T> {
    queue: Mutex<Queue<T>>,
    /// How many threads there are at most, unless some are stuck.
    most: usize,
}

struct Queue<T> {
    /// What comes before other work.
    first: VecDeque<T>,
    work: VecDeque<T>,
    /// How often it did so since the last of those, up to as often as it may.
    in_a_row: u8,
    threads: usize,
    /// How many of them were called and did not come yet.
    coming: usize,
    /// When somebody last took something.
    taken: Instant,
}

impl<T> Queue<T> {
    fn new() -> Self {
        Self {
            first: VecDeque::new(),
            work: VecDeque::new(),
            in_a_row: 0,
            threads: 0,
            coming: 0,
            taken: Instant::now(),
        }
    }

    fn len(&self) -> usize {
        self.first.len() + self.work.len()
    }

    fn put(&mut self, work: T, is_first: bool) {
        let line = if is_first { &mut self.first } else { &mut self.work };
        line.push_back(work);
    }

    fn next(&mut self) -> Option<T> {
        if self.first.is_empty() || !self.work.is_empty() && self.in_a_row >= IN_A_ROW {
            self.in_a_row = 0;
            return self.work.pop_front();
        }
        self.in_a_row = IN_A_ROW.min(self.in_a_row + 1);
        self.first.pop_front()
    }

    /// Whether one more thread is to be called.
    fn is_short(&self, most: usize, now: Instant) -> bool {
        let is_stuck = || now.saturating_duration_since(self.taken) >= STUCK;
        self.threads < self.len().min(most) || self.len() > 0 && self.coming == 0 && is_stuck()
    }
}

impl<T: Send + 'static> Quick<T> {
    pub(super) fn new(most: usize) -> Self {
        Self { queue: Mutex::new(Queue::new()), most: most.max(1) }
    }

    /// Lets something be done soon, by a thread that does one after the other: before other work that waits, or behind it.
    pub(super) fn push(
        self: &Arc<Self>,
        work: T,
        is_first: bool,
        runtime: &Handle,
        act: impl FnMut(T) + Send + 'static,
    ) {
        self.queue.lock().put(work, is_first);
        self.look(runtime, act);
    }

    /// Calls a thread if those that are there do not keep up. Returns when somebody has to look again, if nothing is pushed until
    /// then: who is quick now may be stuck next.
    pub(super) fn look(
        self: &Arc<Self>,
        runtime: &Handle,
        mut act: impl FnMut(T) + Send + 'static,
    ) -> Option<Duration> {
        let mut queue = self.queue.lock();
        if !queue.is_short(self.most, Instant::now()) {
            return (queue.len() > 0).then_some(STUCK);
        }
        queue.threads += 1;
        queue.coming += 1;
        drop(queue);
        let quick = Arc::clone(self);
        runtime.spawn_blocking(move || {
            quick.queue.lock().coming -= 1;
            while let Some(work) = quick.take() {
                act(work);
            }
        });
        Some(STUCK)
    }

    /// What is to be done next. Without any the thread ends.
    fn take(&self) -> Option<T> {
        let mut queue = self.queue.lock();
        let next = queue.next();
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

    /// By then everything has happened, on whatever machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn one_thread_does_what_it_can_do() {
        let quick = Arc::new(Quick::new(4));
        let (most, now) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (done, all) = channel();
        for number in 0..100 {
            let (most, now, done) = (Arc::clone(&most), Arc::clone(&now), done.clone());
            // The last is done before the next comes.
            quick.push(number, false, &Handle::current(), move |it| {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                now.fetch_sub(1, Ordering::SeqCst);
                done.send(it).unwrap();
            });
            assert_eq!(all.recv().unwrap(), number);
        }
        assert_eq!(most.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn what_is_to_come_first_does_and_in_its_order() {
        let mut queue = Queue::new();
        for (work, is_first) in [(3, false), (4, false), (1, true), (2, true)] {
            queue.put(work, is_first);
        }
        assert_eq!(queue.len(), 4);
        let all: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(all, [1, 2, 3, 4]);
    }

    #[test]
    fn what_is_to_come_first_does_not_hold_up_the_rest_for_ever() {
        let mut queue = Queue::new();
        (0..5).for_each(|it| queue.put(it, true));
        (10..12).for_each(|it| queue.put(it, false));
        let all: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(all, [0, 1, 10, 2, 3, 11, 4]);
    }

    #[test]
    fn a_thread_is_called_where_there_are_too_few_or_none_has_come_back_for_a_while() {
        let mut queue = Queue::new();
        let now = queue.taken;
        let later = now + STUCK;
        assert!(!queue.is_short(1, later), "there is nothing to do");
        queue.put(0, false);
        assert!(queue.is_short(1, now));
        (queue.threads, queue.coming) = (1, 1);
        assert!(!queue.is_short(1, later), "one is on its way");
        queue.coming = 0;
        assert!(!queue.is_short(1, now), "it may come back soon");
        assert!(queue.is_short(1, later));
        queue.put(1, false);
        assert!(queue.is_short(2, now));
    }

    #[tokio::test]
    async fn nothing_waits_behind_what_is_stuck_though_nothing_more_is_pushed() {
        let quick = Arc::new(Quick::new(1));
        let (release, stuck) = channel::<()>();
        let stuck = Arc::new(Mutex::new(stuck));
        let (begun, begins) = channel();
        let (done, all) = channel();
        let act = move |it| {
            if it == 0 {
                begun.send(()).unwrap();
                _ = stuck.lock().recv();
            }
            _ = done.send(it);
        };
        let runtime = Handle::current();
        quick.push(0, false, &runtime, act.clone());
        begins.recv_timeout(PATIENCE).unwrap();
        // Somebody took work just now, and seems to be quick.
        quick.queue.lock().taken = Instant::now();
        quick.push(1, false, &runtime, act.clone());
        let mut others = Vec::new();
        let began = Instant::now();
        while others.is_empty() && began.elapsed() < PATIENCE {
            if let Some(wait) = quick.look(&runtime, act.clone()) {
                std::thread::sleep(wait);
            }
            others.extend(all.try_iter());
        }
        assert_eq!(others, [1]);
        release.send(()).unwrap();
        assert_eq!(all.recv_timeout(PATIENCE).unwrap(), 0);
    }
}
