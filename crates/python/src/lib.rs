//! The extension module `tidecast._native`: the crate `tidecast` for the Python package in `python/tidecast`.
//!
//! It starts operations and returns their events as the JSON objects of `docs/events.md`, from which the
//! package makes Python types. It holds Python's lock only while it reads arguments, and looks for signals
//! five times a second.

mod buffer;
mod caches;
mod field;
mod group;
mod mount;
mod operation;
mod reader;
mod sim;
mod start;
mod swarm;

use pyo3::prelude::*;
use tidecast::Kind;

/// The initialisation of `tidecast._native`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::buffer::Place;
    #[pymodule_export]
    use crate::caches::Daemon;
    #[pymodule_export]
    use crate::field::{receive_field, send_field};
    #[pymodule_export]
    use crate::group::Member;
    #[pymodule_export]
    use crate::mount::{RunCommand, list_beside, mount, unmount};
    #[pymodule_export]
    use crate::operation::{Flag, Operation};
    #[pymodule_export]
    use crate::reader::{Reader, open};
    #[pymodule_export]
    use crate::sim::simulate;
    #[pymodule_export]
    use crate::start::{broadcast, copy, create_cache, get, get_cache, publish, revoke, seed, share, verify};
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}

/// The exceptions of the package.
mod raised {
    pyo3::import_exception!(tidecast._errors, CutError);
    pyo3::import_exception!(tidecast._errors, FaultError);
}

/// Why an operation cannot even start, by the kind of the error.
fn refused(error: &tidecast::Error) -> PyErr {
    let (text, kind) = (error.in_full(), error.kind());
    match kind {
        Kind::Usage => usage(text),
        Kind::Fault => raised::FaultError::new_err((text, kind as u8)),
        Kind::Interrupted => raised::CutError::new_err((text, kind as u8)),
    }
}

/// Why an operation cannot even start: a `ValueError`.
fn usage(error: impl std::fmt::Display) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(error.to_string())
}

/// The settings of the environment and the configuration file.
fn settings() -> PyResult<tidecast::settings::Settings> {
    tidecast::settings::Settings::load(None).map_err(|error| usage(error.in_full()))
}
