//! The files that commands write: `-o FILE`, `--plot FILE` and the like.
//!
//! `-` is standard output, and so is a path that leads there (`/dev/stdout`): the lines for people then go to standard
//! error. [`tidecast_paths::output`] handles all other paths, and decides which existing files are replaced.

use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};

use crate::failure::Failure;
use crate::report::Reporter;
use crate::stop::Stop;

/// Mode of a new file that others may read, before the umask.
pub(crate) const FOR_ALL: u32 = 0o666;
/// Mode of a new file for its owner alone.
pub(crate) const FOR_OWNER: u32 = 0o600;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    Stdout,
    Path(PathBuf),
}

impl Output {
    /// The output that the user named. If it is standard output, the lines of the result go to standard error.
    ///
    /// # Errors
    /// Usage errors: standard output is a terminal, or `--json` needs it.
    pub(crate) fn of(path: &Path, reporter: &Reporter) -> Result<Self, Failure> {
        let dash = path.as_os_str() == "-";
        if !dash && !tidecast_paths::is_stdout(path) {
            return Ok(Self::Path(path.to_owned()));
        }
        if reporter.is_json() {
            let why = anyhow!("cannot write both the file and --json to standard output; name another file");
            return Err(Failure::usage(why));
        }
        if dash && std::io::stdout().is_terminal() {
            return Err(Failure::usage(anyhow!(
                "cannot write the file to a terminal; redirect standard output, or name a file"
            )));
        }
        reporter.keep_stdout_free();
        Ok(Self::Stdout)
    }

    /// The path, if it is not standard output.
    pub(crate) fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::Stdout => None,
            Self::Path(path) => Some(path),
        }
    }

    /// Writes all bytes; a signal ends the wait for the reader of a pipe.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, bytes: &[u8], mode: u32, stop: Option<&Stop>) -> Result<(), Failure> {
        let is_over = || stop.is_none_or(Stop::is_asked);
        let written = match self {
            Self::Stdout => {
                let mut out = std::io::stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush())
            }
            Self::Path(path) => tidecast_paths::output(path, bytes, mode, &is_over),
        };
        match written {
            Err(e) if e.kind() == ErrorKind::Interrupted && is_over() && stop.is_some() => {
                Err(Failure::interrupted("interrupted"))
            }
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {
                Err(Failure::interrupted("the reader of the output has closed it before all was written"))
            }
            other => Ok(other.with_context(|| format!("cannot write {self}"))?),
        }
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::Path(path) => write!(f, "{}", path.display()),
        }
    }
}
