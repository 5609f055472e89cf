//! Broadcasts between the memory of processes.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use parking_lot::Mutex;
use pyo3::prelude::*;
use tidecast::memory::{Buffer, Error, Group, Options};

use crate::buffer::Place;
use crate::operation::{Flag, Process};
use crate::usage;

/// The exceptions of the package.
mod raised {
    pyo3::import_exception!(tidecast._errors, Error);
    pyo3::import_exception!(tidecast._errors, Lost);
}

/// The longest time that ranks can wait for each other, seconds: a year.
const LONGEST: f64 = 366.0 * 86_400.0;

/// This process as a member of a group.
#[pyclass(frozen, module = "tidecast._native")]
pub(crate) struct Member {
    /// `None`: closed. Running calls share it.
    group: Mutex<Option<Arc<Group>>>,
    /// Ctrl-C has broken a call off: the others are not waited for at the end.
    is_broken: AtomicBool,
    process: Process,
    #[pyo3(get)]
    address: String,
}

#[pymethods]
impl Member {
    /// Joins; times are in seconds.
    #[new]
    #[allow(clippy::too_many_arguments, reason = "one call of Python")]
    fn new(
        py: Python<'_>,
        address: &str,
        rank: u32,
        size: u32,
        secret: &str,
        timeout: f64,
        plain: bool,
        flag: &Flag,
    ) -> PyResult<Self> {
        let patience = time(timeout)?;
        let options = Options { rank, size, secret: secret.into(), patience, plain, shared: None };
        let group = waited(py, &AtomicBool::default(), Some(flag), |watch| {
            Group::open_watched(address, &options, watch)
        })?;
        let address = group.address().to_owned();
        let group = Mutex::new(Some(Arc::new(group)));
        Ok(Self { group, is_broken: AtomicBool::new(false), process: Process::this(), address })
    }

    /// Brings the root's bytes into those of `place`, which is let go of at the end. Gives the ranks that do not have them.
    /// `flag` breaks it off, as a signal does.
    fn bcast(
        &self,
        py: Python<'_>,
        place: &Place,
        root: u32,
        timeout: f64,
        flag: &Flag,
    ) -> PyResult<Vec<u32>> {
        let (group, patience) = (self.open()?, time(timeout)?);
        let mut region = place.take()?;
        waited(py, &self.is_broken, Some(flag), move |watch| {
            let buffer = match root == group.rank() {
                true => Buffer::Send(region.bytes()),
                false => Buffer::Receive(
                    region
                        .bytes_mut()
                        .ok_or_else(|| Error::Usage("the place cannot be written to".into()))?,
                ),
            };
            group.bcast_watched(buffer, root, patience, watch)
        })
    }

    /// Tells the others that this rank cannot take part in a call.
    fn abstain(&self, py: Python<'_>, root: u32, why: &str, timeout: f64, flag: &Flag) -> PyResult<()> {
        let (group, patience) = (self.open()?, time(timeout)?);
        waited(py, &self.is_broken, Some(flag), move |watch| {
            group.abstain_watched(root, why, patience, watch)
        })
    }

    /// Leaves the group. If another thread is in a call, that leaves it at its end.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.process.check()?;
        let group = self.group.lock().take().and_then(Arc::into_inner);
        let is_broken = self.is_broken.load(Ordering::Relaxed);
        group.map_or(Ok(()), |group| leave(py, group, is_broken))
    }
}

impl Member {
    fn open(&self) -> PyResult<Arc<Group>> {
        self.process.check()?;
        self.group.lock().clone().ok_or_else(|| usage("the group is closed"))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let Some(group) = self.group.get_mut().take() else { return };
        if self.process.check().is_err() {
            // Its threads belong to another process: a wait for them here would never end.
            std::mem::forget(group);
            return;
        }
        let is_broken = *self.is_broken.get_mut();
        let leave = |py: Python<'_>| Arc::into_inner(group).map(|group| leave(py, group, is_broken));
        // An exception, as of Ctrl-C, has no place to go to from here.
        let _ = Python::try_attach(leave);
    }
}

fn leave(py: Python<'_>, group: Group, is_broken: bool) -> PyResult<()> {
    if is_broken {
        let left = py.detach(|| group.close(&mut || ControlFlow::Break(())));
        return left
            .or_else(|error| if matches!(error, Error::Stopped) { Ok(()) } else { Err(failed(error)) });
    }
    waited(py, &AtomicBool::default(), None, |watch| group.close(watch))
}

/// Runs a call without Python's lock. It is asked between for signals, whose exception breaks it off, as `flag` does; that is
/// noted.
fn waited<T: Send>(
    py: Python<'_>,
    is_broken: &AtomicBool,
    flag: Option<&Flag>,
    call: impl FnOnce(tidecast::memory::Watch<'_>) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let mut signal = None;
    let done = py.detach(|| {
        let _quiet = SigpipeBlocked::new();
        call(&mut || match Python::try_attach(|py| py.check_signals()) {
            Some(Ok(())) if flag.is_some_and(Flag::is_set) => {
                is_broken.store(true, Ordering::Relaxed);
                ControlFlow::Break(())
            }
            Some(Ok(())) => ControlFlow::Continue(()),
            Some(Err(error)) => {
                signal = Some(error);
                is_broken.store(true, Ordering::Relaxed);
                ControlFlow::Break(())
            }
            // The interpreter ends.
            None => ControlFlow::Break(()),
        })
    });
    done.map_err(|error| match (error, signal) {
        (Error::Stopped, Some(signal)) => signal,
        (error, _) => failed(error),
    })
}

/// The exception of an error; codes are those of `tidecast.h`.
fn failed(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Usage(_) => usage(text),
        Error::Join(_) => raised::Error::new_err((text, 2)),
        Error::Lost(_) | Error::Stopped => raised::Lost::new_err((text, 3)),
        Error::Failed(_) => raised::Error::new_err((text, 4)),
        Error::Room { .. } => raised::Error::new_err((text, 5)),
        Error::System { .. } => raised::Error::new_err((text, 6)),
        _ => raised::Error::new_err((text, 7)),
    }
}

fn time(seconds: f64) -> PyResult<Duration> {
    let fits = (0.0..=LONGEST).contains(&seconds);
    if fits { Ok(Duration::from_secs_f64(seconds)) } else { Err(usage("invalid timeout")) }
}

/// Blocks SIGPIPE for this thread, and so for the threads that begin meanwhile: Python ignores it, unless a program has given
/// it its default back, and the end of a peer must not end that program.
struct SigpipeBlocked(Option<SigSet>);

impl SigpipeBlocked {
    fn new() -> Self {
        let before = SigSet::thread_get_mask().ok();
        let _ = SigSet::from_iter([Signal::SIGPIPE]).thread_block();
        Self(before)
    }
}

impl Drop for SigpipeBlocked {
    fn drop(&mut self) {
        let _ = self.0.as_ref().map(SigSet::thread_set_mask);
    }
}
