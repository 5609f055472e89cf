//! Configuration of the site: space, quotas, and leases.

use std::collections::BTreeMap;

use crate::{Excess, Size};

/// The limits of a store. All may change while it runs ([`crate::Depot::configure`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most bytes in the store; `None`: as much as the file system has.
    pub max_bytes: Option<u64>,
    /// Excess over `max_bytes` that is allowed for a while ([`Depot::allow_excess`](crate::Depot::allow_excess)).
    pub excess: Option<Excess>,
    /// Most inodes in the store; `None`: as many as the file system has.
    pub max_inodes: Option<u64>,
    /// Bytes of the file system that are left to others; of a small one, at most a twentieth.
    pub reserve_bytes: u64,
    /// Inodes of the file system that are left to others; of a small one, at most a twentieth.
    pub reserve_inodes: u64,
    /// Caches of this origin were created on this host: while leased they are evicted last, and only if another
    /// cache needs the space.
    pub origin: Option<String>,
    /// Above this share of the room, caches are evicted; percent.
    pub high: u8,
    /// Eviction continues down to this share; percent.
    pub low: u8,
    /// Quota of an owner who is not in `quotas`; `None`: no limit.
    pub quota: Option<Size>,
    /// Quotas of owners.
    pub quotas: BTreeMap<String, Size>,
    /// Caches that an owner may have declared and not filled.
    pub declared: usize,
    /// Default lease, seconds.
    pub lease: u64,
    /// Longest lease from now, seconds.
    pub lease_cap: u64,
}

impl Default for Config {
    fn default() -> Self {
        const DAY: u64 = 86_400;
        Config {
            max_bytes: None,
            excess: None,
            max_inodes: None,
            reserve_bytes: 1 << 30,
            reserve_inodes: 10_000,
            origin: None,
            high: 95,
            low: 90,
            quota: None,
            quotas: BTreeMap::new(),
            declared: 1000,
            lease: 7 * DAY,
            lease_cap: 90 * DAY,
        }
    }
}

impl Config {
    /// The quota of an owner.
    #[must_use]
    pub fn quota_of(&self, owner: &str) -> Option<Size> {
        self.quotas.get(owner).copied().or(self.quota)
    }

    /// When a lease of `wish` seconds ends that is asked for at `now`.
    #[must_use]
    pub fn lease_until(&self, wish: Option<u64>, now: u64) -> u64 {
        now.saturating_add(wish.unwrap_or(self.lease).min(self.lease_cap))
    }
}
