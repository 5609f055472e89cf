//! The sending half: a source's steps, staged ahead, packed and paced, one UDP stream a slab.
//!
//! ```text
//!  source ──▶ stage ──▶ packetize ──▶ socket ══▶ receiver
//!           (readers)  (one thread a core, by its pacer)
//!                          session: hellos ══▶, reports and goes ◀══
//! ```

mod arguments;
mod auto;
mod black_hole;
pub mod pace;
mod packetize;
pub mod parity;
mod reports;
mod session;
mod socket;
pub mod source;
pub mod stage;
mod supervise;
mod sync;

use std::net::SocketAddr;
use std::time::Duration;

pub use self::arguments::{NoAddress, Pace, Steps, addresses, share};
pub use self::black_hole::BlackHole;
use self::session::{End, Session};
use self::source::{Source, SourceError};
pub use self::supervise::supervise;
pub use self::sync::Controller;
use crate::geometry::{self, Order, Shape};
use crate::key::Secret;
use crate::packet::Packing;
use tidecast_event::field::send::Sent;

/// How long a sender waits for its receivers.
pub const WAIT: Duration = Duration::from_secs(10);

/// Why nothing more is sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The shape cannot be cut so.
    #[error(transparent)]
    Geometry(#[from] geometry::Error),
    /// A socket.
    #[error("cannot send to {to}: {error}")]
    Socket {
        /// Where.
        to: SocketAddr,
        /// The system's error.
        error: std::io::Error,
    },
    /// The socket for goes.
    #[error("cannot listen for a controller on {at}: {error}")]
    Sync {
        /// Where.
        at: SocketAddr,
        /// The system's error.
        error: std::io::Error,
    },
    /// Ports beyond the last.
    #[error("{0} is too high for {1} streams: each stream uses one port, starting at this one")]
    Ports(SocketAddr, u32),
    /// The ports of two receivers overlap.
    #[error(
        "two streams have the same destination {0}: each receiver uses one port per stream, starting at the named one"
    )]
    Overlap(SocketAddr),
    /// More receivers than streams.
    #[error(
        "{receivers} receivers share {streams} streams (--streams, or the planes of the field); each needs at least one"
    )]
    Receivers {
        /// Receivers.
        receivers: usize,
        /// Streams.
        streams: u32,
    },
    /// Datagrams that hold nothing.
    #[error("the path to the receiver allows datagrams of only {0} bytes")]
    PathMtu(usize),
    /// No datagrams arrive, of whatever size.
    #[error(
        "datagrams of {size} bytes do not arrive at {to}, although it answers smaller ones: a link on the path has a smaller MTU than this \
         host and the ICMP messages about it are dropped, or a firewall drops larger datagrams; set the MTU of the route (ip route change \
         DEST via GATEWAY mtu N), or let both pass"
    )]
    BlackHole {
        /// Where.
        to: SocketAddr,
        /// The smallest size that was tried.
        size: usize,
    },
    /// Parity that cannot be.
    #[error("too much parity; 5% to 20% are usual")]
    Parity,
    /// Steps that the source does not have.
    #[error("{name} has {steps}, but --steps starts at {first}")]
    First {
        /// The source.
        name: String,
        /// Its contents.
        steps: String,
        /// The first that is asked for.
        first: u64,
    },
    /// It was stopped.
    #[error("stopped before the last step")]
    Stopped(Box<Sent>),
    /// Receivers did not accept the data sent.
    #[error("{what}")]
    Missed {
        /// Which, and why.
        what: String,
        /// Whether one has refused it.
        refused: bool,
        /// The data sent.
        sent: Box<Sent>,
    },
}

/// The options of sending: source, receivers, and rate. By default all steps, plain, as fast as they arrive,
/// and without receivers.
#[derive(Debug, Clone)]
pub struct Options {
    /// The receivers; each one's streams use this port and those after it.
    pub to: Vec<SocketAddr>,
    /// Streams, and so slabs, at most: see [`Options::streams_for`].
    pub streams: u32,
    /// Bits a second of UDP payload, all streams together; None: as much as arrives.
    pub rate: Option<u64>,
    /// How values are packed.
    pub packing: Packing,
    /// In which order.
    pub order: Order,
    /// Parity packets for each data packet; 0: none.
    pub parity: f64,
    /// The first step.
    pub first: u64,
    /// How many steps; None: as many as there are.
    pub count: Option<u64>,
    /// Begin again when they are over.
    pub again: bool,
    /// None: plain.
    pub key: Option<Secret>,
    /// Listen here for a controller's goes, and send nothing without.
    pub sync: Option<SocketAddr>,
    /// Cores for the sending threads, in turn; none: any.
    pub cpus: Vec<usize>,
    /// Bytes staged ahead at most (but at least one step); None: 1 GiB or two steps, whichever is less.
    pub memory: Option<u64>,
    /// How long to wait for receivers before the first step. A live or endless source does not wait.
    pub wait: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            to: Vec::new(),
            streams: 8,
            rate: None,
            packing: Packing::Run,
            order: Order::Zslab,
            parity: 0.0,
            first: 0,
            count: None,
            again: false,
            key: None,
            sync: None,
            cpus: Vec::new(),
            memory: None,
            wait: WAIT,
        }
    }
}

