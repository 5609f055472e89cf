//! This machine: the processes that ask, other daemons on it, what the daemon may take from it, its service manager.

pub(crate) mod activity;
pub(crate) mod caller;
pub(crate) mod election;
pub(crate) mod file_stamp;
mod job_process;
pub(crate) mod limits;
pub(crate) mod service;
pub(crate) mod state_dir;
