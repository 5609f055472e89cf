//! Questions to the daemon of this host, each answered at once.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use serde::Serialize;
use tidecast::{CacheName, Caches, CachesError};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::operation::{Answer, Flag, LOOK, Process, answer, failed};
use crate::{settings, usage};

/// The daemon that listens at a socket. Answers are JSON.
#[pyclass(frozen, module = "tidecast._native")]
pub(crate) struct Daemon {
    #[pyo3(get)]
    socket: PathBuf,
    client: Arc<Caches>,
    /// None while it is dropped.
    runtime: Option<Runtime>,
    process: Process,
}

#[pymethods]
impl Daemon {
    /// Without a socket: that of the settings, of the host, or of the user.
    #[new]
    fn new(socket: Option<PathBuf>) -> PyResult<Self> {
        let usual = || tidecast::daemon::socket(&settings()?, None).map_err(|error| usage(error.in_full()));
        let socket = socket.map_or_else(usual, Ok)?;
        // The thread that calls does the work itself: another one would be woken for each step of it.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let client = Arc::new(Caches::new(&socket));
        Ok(Self { socket, client, runtime: Some(runtime?), process: Process::this() })
    }

    fn list(&self, py: Python<'_>, flag: &Flag, name: Option<&str>) -> PyResult<Answer> {
        let name = name.map(cache).transpose()?;
        self.ask(py, flag, async move |client| client.list(name.as_ref()).await)
    }

    fn show(&self, py: Python<'_>, flag: &Flag, name: &str) -> PyResult<Answer> {
        let name = cache(name)?;
        self.ask(py, flag, async move |client| client.show(&name).await)
    }

    fn extend(&self, py: Python<'_>, flag: &Flag, name: &str, lease: u64) -> PyResult<Answer> {
        let name = cache(name)?;
        self.ask(py, flag, async move |client| client.extend(&name, lease).await)
    }

    fn pin(&self, py: Python<'_>, flag: &Flag, name: &str, pinned: bool) -> PyResult<Answer> {
        let name = cache(name)?;
        self.ask(py, flag, async move |client| match pinned {
            true => client.pin(&name).await,
            false => client.unpin(&name).await,
        })
    }

    fn remove(&self, py: Python<'_>, flag: &Flag, name: &str) -> PyResult<Answer> {
        let name = cache(name)?;
        self.ask(py, flag, async move |client| client.remove(&name).await)
    }

    fn replicate(&self, py: Python<'_>, flag: &Flag, name: &str, to: Vec<String>) -> PyResult<Answer> {
        let name = cache(name)?;
        self.ask(py, flag, async move |client| client.replicate(&name, to).await)
    }

    fn holders(&self, py: Python<'_>, flag: &Flag, name: &str) -> PyResult<Answer> {
        let name = cache(name)?;
        self.ask(py, flag, async move |client| client.holders(&name).await)
    }
}

impl Daemon {
    /// `flag` ends the waiting.
    fn ask<T, F>(
        &self,
        py: Python<'_>,
        flag: &Flag,
        question: impl FnOnce(Arc<Caches>) -> F,
    ) -> PyResult<Answer>
    where
        T: Serialize + Send + 'static,
        F: Future<Output = Result<T, CachesError>> + Send + 'static,
    {
        self.process.check()?;
        let runtime =
            self.runtime.as_ref().ok_or_else(|| PyRuntimeError::new_err("this object has ended"))?;
        let mut asking = runtime.spawn(question(self.client.clone()));
        loop {
            let answered = py.detach(|| runtime.block_on(async { timeout(LOOK, &mut asking).await }));
            match answered {
                Err(_) if flag.is_set() => {
                    asking.abort();
                    return Ok((false, failed(tidecast::Error::interrupted("the call was cancelled"))));
                }
                // A question that a signal has cut short ends with its task.
                Err(_) => py.check_signals().inspect_err(|_| asking.abort())?,
                Ok(Ok(result)) => return Ok(answer(result.map_err(tidecast::refusal))),
                Ok(Err(panic)) => return Err(PyRuntimeError::new_err(panic.to_string())),
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A child that was forked has none of the threads that would be waited for.
        if self.process.check().is_err() {
            std::mem::forget(self.runtime.take());
        }
    }
}

fn cache(name: &str) -> PyResult<CacheName> {
    name.parse().map_err(|error| usage(format!("{name:?}: {error}")))
}
