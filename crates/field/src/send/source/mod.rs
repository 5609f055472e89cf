//! Where a field comes from: a shape, a name, and steps that are read slab by slab.
//!
//! Every source delivers float32, little-endian, x fastest: the form in which values are sent, so a file of
//! them is read straight into the send buffer.

mod content;
mod convert;
mod demo;
mod feed;
mod files;
mod notes;
mod npy;
mod series;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::geometry::Shape;

pub use self::convert::Kind;
pub use self::notes::Notes;
pub use self::npy::{Header as NpyHeader, MAX_HEADER as MAX_NPY_HEADER, parse as parse_npy};

/// Why a source cannot be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file cannot be opened or read.
    #[error("cannot read {path}: {error}")]
    Io {
        /// Which.
        path: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// The source is not valid.
    #[error("{name}: {what}")]
    Wrong {
        /// Which source or file.
        name: String,
        /// The defect, and the remedy.
        what: String,
    },
    /// The process that feeds it has failed.
    #[error("{name}: {what}")]
    Feed {
        /// Which source.
        name: String,
        /// Its message, or its fate.
        what: String,
    },
    /// It was told to stop.
    #[error("stopped")]
    Stopped,
}

impl SourceError {
    pub(crate) fn wrong(name: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Wrong { name: name.into(), what: what.into() }
    }

    fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |error| Self::Io { path, error }
    }
}

/// A field that changes by steps.
pub trait Source: Send {
    /// How large it is.
    fn shape(&self) -> Shape;
    /// Its name, for people.
    fn name(&self) -> &str;
    /// How many steps there are, if that is known and there is an end.
    fn steps(&self) -> Option<u64>;
    /// True if it is computed while it is sent, so that it should not have to wait.
    fn is_live(&self) -> bool {
        false
    }
    /// What people should know of its values, as far as they have been read.
    fn notes(&self) -> Notes {
        Notes::default()
    }
    /// Opens a step; None after the last. Called in rising order, or from the start again.
    ///
    /// # Errors
    /// It cannot be read; [`SourceError::Stopped`] when `wait` returned false.
    fn open(&mut self, step: u64, wait: &Wait<'_>) -> Result<Option<Arc<dyn Step>>, SourceError>;
}

/// Returns whether to continue waiting, while a source waits.
pub type Wait<'a> = dyn Fn() -> bool + 'a;

/// How often a wait looks up.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// One step, read by several threads at once.
pub trait Step: Send + Sync {
    /// The number of the step, as the source counts.
    fn number(&self) -> u64;
    /// Fills `into` with the values of these planes.
    ///
    /// # Errors
    /// When they cannot be read.
    fn read(&self, planes: Range<usize>, into: &mut [u8]) -> Result<(), SourceError>;
}

/// Opens the source that a user has named.
///
/// # Errors
/// When there is no such source, or it is not one.
pub fn open(
    names: &[String],
    shape: Option<Shape>,
    axes: Option<&str>,
) -> Result<Box<dyn Source>, SourceError> {
    let names = &series::of(names)?;
    let Some(first) = names.first() else {
        return Err(SourceError::wrong("no source", "name a file, demo:gray-scott, or script.py:function"));
    };
    let alone = |source: Box<dyn Source>| match (names.len(), shape) {
        (1, None) => Ok(source),
        (1, Some(_)) => Err(SourceError::wrong(first, "this source has its own shape; leave out --shape")),
        _ => Err(SourceError::wrong(first, "this source must be the only one")),
    };
    if let Some(demo) = first.strip_prefix("demo:") {
        return alone(demo::open(demo)?);
    }
    if let Some(ends) = first.strip_prefix("feed:") {
        return alone(feed::join(ends)?);
    }
    let fortran = is_npy(first) && files::is_fortran(first);
    if fortran || feed::is_fed(first) || axes.is_some() && is_npy(first) {
        if shape.is_some() {
            return Err(SourceError::wrong(first, "this source has its own shape; leave out --shape"));
        }
        return feed::start(names, axes);
    }
    if axes.is_some() {
        return Err(SourceError::wrong(first, "this source has no named axes; leave out --axes"));
    }
    if names.iter().all(|name| is_npy(name)) {
        if shape.is_some() {
            return Err(SourceError::wrong(first, "this source has its own shape; leave out --shape"));
        }
        return files::npy(names);
    }
    files::raw(names, shape)
}

/// By its contents; a name with the suffix counts too, so that a defect of the file is reported.
fn is_npy(name: &str) -> bool {
    let path = Path::new(name);
    content::of(path) == content::Content::Npy
        || path.extension().is_some_and(|extension| extension == "npy")
            && content::of(path) != content::Content::Science
}

/// A shape that can be sent, from the lengths of its axes along x, y and z.
fn check(name: &str, [x, y, z]: [u64; 3]) -> Result<Shape, SourceError> {
    let side = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    Shape::new(side(x), side(y), side(z)).map_err(|error| SourceError::wrong(name, error.to_string()))
}
