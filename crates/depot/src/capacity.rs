//! A capacity that was lowered below the store's content: leased caches that were created on this host keep their
//! space.
//!
//! They may have no other copy, so no sweep evicts them; a cache that needs the space does. Their excess over the
//! capacity shrinks as they are removed, and later caches add nothing to it: in the end the configured capacity
//! applies.

use std::sync::Arc;

use crate::{CacheRecord, Config, Depot};

/// Room beyond the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// The capacity at which no sweep evicts the protected caches, bytes.
    pub capacity: u64,
    /// It is for caches that were committed no later than this, seconds since 1970.
    pub before: u64,
}

impl Depot {
    /// The least capacity, in bytes, at which no sweep evicts a leased cache that was created on this host.
    #[must_use]
    pub fn least_capacity(&self, now: u64) -> u64 {
        let config = self.config();
        let kept = self.extent(&self.promised(&config, u64::MAX, now)).bytes;
        capacity_for(kept, &config)
    }

    /// Allows the current need to exceed a lower capacity, until it shrinks. Returns the capacity that applies
    /// meanwhile, if it is not the configured one.
    pub fn allow_excess(&self, now: u64) -> Option<u64> {
        let least = self.least_capacity(now);
        let mut config = self.0.config.write();
        let short = config.max_bytes.is_some_and(|max| max < least);
        config.excess = short.then_some(Excess { capacity: least, before: now });
        short.then_some(least)
    }

    /// Reduces the excess to the current need.
    pub(crate) fn shrink_excess(&self, now: u64) {
        let config = self.config();
        let (Some(excess), Some(max)) = (config.excess, config.max_bytes) else { return };
        // Shared files count for each cache: never too little, and no manifests are read every few seconds.
        let promised = self.promised(&config, excess.before, now);
        let kept = promised.iter().fold(0u64, |sum, record| sum.saturating_add(record.size.bytes));
        let capacity = capacity_for(kept, &config).min(excess.capacity);
        let mut config = self.0.config.write();
        if config.excess == Some(excess) {
            config.excess = (capacity > max).then_some(Excess { capacity, ..excess });
        }
    }

    fn promised(&self, config: &Config, before: u64, now: u64) -> Vec<Arc<CacheRecord>> {
        let memory = self.0.memory.read();
        let old = |r: &CacheRecord| r.committed.is_none_or(|at| at <= before);
        let of = |r: &&Arc<CacheRecord>| promised(r, config.origin.as_deref(), now) && old(r);
        memory.caches.values().filter(of).cloned().collect()
    }
}

/// The capacity at which `kept` may stay: by the high watermark, at which a full store stands. By the low one it
/// would be more than the store has, and grow with each start.
fn capacity_for(kept: u64, config: &Config) -> u64 {
    let high = u128::from(config.high.clamp(1, 100));
    u64::try_from((u128::from(kept) * 100).div_ceil(high)).unwrap_or(u64::MAX)
}

/// It was made here, and its lease lasts: there may be no other copy.
pub(crate) fn promised(r: &CacheRecord, origin: Option<&str>, now: u64) -> bool {
    r.is_committed() && !r.expired(now) && origin == Some(&*r.origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_a_capacity_needs_no_more_than_that() {
        for high in [1, 33, 90, 95, 99, 100] {
            let config = Config { high, ..Config::default() };
            for capacity in [1, 99, 100, 101, 4096, 99_999_999, 100_000_000, u64::from(u32::MAX)] {
                let most = (u128::from(capacity) * u128::from(high) / 100) as u64;
                assert!(capacity_for(most, &config) <= capacity, "{high} {capacity}");
            }
        }
    }
}
