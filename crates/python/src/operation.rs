//! An operation that runs, as Python holds it.

use std::sync::atomic::{AtomicBool, Ordering};
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

/// The common interface of all operations, whatever their types.
trait Running: Send {
    /// The next event as JSON, if one comes in that time.
    fn next(&mut self, wait: Duration) -> Poll<Option<String>>;
    /// How it ended.
    fn end(self: Box<Self>) -> Answer;
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
                // This event has no JSON form.
                Err(_) => Poll::Pending,
            },
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }

    fn end(self: Box<Self>) -> Answer {
        answer(self.wait_blocking())
    }
}

/// Whether an operation succeeded; and its result or error, as JSON.
pub(crate) type Answer = (bool, String);

/// A result in Python's form. For an error: the fields of the event `error`, and the partial result.
pub(crate) fn answer(result: Result<impl Serialize, Error>) -> Answer {
    match result {
        Ok(done) => (true, json(&done).to_string()),
        Err(error) => {
            let failed = json!({
                "code": error.kind() as u8,
                "kind": error.kind().name(),
                "message": error.in_full(),
                "reached": error.partial_result().map(json),
            });
            (false, failed.to_string())
        }
    }
}

/// An error, as JSON.
pub(crate) fn failed(error: Error) -> String {
    answer(Err::<(), _>(error)).1
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

/// The process that made an object whose threads a fork leaves behind.
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn this() -> Self {
        Self(std::process::id())
    }

    /// An error in any other process.
    pub(crate) fn check(&self) -> PyResult<()> {
        if std::process::id() == self.0 {
            return Ok(());
        }
        Err(PyRuntimeError::new_err("this object belongs to another process: it was made before a fork"))
    }
}

/// Another thread sets it to end a call that waits. The call reads it as often as it looks for signals.
#[pyclass(frozen, module = "tidecast._native")]
#[derive(Default)]
pub(crate) struct Flag(AtomicBool);

#[pymethods]
impl Flag {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A running operation. It ends when the object is deleted.
#[pyclass(frozen, module = "tidecast._native")]
pub(crate) struct Operation {
    running: Mutex<Option<Box<dyn Running>>>,
    stopper: Stopper,
    process: Process,
}

impl Operation {
    pub(crate) fn new<S, D, N>(operation: tidecast::Operation<S, D, N>) -> Self
    where
        S: Clone + Serialize + Send + 'static,
        D: Clone + Serialize + Send + 'static,
        N: Clone + Serialize + Send + 'static,
    {
        let stopper = operation.stopper();
        Self { running: Mutex::new(Some(Box::new(operation))), stopper, process: Process::this() }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // What a child that was forked has is its parent's: it ends nothing, and takes no lock that another thread had.
        if self.process.check().is_err() {
            std::mem::forget(self.running.get_mut().take());
        }
    }
}

#[pymethods]
impl Operation {
    /// The next event, as JSON; None after the last one. Signals are handled meanwhile.
    fn next(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.process.check()?;
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

    /// After the last event: whether it succeeded; and the result or the error, as JSON.
    fn result(&self, py: Python<'_>) -> PyResult<Answer> {
        self.process.check()?;
        let running = py.detach(|| self.running.lock().take());
        let running = running.ok_or_else(|| PyRuntimeError::new_err("the result was taken already"))?;
        Ok(py.detach(|| running.end()))
    }

    /// Asks it to end cleanly. Does not wait.
    fn stop(&self) -> PyResult<()> {
        self.process.check()?;
        self.stopper.stop();
        Ok(())
    }
}
