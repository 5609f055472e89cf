//! How the two ends of a session get their connections: one dials, the other listens on one port.
//!
//! Either way an end receives its connections from [`Link::next`]. A dialer keeps the wanted number of
//! streams and the return connection open and reopens each that breaks; a listener gets connections as the
//! dialer opens them.

use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidecast_admission::{Gate, Limits, Pass, Source};
use tidecast_identity::NodeId;

use super::connection::{Connection, Guard, Handle, OPENING, Purpose};
use super::limit::Limit;
use super::pipe::Pipes;
use super::target::{Early, Open, Proof, SessionId, Target};
use super::wire::{self, Wire};
use crate::error::Error;
use crate::queue::{Popped, Queue};

/// Between two attempts to dial.
const AGAIN: Duration = Duration::from_millis(500);
/// Most time for a last word.
const GOODBYE: Duration = Duration::from_secs(2);
/// Most streams of a session.
pub const MAX_STREAMS: usize = 64;
/// Most sessions that a listener keeps.
const MAX_SESSIONS: usize = 1024;
/// Most unauthenticated connections: each has a thread.
const MAX_OPENING: usize = 1024;
/// Connections to close when there are no descriptors for more.
const SHED: usize = 16;

/// A new connection.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) connection: Connection,
    pub(crate) purpose: Purpose,
    /// Dropped when the connection is no longer needed: then a dialer opens another.
    pub(crate) _use: Use,
}

/// Tells the dialer that a connection is in use.
#[derive(Debug)]
pub(crate) struct Use {
    purpose: Purpose,
    serial: usize,
    shared: Arc<Shared>,
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut open = self.shared.open.lock();
        if open.get(&self.purpose).is_some_and(|(serial, _)| *serial == self.serial) {
            open.remove(&self.purpose);
        }
    }
}

/// An end's connections.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    kind: LinkKind,
}

#[derive(Clone, Debug)]
enum LinkKind {
    Dials(Arc<Dialer>),
    Listens,
    Pipes,
}

#[derive(Debug)]
struct Shared {
    arrivals: Queue<Arrival>,
    /// The open connections by purpose, to be cut.
    open: Mutex<HashMap<Purpose, (usize, Option<Handle>)>>,
    serial: AtomicUsize,
    /// Streams that a dialer keeps up.
    wanted: AtomicUsize,
    closed: AtomicBool,
    /// Pipes that broke.
    broken: AtomicBool,
    /// The last reason for which dialing failed.
    trouble: Mutex<Option<Error>>,
    /// The receiver's early message about its destination, which precedes the return connection.
    fresh: OnceLock<bool>,
}

impl Shared {
    fn new(streams: usize) -> Arc<Self> {
        Arc::new(Self {
            arrivals: Queue::new(2 * MAX_STREAMS),
            open: Mutex::default(),
            serial: AtomicUsize::new(0),
            wanted: AtomicUsize::new(streams),
            closed: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            trouble: Mutex::default(),
            fresh: OnceLock::new(),
        })
    }

    /// A connection has arrived; an earlier one for the same purpose is no longer needed.
    fn arrive(self: &Arc<Self>, connection: Connection, purpose: Purpose) {
        let serial = self.serial.fetch_add(1, SeqCst);
        let before = self.open.lock().insert(purpose, (serial, connection.handle()));
        if let Some((_, Some(handle))) = before {
            handle.cut();
        }
        let _use = Use { purpose, serial, shared: self.clone() };
        self.arrivals.push(Arrival { connection, purpose, _use });
    }

    fn cut(&self) {
        self.open.lock().values().filter_map(|(_, handle)| handle.as_ref()).for_each(Handle::cut);
    }
}

impl Link {
    /// Kernel statistics of the open streams, by their serial numbers.
    pub(crate) fn wires(&self) -> Vec<(usize, Wire)> {
        let open = self.shared.open.lock();
        let streams = open.iter().filter_map(|(purpose, (serial, handle))| match (purpose, handle) {
            (Purpose::Stream(_), Some(Handle::Tcp(tcp))) => Some((*serial, wire::of(tcp)?)),
            _ => None,
        });
        streams.collect()
    }