impl Options {
    /// The streams of a volume of this shape: a slab has one plane at least.
    #[must_use]
    pub fn streams_for(&self, shape: Shape) -> u32 {
        self.streams.min(shape.sides().2)
    }
}

/// The fate of a receiver, or of one of its streams. A worse one is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReceiverState {
    /// It accepts the data, or has accepted everything and ended.
    Accepted,
    /// It has never taken this session, nor refused it.
    NoAnswer,
    /// It accepted the data, and has disconnected.
    Disconnected,
    /// It refuses it.
    Refused,
}

/// A receiver, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receiver {
    /// Where its first stream goes.
    pub at: SocketAddr,
    /// The worst that has become of a stream.
    pub fate: ReceiverState,
    /// Of how many streams that is so.
    pub streams: usize,
}

/// How far it is.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// The step under way, and its batch.
    pub step: u64,
    /// Sendings of steps so far.
    pub batch: u32,
    /// Steps sent to their end.
    pub steps: u64,
    /// Steps to send, if there is an end.
    pub total: Option<u64>,
    /// Bytes of datagrams.
    pub bytes: u64,
    /// Packets of values and parity.
    pub packets: u64,
    /// Since packets may go.
    pub seconds: f64,
    /// The rate that is kept to, bits a second.
    pub rate: u64,
    /// Streams, those of them that receivers take, and those that they refuse.
    pub streams: usize,
    /// See `streams`.
    pub accepted: usize,
    /// See `streams`.
    pub refused: usize,
    /// Packets that receivers have received.
    pub received: u64,
    /// And those that they have not.
    pub lost: u64,
    /// Bytes of a full datagram.
    pub datagram: usize,
    /// The size of datagrams that did not arrive, so that smaller ones are sent.
    pub black_hole: Option<BlackHole>,
    /// The state of each receiver; when it is over, including the final reports.
    pub receivers: Vec<Receiver>,
}

/// Sends a source until it is over or `stay` returns false; `tell` is called with the progress, four times a
/// second.
///
/// # Errors
/// An error of the source, the sockets or the options. Missing receivers are no error: see
/// [`Progress::receivers`].
pub fn run(
    source: &mut dyn Source,
    options: &Options,
    stay: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&Progress),
) -> Result<Progress, Error> {
    let options = &Options { streams: options.streams_for(source.shape()), ..options.clone() };
    if options.to.is_empty() || options.to.len() > options.streams as usize {
        return Err(Error::Receivers { receivers: options.to.len(), streams: options.streams });
    }
    let mut ear = session::sync_listener(options)
        .map_err(|error| Error::Sync { at: options.sync.unwrap_or_else(|| options.to[0]), error })?;
    let (mut begin, mut most, mut before) = (0, usize::MAX, Progress::default());
    loop {
        let session = Session::open(options, source, begin, most)?;
        let mut both = |now: &Progress| tell(&before.and(now));
        let (end, last) = session.run(source, ear.as_mut(), stay, &mut both)?;
        before = before.and(&last);
        match end {
            End::Done => return before.arrived(),
            // Smaller by the path MTU that the system has learned, and by something in any case.
            End::TooLarge(batch, size) => (begin, most) = (batch, size - size / 16),
            End::BlackHole(batch, hole) => {
                let Some(smaller) = hole.smaller() else {
                    return Err(Error::BlackHole { to: hole.to, size: hole.size });
                };
                // Steps of which nothing came are sent again.
                before.steps = u64::from(batch).min(before.steps);
                (begin, most) = (batch, smaller);
            }
        }
    }
}

impl Progress {
    /// The share lost of the data sent to accepting receivers, from 0 to 1.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.lost as f64 / (self.lost + self.received).max(1) as f64
    }

    /// The result, unless no datagram arrived at all.
    fn arrived(self) -> Result<Self, Error> {
        match self.black_hole {
            Some(BlackHole { to, size, .. }) if self.received == 0 => Err(Error::BlackHole { to, size }),
            _ => Ok(self),
        }
    }

    /// With the counters of an earlier session.
    fn and(&self, now: &Self) -> Self {
        Self {
            steps: self.steps + now.steps,
            bytes: self.bytes + now.bytes,
            packets: self.packets + now.packets,
            seconds: self.seconds + now.seconds,
            received: self.received + now.received,
            lost: self.lost + now.lost,
            black_hole: now.black_hole.or(self.black_hole),
            ..now.clone()
        }
    }
}
