//! The running daemons, the caches that they hold, and the meaning of names.

pub(crate) mod announcements;
pub(crate) mod backoff;
pub(crate) mod bootstrap;
pub(crate) mod catalogue;
pub(crate) mod configured_peers;
pub(crate) mod membership;
pub(crate) mod names;
pub(crate) mod newest_version;
pub(crate) mod sources;
