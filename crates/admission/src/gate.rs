//! [`HalfOpen`] for the threads and tasks of a listener.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::half_open::{HalfOpen, Id, Limits};
use crate::source::Source;

/// Closes a connection: shuts its socket down, or tells its task to end. It must not wait.
type Close = Box<dyn FnOnce() + Send>;

/// The unauthenticated connections of one listener.
#[derive(Clone)]
pub struct Gate(Arc<Shared>);

struct Shared {
    began: Instant,
    limits: Limits,
    open: Mutex<HalfOpen<Close>>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("half_open", &self.len()).finish_non_exhaustive()
    }
}

impl Default for Gate {
    /// With the limits of this process.
    fn default() -> Self {
        Self::new(Limits::of_process())
    }
}

impl Gate {
    /// With these limits.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self(Arc::new(Shared { began: Instant::now(), limits, open: Mutex::new(HalfOpen::new(limits)) }))
    }

    /// Takes in a connection that has proved nothing yet. `close` is called at most once, by any thread: when a later
    /// connection takes its place, or by [`Gate::close_overdue`] and [`Gate::shed`]; never after the pass is dropped.
    #[must_use]
    pub fn admit(&self, source: Source, close: impl FnOnce() + Send + 'static) -> Pass {
        let (id, displaced) = self.0.open.lock().arrive(source, self.0.began.elapsed(), Box::new(close));
        if let Some(close) = displaced {
            close();
        }
        Pass { gate: self.clone(), id, until: Instant::now() + self.0.limits.deadline }
    }

    /// How long a connection may stay unauthenticated.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.0.limits.deadline
    }

    /// Whether a connection of `source` would displace another.
    #[must_use]
    pub fn is_full_for(&self, source: Source) -> bool {
        self.0.open.lock().is_full_for(source)
    }

    /// Closes connections whose time has expired, for listeners whose handshakes do not end by themselves.
    pub fn close_overdue(&self) {
        let late = self.0.open.lock().overdue(self.0.began.elapsed());
        late.into_iter().for_each(|close| close());
    }

    /// Closes up to `count` connections, of the sources that have most: file descriptors have run out. How many it were.
    pub fn shed(&self, count: usize) -> usize {
        let shed: Vec<Close> = {
            let mut open = self.0.open.lock();
            (0..count).map_while(|_| open.shed()).collect()
        };
        let closed = shed.len();
        shed.into_iter().for_each(|close| close());
        closed
    }

    /// How many unauthenticated connections there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.open.lock().len()
    }

    /// Whether the gate holds no connection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The place of an unauthenticated connection; drop it when the peer has authenticated, or the connection has
/// ended.
#[derive(Debug)]
pub struct Pass {
    gate: Gate,
    id: Id,
    until: Instant,
}

/// Notes how far a connection has come, while another part of the program holds its pass.
#[derive(Clone, Debug)]
pub struct Progress {
    gate: Gate,
    id: Id,
}

impl Progress {
    /// The first whole message of the peer has come: the connection is closed later than silent ones of its source.
    pub fn advance(&self) {
        self.gate.0.open.lock().advance(self.id);
    }
}

impl Pass {
    /// To note how far the connection has come.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress { gate: self.gate.clone(), id: self.id }
    }

    /// When the handshake must be over.
    #[must_use]
    pub fn until(&self) -> Instant {
        self.until
    }

    /// The remaining time: the timeout of a blocking read. Zero when it has expired.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        // The callback is dropped after the lock is free: it may own a socket.
        let left = self.gate.0.open.lock().leave(self.id);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    const HERE: Source = Source::User(1);

    fn counted(closed: &Arc<AtomicUsize>) -> impl FnOnce() + Send + 'static {
        let closed = closed.clone();
        move || {
            closed.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn the_displaced_are_closed_and_the_proven_are_not() {
        let gate = Gate::new(Limits { per_source: 2, ..Limits::default() });
        let closed = Arc::new(AtomicUsize::new(0));
        let proven = gate.admit(HERE, counted(&closed));
        proven.progress().advance();
        drop(proven);
        let kept: Vec<_> = (0..5).map(|_| gate.admit(HERE, counted(&closed))).collect();
        assert_eq!((closed.load(SeqCst), gate.len()), (3, 2));
        assert_eq!(gate.shed(9), 2);
        assert_eq!((closed.load(SeqCst), gate.is_empty()), (5, true));
        drop(kept);
        assert_eq!(closed.load(SeqCst), 5);
    }

    #[test]
    fn the_overdue_are_closed() {
        let gate = Gate::new(Limits { deadline: Duration::ZERO, ..Limits::default() });
        let closed = Arc::new(AtomicUsize::new(0));
        let pass = gate.admit(HERE, counted(&closed));
        assert_eq!(pass.remaining(), Duration::ZERO);
        gate.close_overdue();
        assert_eq!(closed.load(SeqCst), 1);
    }
}
