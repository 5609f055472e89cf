//! The commands, one a file.

pub(crate) mod admin;
pub(crate) mod bcast;
pub(crate) mod ca;
pub(crate) mod cache;
pub(crate) mod classad;
pub(crate) mod completions;
pub(crate) mod copy;
pub(crate) mod copy_server;
pub(crate) mod daemon;
pub(crate) mod describe;
pub(crate) mod dest;
pub(crate) mod drive;
pub(crate) mod field;
pub(crate) mod get;
pub(crate) mod man;
pub(crate) mod mount;
pub(crate) mod plugin;
pub(crate) mod processes;
pub(crate) mod publish;
pub(crate) mod revoke;
pub(crate) mod run;
pub(crate) mod seed;
pub(crate) mod share;
pub(crate) mod show;
pub(crate) mod sim;
pub(crate) mod source;
pub(crate) mod swarm;
pub(crate) mod tracker;
pub(crate) mod verify;
pub(crate) mod worker;

use std::path::PathBuf;

use anyhow::Result;
pub(crate) use tidecast_node::{RECORDS, now, read_manifest};

use crate::cli::Global;
use crate::settings::Settings;

/// What every command may need: flags that all share, and settings.
pub(crate) struct Context<'a> {
    pub(crate) global: &'a Global,
    pub(crate) settings: &'a Settings,
}

impl Context<'_> {
    pub(crate) fn state_dir(&self) -> Result<PathBuf> {
        self.settings.state_dir(self.global.state_dir.as_deref())
    }

    /// As [`Context::state_dir`]: made if need be, this user's, and closed to others.
    pub(crate) fn own_state_dir(&self) -> Result<PathBuf> {
        let dir = self.state_dir()?;
        tidecast_identity::own_dir(&dir)?;
        Ok(dir)
    }

    /// Threads to work with; 0 is one for each core.
    pub(crate) fn threads(&self) -> usize {
        self.global.threads.or(self.settings.threads).unwrap_or(0)
    }
}
