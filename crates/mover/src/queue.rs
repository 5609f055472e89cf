//! A bounded queue between threads. A push waits for space, a pop for an item; both end when the queue is
//! closed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The result of waiting for an item.
#[derive(Debug, PartialEq, Eq)]
pub enum Popped<T> {
    /// An item.
    Item(T),
    /// Nothing in that time.
    Nothing,
    /// Nothing, and nothing will come.
    Closed,
}

/// A queue of at most this many.
#[derive(Debug)]
pub struct Queue<T> {
    state: Mutex<State<T>>,
    came: Condvar,
    went: Condvar,
    limit: usize,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    closed: bool,
    /// The waiting thread should check its other conditions.
    woken: bool,
}

impl<T> Queue<T> {
    /// A queue of at most `limit` items.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let state = State { items: VecDeque::new(), closed: false, woken: false };
        Self { state: Mutex::new(state), came: Condvar::new(), went: Condvar::new(), limit: limit.max(1) }
    }

    /// Adds an item when there is room; false if the queue was closed.
    pub fn push(&self, item: T) -> bool {
        let mut state = self.state.lock();
        while state.items.len() >= self.limit && !state.closed {
            self.went.wait(&mut state);
        }
        self.add(state, |items| items.push_back(item))
    }

    /// Adds an item before all others, even beyond the bound: for repeated work.
    pub fn push_front(&self, item: T) -> bool {
        self.add(self.state.lock(), |items| items.push_front(item))
    }

    fn add(
        &self,
        mut state: parking_lot::MutexGuard<'_, State<T>>,
        how: impl FnOnce(&mut VecDeque<T>),
    ) -> bool {
        if state.closed {
            return false;
        }
        how(&mut state.items);
        drop(state);
        self.came.notify_one();
        true
    }

    /// The next item; None when the queue was closed and is empty.
    pub fn pop(&self) -> Option<T> {
        self.pop_while(|| true)
    }

    /// The next item, or the reason for a return without one: a timeout or a [`Queue::wake`].
    pub fn pop_for(&self, wait: Duration) -> Popped<T> {
        let until = Instant::now() + wait;
        let mut state = self.state.lock();
        loop {
            if let Some(item) = state.items.pop_front() {
                drop(state);
                self.went.notify_one();
                return Popped::Item(item);
            }
            if state.closed {
                return Popped::Closed;
            }
            if std::mem::take(&mut state.woken) || self.came.wait_until(&mut state, until).timed_out() {
                return Popped::Nothing;
            }
        }
    }

    /// As [`Queue::pop`], but gives up when `stay` returns false; it is called at first and after every
    /// [`Queue::wake`].
    pub fn pop_while(&self, stay: impl Fn() -> bool) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            if !stay() {
                return None;
            }
            if let Some(item) = state.items.pop_front() {
                drop(state);
                self.went.notify_one();
                return Some(item);
            }
            if state.closed {
                return None;
            }
            self.came.wait(&mut state);
        }
    }

    /// Items that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.lock().items.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All waiting threads check again whether they should stay. A wait with a timeout ends, now or the next
    /// time.
    pub fn wake(&self) {
        self.state.lock().woken = true;
        self.came.notify_all();
    }

    /// Accepts no further items; those in it can still be popped.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.came.notify_all();
        self.went.notify_all();
    }

    /// Accepts no further items, and drops those in it.
    pub fn abandon(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.items.clear();
        self.came.notify_all();
        self.went.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_and_empty_wait_and_closing_ends_it() {
        let queue = Queue::new(2);
        let sum: u64 = std::thread::scope(|s| {
            let popping: Vec<_> =
                (0..3).map(|_| s.spawn(|| std::iter::from_fn(|| queue.pop()).sum::<u64>())).collect();
            (1..=1000).for_each(|n| assert!(queue.push(n)));
            queue.close();
            popping.into_iter().map(|p| p.join().unwrap()).sum()
        });
        assert_eq!(sum, 500_500);
        assert!(!queue.push(1));
    }

    #[test]
    fn who_need_not_stay_goes() {
        let queue = Queue::<u8>::new(1);
        let stay = std::sync::atomic::AtomicBool::new(true);
        std::thread::scope(|s| {
            let waiting = s.spawn(|| queue.pop_while(|| stay.load(std::sync::atomic::Ordering::Relaxed)));
            stay.store(false, std::sync::atomic::Ordering::Relaxed);
            queue.wake();
            assert_eq!(waiting.join().unwrap(), None);
        });
    }
}
