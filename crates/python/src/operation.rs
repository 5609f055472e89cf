//! An operation that runs, as Python holds it.

use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};
use tidecast::{Error, Stopper};

/// Between two looks for signals.
pub(crate) const LOOK: Duration = Duration::from_millis(200);

/// What all operations have, whatever their types.
trait Running: Send {
    /// The next event as JSON, if one comes in that time.
    fn next(&mut self, wait: Duration) -> Poll<Option<String>>;
    /// The result; the error of one that failed.
    fn end(self: Box<Self>) -> Result<Value, Error>;
}

impl<S, D, N> Running for tidecast::Operation<S, D, N>
where
    S: Clone + Serialize + Send,
    D: Clone + Serialize + Send,
    N: Clone + Serialize + Send,
{
    fn next(&mut self, wait: Duration) -> Poll<Option<String>> {
        match self.next_timeout(wait) {
            Poll::Ready(Some(event)) => match serde_json::to_string(&event) {
                Ok(line) => Poll::Ready(Some(line)),
                // It is none of JSON lines.
                Err(_) => Poll::Pending,
            },
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }

    fn end(self: Box<Self>) -> Result<Value, Error> {
        self.wait_blocking().map(|done| json(&done))
    }
}

/// A value as JSON.
pub(crate) fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

/// An error as Python takes it: the fields of the event `error`, and what was reached.
pub(crate) fn failure(error: &Error) -> Value {
    json!({
        "code": error.kind() as u8,
        "kind": error.kind().name(),
        "message": error.in_full(),
        "reached": error.reached().map(json),
    })
}

/// An operation under way. It ends when the object does.
#[pyclass(frozen, module = "tidecast._native")]
pub(crate) struct Operation {
    running: Mutex<Option<Box<dyn Running>>>,
    stopper: Stopper,
    process: u32,
}

impl Operation {
    pub(crate) fn new<S, D, N>(operation: tidecast::Operation<S, D, N>) -> Self
    where
        S: Clone + Serialize + Send + 'static,
        D: Clone + Serialize + Send + 'static,
        N: Clone + Serialize + Send + 'static,
    {
        let stopper = operation.stopper();
        Self { running: Mutex::new(Some(Box::new(operation))), stopper, process: std::process::id() }
    }

    /// The threads of an operation stay behind in the process that began it.
    fn check(&self) -> PyResult<()> {
        if std::process::id() == self.process {
            return Ok(());
        }
        Err(PyRuntimeError::new_err("this operation runs in another process: it was begun before a fork"))
    }
}

#[pymethods]
impl Operation {
    /// The next event, as JSON; None after the last one. Signals are handled meanwhile.
    fn next(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.check()?;
        loop {
            let next = py.detach(|| match self.running.lock().as_mut() {
                Some(running) => running.next(LOOK),
                None => Poll::Ready(None),
            });
            match next {
                Poll::Ready(event) => return Ok(event),
                Poll::Pending => py.check_signals()?,
            }
        }
    }

    /// After the last event: whether it succeeded; and the result or what failed, as JSON.
    fn result(&self, py: Python<'_>) -> PyResult<(bool, String)> {
        self.check()?;
        let running = py.detach(|| self.running.lock().take());
        let running = running.ok_or_else(|| PyRuntimeError::new_err("the result was taken already"))?;
        Ok(match py.detach(|| running.end()) {
            Ok(done) => (true, done.to_string()),
            Err(error) => (false, failure(&error).to_string()),
        })
    }

    /// Asks it to end cleanly. Does not wait.
    fn stop(&self) {
        self.stopper.stop();
    }
}
