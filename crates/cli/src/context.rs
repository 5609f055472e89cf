//! What every command may need.

use std::path::PathBuf;

use anyhow::Result;

use crate::args::Global;
use tidecast::settings::Settings;

/// What every command may need: flags that all share, and settings.
pub(crate) struct Context<'a> {
    pub(crate) global: &'a Global,
    pub(crate) settings: &'a Settings,
}

impl Context<'_> {
    pub(crate) fn state_dir(&self) -> Result<PathBuf> {
        Ok(self.settings.state_dir(self.global.state_dir.as_deref())?)
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
