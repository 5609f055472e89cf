//! Settings and global flags, for all commands.

use std::path::PathBuf;

use anyhow::Result;

use crate::args::Global;
use tidecast::settings::Settings;

/// The global flags and the settings.
pub(crate) struct Context<'a> {
    pub(crate) global: &'a Global,
    pub(crate) settings: &'a Settings,
}

impl Context<'_> {
    pub(crate) fn state_dir(&self) -> Result<PathBuf> {
        Ok(self.settings.state_dir(self.global.state_dir.as_deref())?)
    }

    /// As [`Context::state_dir`], created if it is missing; owned by this user and not accessible to others.
    pub(crate) fn own_state_dir(&self) -> Result<PathBuf> {
        let dir = self.state_dir()?;
        tidecast_identity::own_dir(&dir)?;
        Ok(dir)
    }

    /// Number of threads; 0: one for each core.
    pub(crate) fn threads(&self) -> usize {
        self.global.threads.or(self.settings.threads).unwrap_or(0)
    }
}
