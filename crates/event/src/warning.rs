//! What somebody should know while the work goes on.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Serialize;

/// Something is wrong, and the work goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Warning {
    /// What is wrong, with what, in one sentence.
    pub message: String,
    /// The peer that does not answer, if that is what is wrong. Such a warning may come before `started`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Why it does not answer, or nothing of a cache comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Some of the connected peers, where none moves any byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peers: Option<Vec<SocketAddr>>,
    /// For how long no byte has moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_seconds: Option<u64>,
    /// Whether it is this node that sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sending: Option<bool>,
}

impl Warning {
    /// Without further fields.
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

    /// Nothing of something has come, for this reason.
    pub fn nothing_of(what: &str, why: &str) -> Self {
        Self { reason: Some(why.to_owned()), ..Self::new(format!("nothing of {what} has come yet: {why}")) }
    }

    /// Whether it says why nothing comes or goes.
    #[must_use]
    pub fn is_silence(&self) -> bool {
        self.reason.is_some() || self.peers.is_some()
    }
}

/// Bytes move again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Resumed {
    /// For how long none did.
    pub silent_seconds: u64,
    /// Whether it is this node that sends.
    pub sending: bool,
}
