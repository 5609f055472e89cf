//! Ctrl-C and SIGTERM: the first signal asks to stop cleanly, the second ends the program at once. SIGHUP
//! does not end a program that serves others: a daemon reloads its files, the others ignore it. Commands that
//! end when their work is done keep the system's default: SIGHUP of a closed terminal ends them.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use tidecast::Kind;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::failure::Failure;

/// Counts SIGHUPs from now on; the signal no longer ends this program. Call it within a runtime.
///
/// # Errors
/// The signal handler cannot be installed.
pub(crate) fn hangups() -> Result<watch::Receiver<u64>> {
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let (sender, receiver) = watch::channel(0);
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            // Without a receiver this changes nothing.
            sender.send_modify(|count| *count += 1);
        }
    });
    Ok(receiver)
}

/// Blocks SIGXFSZ, so that a write beyond the limit on file sizes (`ulimit -f`, as batch systems set it) fails with an
/// error that names the file instead of killing the program. All threads inherit this; programs that are started do
/// not.
pub(crate) fn outlive_file_size_limit() {
    let blocked = SigSet::from(Signal::SIGXFSZ).thread_block();
    debug_assert!(blocked.is_ok());
}

/// A second signal within this time is the first one once more: timeout(1) and batch systems send it to the process and
/// then to its group.
const SAME: Duration = Duration::from_millis(500);

/// Waits for the first signal. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Begins to listen for signals. Call it within a runtime.
    ///
    /// # Errors
    /// A signal handler cannot be installed.
    pub(crate) fn listen() -> Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let (sender, receiver) = watch::channel(false);
        tokio::spawn(async move {
            let mut first: Option<Instant> = None;
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                match first {
                    Some(first) if first.elapsed() < SAME => continue,
                    Some(_) => std::process::exit(Kind::Interrupted as i32),
                    None => first = Some(Instant::now()),
                }
                // Without a receiver the command is ending anyway.
                let _ = sender.send(true);
            }
        });
        Ok(Self(receiver))
    }

    /// Waits for the first signal.
    pub(crate) async fn wait(&self) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(|stop| *stop).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// True after the first signal.
    pub(crate) fn is_asked(&self) -> bool {
        *self.0.borrow()
    }
}

/// Runs work that a signal may end at any moment; then the failure is "interrupted".
pub(crate) async fn or_cut<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let stop = Stop::listen()?;
    tokio::select! {
        // Work that ends at the same moment as the signal comes is complete.
        biased;
        done = work => done,
        () = stop.wait() => Err(Failure::interrupted("interrupted")),
    }
}

/// Runs `work` on a runtime with this number of threads (0: one for each core).
pub(crate) fn block_on<T>(
    threads: usize,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tidecast::block_on(threads, work).context("cannot start threads")?
}
