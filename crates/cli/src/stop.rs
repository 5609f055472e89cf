//! Ctrl-C and SIGTERM: the first asks to stop cleanly, the second ends the program at once. SIGHUP ends no program that
//! serves others: a daemon reads again what can be, the others pass over it. Commands with an end keep the system's rule: the
//! terminal that closes ends them.

use std::future::Future;

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use tidecast::Kind;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::failure::Failure;

/// How often SIGHUP has come, from now on; it ends this program no more. Within a runtime.
///
/// # Errors
/// When the system will not tell of signals.
pub(crate) fn hangups() -> Result<watch::Receiver<u64>> {
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let (sender, receiver) = watch::channel(0);
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            // Where nobody waits for it, it is passed over.
            sender.send_modify(|count| *count += 1);
        }
    });
    Ok(receiver)
}

/// A write beyond the limit on file sizes (`ulimit -f`, as batch systems set it) fails like any other, with a reason that names the file;
/// unless SIGXFSZ is blocked it kills the program first. All threads inherit that, and no program that is started does.
pub(crate) fn outlive_file_size_limit() {
    let blocked = SigSet::from(Signal::SIGXFSZ).thread_block();
    debug_assert!(blocked.is_ok());
}

/// Hears of the first signal. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Begins to listen for signals; within a runtime.
    ///
    /// # Errors
    /// When the system will not tell of signals.
    pub(crate) fn listen() -> Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let (sender, receiver) = watch::channel(false);
        tokio::spawn(async move {
            for time in 0.. {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if time > 0 {
                    std::process::exit(Kind::Cut as i32);
                }
                // Nobody left to hear it: the command is ending anyway.
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

/// Work that a signal may end at any moment: then the last line says so.
pub(crate) async fn or_cut<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let stop = Stop::listen()?;
    tokio::select! {
        // What has ended at the same moment is done.
        biased;
        done = work => done,
        () = stop.wait() => Err(Failure::cut("interrupted")),
    }
}

/// A runtime over `threads` (0: one for each core), and `work` on it.
pub(crate) fn block_on<T>(
    threads: usize,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if threads > 0 {
        builder.worker_threads(threads);
    }
    let runtime = builder.enable_all().build().context("cannot start threads")?;
    let result = runtime.block_on(work);
    // A blocking read of a dead disk must not keep the program from ending.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    result
}
