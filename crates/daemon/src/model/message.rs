//! What daemons say to each other. Fields and kinds are only ever added, fields with `#[serde(default)]`: an older daemon passes
//! over fields and heads that it does not know, answers [`Answer::NotUnderstood`] to what it cannot do, and takes an answer of
//! a kind that it does not know for that. A kind that is a bare word stays one; what needs fields is a kind of its own.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::model::types::Limit;

/// One frame's head, either way. Both ends may ask, whoever dialled: a host behind a NAT is asked over the connection
/// that it made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Head {
    /// A request; `id` is the asker's own number for it.
    Ask { id: u64, ask: serde_json::Value },
    /// The answer to the other end's request of that number.
    Answer { id: u64, answer: serde_json::Value },
    /// The last word to one who is not believed. An older daemon passes over it, and sees the connection end.
    Refused { why: String },
}

/// Said first, by both ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The daemon's name: that of its host, as its caches have it for an origin.
    pub(crate) name: String,
    /// The card that says who this node is, in base64; empty where the site has no CA.
    #[serde(default)]
    pub(crate) card: String,
    /// Where it can be reached.
    pub(crate) addresses: Vec<SocketAddr>,
    /// The machine, equal for all daemons of one host.
    pub(crate) machine: String,
    /// When it was started, seconds since 1970: the oldest daemon of a machine is the parent of the others.
    pub(crate) started: u64,
    /// The user whose processes it serves; None for all.
    #[serde(default)]
    pub(crate) user: Option<String>,
    /// What its clock shows as it says this, seconds since 1970; 0 from an older daemon.
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

/// What a node wants of the certificate authority that a daemon keeps. It is answered by [`Enrolled`], and the connection ends.
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
    /// What do you say of yourself? The payload of the answer is the ad.
    Ad,
    /// Bytes of a manifest from an offset, as payload of the answer. Only after a [`Ask::Want`] was granted.
    Manifest { cache: String, offset: u64 },
    /// What are the leaves of this file known by, from this one on? The payload has 16 bytes for each. Only after an
    /// [`Ask::Want`] was granted.
    Fingerprints { cache: String, file: u32, first: u32 },
    /// These parts of this file, offsets and lengths, as payload. Only after an [`Ask::Want`] was granted.
    Leaves { cache: String, file: u32, ranges: Vec<(u64, u64)> },
    /// I shall connect to your port for this swarm. Only after a [`Ask::Want`] was granted by anybody: it is judged anew.
    Join(Want),
    /// Take a copy of this cache of that owner, if you like. Its ad lets the other refuse at once, and is no more than a word;
    /// an older daemon gives none.
    Offer {
        name: String,
        owner: String,
        #[serde(default)]
        ad: String,
    },
    /// A frame of the circle of daemons, as payload. Not answered.
    Circle,
    /// Do as the administrator of the site wants. The payload of the answer is the daemon's status.
    Admin { who: String, what: String, limit: Limit },
    /// Are you alive?
    Ping,
}

/// Who wants which cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Want {
    /// ORIGIN/NAME or ORIGIN/NAME@VERSION.
    pub(crate) name: String,
    /// Exactly this one, if it is known.
    #[serde(default)]
    pub(crate) cache: Option<String>,
    /// On whose behalf. Believed of a host's daemon; of a user's daemon, only its own user.
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
    /// Granted: this is the cache, and who else has it.
    Cache(Box<Granted>),
    /// Ask again after so many seconds.
    Wait { seconds: u64, why: String },
    /// There is none, or it is not the reader's to know: nobody learns which.
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
    /// What it is, as the origin's store has it.
    pub(crate) about: serde_json::Value,
    /// Length of its manifest, bytes.
    pub(crate) manifest: u64,
    /// Where else it is: addresses of daemons.
    #[serde(default)]
    pub(crate) holders: Vec<Vec<SocketAddr>>,
}
