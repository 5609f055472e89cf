//! State of a fetch, and the reason of a failure.

use std::time::Duration;

use axum::http::StatusCode;
use tidecast_depot::CacheId;

use crate::model::api_error::{ApiError, ErrorKind};
use crate::model::types::Method;

/// A source that lets this daemon wait is asked again for this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3600);

/// State of a fetch.
#[derive(Clone, Debug)]
pub(crate) enum FetchState {
    /// The reason for waiting; bytes received and in total.
    Waiting { why: String, bytes: u64, total: u64 },
    /// Here.
    Done { id: CacheId, method: Method, seconds: f64 },
    /// It will not come.
    Failed(Failed),
}

/// Why a cache does not come.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) kind: ErrorKind,
    pub(crate) why: String,
}

impl Failed {
    pub(crate) fn new(kind: ErrorKind, why: impl Into<String>) -> Self {
        Self { kind, why: why.into() }
    }
}

impl From<Failed> for ApiError {
    fn from(failed: Failed) -> Self {
        let status = match failed.kind {
            ErrorKind::Absent => StatusCode::NOT_FOUND,
            ErrorKind::Denied => StatusCode::INSUFFICIENT_STORAGE,
            ErrorKind::Rejected => StatusCode::FORBIDDEN,
            _ => StatusCode::BAD_GATEWAY,
        };
        ApiError::new(status, failed.kind, failed.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_code_of_http() {
        for (kind, code) in [
            (ErrorKind::Absent, 404),
            (ErrorKind::Denied, 507),
            (ErrorKind::Rejected, 403),
            (ErrorKind::Unreachable, 502),
            (ErrorKind::Internal, 502),
        ] {
            let error = ApiError::from(Failed::new(kind, "why"));
            assert_eq!((error.status.as_u16(), error.kind, error.why.as_str()), (code, kind, "why"));
        }
    }
}
