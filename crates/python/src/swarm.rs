//! How Python says how a node takes part in a swarm.

use std::net::SocketAddr;

use pyo3::prelude::*;
use tidecast::settings::Settings;
use tidecast::{Network, SwarmOptions};

use crate::usage;

/// The attributes of `tidecast.Swarm`; rates in bytes a second. None: as the settings say.
#[derive(FromPyObject)]
pub(crate) struct Swarm {
    listen: Option<String>,
    net: Option<String>,
    peers: Option<Vec<String>>,
    trackers: Option<Vec<String>>,
    upload_limit: Option<u64>,
    download_limit: Option<u64>,
    dht: Option<bool>,
    lsd: Option<bool>,
    web_seeds: Option<bool>,
    plain: Option<bool>,
}

impl Swarm {
    /// The same over the settings.
    ///
    /// # Errors
    /// An address or a network is none; the settings are not right.
    pub(crate) fn options(self, settings: &Settings) -> PyResult<SwarmOptions> {
        let set = settings.swarm().map_err(|error| usage(error.in_full()))?;
        let address = |text: String| {
            text.parse::<SocketAddr>().map_err(|_| usage(format!("listen: {text:?} is no ADDRESS:PORT")))
        };
        let network =
            |text: String| text.parse::<Network>().map_err(|error| usage(format!("net: {text:?}: {error}")));
        Ok(SwarmOptions {
            listen: self.listen.map(address).transpose()?.unwrap_or(set.listen),
            net: self.net.map(network).transpose()?.or(set.net),
            peers: self.peers.unwrap_or(set.peers),
            trackers: self.trackers.unwrap_or(set.trackers),
            upload_limit: self.upload_limit.or(set.upload_limit),
            download_limit: self.download_limit.or(set.download_limit),
            dht: self.dht.unwrap_or(set.dht),
            lsd: self.lsd.unwrap_or(set.lsd),
            web_seeds: self.web_seeds.unwrap_or(set.web_seeds),
            plain: self.plain.unwrap_or(set.plain),
            ..set
        })
    }
}
