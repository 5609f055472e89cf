//! Where this node keeps its key, tickets, records and unfinished work.

use std::path::{Path, PathBuf};

use tidecast_event::{Context as _, Error, Fault as _};

/// The directory that is used if options name none: `$XDG_STATE_HOME/tidecast`, or `~/.local/state/tidecast`. None where
/// neither variable is set.
#[must_use]
pub fn default_state_dir() -> Option<PathBuf> {
    below_home("XDG_STATE_HOME", ".local/state").map(|base| base.join("tidecast"))
}

/// The directory that a variable names, or this one below the home directory.
pub(crate) fn below_home(variable: &str, usual: &str) -> Option<PathBuf> {
    set(variable).or_else(|| home().map(|home| home.join(usual)))
}

/// The home directory.
pub(crate) fn home() -> Option<PathBuf> {
    set("HOME")
}

/// The directory that a variable names.
fn set(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// The directory that is named, else the default.
pub(crate) fn named(dir: Option<&Path>) -> Result<PathBuf, Error> {
    let dir = dir.map(Path::to_owned).or_else(default_state_dir);
    dir.context("no directory for this node's key: set HOME, or choose one with --state-dir")
}

/// The directory, made if need be: this user's, and closed to others.
pub(crate) fn own(dir: Option<&Path>) -> Result<PathBuf, Error> {
    let dir = named(dir)?;
    tidecast_identity::own_dir(&dir).fault()?;
    Ok(dir)
}
