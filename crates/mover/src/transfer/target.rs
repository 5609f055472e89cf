//! Where the other end listens, and how a connection to it begins.

use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidecast_identity::NodeId;

use super::connection::{Connection, Guard, OPENING, Purpose};
use super::frame::{MAX_UNPROVEN, expect_message_within, write_message};
use crate::error::Error;

/// Streams to begin with.
pub const STREAMS: usize = 2;

/// The name of a session, known to its two ends only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionId([u8; 16]);

impl SessionId {
    /// A fresh one.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }
}

impl std::fmt::Debug for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionId(…)")
    }
}

/// The dialer's first message on every connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Open {
    version: u32,
    pub(super) session: Option<SessionId>,
    pub(super) purpose: Purpose,
    /// Which congestion control both should use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) congestion: Option<String>,
    /// Of a request: that the caller knows the secret, bound to this connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) proof: Option<Proof>,
}

/// The proof that one knows a secret.
pub(crate) type Proof = [u8; 32];

impl Open {
    /// Reads it from an unauthenticated peer.
    pub(super) fn read(from: &mut impl std::io::Read) -> Result<Self, Error> {
        expect_message_within(from, MAX_UNPROVEN)
    }
}

/// The first message of a connection: whether it is a request, and whether a proof comes with it.
///
/// # Errors
/// It is not understood.
pub(crate) fn read_open(from: &mut impl std::io::Read) -> Result<(bool, bool), Error> {
    let open = Open::read(from)?;
    Ok((open.purpose == Purpose::Request, open.proof.is_some()))
}

/// On long ways this one keeps its pace when a packet is lost.
const FAR_CONGESTION: &str = "bbr";
/// Streams to begin with on a long way: one alone is held up by its window, and to find out takes time.
const FAR_STREAMS: usize = 8;

/// Where the other end listens, and how it is known.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Target {
    /// Its addresses, in the order in which to try them. Several that answer carry streams side by side if
    /// `spread` is set.
    pub addresses: Vec<SocketAddr>,
    /// Its key; None without TLS.
    pub node: Option<NodeName>,
    /// The session.
    pub session: SessionId,
    /// Streams go to all addresses in turn.
    #[serde(default)]
    pub spread: bool,
    /// The congestion control of its streams, if it is not to be chosen automatically.
    #[serde(default)]
    pub congestion: Option<String>,
}

/// A node's key as text, for messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeName(pub String);

impl NodeName {
    /// The key, if it is one.
    ///
    /// # Errors
    /// When it is not.
    pub fn id(&self) -> Result<NodeId, Error> {
        Ok(self.0.parse()?)
    }
}

impl Target {
    /// Tries whether it can be reached at all. With how many streams to begin.
    ///
    /// # Errors
    /// Why not.
    pub fn try_reach(&self, guard: &Guard) -> Result<usize, Error> {
        let probe = self.open(guard, Purpose::Probe)?;
        Ok(streams(&probe))
    }

