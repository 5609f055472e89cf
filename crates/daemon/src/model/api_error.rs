//! What a client hears when it does not work out.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// A refusal: HTTP's code, one word for programs, and a sentence for people.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) kind: &'static str,
    pub(crate) why: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, kind: &'static str, why: impl Into<String>) -> Self {
        Self { status, kind, why: why.into() }
    }

    /// The request makes no sense.
    pub(crate) fn malformed(why: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", why.to_string())
    }

    /// There is none, or it is not the caller's to know.
    pub(crate) fn absent(name: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "absent",
            format!("there is no cache {name}, or it is not yours to read"),
        )
    }

    /// It is another's.
    pub(crate) fn forbidden(why: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", why)
    }

    /// The daemon failed.
    pub(crate) fn internal(why: impl ToString) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", why.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if self.status.is_server_error() {
            tracing::error!(why = self.why, "a request failed");
        }
        (self.status, Json(json!({ "kind": self.kind, "error": self.why }))).into_response()
    }
}
