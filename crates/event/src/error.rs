//! Errors of operations.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::{Totals, bcast, cache, copy, doctor, field, get, peers, seed, sim, verify};
use serde::Serialize;

/// The kind of an error. As a number, it is the exit code of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The data, the peer or the host caused the failure.
    Fault = 1,
    /// The options are invalid: the same call fails again.
    Usage = 2,
    /// It timed out or was stopped; the same call resumes.
    Interrupted = 3,
}

impl Kind {
    /// The kind of an exit code of the program; any other number is [`Kind::Fault`].
    #[must_use]
    pub fn of_exit(code: u64) -> Self {
        match code {
            2 => Self::Usage,
            3 => Self::Interrupted,
            _ => Self::Fault,
        }
    }

    /// Its name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Usage => "usage",
            Self::Interrupted => "cut off",
        }
    }
}

/// The results that a failed operation had reached: the fields of its result that are known.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum PartialResult {
    /// Of a download.
    Get(Box<Totals>),
    /// Of a seed.
    Seed(Box<seed::Done>),
    /// Of seeds of several manifests.
    SeedMany(Box<seed::ManyDone>),
    /// Of a field that was sent.
    FieldSend(Box<field::send::Sent>),
    /// Of a field that was received.
    FieldReceive(Box<field::receive::Received>),
    /// Of a verification: the problems found.
    Verify(Box<verify::Done>),
    /// Of a copy in which names failed.
    Copy(Box<copy::Done>),
    /// Of a check of a host with settings that cost more than 5%.
    Doctor(Box<doctor::Done>),
    /// Of a broadcast in which hosts failed.
    Bcast(Box<bcast::Done>),
    /// Of a check of hosts and the paths between them.
    Peers(Box<peers::Done>),
    /// Of simulations of random clusters.
    Soak(Box<sim::Soaked>),
    /// Of a cache: why the daemon refused.
    Cache(cache::Refused),
}

/// A result that a failed operation reached in the same form as one that succeeded.
pub trait Reached: Sized {
    /// The result, if `partial` is of this operation.
    fn of(partial: &PartialResult) -> Option<&Self>;
}

/// Implements [`Reached`] for the result of each variant.
macro_rules! reached {
    ($($variant:ident: $done:ty),* $(,)?) => {$(
        impl Reached for $done {
            fn of(partial: &PartialResult) -> Option<&Self> {
                match partial {
                    PartialResult::$variant(done) => Some(&**done),
                    _ => None,
                }
            }
        }
    )*};
}

reached! {
    SeedMany: seed::ManyDone,
    Verify: verify::Done,
    Copy: copy::Done,
    Doctor: doctor::Done,
    Bcast: bcast::Done,
    Peers: peers::Done,
    Soak: sim::Soaked,
}

/// An error of an operation: what failed, on which object, why, and what to do.
///
/// Its causes are in [`source`](StdError::source); [`in_full`](Error::in_full) has all of them in one line.
#[derive(Debug, Clone)]
pub struct Error(Arc<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    kind: Kind,
    context: Option<String>,
    cause: Option<Arc<dyn StdError + Send + Sync>>,
    partial: Option<PartialResult>,
}

impl Error {
    /// An error of this kind. An [`Error`] keeps all but its kind.
    pub fn new(kind: Kind, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        match cause.into().downcast::<Self>() {
            Ok(own) => Self(Arc::new(Inner { kind, ..Arc::unwrap_or_clone(own.0) })),
            Err(cause) => {
                Self(Arc::new(Inner { kind, context: None, cause: Some(cause.into()), partial: None }))
            }
        }
    }

    /// The data, the peer or the host caused the failure. An [`Error`] keeps its kind.
    pub fn fault(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        match cause.into().downcast::<Self>() {
            Ok(own) => *own,
            Err(cause) => Self::new(Kind::Fault, cause),
        }
    }

    /// The options are invalid.
    pub fn usage(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(Kind::Usage, cause)
    }

    /// It timed out or was stopped.
    pub fn interrupted(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(Kind::Interrupted, cause)
    }

    /// The same error with `text` as its message; this error becomes the cause.
    #[must_use]
    pub fn context(self, text: impl fmt::Display) -> Self {
        let (kind, partial) = (self.0.kind, self.0.partial.clone());
        Self(Arc::new(Inner { kind, context: Some(text.to_string()), cause: Some(Arc::new(self)), partial }))
    }

