//! A daemon for a user without one: started when needed, ends when idle.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use tidecast_event::{Context as _, Error, Fault as _};
use tidecast_paths::Root;

use super::socket::socket;
use crate::mount::Program;
use crate::settings::Settings;

/// A daemon that was started on demand answers within this time, and ends after this long without work.
const STARTS: Duration = Duration::from_secs(20);
/// When it has ended, another one that was started at the same time answers within this time.
const OTHER_STARTS: Duration = Duration::from_secs(2);
const IDLE: &str = "15m";

/// Where the caller's daemon is, and how one is started.
#[derive(Debug, Clone, Default)]
pub struct OnDemand {
    /// The program that is the daemon.
    pub program: Program,
    /// Where the caller keeps its state, if not in the directory of the settings.
    pub state_dir: Option<PathBuf>,
    /// The configuration, if it is not the usual one.
    pub config: Option<PathBuf>,
}

impl OnDemand {
    /// Where users reach a daemon; the user's own daemon is started if none runs, unless the settings name
    /// another place or forbid it. It ends when idle.
    ///
    /// # Errors
    /// The daemon could not be started.
    pub fn socket(&self, settings: &Settings) -> Result<PathBuf, Error> {
        let path = socket(settings, self.state_dir.as_deref())?;
        let wanted = settings.daemon.as_ref().and_then(|table| table.on_demand).unwrap_or(true);
        let answers = || tidecast_daemon::socket::answers(&path);
        if !wanted || settings.socket.is_some() || rustix::process::geteuid().is_root() || answers() {
            return Ok(path);
        }
        let state = settings.state_dir(self.state_dir.as_deref())?;
        let state = Root::open(&crate::state::own(Some(&state))?).fault()?;
        let log = state.full("daemon/daemon.log");
        let opened =
            state.ensure_dir("daemon", 0o700).and_then(|()| state.open_or_create("daemon/daemon.log", 0o600));
        let opened = opened.with_context(|| format!("cannot write {}", log.display()))?;
        fcntl_setfl(&opened, OFlags::APPEND).fault()?;
        let mut child = self.start(opened).context("cannot start a daemon for this user")?;
        let mut until = Instant::now() + STARTS;
        let mut ended = false;
        while !answers() {
            let now = Instant::now();
            if now > until {
                let last = if ended { last_line(&log) } else { None };
                let why = last.map_or_else(|| "does not answer".into(), |line| format!("has ended: {line}"));
                let log = log.display();
                return Err(Error::fault(format!(
                    "the daemon that was started for this user {why}; its log is {log}"
                )));
            }
            // One that was started at the same time may have been faster: then ours has ended, and that one answers.
            if !ended && matches!(child.try_wait(), Ok(Some(_))) {
                (ended, until) = (true, until.min(now + OTHER_STARTS));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(path)
    }

    fn start(&self, log: File) -> Result<Child, Error> {
        let mut command = self.program.command()?;
        if let Some(dir) = &self.state_dir {
            command.arg("--state-dir").arg(dir);
        }
        if let Some(file) = &self.config {
            command.arg("--config").arg(file);
        }
        command.args(["daemon", "--idle", IDLE]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // Not with this command when a terminal interrupts it.
        command.process_group(0).spawn().fault()
    }
}

impl Program {
    /// A command of it, without arguments.
    pub(super) fn command(&self) -> Result<Command, Error> {
        Ok(match self {
            Self::Named(program) => Command::new(program),
            Self::Own => Command::new(std::env::current_exe().context("cannot find this program")?),
        })
    }
}

/// The last line of a log, of its last 4 KiB.
fn last_line(log: &Path) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let from = file.metadata().ok()?.len().saturating_sub(4096);
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut tail = Vec::new();
    file.take(4096).read_to_end(&mut tail).ok()?;
    let line = tail.trim_ascii_end().rsplit(|b| *b == b'\n').next().filter(|line| !line.is_empty())?;
    Some(tidecast_text::escaped_bytes(line).to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_last_line_of_a_log_is_printable_and_of_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        assert_eq!(last_line(&log), None);
        std::fs::write(&log, format!("{}\nwhy\x1b\n\n", "x".repeat(9000))).unwrap();
        assert_eq!(last_line(&log).as_deref(), Some("why\\x1b"));
    }

    #[test]
    fn settings_that_name_a_socket_are_obeyed_and_nothing_is_started() {
        let settings = Settings { socket: Some("/nowhere/daemon.sock".into()), ..Settings::default() };
        let on_demand =
            OnDemand { program: Program::Named("/nowhere/program".into()), ..OnDemand::default() };
        assert_eq!(on_demand.socket(&settings).unwrap(), Path::new("/nowhere/daemon.sock"));
    }
}
