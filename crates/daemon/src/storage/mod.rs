//! State of this host: the depot for callers that must not block, the audit log, and whether the
//! administrator has paused the daemon.

pub(crate) mod audit;
mod audit_share;
pub(crate) mod host_ad;
pub(crate) mod run_mode;
pub(crate) mod store;
pub(crate) mod upload;
