//! Mounts.

use std::path::PathBuf;

use pyo3::prelude::*;
use tidecast::{Mode, MountOptions, Prefetch, Program, ServeOptions, UnmountOptions};

use crate::operation::{Answer, Operation, answer};
use crate::start::{place, times};
use crate::swarm::Swarm;
use crate::{settings, usage};

/// The attributes of `tidecast._mount.Mounting`; `timeout` in seconds.
#[derive(FromPyObject)]
pub(crate) struct Mounting {
    mode: String,
    prefetch: String,
    prefetch_exe: Vec<String>,
    record: Option<PathBuf>,
    cache: Option<PathBuf>,
    group: bool,
    timeout: Option<f64>,
    fallback: Option<PathBuf>,
}

impl Mounting {
    /// The same over the settings.
    fn options(self, swarm: Swarm) -> PyResult<ServeOptions> {
        let settings = settings()?;
        let mode = [Mode::Hybrid, Mode::File, Mode::Bulk].into_iter().find(|mode| mode.name() == self.mode);
        let unknown = || usage(format!("mode: {:?}: write hybrid, file or bulk", self.mode));
        Ok(ServeOptions {
            mode: mode.ok_or_else(unknown)?,
            prefetch: match self.prefetch.as_str() {
                "auto" => Prefetch::Auto,
                "none" => Prefetch::None,
                list => Prefetch::List(list.into()),
            },
            prefetch_exe: self.prefetch_exe,
            record: self.record,
            cache: self.cache.or_else(|| settings.cache.clone()),
            group: self.group,
            timeout: times(self.timeout, "timeout")?.or(settings.timeout.map(|time| time.0)),
            fallback: self.fallback,
            swarm: swarm.options(&settings)?,
        })
    }
}

/// `program`: that which serves the mount.
#[pyfunction]
pub(crate) fn mount(
    source: &str,
    at: PathBuf,
    how: Mounting,
    swarm: Swarm,
    allow_other: bool,
    program: PathBuf,
    state_dir: Option<PathBuf>,
) -> PyResult<Operation> {
    let options = MountOptions {
        serve: how.options(swarm)?,
        allow_other,
        program: Program::Named(program),
        state_dir: place(&settings()?, state_dir)?,
        ..MountOptions::default()
    };
    let source = tidecast::given_source(Some(source)).map_err(|error| usage(error.in_full()))?;
    Ok(Operation::new(tidecast::mount(source, at, options)))
}

#[pyfunction]
pub(crate) fn unmount(py: Python<'_>, at: PathBuf, lazy: bool, abort: bool) -> Answer {
    answer(py.detach(|| tidecast::unmount(at, UnmountOptions { lazy, abort })))
}
