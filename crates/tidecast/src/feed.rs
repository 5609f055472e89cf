//! The queue of events from an operation to its handle.
//!
//! Bounded: an unread progress event is replaced by the next one, and when [`ROOM`] events wait, further
//! warnings and news are counted and dropped. Works with any async runtime and without one.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tidecast_event::{Error, Event};

/// Events that may wait for a reader.
const ROOM: usize = 512;

/// See the head of the file.
pub(crate) struct Feed<S, D, N> {
    state: Mutex<State<S, D, N>>,
    changed: Condvar,
}

/// Events that were sent and not read yet; its methods return `None` if the event is still to come.
pub(crate) struct State<S, D, N> {
    queue: VecDeque<Event<S, D, N>>,
    started: Option<S>,
    end: Option<Result<D, Error>>,
    lost: u64,
    wakers: Vec<Waker>,
}

/// A state of the work.
fn is_progress<S, D, N>(event: &Event<S, D, N>) -> bool {
    matches!(event, Event::Progress(_) | Event::Check(_))
}

impl<S: Clone, D: Clone, N: Clone> Feed<S, D, N> {
    pub(crate) fn new() -> Self {
        let (queue, wakers) = (VecDeque::new(), Vec::new());
        let state = State { queue, started: None, end: None, lost: 0, wakers };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// One more event.
    pub(crate) fn push(&self, event: Event<S, D, N>) {
        let mut state = self.state.lock();
        if let Event::Started(started) = &event {
            state.started.get_or_insert_with(|| started.clone());
        }
        let waiting = state.queue.len();
        match state.queue.back_mut() {
            Some(last) if is_progress(&event) && is_progress(last) => *last = event,
            // There is one `started` for each manifest; it always has room.
            _ if waiting >= ROOM && !matches!(event, Event::Started(_)) => {
                state.lost += u64::from(!is_progress(&event));
            }
            _ => state.queue.push_back(event),
        }
        self.wake(&mut state);
    }

    /// The last event, and how the operation ended. Later events are ignored.
    pub(crate) fn end(&self, last: Event<S, D, N>, end: Result<D, Error>) {
        let mut state = self.state.lock();
        if state.end.is_none() {
            state.queue.push_back(last);
            state.end = Some(end);
            self.wake(&mut state);
        }
    }

    fn wake(&self, state: &mut State<S, D, N>) {
        state.wakers.drain(..).for_each(Waker::wake);
        self.changed.notify_all();
    }

    /// Warnings that were not read in time.
    pub(crate) fn lost(&self) -> u64 {
        self.state.lock().lost
    }

    /// Waits on this thread until there is something to take.
    pub(crate) fn block<T>(&self, take: impl Fn(&mut State<S, D, N>) -> Option<T>) -> T {
        let mut state = self.state.lock();
        loop {
            if let Some(taken) = take(&mut state) {
                return taken;
            }
            self.changed.wait(&mut state);
        }
    }

    /// The same, for no longer than that.
    pub(crate) fn block_for<T>(
        &self,
        wait: Duration,
        take: impl Fn(&mut State<S, D, N>) -> Option<T>,
    ) -> Poll<T> {
        let (mut state, until) = (self.state.lock(), Instant::now() + wait);
        loop {
            match take(&mut state) {
                Some(taken) => return Poll::Ready(taken),
                None if self.changed.wait_until(&mut state, until).timed_out() => {
                    return take(&mut state).map_or(Poll::Pending, Poll::Ready);
                }
                None => {}
            }
        }
    }

    /// The same for a task.
    pub(crate) fn poll<T>(
        &self,
        context: &Context<'_>,
        take: impl Fn(&mut State<S, D, N>) -> Option<T>,
    ) -> Poll<T> {
        let mut state = self.state.lock();
        match take(&mut state) {
            Some(taken) => Poll::Ready(taken),
            None => {
                if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                    state.wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

impl<S: Clone, D: Clone, N: Clone> State<S, D, N> {
    /// The next event; `Some(None)` after the last.
    pub(crate) fn next(&mut self) -> Option<Option<Event<S, D, N>>> {
        match self.queue.pop_front() {
            None if self.end.is_some() => Some(None),
            None => None,
            event => Some(event),
        }
    }

    /// The first event, or why it will not come.
    pub(crate) fn started(&mut self) -> Option<Result<S, Error>> {
        match (&self.started, &self.end) {
            (Some(started), _) => Some(Ok(started.clone())),
            (None, Some(Err(error))) => Some(Err(error.clone())),
            (None, Some(Ok(_))) => Some(Err(Error::fault("the operation ended before it began"))),
            (None, None) => None,
        }
    }

    /// How it ended.
    pub(crate) fn end(&mut self) -> Option<Result<D, Error>> {
        self.end.clone()
    }
}

#[cfg(test)]
mod tests {
    use tidecast_event::{Progress, Warning};

    use super::*;

    #[test]
    fn what_nobody_reads_is_bounded_and_counted() {
        let feed = Feed::<(), (), ()>::new();
        for n in 0..10_000 {
            feed.push(Event::Progress(Progress { bytes: n, ..Progress::default() }));
        }
        feed.push(Event::Started(()));
        for n in 0..10_000 {
            feed.push(Event::Warning(Warning::new(n.to_string())));
            feed.push(Event::Progress(Progress { bytes: n, ..Progress::default() }));
        }
        feed.end(Event::Done(()), Ok(()));
        let mut all = Vec::new();
        while let Some(event) = feed.block(State::next) {
            all.push(event);
        }
        assert!(matches!(&all[0], Event::Progress(p) if p.bytes == 9_999), "the last state before `started`");
        assert!(matches!(&all[1], Event::Started(())) && matches!(all.last(), Some(Event::Done(()))));
        let warnings = all.iter().filter(|event| matches!(event, Event::Warning(_))).count();
        assert!(
            all.len() <= ROOM + 2 && feed.lost() + warnings as u64 == 10_000,
            "{} {}",
            all.len(),
            feed.lost()
        );
    }
}
