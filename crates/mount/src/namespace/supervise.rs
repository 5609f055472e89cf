//! A command whose place was made for it: this process stays outside of the command's mount namespace, passes signals on,
//! removes the directory when the command has ended, and ends as the command did.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::error::{Error, failed};
use crate::created_dirs::Held;

/// Where the process that becomes the command finds its place and its server's socket.
const AT: &str = "TIDECAST_RUN_AT";
const SOCKET: &str = "TIDECAST_RUN_SOCKET";
/// Signals that are for the command.
const PASSED: [Signal; 7] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
];
/// The mount goes within milliseconds of the last process that sees it. A process that the command has left behind keeps
/// it longer; then the server of the tree removes the directory.
const PATIENCE: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(2);
/// The code of a signal that the kernel has sent, as it does on Ctrl-C: to all processes of the terminal's group.
const BY_KERNEL: i32 = 0x80;

/// The orders to the process that becomes the command.
#[derive(Clone, Debug)]
pub struct Inside {
    /// The place of its tree.
    pub at: PathBuf,
    /// Where the server of its tree listens.
    pub socket: PathBuf,
}

impl Inside {
    /// Whether this process is to become the command of another process.
    ///
    /// # Errors
    /// The system refused an operation.
    pub fn of_environment() -> Result<Option<Self>, Error> {
        let (Some(at), Some(socket)) = (std::env::var_os(AT), std::env::var_os(SOCKET)) else {
            return Ok(None);
        };
        // It ends with the one that passes signals on.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
            .map_err(failed("cannot follow the parent process"))?;
        // The parent has blocked them, to pass them on.
        passed().thread_unblock().map_err(failed("cannot unblock signals"))?;
        Ok(Some(Self { at: at.into(), socket: socket.into() }))
    }

    /// The command does not inherit the variables that are for this program only.
    pub fn forget(command: &mut Command) -> &mut Command {
        command.env_remove(AT).env_remove(SOCKET)
    }
}

/// Runs `inside`, a process that calls [`Inside::of_environment`] and becomes the command, and answers how it has ended. `socket`:
/// where the server of its tree listens.
///
/// # Errors
/// It cannot be started or waited for.
pub fn supervise(held: Held, socket: &Path, inside: &mut Command) -> Result<ExitStatus, Error> {
    let passed = passed();
    passed.thread_block().map_err(failed("cannot block signals"))?;
    let signals = SignalFd::with_flags(&passed, SfdFlags::SFD_CLOEXEC);
    let signals = signals.map_err(failed("cannot wait for signals"))?;
    inside.env(AT, held.path()).env(SOCKET, socket);
    let mut child = inside.spawn().map_err(failed("cannot start a process"))?;
    let status = wait(&mut child, &signals);
    let released = held.release();
    let until = Instant::now() + PATIENCE;
    while !released.tidy() && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
    status
}

/// The signals that the process outside waits for.
fn passed() -> SigSet {
    PASSED.into_iter().chain([Signal::SIGCHLD]).collect()
}

fn wait(child: &mut Child, signals: &SignalFd) -> Result<ExitStatus, Error> {
    loop {
        if let Some(status) = child.try_wait().map_err(failed("cannot wait for the command"))? {
            return Ok(status);
        }
        let Some(signal) = signals.read_signal().map_err(failed("cannot wait for signals"))? else {
            continue;
        };
        let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
        let (Ok(signal), by_kernel) = (Signal::try_from(number), signal.ssi_code == BY_KERNEL) else {
            continue;
        };
        if signal != Signal::SIGCHLD && !by_kernel {
            let _ = kill(Pid::from_raw(i32::try_from(child.id()).unwrap_or_default()), signal);
        }
    }
}

/// Ends as the command did: with its exit code, or by its signal.
pub fn end_as(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal().and_then(|number| Signal::try_from(number).ok()) {
        // The command has left the core, if one is wanted.
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
        let _ = raise(signal);
        let _ = SigSet::from(signal).thread_unblock();
        std::process::exit(128 + signal as i32);
    }
    std::process::exit(status.code().unwrap_or(1))
}
