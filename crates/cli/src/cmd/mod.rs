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
pub(crate) mod field;
pub(crate) mod find;
pub(crate) mod get;
pub(crate) mod man;
pub(crate) mod member;
pub(crate) mod mount;
pub(crate) mod plugin;
pub(crate) mod processes;
pub(crate) mod publish;
pub(crate) mod revoke;
pub(crate) mod run;
pub(crate) mod seed;
pub(crate) mod select;
pub(crate) mod share;
pub(crate) mod show;
pub(crate) mod sim;
pub(crate) mod source;
pub(crate) mod swarm;
pub(crate) mod tracker;
pub(crate) mod unreachable;
pub(crate) mod verify;
pub(crate) mod worker;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use tidecast_metainfo::{MAX_LEN, Manifest};

use crate::cli::Global;
use crate::settings::Settings;

/// Below the state directory: what was put where.
pub(crate) const RECORDS: &str = "delivered";

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

/// Reads a manifest file, of bounded size.
pub(crate) fn read_manifest(path: &Path) -> Result<Manifest> {
    let shown = path.display();
    let size = std::fs::metadata(path).with_context(|| format!("cannot read the manifest {shown}"))?.len();
    if size > MAX_LEN as u64 {
        bail!("{shown} has {size} bytes: too long to be a manifest (limit {MAX_LEN})");
    }
    // What has no size of its own, as a pipe, is held to the limit too.
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_LEN as u64 + 1).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read the manifest {shown}"))?;
    Manifest::parse(&bytes).with_context(|| format!("{shown} is not a manifest that can be trusted"))
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
