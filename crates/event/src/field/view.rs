//! Events of `field view`.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Serialize;

/// An event of `field view`.
pub type Event = crate::Event<Started, Done>;

/// The page is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `field view`.
    pub command: &'static str,
    /// The URL of the page, with the token, a secret; or the unix socket for a proxy.
    pub url: String,
    /// Its address; null with a unix socket.
    pub address: Option<SocketAddr>,
    /// The path of the page, and the token.
    pub path: String,
    /// The fields that it shows.
    pub volumes: Vec<String>,
}

/// It was stopped, which is the normal end.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
}
