//! Where users and daemons of this host meet.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tidecast_daemon::Serves;
use tidecast_event::Error;
use tidecast_paths::OTHERS_WRITE;

use crate::settings::Settings;

/// Where the daemon of the host listens.
const HOST: &str = "/run/tidecast/daemon.sock";

/// Where users of this host reach a daemon: the socket of the settings, else the host's if it exists, else
/// the user's own. `state_dir`: where the caller keeps its state, if not in the directory of the settings.
///
/// # Errors
/// There is no home directory to keep state in.
pub fn socket(settings: &Settings, state_dir: Option<&Path>) -> Result<PathBuf, Error> {
    let host = PathBuf::from(HOST);
    match &settings.socket {
        Some(path) => Ok(path.clone()),
        None if host.exists() => Ok(host),
        None => Ok(usual(&settings.state_dir(state_dir)?.join("daemon"), serves(false))),
    }
}

/// The users that a daemon of this process serves.
pub(super) fn serves(system: bool) -> Serves {
    if system || rustix::process::geteuid().is_root() { Serves::Everyone } else { Serves::Owner }
}

/// Where a daemon listens that keeps its caches in `dir`.
pub(super) fn usual(dir: &Path, serves: Serves) -> PathBuf {
    if serves == Serves::Everyone {
        return PathBuf::from(HOST);
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    runtime.map_or_else(|| dir.join("daemon.sock"), |dir| dir.join("tidecast/daemon.sock"))
}

/// The user that runs the host's daemon: the owner of the directory of its socket, which only root can make.
pub(super) fn host_uid() -> Option<u32> {
    let dir = Path::new(HOST).parent()?;
    let (made, above) = (dir.symlink_metadata().ok()?, dir.parent()?.symlink_metadata().ok()?);
    let is_roots = above.is_dir() && above.uid() == 0 && above.mode() & OTHERS_WRITE == 0;
    (is_roots && made.is_dir()).then(|| made.uid())
}
