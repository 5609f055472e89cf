//! Questions to the daemon of this host, each answered at once.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use serde_json::Value;
use tidecast::{CacheName, Caches, CachesError};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::operation::{LOOK, failure, json};
use crate::{settings, usage};

/// The daemon that listens at a socket. Answers are JSON.
#[pyclass(frozen, module = "tidecast._native")]
pub(crate) struct Daemon {
    #[pyo3(get)]
    socket: PathBuf,
    client: Arc<Caches>,
    runtime: Runtime,
    process: u32,
}

#[pymethods]
impl Daemon {
    /// Without a socket: that of the settings, of the host, or of the user.
    #[new]
    fn new(socket: Option<PathBuf>) -> PyResult<Self> {
        let usual = || tidecast::daemon::socket(&settings()?, None).map_err(|error| usage(error.in_full()));
        let socket = socket.map_or_else(usual, Ok)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let client = Arc::new(Caches::new(&socket));
        Ok(Self { socket, client, runtime: runtime?, process: std::process::id() })
    }

    fn list(&self, py: Python<'_>, name: Option<&str>) -> PyResult<Answer> {
        let name = name.map(cache).transpose()?;
        self.ask(py, async move |client| Ok(json(&client.list(name.as_ref()).await?)))
    }

    fn show(&self, py: Python<'_>, name: &str) -> PyResult<Answer> {
        let name = cache(name)?;
        self.ask(py, async move |client| Ok(json(&client.show(&name).await?)))
    }

    fn extend(&self, py: Python<'_>, name: &str, lease: u64) -> PyResult<Answer> {
        let name = cache(name)?;
        self.ask(py, async move |client| Ok(json(&client.extend(&name, lease).await?)))
    }

    fn pin(&self, py: Python<'_>, name: &str, pinned: bool) -> PyResult<Answer> {
        let name = cache(name)?;
        self.ask(py, async move |client| match pinned {
            true => Ok(json(&client.pin(&name).await?)),
            false => Ok(json(&client.unpin(&name).await?)),
        })
    }

    fn remove(&self, py: Python<'_>, name: &str) -> PyResult<Answer> {
        let name = cache(name)?;
        self.ask(py, async move |client| Ok(json(&client.remove(&name).await?)))
    }

    fn replicate(&self, py: Python<'_>, name: &str, to: Vec<String>) -> PyResult<Answer> {
        let name = cache(name)?;
        self.ask(py, async move |client| Ok(json(&client.replicate(&name, to).await?)))
    }

    fn holders(&self, py: Python<'_>, name: &str) -> PyResult<Answer> {
        let name = cache(name)?;
        self.ask(py, async move |client| Ok(json(&client.holders(&name).await?)))
    }
}

/// Whether it was answered; and the answer, or what failed, as JSON.
type Answer = (bool, String);

impl Daemon {
    fn ask<F>(&self, py: Python<'_>, question: impl FnOnce(Arc<Caches>) -> F) -> PyResult<Answer>
    where
        F: Future<Output = Result<Value, CachesError>> + Send + 'static,
    {
        if std::process::id() != self.process {
            return Err(PyRuntimeError::new_err("this object was made before a fork: make another"));
        }
        let mut asking = self.runtime.spawn(question(self.client.clone()));
        loop {
            // A question that a signal has cut short ends with its task.
            let answer = py.detach(|| self.runtime.block_on(async { timeout(LOOK, &mut asking).await }));
            match answer {
                Err(_) => py.check_signals().inspect_err(|_| asking.abort())?,
                Ok(Ok(Ok(answer))) => return Ok((true, answer.to_string())),
                Ok(Ok(Err(error))) => return Ok((false, failure(&tidecast::refusal(error)).to_string())),
                Ok(Err(panic)) => return Err(PyRuntimeError::new_err(panic.to_string())),
            }
        }
    }
}

fn cache(name: &str) -> PyResult<CacheName> {
    name.parse().map_err(|error| usage(format!("{name:?}: {error}")))
}