    /// Dials, and keeps up `streams` streams and a return connection.
    #[must_use]
    pub fn dial(target: Target, guard: Guard, streams: usize) -> Self {
        Self::dial_on(target, guard, streams, None)
    }

    /// The same, first on connections that are open already.
    #[must_use]
    pub fn dial_on(target: Target, guard: Guard, streams: usize, early: Option<Early>) -> Self {
        let shared = Shared::new(streams.clamp(1, MAX_STREAMS));
        let probing = AtomicBool::new(false);
        let dialer = Arc::new(Dialer { target, guard, shared: shared.clone(), early, probing });
        let runs = dialer.clone();
        std::thread::spawn(move || runs.run());
        Self { shared, kind: LinkKind::Dials(dialer) }
    }

    /// The two pipes of another program: blocks go one way and returns the other.
    #[must_use]
    pub fn pipes(mut pipes: Pipes, sends: bool) -> Self {
        // Silence is for the session to judge.
        pipes.set_patience(None);
        let shared = Shared::new(1);
        let (there, back) = (Purpose::Stream(0), Purpose::Return);
        let (reads, writes) = if sends { (back, there) } else { (there, back) };
        shared.arrive(Connection::pipe(pipes.incoming), reads);
        shared.arrive(Connection::pipe(pipes.outgoing), writes);
        Self { shared, kind: LinkKind::Pipes }
    }

    /// The receiver has reported whether its destination is empty, and thereby that it supports
    /// [`Forward::Last`](super::frame::Forward::Last).
    #[must_use]
    pub fn with_fresh(self, fresh: Option<bool>) -> Self {
        if let Some(fresh) = fresh {
            let _ = self.shared.fresh.set(fresh);
        }
        self
    }

    /// See [`Link::with_fresh`].
    pub(crate) fn fresh(&self) -> Option<bool> {
        self.shared.fresh.get().copied()
    }

    /// The next connection, if one comes in that time and before [`Link::wake`].
    pub(crate) fn next(&self, wait: Duration) -> Option<Arrival> {
        match self.shared.arrivals.pop_for(wait) {
            Popped::Item(arrival) => Some(arrival),
            Popped::Nothing | Popped::Closed => None,
        }
    }

    /// There is something to look at other than connections.
    pub(crate) fn wake(&self) {
        self.shared.arrivals.wake();
    }

    /// A connection broke. Pipes are not replaced.
    pub(crate) fn lost(&self) {
        if matches!(self.kind, LinkKind::Pipes) {
            self.shared.broken.store(true, SeqCst);
        }
    }

    /// An error when no connection can come any more.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.shared.broken.load(SeqCst) {
            Err(Error::Timeout("the other end has disconnected".into()))
        } else {
            Ok(())
        }
    }

    /// No data arrives: if a fresh connection can be opened, the old ones are cut, and reopened.
    pub(crate) fn revive(&self) {
        let LinkKind::Dials(dialer) = &self.kind else { return };
        if !dialer.probing.swap(true, SeqCst) {
            let dialer = dialer.clone();
            std::thread::spawn(move || dialer.probe());
        }
    }

    /// The wanted number of streams. Only a dialer can change it.
    pub(crate) fn want(&self, streams: usize) {
        self.shared.wanted.store(streams.clamp(1, MAX_STREAMS), SeqCst);
    }

    /// How many are wanted.
    pub(crate) fn wanted(&self) -> usize {
        self.shared.wanted.load(SeqCst)
    }

    /// Streams that are open.
    pub(crate) fn streams(&self) -> usize {
        self.shared.open.lock().keys().filter(|p| matches!(p, Purpose::Stream(_))).count()
    }

    /// Why nothing could be reached, the last time that it was tried.
    pub(crate) fn trouble(&self) -> Option<Error> {
        self.shared.trouble.lock().take()
    }

    /// Cuts all connections; a dialer opens them again.
    #[cfg(test)]
    pub(crate) fn cut(&self) {
        self.shared.cut();
    }

    /// Ends all connections; for a moment their users may send a last message.
    pub(crate) fn finish(&self) {
        self.shared.closed.store(true, SeqCst);
        self.shared.arrivals.abandon();
        let until = Instant::now() + GOODBYE;
        while self.streams() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.shared.cut();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.closed.store(true, SeqCst);
        self.shared.arrivals.abandon();
        self.shared.cut();
    }
}

