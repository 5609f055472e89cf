//! Errors of connections and of sessions.

use std::net::SocketAddr;
use std::time::Duration;

/// Why one connection ended; it costs that connection only.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnError {
    #[error("the connection ended")]
    Closed,
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Wire(#[from] tidecast_wire::Error),
    #[error("cannot encode a message: {0}")]
    Encode(#[from] tidecast_wire::EncodeError),
    #[error("{0}")]
    Protocol(&'static str),
    #[error("timeout: it did not {what} within {seconds} s")]
    Late { what: &'static str, seconds: u64 },
    #[error(transparent)]
    Cut(#[from] tidecast_admission::HandshakeAborted),
    #[error(transparent)]
    Mse(#[from] tidecast_mse::Error),
    #[error("TLS: {0}")]
    Tls(String),
    #[error("it rejected this node: {0}")]
    Denied(String),
    #[error("it is not a member: {0}")]
    NotMember(String),
    #[error(
        "it closed the connection before its handshake: it does not serve this swarm, or not to this node"
    )]
    Rejected,
    #[error("it serves another swarm")]
    OtherSwarm,
    #[error("{0}")]
    Source(#[from] tidecast_store::Error),
    #[error(transparent)]
    Web(#[from] WebError),
    #[error("the swarm is stopping")]
    Stopping,
}

/// Why a web seed gives nothing, or not all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebError {
    #[error("{url} is not available: HTTP status {status}")]
    Missing { file: u32, url: String, status: u16 },
    #[error("{url}: the server ignores ranges (status 200) and sent the same data more than once")]
    NoRanges { url: String },
    #[error("{url}: HTTP status {status}")]
    Busy { url: String, status: u16, after: Option<Duration> },
    #[error("{url}: {why}")]
    Wrong { url: String, why: String },
    #[error("{0}")]
    Web(#[from] tidecast_discovery::Error),
    #[error("it sent bytes that do not match their hashes")]
    Lied,
    #[error("it lacks all requested files: {0}")]
    Nothing(String),
    #[error("no file to request: the manifest has only padding or empty files")]
    NoFiles,
    #[error("the swarm is stopping")]
    Stopping,
}

/// The peer's fault in a failed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It violated the protocol: it is banned.
    ProtocolViolation,
    /// It stalled within a message: it is not dialled for a while.
    Stalled,
}

impl ConnError {
    /// Whose fault it was, if it was the peer's.
    pub(crate) fn fault(&self) -> Option<Fault> {
        match self {
            // Another program listens there. It is no peer yet; a seed may come in its place.
            ConnError::Wire(tidecast_wire::Error::Protocol { .. }) => None,
            ConnError::Wire(_) | ConnError::Protocol(_) => Some(Fault::ProtocolViolation),
            ConnError::Late { .. } => Some(Fault::Stalled),
            _ => None,
        }
    }

    /// Why no connection could be made, for people: only where no other notice reports it, as for rejections,
    /// protocol violations, and silence.
    pub(crate) fn unreachable(&self) -> Option<String> {
        match self {
            _ if self.fault().is_some() => None,
            ConnError::Denied(_) | ConnError::Stopping => None,
            ConnError::Closed => Some(ConnError::Rejected.to_string()),
            // Without TLS's own end where there is TLS.
            ConnError::Io(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::UnexpectedEof
                ) =>
            {
                Some(ConnError::Rejected.to_string())
            }
            ConnError::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                Some("connection refused: no process listens there".to_owned())
            }
            ConnError::Io(error) => Some(plain(error)),
            ConnError::Wire(_) => {
                Some("it does not speak BitTorrent: another program listens there".to_owned())
            }
            other => Some(other.to_string()),
        }
    }

    /// The peer is there and does not want us: to try again soon changes nothing.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, ConnError::Denied(_) | ConnError::NotMember(_) | ConnError::Rejected)
    }
}

/// The system's error without its number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}

/// Why a session could not start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The listening address is in use or not one of this host.
    #[error("cannot listen on {addr}: {source}; choose another with --listen")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// `--net` names a network that this host does not have.
    #[error("this host has no address on the network {network}; it has {have}")]
    NoNetwork {
        /// The given network.
        network: String,
        /// The existing networks.
        have: String,
    },
    /// A thread or socket could not be made.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The engine refuses the start state.
    #[error("internal: {0}")]
    Setup(String),
    /// A role that names stripes or members that there cannot be.
    #[error("invalid broadcast plan: {0}")]
    Plan(&'static str),
    /// Keys or certificates.
    #[error(transparent)]
    Identity(#[from] tidecast_identity::Error),
    /// No peer would give the manifest.
    #[error("no peer sent the manifest within {seconds} s; peers asked: {asked}{last}")]
    NoManifest {
        /// How long it was tried.
        seconds: u64,
        /// How many connections were tried.
        asked: usize,
        /// The last failure, if any.
        last: String,
    },
    /// The owner of the swarm refuses this ticket.
    #[error("{addr} rejected this ticket: {why}")]
    Refused {
        /// The owner.
        addr: SocketAddr,
        /// Why.
        why: String,
    },
    /// A draft without the key that signs its roots, or the reverse.
    #[error("internal: {0}")]
    Draft(&'static str),
    /// The pieces of a draft, each of them verified, do not have the hash that its origin signed.
    #[error(
        "the received data does not match the data that the origin sent: nothing was put in place; broadcast it again"
    )]
    Seal,
    /// The data cannot be put in its place.
    #[error(transparent)]
    Store(#[from] tidecast_store::Error),
    /// The swarm has stopped.
    #[error("the swarm has stopped")]
    Stopped,
}
