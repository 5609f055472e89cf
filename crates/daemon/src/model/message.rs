//! Messages between daemons. Fields and kinds are only ever added, fields with `#[serde(default)]`: an older
//! daemon ignores fields and heads that it does not know, answers [`Answer::NotUnderstood`] to unknown
//! requests, and reads an unknown kind of answer as that. A kind that is a bare word stays one; a kind with
//! fields is a new kind.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::model::types::Limit;

/// One frame's head, in either direction. Both ends may send requests, whichever opened the connection: a
/// host behind a NAT receives them over the connection that it made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Head {
    /// A request; `id` is the asker's own number for it.
    Ask { id: u64, ask: serde_json::Value },
    /// The answer to the peer's request of that number.
    Answer { id: u64, answer: serde_json::Value },
    /// The last message to a rejected peer. An older daemon ignores it, and sees the connection end.
    Refused { why: String },
}

/// The first message of both ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The daemon's name: that of its host, as its caches have it for an origin.
    pub(crate) name: String,
    /// The card that proves the identity of this node, in base64; empty where the site has no CA.
    #[serde(default)]
    pub(crate) card: String,
    /// Where it can be reached.
    pub(crate) addresses: Vec<SocketAddr>,
    /// The machine, equal for all daemons of one host.
    pub(crate) machine: String,
    /// When it was started, seconds since 1970: the oldest daemon of a machine is the parent of the others.
    pub(crate) started: u64,
    /// The user that it serves; None for all.
    #[serde(default)]
    pub(crate) user: Option<String>,
    /// The time of its clock, seconds since 1970; 0 from an older daemon.
    #[serde(default)]
    pub(crate) clock: u64,
}

/// The first message of a node that connects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum First {
    /// It wants a certificate, and nothing else.
    Enrolment(Enrolment),
    /// It is a daemon.
    Hello(Hello),
}

/// A node's request to the certificate authority that a daemon keeps. It is answered by [`Enrolled`], and the
/// connection ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Enrolment {
    /// A certificate, by an invitation: a [`tidecast_identity::EnrolRequest`] in base64.
    Join { request: String },
    /// A certificate for the identity of the node's present one.
    Renew,
    /// The revocation list.
    List,
}

/// The answer to an [`Enrolment`]. The payload is the revocation list, PEM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Enrolled {
    /// PEM; no certificate where the list alone was wanted.
    Granted { certificate: Option<String>, root: String },
    /// Written as [`Head::Refused`] is.
    Refused { why: String },
}

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    /// May I have this cache, for this owner?
    Want(Want),
    /// Do you have this cache? Answered as [`Ask::Want`], but nothing is begun.
    Holds(Want),
    /// A request for the peer's ad. The payload of the answer is the ad.
    Ad,
    /// Bytes of a manifest from an offset, as payload of the answer. Only after a [`Ask::Want`] was granted.
    Manifest { cache: String, offset: u64 },
    /// A request for fingerprints of the leaves of this file, from this one on. The payload has 16 bytes for
    /// each. Only after an [`Ask::Want`] was granted.
    Fingerprints { cache: String, file: u32, first: u32 },
    /// These parts of this file, offsets and lengths, as payload. Only after an [`Ask::Want`] was granted.
    Leaves { cache: String, file: u32, ranges: Vec<(u64, u64)> },
    /// Announces a connection to the peer's port for this swarm. Only after any peer granted an
    /// [`Ask::Want`]: it is authorized again.
    Join(Want),
    /// Offers a cache of that owner. Its ad lets the peer reject it at once, but proves nothing; an older
    /// daemon sends none.
    Offer {
        name: String,
        owner: String,
        #[serde(default)]
        ad: String,
    },
    /// A frame of the membership protocol, as payload. Not answered.
    #[serde(rename = "circle")]
    Membership,
    /// Do as the administrator of the site wants. The payload of the answer is the daemon's status.
    Admin { who: String, what: String, limit: Limit },
    /// Are you alive?
    Ping,
}

/// A request for a cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Want {
    /// ORIGIN/NAME or ORIGIN/NAME@VERSION.
    pub(crate) name: String,
    /// Exactly this one, if it is known.
    #[serde(default)]
    pub(crate) cache: Option<String>,
    /// The reader on whose behalf it is made. A host's daemon may name any user, a user's daemon only its
    /// own.
    pub(crate) reader: String,
    /// The reader's groups, as the asking host knows them.
    #[serde(default)]
    pub(crate) groups: Vec<String>,
    /// The asking daemon's ad, for the cache's requirements.
    pub(crate) ad: String,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// Granted, or done.
    Ok,
    /// Granted: the cache, and its other holders.
    Cache(Box<Granted>),
    /// Ask again after this many seconds.
    Wait { seconds: u64, why: String },
    /// No such cache, or the reader may not know of it: the two cases are not distinguished.
    Absent,
    /// No, and asking again does not help.
    Rejected { why: String },
    /// The other end does not know this kind of request.
    NotUnderstood,
}

/// A cache that may be had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Granted {
    /// Its id.
    pub(crate) cache: String,
    /// Its record in the origin's store.
    pub(crate) about: serde_json::Value,
    /// Length of its manifest, bytes.
    pub(crate) manifest: u64,
    /// Where else it is: addresses of daemons.
    #[serde(default)]
    pub(crate) holders: Vec<Vec<SocketAddr>>,
}
