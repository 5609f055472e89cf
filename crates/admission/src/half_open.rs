//! Bookkeeping of unauthenticated connections. Pure: the time is passed in, and the connections to close come out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use crate::source::Source;
use crate::{DEADLINE, PER_SOURCE, TOTAL};

/// The number of an unauthenticated connection; later ones have higher numbers.
pub type Id = u64;

/// Limits of unauthenticated connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most of one source.
    pub per_source: usize,
    /// Most of all sources.
    pub total: usize,
    /// How long a connection may stay unauthenticated.
    pub deadline: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_source: PER_SOURCE, total: TOTAL, deadline: DEADLINE }
    }
}

impl Limits {
    /// The default, of which all connections together take at most a quarter of the file descriptors that this process may
    /// have.
    #[must_use]
    pub fn of_process() -> Self {
        let limits = Self::default();
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let total = usize::try_from(descriptors / 4).unwrap_or(usize::MAX).min(limits.total);
        Self { total, ..limits }
    }
}

/// Progress of a connection: those without a complete message are closed before those of the same source whose
/// handshake is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Silent,
    UnderWay,
}

/// How many connections a source has, and which of them is closed first.
type Rank = (usize, Reverse<(Stage, Id)>, Source);

/// The unauthenticated connections of a listener. `T` is the handle for closing one.
#[derive(Debug)]
pub struct HalfOpen<T> {
    limits: Limits,
    next: Id,
    connections: BTreeMap<Id, Connection<T>>,
    sources: BTreeMap<Source, BTreeSet<(Stage, Id)>>,
    /// Sources by their number of connections; among equals the one with the oldest is last.
    by_count: BTreeSet<Rank>,
}

#[derive(Debug)]
struct Connection<T> {
    source: Source,
    stage: Stage,
    until: Duration,
    handle: T,
}

impl<T> HalfOpen<T> {
    /// None yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let limits = Limits { per_source: limits.per_source.max(1), total: limits.total.max(1), ..limits };
        Self {
            limits,
            next: 0,
            connections: BTreeMap::new(),
            sources: BTreeMap::new(),
            by_count: BTreeSet::new(),
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether no connection is half open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// How many `source` has.
    #[must_use]
    pub fn of(&self, source: Source) -> usize {
        self.sources.get(&source).map_or(0, BTreeSet::len)
    }

    /// Whether a connection of `source` would displace another.
    #[must_use]
    pub fn is_full_for(&self, source: Source) -> bool {
        self.of(source) >= self.limits.per_source || self.len() >= self.limits.total
    }

    /// Takes in a connection. The one that it displaces, to be closed: of its own source if that has its share, else of
    /// the source that has most.
    pub fn arrive(&mut self, source: Source, now: Duration, handle: T) -> (Id, Option<T>) {
        let displaced = if self.of(source) >= self.limits.per_source {
            self.first_of(source).and_then(|id| self.leave(id))
        } else if self.len() >= self.limits.total {
            self.shed()
        } else {
            None
        };
        let (id, stage) = (self.next, Stage::Silent);
        self.next += 1;
        let until = now.saturating_add(self.limits.deadline);
        self.connections.insert(id, Connection { source, stage, until, handle });
        self.change(source, |ids| ids.insert((stage, id)));
        (id, displaced)
    }

    /// The first complete message of a connection has come: it is closed later than silent ones of its source.
    pub fn advance(&mut self, id: Id) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let before = std::mem::replace(&mut connection.stage, Stage::UnderWay);
        let source = connection.source;
        self.change(source, |ids| ids.remove(&(before, id)) && ids.insert((Stage::UnderWay, id)));
    }

    /// A connection has authenticated, or ended: it is removed. Its handle, if it was still here.
    pub fn leave(&mut self, id: Id) -> Option<T> {
        let Connection { source, stage, handle, .. } = self.connections.remove(&id)?;
        self.change(source, |ids| ids.remove(&(stage, id)));
        Some(handle)
    }

    /// Makes room: takes out the first connection to be closed of the source that has most.
    pub fn shed(&mut self) -> Option<T> {
        let (_, Reverse((_, id)), _) = *self.by_count.last()?;
        self.leave(id)
    }

    /// Takes out connections whose time has expired.
    pub fn overdue(&mut self, now: Duration) -> Vec<T> {
        let mut late = Vec::new();
        // All have as much time, so the oldest comes first.
        while let Some((&id, connection)) = self.connections.first_key_value()
            && connection.until <= now
        {
            late.extend(self.leave(id));
        }
        late
    }

    /// When the next is overdue.
    #[must_use]
    pub fn next_overdue(&self) -> Option<Duration> {
        self.connections.first_key_value().map(|(_, connection)| connection.until)
    }

    fn first_of(&self, source: Source) -> Option<Id> {
        Some(self.sources.get(&source)?.first()?.1)
    }

    /// Changes the connections of a source, and its place among the sources.
    fn change(&mut self, source: Source, change: impl FnOnce(&mut BTreeSet<(Stage, Id)>) -> bool) {
        let rank = |ids: &BTreeSet<(Stage, Id)>| Some((ids.len(), Reverse(*ids.first()?), source));
        let ids = self.sources.entry(source).or_default();
        let before = rank(ids);
        change(ids);
        let after = rank(ids);
        if after.is_none() {
            self.sources.remove(&source);
        }
        if let Some(before) = before {
            self.by_count.remove(&before);
        }
        self.by_count.extend(after);
    }
}

#[cfg(test)]
#[path = "half_open_tests.rs"]
mod tests;
