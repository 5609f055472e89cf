//! Errors of this crate: each message names the failure, the object, and what to do.

use std::path::PathBuf;

/// A local failure: files, keys, TLS set-up, or malformed bytes from a peer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the state directory could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// The operation, as a verb: "read", "write", "lock".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The state directory could not be created.
    #[error("cannot create {}: {source}; choose another directory with --state-dir", path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The state directory belongs to another user.
    #[error(
        "{} belongs to user {owner}, and this process runs as user {user}; choose your own state directory with --state-dir",
        path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// Other users can put files into the state directory.
    #[error("other users can write to {}; choose another state directory with --state-dir", .0.display())]
    Open(PathBuf),
    /// A secret file can be read by other users.
    #[error("{} may be read by other users (mode {mode:04o}); run: chmod 600 {}", path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A file of the state directory does not have the content that Tidecast wrote.
    #[error("{} is damaged ({why}); restore it, or remove it to create a new one (tickets of the old one then stop working)", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The defect.
        why: String,
    },
    /// Something that is not a node id was given as one.
    #[error("not a node id: {0} (expected 52 base32 or 64 hexadecimal characters)")]
    BadNodeId(String),
    /// A message of the enrolment protocol could not be decoded.
    #[error("malformed {0} from the peer")]
    Malformed(&'static str),
    /// The peer's certificate is not one that Tidecast accepts.
    #[error("the peer's certificate is not that of a Tidecast node: {0}")]
    BadCertificate(&'static str),
    /// There is no such ticket to revoke.
    #[error("no ticket {0} was issued from this state directory")]
    UnknownTicket(String),
    /// The authority's state is at its limit.
    #[error("too many {what} (limit {limit}); wait until old ones expire")]
    TooMany {
        /// The objects that are too many.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The certificate authority cannot fulfil the request.
    #[error("the CA: {0}")]
    Ca(String),
    /// The trust files cannot be read.
    #[error("cannot read certificates: {0}")]
    Trust(String),
    /// TLS or certificate set-up failed.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    /// The system's random generator or key generation failed.
    #[error("cannot create a key: the system's random generator failed")]
    Random,
}

/// Why a string is not a ticket. The secret is never part of the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// It does not start with the prefix of its kind.
    #[error("not a ticket: it does not start with \"{0}\"")]
    Prefix(&'static str),
    /// A character that base32 does not have.
    #[error("the ticket is damaged: invalid character at position {0}; copy the whole ticket again")]
    Character(usize),
    /// Too short, or the checksum differs.
    #[error("the ticket is damaged or truncated (its checksum does not match); copy the whole ticket again")]
    Checksum,
    /// Longer than any ticket.
    #[error("not a ticket: too long ({0} characters)")]
    TooLong(usize),
    /// From a later Tidecast.
    #[error("the ticket has version {0}, which this Tidecast does not support; use a newer Tidecast")]
    Version(u8),
    /// The checksum is right but the content makes no sense.
    #[error("invalid ticket ({0}); it was not created by Tidecast")]
    Content(&'static str),
}

/// Why a node is not admitted. Peers are not told the details; the rejecting side logs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No such ticket was issued, or it was revoked and deleted.
    #[error("the ticket is unknown to the owner of the swarm, or was revoked")]
    UnknownTicket,
    /// The ticket has been revoked.
    #[error("the ticket was revoked by the owner of the swarm")]
    Revoked,
    /// The ticket is for another swarm.
    #[error("the ticket or credential is for another swarm")]
    WrongSwarm,
    /// The ticket or credential has run out.
    #[error(
        "the ticket or credential has expired by the clock of this host; ask the owner of the swarm for a new ticket"
    )]
    Expired,
    /// As many nodes as the ticket allows have enrolled with it.
    #[error(
        "the ticket is used up: it allows {0} nodes, and as many have enrolled; ask the owner of the swarm for another"
    )]
    UsedUp(u32),
    /// The owner counts the nodes that enrol with this ticket and cannot write the count down.
    #[error("the owner of the swarm cannot record the enrolment (its state directory is not writable)")]
    NotRecorded,
    /// The credential was issued in the future: the clocks differ too much.
    #[error(
        "the credential is dated in the future by the clock of this host, which is probably behind; set the clock of this host, or of the owner of the swarm"
    )]
    NotYetValid,
    /// The proof does not match the ticket and the node.
    #[error("invalid proof of possession of the ticket")]
    BadProof,
    /// The credential belongs to another node.
    #[error("the credential belongs to another node")]
    WrongNode,
    /// The signature is not the owner's.
    #[error("the signature is not from the owner of the swarm")]
    BadSignature,
    /// Neither the owner nor holder of a credential.
    #[error("no credential presented")]
    NoCredential,
}
