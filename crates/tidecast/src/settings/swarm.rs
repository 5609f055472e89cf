//! The settings of swarms.

use tidecast_event::Error;
use tidecast_node::SwarmOptions;
use tidecast_text::Rate;

use super::Settings;

impl Settings {
    /// The options of this node in swarms, as far as they are set.
    ///
    /// # Errors
    /// Usage errors: a network that cannot be parsed.
    pub fn swarm(&self) -> Result<SwarmOptions, Error> {
        let defaults = SwarmOptions::default();
        let net = self.net.as_ref().map(|net| net.parse()).transpose();
        let bytes = |rate: Rate| rate.0 / 8;
        Ok(SwarmOptions {
            listen: self.listen.map_or(defaults.listen, |listen| listen.addr()),
            net: net.map_err(|error| Error::usage(format!("--net: {error}")))?,
            peers: self.peer.clone(),
            trackers: self.tracker.clone(),
            upload_limit: self.upload_limit.map(bytes),
            download_limit: self.download_limit.map(bytes),
            policy: self.policy.unwrap_or(defaults.policy),
            dht: self.dht == Some(true),
            lsd: self.lsd != Some(false),
            plain: self.plain == Some(true),
            link_rate: self.link_rate.map(|rate| rate.0),
            ..defaults
        })
    }
}
