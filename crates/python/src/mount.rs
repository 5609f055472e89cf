//! Mounts.

use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::PathBuf;

use pyo3::prelude::*;
use tidecast::{Mode, MountOptions, Prefetch, Program, RunOptions, ServeOptions, UnmountOptions};
use tidecast_text::with_causes;

use crate::operation::{Answer, Operation, answer, failed};
use crate::start::{place, times};
use crate::swarm::Swarm;
use crate::{refused, settings, usage};

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

/// The prefetch list next to a manifest, or why the one there is not used.
#[pyfunction]
pub(crate) fn list_beside(manifest: PathBuf) -> (Option<PathBuf>, Option<String>) {
    match tidecast::list_beside(&manifest) {
        Ok(list) => (list, None),
        Err(error) => (None, Some(with_causes(&error))),
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
    let source = tidecast::given_source(Some(source)).map_err(|error| refused(&error))?;
    Ok(Operation::new(tidecast::mount(source, at, options)))
}

/// A command that sees a tree, as a command line of the program.
#[pyclass(frozen, module = "tidecast._native")]
pub(crate) struct RunCommand(tidecast::RunCommand);

#[pymethods]
impl RunCommand {
    /// `program`: that which shows the tree.
    #[new]
    fn new(
        source: &str,
        command: Vec<OsString>,
        at: Option<PathBuf>,
        how: Mounting,
        swarm: Swarm,
        program: PathBuf,
        state_dir: Option<PathBuf>,
    ) -> PyResult<Self> {
        let state_dir = place(&settings()?, state_dir)?;
        let options = RunOptions { serve: how.options(swarm)?, at, program, state_dir };
        let run = tidecast::RunCommand::new(source, &command, &options);
        run.map(Self).map_err(|error| refused(&error))
    }

    /// The program and its arguments.
    #[getter]
    fn words(&self) -> Vec<OsString> {
        self.0.words().to_vec()
    }

    /// Variables for the program.
    #[getter]
    fn environment(&self) -> Vec<(String, String)> {
        self.0.environment().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Numbers of the descriptors that the program inherits; they are closed with this object.
    #[getter]
    fn descriptors(&self) -> Vec<RawFd> {
        self.0.descriptors().map(|fd| fd.as_raw_fd()).collect()
    }

    /// After the program's end, whose exit code is `code` (None: by a signal): warnings, and what failed, as JSON, if the code is
    /// not the command's.
    fn end(&self, code: Option<i32>) -> (Vec<String>, Option<String>) {
        match self.0.end(code) {
            Ok(ran) => (ran.warnings, ran.failed.map(failed)),
            Err(error) => (Vec::new(), Some(failed(error))),
        }
    }
}

#[pyfunction]
pub(crate) fn unmount(py: Python<'_>, at: PathBuf, lazy: bool, abort: bool) -> Answer {
    answer(py.detach(|| tidecast::unmount(at, UnmountOptions { lazy, abort })))
}
