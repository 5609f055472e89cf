//! This daemon's ad, which is matched with caches.

use std::sync::Arc;

use tidecast_classad::Ad;

use super::store::Store;
use crate::config::Config;
use crate::model::error::Error;
use crate::policy::ads;

/// Sources of the ad.
pub(crate) struct HostAd {
    config: Arc<Config>,
    store: Arc<Store>,
    started: u64,
}

impl HostAd {
    /// `started`: when the daemon was, seconds since 1970.
    pub(crate) fn new(config: Arc<Config>, store: Arc<Store>, started: u64) -> Self {
        Self { config, store, started }
    }

    /// As it is now.
    ///
    /// # Errors
    /// The disk cannot be asked.
    pub(crate) fn now(&self) -> Result<Ad, Error> {
        let usage = self.store.depot.usage()?;
        Ok(ads::daemon(&ads::Host {
            name: &self.config.name,
            machine: &self.config.machine,
            started: self.started,
            disk: (
                // The total, not the free space: a full disk is temporary and left to admission.
                usage.total.bytes,
                usage.capacity.bytes.saturating_sub(usage.kept.bytes + usage.promised.bytes),
            ),
            methods: &self.config.methods,
            requirements: self.config.requirements.as_deref(),
        })?)
    }
}