    /// Opens a connection for a purpose, at the first address that answers.
    pub(crate) fn open(&self, guard: &Guard, purpose: Purpose) -> Result<Connection, Error> {
        let node = self.node.as_ref().map(NodeName::id).transpose()?;
        let mut last = Error::Usage("no address of the other end is known".into());
        for address in self.order(purpose) {
            let opened = Connection::dial(address, None, guard, node, OPENING / 2);
            match opened.and_then(|c| self.introduce(c, address, purpose)) {
                Ok(connection) => return Ok(connection),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Addresses in the order in which this connection tries them.
    fn order(&self, purpose: Purpose) -> impl Iterator<Item = SocketAddr> + '_ {
        let first = match purpose {
            Purpose::Stream(n) if self.spread => n as usize % self.addresses.len().max(1),
            _ => 0,
        };
        self.addresses.iter().cycle().skip(first).take(self.addresses.len()).copied()
    }

    /// A connection that was opened before its session was known, if it is for that purpose.
    pub(super) fn take_early(&self, early: &Early, purpose: Purpose) -> Option<Connection> {
        let connection = early.take(purpose)?;
        self.introduce(connection, early.to, purpose).ok()
    }

    fn introduce(
        &self,
        mut connection: Connection,
        to: SocketAddr,
        purpose: Purpose,
    ) -> Result<Connection, Error> {
        let chosen = || connection.is_far().then(|| FAR_CONGESTION.to_owned());
        let congestion = self.congestion.clone().or_else(chosen);
        if let Some(name) = &congestion {
            connection.congestion(name);
        }
        let open = Open { version: 1, session: Some(self.session), purpose, congestion, proof: None };
        let failed = |error| Error::Network { doing: format!("cannot open a session with {to}"), error };
        write_message(&mut connection, &open).map_err(failed)?;
        connection.opened().map_err(failed)?;
        Ok(connection)
    }
}

/// The initial number of streams, by the round trip of one connection.
fn streams(connection: &Connection) -> usize {
    if connection.is_far() { FAR_STREAMS } else { STREAMS }
}

/// The thread that opens a connection.
type Opening = JoinHandle<Result<Connection, Error>>;

/// Connections of a session that are opened while a server prepares its answer to the request for it: the
/// return connection and the first stream. They are introduced when the answer has arrived. Until then they
/// are not authenticated, and the server grants few such connections per address: so only these two are
/// opened early, and the other streams follow.
#[derive(Debug)]
pub struct Early {
    to: SocketAddr,
    began: Instant,
    streams: usize,
    opening: Mutex<Vec<(Purpose, Opening)>>,
}

impl Early {
    /// At that address, for a session that is to have this many streams.
    fn open(to: SocketAddr, guard: &Guard, node: Option<NodeId>, streams: usize) -> Self {
        let open = |purpose| {
            let guard = guard.clone();
            let work = move || Connection::dial(to, None, &guard, node, OPENING / 2);
            // Connections that are not opened now are opened when they are missed.
            Some((purpose, std::thread::Builder::new().spawn(work).ok()?))
        };
        let opening = [Purpose::Return, Purpose::Stream(0)].into_iter().filter_map(open).collect();
        Self { to, began: Instant::now(), streams, opening: Mutex::new(opening) }
    }

    /// Streams to begin with.
    pub(crate) fn streams(&self) -> usize {
        self.streams
    }

    /// Where they lead.
    pub(crate) fn to(&self) -> SocketAddr {
        self.to
    }

    /// The one for that purpose, unless the server will not have waited for this long.
    fn take(&self, purpose: Purpose) -> Option<Connection> {
        let next = {
            let mut opening = self.opening.lock();
            let at = opening.iter().position(|(is_for, _)| *is_for == purpose)?;
            opening.swap_remove(at).1
        };
        let opened = next.join().ok()?.ok();
        opened.filter(|_| self.began.elapsed() < OPENING / 2)
    }
}

/// The connections to open beside a request.
#[derive(Clone, Copy, Debug)]
pub enum EarlyStreams {
    /// Nothing: others connect, or elsewhere.
    Nothing,
    /// The first connections of its session, which is to have this many streams, or the default for the path.
    Streams(Option<usize>),
}

/// A request that can be sent.
pub(crate) struct Requesting {
    pub(crate) connection: Connection,
    pub(crate) early: Option<Early>,
    /// The proof went along; else a challenge asks for one.
    pub(crate) is_proved: bool,
}

/// Asks a server that listens: the connection on which to speak with it. `prove` makes a proof that is bound to the connection.
///
/// # Errors
/// The server cannot be reached, or is another node.
pub(crate) fn request(
    addresses: &[SocketAddr],
    guard: &Guard,
    node: Option<NodeId>,
    beside: EarlyStreams,
    prove: &dyn Fn(&[u8; 32]) -> Proof,
) -> Result<Requesting, Error> {
    let mut last = Error::Usage("no address of the server is known".into());
    for address in addresses {
        let opened = Connection::connect(*address, None, OPENING).and_then(|connection| {
            let early = match beside {
                EarlyStreams::Nothing => None,
                EarlyStreams::Streams(said) => {
                    Some(Early::open(*address, guard, node, said.unwrap_or(streams(&connection))))
                }
            };
            let mut connection = connection.secure(*address, guard, node)?;
            let proof = connection.binding().as_ref().map(prove);
            let is_proved = proof.is_some();
            let open = Open { version: 1, session: None, purpose: Purpose::Request, congestion: None, proof };
            let failed =
                |error| Error::Network { doing: format!("cannot open a session with {address}"), error };
            write_message(&mut connection, &open).map_err(failed)?;
            Ok(Requesting { connection, early, is_proved })
        });
        match opened {
            Ok(requesting) => return Ok(requesting),
            Err(e) => last = e,
        }
    }
    Err(last)
}
