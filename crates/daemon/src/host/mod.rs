//! This machine: calling processes, other daemons on it, limits of the daemon, its service manager.

pub(crate) mod activity;
pub(crate) mod caller;
pub(crate) mod election;
pub(crate) mod file_stamp;
mod job_process;
pub(crate) mod limits;
pub(crate) mod service;
pub(crate) mod shares;
pub(crate) mod state_dir;