/// Keeps up the connections of a session.
#[derive(Debug)]
struct Dialer {
    target: Target,
    guard: Guard,
    shared: Arc<Shared>,
    early: Option<Early>,
    probing: AtomicBool,
}

impl Dialer {
    /// Opens each missing connection in a thread of its own, as they take round trips.
    fn run(self: Arc<Self>) {
        let mut trying: HashMap<Purpose, Instant> = HashMap::new();
        let finished: Arc<Queue<Purpose>> = Arc::new(Queue::new(2 * MAX_STREAMS));
        while !self.shared.closed.load(SeqCst) {
            let streams = self.shared.wanted.load(SeqCst) as u32;
            let wanted = std::iter::once(Purpose::Return).chain((0..streams).map(Purpose::Stream));
            let now = Instant::now();
            for purpose in wanted {
                let missing = !self.shared.open.lock().contains_key(&purpose);
                if missing && trying.get(&purpose).is_none_or(|again| *again <= now) {
                    trying.insert(purpose, now + OPENING * 4);
                    let (dialer, finished) = (self.clone(), finished.clone());
                    std::thread::spawn(move || {
                        dialer.open(purpose);
                        finished.push(purpose);
                    });
                }
            }
            if let Popped::Item(purpose) = finished.pop_for(AGAIN / 10) {
                if self.shared.open.lock().contains_key(&purpose) {
                    trying.remove(&purpose);
                } else {
                    trying.insert(purpose, Instant::now() + AGAIN);
                }
            }
        }
    }

    fn probe(&self) {
        match self.target.open(&self.guard, Purpose::Probe) {
            Ok(_) => self.shared.cut(),
            Err(e) => *self.shared.trouble.lock() = Some(e),
        }
        self.probing.store(false, SeqCst);
    }

    fn open(&self, purpose: Purpose) {
        let early = self.early.as_ref().and_then(|early| self.target.take_early(early, purpose));
        match early.map_or_else(|| self.target.open(&self.guard, purpose), Ok) {
            Ok(connection) if !self.shared.closed.load(SeqCst) => self.shared.arrive(connection, purpose),
            Ok(_) => {}
            Err(e) => {
                tracing::debug!("{purpose:?}: {e}");
                *self.shared.trouble.lock() = Some(e);
            }
        }
    }
}

/// Listens on one port for the connections of all sessions.
#[derive(Debug)]
pub struct Listener {
    shared: Arc<Sessions>,
    address: SocketAddr,
}

/// The listener's handler of a request, and of the proof that may come with it. The pass is to be dropped
/// when the peer has proved that it may ask.
type Asked = Box<dyn Fn(Connection, Option<Proof>, SocketAddr, Pass) + Send + Sync>;

struct Sessions {
    guard: Guard,
    by_id: Mutex<HashMap<SessionId, Expected>>,
    /// Connections of unauthenticated peers.
    gate: Gate,
    closed: AtomicBool,
    asked: Option<Asked>,
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("open", &self.by_id.lock().len()).finish_non_exhaustive()
    }
}

/// A session whose connections may come.
#[derive(Debug)]
struct Expected {
    link: Arc<Shared>,
    /// The node that may open them; None without TLS.
    node: Option<NodeId>,
}

