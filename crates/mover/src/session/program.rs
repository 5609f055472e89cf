//! The other end of a copy as a program that ssh starts.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tidecast_text::{Host, quote_program, start_error};

use super::connect_options::ConnectOptions;
use crate::error::Error;
use crate::transfer::Pipes;

/// A program that ssh has started has this long to end when all is done.
const ENDS: Duration = Duration::from_secs(5);
/// How often it is looked at then.
const LOOK: Duration = Duration::from_millis(10);

/// Added to the timeout while the other end starts: for the login, and where there is a terminal, for a
/// password, for which sshd waits as long.
pub(super) fn patience() -> Duration {
    let asks = std::fs::File::open("/dev/tty").is_ok();
    Duration::from_secs(if asks { 120 } else { 20 })
}

/// A program at the other end of ssh.
pub(super) struct Program(Child);

impl Program {
    pub(super) fn start(reach: &ConnectOptions, host: &Host) -> Result<(Self, Pipes), Error> {
        let (ssh, words) = (&reach.ssh.program, &reach.ssh.words);
        let mut command = Command::new(ssh);
        // The words after the host go to the remote shell, to which ssh passes them as one line.
        command
            .args(words)
            .arg(host.ssh())
            .arg("--")
            .arg(quote_program(&reach.remote_program))
            .arg("copy-end");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| Error::Start(start_error(ssh, &e)))?;
        let none = || Error::Remote("missing pipe to ssh".into());
        let outgoing: OwnedFd = child.stdin.take().ok_or_else(none)?.into();
        let incoming: OwnedFd = child.stdout.take().ok_or_else(none)?.into();
        let pipes = Pipes::new(File::from(incoming), File::from(outgoing))
            .map_err(|e| Error::Remote(format!("cannot set up the pipes to ssh: {e}")))?;
        Ok((Self(child), pipes))
    }

    /// The reason for a missing answer.
    pub(super) fn explain(mut self, error: Error, host: &Host, program: &str) -> Error {
        let noise = match &error {
            Error::Network { .. } => None,
            Error::UnexpectedOutput(line) => Some(line.clone()),
            Error::Cancelled => {
                self.wait(Duration::ZERO);
                return error;
            }
            _ => {
                self.end();
                return error;
            }
        };
        let status = self.wait(ENDS).and_then(|status| status.code());
        if let Some(line) = noise.filter(|_| !matches!(status, Some(127 | 255))) {
            return Error::Remote(format!(
                "{host} printed \"{line}\" instead of the answer of tidecast; shell start-up files (.bashrc) on {host} must print nothing \
                 when no terminal is attached"
            ));
        }
        Error::Remote(match status {
            Some(255) => format!("ssh to {host} failed"),
            Some(127) => format!(
                "{program} was not found on {host}; install it there, or name its path with --remote-program"
            ),
            _ => format!("{program} on {host} ended without an answer; check that it has the same version"),
        })
    }

    /// Waits for its end, for a while.
    pub(super) fn end(mut self) {
        let _ = self.wait(ENDS);
    }

    /// How it ended, which it must in that time.
    fn wait(&mut self, most: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + most;
        while Instant::now() < until {
            match self.0.try_wait() {
                Ok(None) => std::thread::sleep(LOOK),
                ended => return ended.ok().flatten(),
            }
        }
        let _ = self.0.kill();
        self.0.wait().ok()
    }
}
