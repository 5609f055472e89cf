//! Limits of the daemon on its host, lower while a job uses a cache.

mod cgroup;

use std::sync::Arc;

use parking_lot::Mutex;
use tidecast_depot::Depot;
use tidecast_net::{Caps, Throttle};

use crate::config::Config;
use crate::model::types::{Limit, Limits};
use cgroup::Cgroup;

/// Limits, and their enforcement.
pub(crate) struct HostLimits {
    pub(crate) throttle: Arc<Throttle>,
    cgroup: Cgroup,
    memory: u64,
    now: Mutex<Now>,
}

struct Now {
    /// While no job runs.
    caps: Caps,
    /// The share of them while one does.
    share: f64,
    busy: bool,
}

impl HostLimits {
    pub(crate) fn new(config: &Config) -> Self {
        Self::within(config, Cgroup::enter())
    }

    /// Where the kernel holds it to nothing: for tests, that are not to be moved.
    #[cfg(test)]
    pub(crate) fn without_cgroup(config: &Config) -> Self {
        Self::within(config, Cgroup::none("a test"))
    }

    fn within(config: &Config, cgroup: Cgroup) -> Self {
        cgroup.limit(config.caps.cores, config.memory);
        Self {
            throttle: Arc::new(Throttle::new(config.caps, Some(config.memory))),
            cgroup,
            memory: config.memory,
            now: Mutex::new(Now { caps: config.caps, share: config.busy, busy: false }),
        }
    }

    /// Sets limits of the administrator; 0 lifts a limit.
    pub(crate) fn limit(&self, limit: &Limit) {
        let mut now = self.now.lock();
        let rate = |cap: &mut Option<u64>, new: Option<u64>| {
            if let Some(new) = new {
                *cap = Some(new).filter(|new| *new > 0);
            }
        };
        rate(&mut now.caps.upload, limit.upload);
        rate(&mut now.caps.download, limit.download);
        rate(&mut now.caps.disk, limit.disk_rate);
        if let Some(cores) = limit.cores {
            now.caps.cores = Some(cores).filter(|cores| *cores > 0.0);
        }
        if let Some(share) = limit.busy {
            now.share = share.clamp(0.0, 1.0);
        }
        self.apply(&now);
    }

    /// Looks whether a job uses a cache. To be called when one may have begun, and again and again.
    pub(crate) fn adapt_to_jobs(&self, depot: &Depot) {
        self.adapt(depot.has_jobs(crate::clock::now()));
    }

    /// Whether jobs run.
    fn adapt(&self, busy: bool) {
        let mut now = self.now.lock();
        if now.busy != busy {
            now.busy = busy;
            self.apply(&now);
        }
    }

    fn apply(&self, now: &Now) {
        let share = if now.busy { now.share.max(0.01) } else { 1.0 };
        let rate = |cap: Option<u64>| cap.map(|cap| (cap as f64 * share) as u64);
        let caps = Caps {
            upload: rate(now.caps.upload),
            download: rate(now.caps.download),
            disk: rate(now.caps.disk),
            cores: now.caps.cores.map(|cores| cores * share),
            spare_cache: now.busy && !self.cgroup.holds_memory(),
        };
        self.throttle.set(caps);
        self.cgroup.limit(caps.cores, self.memory);
    }

    /// The current limits.
    pub(crate) fn limits(&self) -> Limits {
        let caps = self.throttle.caps();
        Limits {
            busy: self.now.lock().busy,
            upload: caps.upload,
            download: caps.download,
            disk_rate: caps.disk,
            cores: caps.cores,
            memory: self.memory,
            cgroup: self.cgroup.said().to_owned(),
        }
    }
}
