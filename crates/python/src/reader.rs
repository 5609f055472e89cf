//! Files that are read before they are here.

use std::ops::Range;
use std::os::fd::{IntoRawFd as _, RawFd};
use std::path::PathBuf;
use std::task::Poll;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;
use tidecast::{EntryKind, Error, Event, Fetching, Open, OpenOptions, ReadFrom};

use crate::operation::{Answer, Flag, LOOK, Process, answer, failed};
use crate::start::{place, times};
use crate::swarm::Swarm;
use crate::{refused, settings, usage};

/// Warnings that are kept until they are asked for.
const WARNINGS: usize = 100;

/// A tree that is read. It ends when the object does.
#[pyclass(frozen, module = "tidecast._native")]
pub(crate) struct Reader {
    opening: Mutex<Option<Open>>,
    reader: RwLock<Option<tidecast::Reader>>,
    warnings: Mutex<Vec<String>>,
    process: Process,
}

/// `source`: a ticket, a magnet link, a manifest; or else a cache: the daemon's socket, and the name. `how`: the directory for
/// pieces, and the timeout in seconds.
#[pyfunction]
pub(crate) fn open(
    source: Option<&str>,
    cache: Option<(PathBuf, String)>,
    how: (Option<PathBuf>, Option<f64>),
    swarm: Swarm,
    state_dir: Option<PathBuf>,
) -> PyResult<Reader> {
    let settings = settings()?;
    let options = OpenOptions {
        cache: how.0,
        timeout: times(how.1, "timeout")?,
        swarm: swarm.options(&settings)?,
        state_dir: place(&settings, state_dir)?,
        ..OpenOptions::default()
    };
    let from = match cache {
        Some((socket, name)) => {
            let name = name.parse().map_err(|error| usage(format!("{name:?}: {error}")))?;
            ReadFrom::Cache(socket, name)
        }
        None => tidecast::given_source(source).map_err(|error| refused(&error))?.into(),
    };
    Ok(Reader {
        opening: Mutex::new(Some(tidecast::open(from, options))),
        reader: RwLock::default(),
        warnings: Mutex::default(),
        process: Process::this(),
    })
}

/// Path, kind (`file`, `directory`, `link`), bytes, mode, time in seconds, and where a link leads.
type Row<'py> = (Bound<'py, PyBytes>, &'static str, u64, u32, Option<f64>, Option<Bound<'py, PyBytes>>);

#[pymethods]
impl Reader {
    /// Waits until it can be read: its name, and the path of a cache, as JSON; or why not. Signals are handled meanwhile.
    /// `flag` ends the waiting, and the reader.
    fn begin(&self, py: Python<'_>, flag: &Flag) -> PyResult<Answer> {
        self.process.check()?;
        loop {
            if flag.is_set() {
                self.opening.lock().as_ref().into_iter().for_each(Open::stop);
            }
            let next = py.detach(|| match self.opening.lock().as_mut() {
                Some(opening) => opening.next_timeout(LOOK),
                None => Poll::Ready(None),
            });
            match next {
                Poll::Pending => py.check_signals()?,
                Poll::Ready(Some(Event::Started(opened))) => {
                    let path = opened.path.as_ref().map(|path| path.to_string_lossy().into_owned());
                    let said = json!({"name": opened.name, "listen": opened.listen, "path": path});
                    *self.reader.write() = Some(opened.reader);
                    return Ok((true, said.to_string()));
                }
                Poll::Ready(Some(Event::Warning(warning))) => self.warn(warning.message),
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => return self.end(py),
            }
        }
    }

    /// The warnings since the last call.
    fn troubles(&self) -> PyResult<Vec<String>> {
        self.process.check()?;
        // Another thread waits for its end.
        if let Some(mut opening) = self.opening.try_lock()
            && let Some(opening) = opening.as_mut()
        {
            while let Poll::Ready(Some(event)) = opening.next_timeout(Duration::ZERO) {
                if let Event::Warning(warning) = event {
                    self.warn(warning.message);
                }
            }
        }
        Ok(std::mem::take(&mut *self.warnings.lock()))
    }

