//! The threads on which tasks run.

use std::io;
use std::sync::Mutex;
use std::thread::{Builder, available_parallelism, scope};
use std::time::Duration;

use tokio::runtime::Runtime;

/// Threads that work starts besides those of the runtime: its own, the engine's, those that hash, read and write.
const BESIDE: usize = 8;
/// A thread that only waits needs little.
const STACK: usize = 64 << 10;

/// A runtime with this number of threads (0: one for each core).
///
/// Whether the system gives that many is tried first: tokio panics where one is refused, and may wait for ever then.
///
/// # Errors
/// The system refuses them; the limit on processes (`ulimit -u`) counts threads too.
pub fn runtime(threads: usize) -> io::Result<Runtime> {
    let workers = if threads > 0 { threads } else { available_parallelism().map_or(1, usize::from) };
    try_threads(workers + BESIDE)?;
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()
}

/// Runs work on such a runtime to its end.
///
/// # Errors
/// As of [`runtime`].
pub fn block_on<T>(threads: usize, work: impl Future<Output = T>) -> io::Result<T> {
    let runtime = runtime(threads)?;
    let done = runtime.block_on(work);
    // A blocking read of a dead disk must not keep the caller waiting.
    runtime.shutdown_timeout(Duration::from_secs(2));
    Ok(done)
}

/// Starts so many threads at a time, and ends them.
fn try_threads(count: usize) -> io::Result<()> {
    let gate = Mutex::new(());
    scope(|scope| {
        let _closed = gate.lock();
        for _ in 0..count {
            let started = Builder::new().stack_size(STACK).spawn_scoped(scope, || drop(gate.lock()));
            started.map_err(|error| {
                let why = format!("{error}; {count} are needed: raise the limit on processes (ulimit -u), or use fewer threads");
                io::Error::new(error.kind(), why)
            })?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_the_system_refuses_is_an_error() {
        assert!(try_threads(3).is_ok());
        assert_eq!(block_on(2, async { 7 }).unwrap(), 7);
    }
}
