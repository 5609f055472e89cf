//! Warnings: problems that do not end the work.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Serialize;

/// A problem that does not end the work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Warning {
    /// The problem, in one sentence.
    pub message: String,
    /// The peer, if the warning is about one that does not answer. Such a warning may come before `started`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Why the peer does not answer, or why no data of a cache arrives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Some of the connected peers, if none of them moves data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peers: Option<Vec<SocketAddr>>,
    /// Seconds for which no data has moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_seconds: Option<u64>,
    /// Whether this node is the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sending: Option<bool>,
}

impl Warning {
    /// A warning without further fields.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    /// A peer does not answer.
    #[must_use]
    pub fn unanswered(peer: &str, why: &str) -> Self {
        Self {
            peer: Some(peer.to_owned()),
            reason: Some(why.to_owned()),
            ..Self::new(format!("peer {peer}: {why}"))
        }
    }

    /// No data of `what` has arrived, for this reason.
    pub fn nothing_of(what: &str, why: &str) -> Self {
        Self { reason: Some(why.to_owned()), ..Self::new(format!("no data of {what} received yet: {why}")) }
    }

    /// Whether it explains why no data moves.
    #[must_use]
    pub fn is_silence(&self) -> bool {
        self.reason.is_some() || self.peers.is_some()
    }
}

/// Data moves again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Resumed {
    /// Seconds for which no data moved.
    pub silent_seconds: u64,
    /// Whether this node is the sender.
    pub sending: bool,
}
