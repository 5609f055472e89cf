//! The running daemons, the caches that they hold, and the meaning of names.

pub(crate) mod bootstrap;
pub(crate) mod catalogue;
pub(crate) mod holdings;
pub(crate) mod membership;
pub(crate) mod names;
pub(crate) mod newest_version;
pub(crate) mod places;
pub(crate) mod shunned;
pub(crate) mod sources;
