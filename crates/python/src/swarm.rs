//! The options of a swarm from Python.

use pyo3::prelude::*;
use tidecast::SwarmOptions;
use tidecast::settings::{Listen, Settings};
use tidecast_text::Rate;

use crate::usage;

/// The attributes of `tidecast.Swarm`; rates in bytes a second. `None`: the value of the settings.
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
    /// An address, a network or a setting cannot be parsed.
    pub(crate) fn options(self, settings: &Settings) -> PyResult<SwarmOptions> {
        let set = settings.clone();
        let address =
            |text: String| text.parse::<Listen>().map_err(|error| usage(format!("listen: {error}")));
        let rate = |bytes: u64| Rate(bytes.saturating_mul(8));
        let settings = Settings {
            listen: self.listen.map(address).transpose()?.or(set.listen),
            net: self.net.or(set.net),
            peer: self.peers.unwrap_or(set.peer),
            tracker: self.trackers.unwrap_or(set.tracker),
            upload_limit: self.upload_limit.map(rate).or(set.upload_limit),
            download_limit: self.download_limit.map(rate).or(set.download_limit),
            dht: self.dht.or(set.dht),
            lsd: self.lsd.or(set.lsd),
            plain: self.plain.or(set.plain),
            ..set
        };
        let options = settings.swarm().map_err(|error| usage(error.in_full()))?;
        Ok(SwarmOptions { web_seeds: self.web_seeds.unwrap_or(options.web_seeds), ..options })
    }
}