impl Listener {
    /// Listens. `asked` is called for connections that belong to no session, in a thread of their own.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub(crate) fn bind(address: SocketAddr, guard: Guard, asked: Option<Asked>) -> Result<Self, Error> {
        let failed = |error| Error::Network { doing: format!("cannot listen on {address}"), error };
        let tcp = TcpListener::bind(address).map_err(failed)?;
        let address = tcp.local_addr().map_err(failed)?;
        let shared = Arc::new(Sessions {
            guard,
            by_id: Mutex::default(),
            gate: Gate::new(Limits { total: MAX_OPENING, ..Limits::default() }),
            closed: AtomicBool::new(false),
            asked,
        });
        let sessions = shared.clone();
        std::thread::spawn(move || sessions.listen(&tcp));
        Ok(Self { shared, address })
    }

    /// Listens for an end in this process.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn local() -> Result<Self, Error> {
        Self::bind((std::net::Ipv4Addr::LOCALHOST, 0).into(), Guard::Plain, None)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections of this session may come, from this node.
    ///
    /// # Errors
    /// When there are too many sessions.
    pub fn expect(&self, session: SessionId, node: Option<NodeId>) -> Result<Link, Error> {
        let mut by_id = self.shared.by_id.lock();
        by_id.retain(|_, expected| !expected.link.closed.load(SeqCst));
        if by_id.len() >= MAX_SESSIONS {
            return Err(Error::Refused(format!("{MAX_SESSIONS} copies are in progress; try again later")));
        }
        let link = Shared::new(1);
        by_id.insert(session, Expected { link: link.clone(), node });
        Ok(Link { shared: link, kind: LinkKind::Listens })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.closed.store(true, SeqCst);
        // Wakes the accepting thread, which checks for the end after each connection.
        let _ = std::net::TcpStream::connect_timeout(&reachable(self.address), Duration::from_secs(1));
    }
}

/// An address at which this host reaches a listener on `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    let mut to = address;
    if to.ip().is_unspecified() {
        to.set_ip(if to.is_ipv4() {
            std::net::Ipv4Addr::LOCALHOST.into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        });
    }
    to
}

impl Sessions {
    fn listen(self: &Arc<Self>, tcp: &TcpListener) {
        loop {
            let accepted = tcp.accept();
            if self.closed.load(SeqCst) {
                return;
            }
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(e) => {
                    // Out of descriptors, most likely.
                    let closed = self.gate.shed(SHED);
                    tracing::warn!(
                        "cannot accept connections: {e}; closed {closed} unauthenticated connections"
                    );
                    std::thread::sleep(AGAIN / 10);
                    continue;
                }
            };
            if let Err(e) = self.clone().admit(stream, from) {
                tracing::info!("{from}: {e}");
            }
        }
    }

    /// Opens a connection in a thread of its own: no other connection waits for its peer, and later ones of
    /// its address may displace it.
    fn admit(self: Arc<Self>, stream: std::net::TcpStream, from: SocketAddr) -> std::io::Result<()> {
        let cut = stream.try_clone()?;
        let pass = self.gate.admit(Source::from(from.ip()), move || {
            let _ = cut.shutdown(Shutdown::Both);
        });
        let work = move || {
            let limit = Limit::new(pass.until());
            let opened = Connection::accept(stream, from, &self.guard, limit).and_then(|connection| {
                pass.progress().advance();
                self.introduced(connection)
            });
            match (opened, &self.asked) {
                (Ok(Some((request, proof))), Some(asked)) => asked(request, proof, from, pass),
                (Ok(_), _) => {}
                (Err(e), _) => tracing::info!("{from}: {e}"),
            }
        };
        std::thread::Builder::new().spawn(work).map(drop)
    }

    /// Gives a connection to its session, or back if it belongs to none.
    fn introduced(&self, mut connection: Connection) -> Result<Option<(Connection, Option<Proof>)>, Error> {
        let open = Open::read(&mut connection)?;
        if open.purpose == Purpose::Request {
            return Ok(Some((connection, open.proof)));
        }
        let unknown = || Error::Refused("unknown copy session".into());
        let link = {
            let by_id = self.by_id.lock();
            let expected = open.session.and_then(|id| by_id.get(&id)).ok_or_else(unknown)?;
            if expected.node.is_some() && expected.node != connection.peer {
                return Err(unknown());
            }
            expected.link.clone()
        };
        if link.closed.load(SeqCst) || matches!(open.purpose, Purpose::Stream(n) if n as usize >= MAX_STREAMS)
        {
            return Err(unknown());
        }
        if let Some(name) = &open.congestion {
            connection.congestion(name);
        }
        if open.purpose != Purpose::Probe {
            let failed =
                |error| Error::Network { doing: "cannot set the timeouts of a connection".into(), error };
            // A peer that knows the session is part of it.
            connection.prove().and_then(|()| connection.opened()).map_err(failed)?;
            link.arrive(connection, open.purpose);
        }
        Ok(None)
    }
}