    fn entries<'py>(&self, py: Python<'py>) -> PyResult<Vec<Row<'py>>> {
        let row = |entry: &tidecast::Entry| {
            let (kind, target) = match &entry.kind {
                EntryKind::File => ("file", None),
                EntryKind::Directory => ("directory", None),
                EntryKind::Symlink(target) => ("link", Some(PyBytes::new(py, target))),
            };
            let time = entry.mtime.map(|(secs, nanos)| secs as f64 + f64::from(nanos) / 1e9);
            (PyBytes::new(py, &entry.path), kind, entry.len, entry.mode, time, target)
        };
        Ok(self.reader()?.entries().iter().map(row).collect())
    }

    /// The entry that a path leads to, through links within the tree.
    fn find(&self, path: &[u8]) -> PyResult<Option<usize>> {
        Ok(self.reader()?.find(path))
    }

    /// Waits until the bytes of a read are here, and requests those that are expected to be read next.
    /// Returns an error as JSON.
    fn read_on(&self, py: Python<'_>, file: usize, offset: u64, length: usize) -> PyResult<Option<String>> {
        let reader = self.reader()?;
        self.wait(py, py.detach(|| reader.read_on(file, offset, length)))
    }

    /// Waits until ranges of bytes are here: file, start, end. Returns an error as JSON.
    fn fetch(&self, py: Python<'_>, ranges: Vec<(usize, u64, u64)>) -> PyResult<Option<String>> {
        let reader = self.reader()?;
        let ranges = of(ranges);
        self.wait(py, py.detach(|| reader.fetch(&ranges)))
    }

    /// Requests ranges of bytes in their order, without waiting. Returns an error as JSON.
    fn want(&self, py: Python<'_>, ranges: Vec<(usize, u64, u64)>) -> PyResult<Option<String>> {
        let reader = self.reader()?;
        let ranges = of(ranges);
        Ok(py.detach(|| reader.want(&ranges)).err().map(failed))
    }

    /// Bytes that are here; or an error, as JSON.
    fn copy<'py>(
        &self,
        py: Python<'py>,
        file: usize,
        offset: u64,
        length: usize,
    ) -> PyResult<(Option<Bound<'py, PyBytes>>, Option<String>)> {
        let reader = self.reader()?;
        let size = reader.entries().get(file).map_or(0, |entry| entry.len.saturating_sub(offset));
        let length = length.min(usize::try_from(size).unwrap_or(usize::MAX));
        let mut error = None;
        let bytes = PyBytes::new_with(py, length, |bytes| {
            error = py.detach(|| reader.copy(file, offset, bytes)).err();
            Ok(())
        })?;
        Ok(match error {
            None => (Some(bytes), None),
            Some(error) => (None, Some(failed(error))),
        })
    }

    /// A new descriptor of the file in which bytes that were fetched lie, if there is one. The caller closes it.
    fn descriptor(&self, py: Python<'_>, file: usize) -> PyResult<Option<RawFd>> {
        let reader = self.reader()?;
        let opened = py.detach(|| match reader.descriptor(file) {
            Ok(Some(file)) => file.try_clone().map(Some).map_err(Error::fault),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        });
        let opened = opened.map_err(|error| PyRuntimeError::new_err(error.in_full()))?;
        Ok(opened.map(|file| file.into_raw_fd()))
    }

    /// Whether all of a file is here.
    fn is_whole(&self, py: Python<'_>, file: usize) -> PyResult<bool> {
        let reader = self.reader()?;
        Ok(py.detach(|| reader.whole(file)).is_ok_and(|whole| whole.is_some()))
    }

    /// Where a file of a cache lies.
    fn path(&self, file: usize) -> PyResult<Option<PathBuf>> {
        Ok(self.reader()?.path(file))
    }

    /// Payload received from peers, bytes.
    fn received(&self) -> PyResult<u64> {
        Ok(self.reader()?.received())
    }

    /// Bytes in a piece; None of a cache.
    fn piece_length(&self) -> PyResult<Option<u32>> {
        Ok(self.reader()?.piece_length())
    }

    /// Ends it: returns its totals, as JSON; or the error that ended it before.
    fn close(&self, py: Python<'_>) -> PyResult<Answer> {
        self.process.check()?;
        if let Some(opening) = self.opening.lock().as_ref() {
            opening.stop();
        }
        let ended = self.end(py);
        // The next process may have the pieces.
        let reader = self.reader.write().take();
        py.detach(|| drop(reader));
        ended
    }
}

impl Reader {
    fn reader(&self) -> PyResult<tidecast::Reader> {
        self.process.check()?;
        let reader = self.reader.read().clone();
        reader.ok_or_else(|| PyValueError::new_err("this reader is closed"))
    }

    fn wait(&self, py: Python<'_>, fetching: Result<Fetching, Error>) -> PyResult<Option<String>> {
        let mut fetching = match fetching {
            Ok(fetching) => fetching,
            Err(error) => return Ok(Some(failed(error))),
        };
        loop {
            match py.detach(|| fetching.wait(LOOK)) {
                Ok(Poll::Ready(())) => return Ok(None),
                Ok(Poll::Pending) => py.check_signals()?,
                Err(error) => return Ok(Some(failed(error))),
            }
        }
    }

    fn end(&self, py: Python<'_>) -> PyResult<Answer> {
        let Some(opening) = py.detach(|| self.opening.lock().take()) else {
            return Ok((true, "{}".to_owned()));
        };
        let ended = py.detach(|| opening.wait_blocking());
        Ok(answer(ended.map(|closed| json!({"seconds": closed.seconds, "totals": closed.totals}))))
    }

    fn warn(&self, text: String) {
        let mut warnings = self.warnings.lock();
        if warnings.len() < WARNINGS {
            warnings.push(text);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // A forked child has no such threads, and must not end an operation of its parent.
        if self.process.check().is_err() {
            std::mem::forget(self.opening.get_mut().take());
            std::mem::forget(self.reader.get_mut().take());
        }
    }
}

fn of(ranges: Vec<(usize, u64, u64)>) -> Vec<(usize, Range<u64>)> {
    ranges.into_iter().map(|(file, start, end)| (file, start..end)).collect()
}