    /// The same error, with the results reached.
    #[must_use]
    pub fn with(self, partial: PartialResult) -> Self {
        Self(Arc::new(Inner { partial: Some(partial), ..Arc::unwrap_or_clone(self.0) }))
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The results that the operation had reached, if it had begun.
    #[must_use]
    pub fn partial_result(&self) -> Option<&PartialResult> {
        self.0.partial.as_ref()
    }

    /// The result of this type, if the operation reached it.
    #[must_use]
    pub fn reached<D: Reached>(&self) -> Option<&D> {
        self.partial_result().and_then(D::of)
    }

    /// The cause of this type, if there is one.
    #[must_use]
    pub fn cause<E: StdError + 'static>(&self) -> Option<&E> {
        let mut next: Option<&(dyn StdError + 'static)> = self.0.cause.as_deref().map(|cause| cause as _);
        while let Some(cause) = next {
            if let Some(found) = cause.downcast_ref() {
                return Some(found);
            }
            next = match cause.downcast_ref::<Self>() {
                Some(own) => own.0.cause.as_deref().map(|cause| cause as _),
                None => cause.source(),
            };
        }
        None
    }

    /// The error and its causes in one line, without causes that an earlier message already contains.
    #[must_use]
    pub fn in_full(&self) -> String {
        tidecast_text::with_causes(self)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.context, &self.0.cause) {
            (Some(text), _) => f.write_str(text),
            (None, Some(cause)) => cause.fmt(f),
            (None, None) => f.write_str(self.0.kind.name()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let cause = self.0.cause.as_deref();
        // Without context this error stands for its cause.
        if self.0.context.is_some() {
            cause.map(|cause| cause as _)
        } else {
            cause.and_then(StdError::source)
        }
    }
}

/// Converts an error to an [`Error`] of kind [`Kind::Fault`]; an [`Error`] stays unchanged.
pub trait Fault<T> {
    /// See [`Error::fault`].
    ///
    /// # Errors
    /// That of `self`.
    fn fault(self) -> Result<T, Error>;
}

impl<T, E: Into<Box<dyn StdError + Send + Sync>>> Fault<T> for Result<T, E> {
    fn fault(self) -> Result<T, Error> {
        self.map_err(Error::fault)
    }
}

/// Adds the operation that failed to an error.
pub trait Context<T> {
    /// See [`Error::context`].
    ///
    /// # Errors
    /// That of `self`, as the cause of `text`.
    fn context(self, text: impl fmt::Display) -> Result<T, Error>
    where
        Self: Sized,
    {
        self.with_context(|| text)
    }

    /// As [`Context::context`], with a text that is made only if it is needed.
    ///
    /// # Errors
    /// As of [`Context::context`].
    fn with_context<D: fmt::Display>(self, text: impl FnOnce() -> D) -> Result<T, Error>;
}

impl<T, E: Into<Box<dyn StdError + Send + Sync>>> Context<T> for Result<T, E> {
    fn with_context<D: fmt::Display>(self, text: impl FnOnce() -> D) -> Result<T, Error> {
        self.map_err(|error| Error::fault(error).context(text()))
    }
}

impl<T> Context<T> for Option<T> {
    fn with_context<D: fmt::Display>(self, text: impl FnOnce() -> D) -> Result<T, Error> {
        self.ok_or_else(|| Error::fault(text().to_string()))
    }
}

impl From<Totals> for PartialResult {
    fn from(totals: Totals) -> Self {
        Self::Get(Box::new(totals))
    }
}

impl From<get::Done> for PartialResult {
    fn from(done: get::Done) -> Self {
        Self::Get(Box::new(done.totals))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once_and_kinds_stay() {
        let io = || std::io::Error::other("no such file");
        let of = |text: &str| Error::usage(io()).context(text.to_owned());
        assert_eq!(of("cannot open x: no such file").in_full(), "cannot open x: no such file");
        assert_eq!(
            of("cannot open x").context("it failed").in_full(),
            "it failed: cannot open x: no such file"
        );
        let wrapped: Result<(), _> = Err(of("cannot open x"));
        let wrapped =
            wrapped.context("it failed").err().map(|e| (e.kind(), e.cause::<std::io::Error>().is_some()));
        assert_eq!(wrapped, Some((Kind::Usage, true)));
        assert_eq!(Error::interrupted(of("x")).kind(), Kind::Interrupted);
        assert_eq!(Error::fault(of("x")).kind(), Kind::Usage);
    }
}
