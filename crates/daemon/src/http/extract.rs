//! Bodies and queries; errors and rejections as responses of this API.

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde_json::json;
use tidecast_depot::CacheId;

use crate::model::api_error::ApiError;

/// The cache that a path names.
pub(super) fn id(text: &str) -> Result<CacheId, ApiError> {
    text.parse().map_err(|_| ApiError::malformed(format!("{text:?} is not a cache id")))
}

/// A body of JSON.
pub(super) struct JsonBody<T>(pub(super) T);

/// A query.
pub(super) struct QueryOf<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let Json(body) =
            Json::from_request(request, state).await.map_err(|e| ApiError::malformed(e.body_text()))?;
        Ok(Self(body))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryOf<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let asked = Query::from_request_parts(parts, state).await;
        let Query(asked) = asked.map_err(|e| ApiError::malformed(e.body_text()))?;
        Ok(Self(asked))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if self.status.is_server_error() {
            tracing::error!(why = self.why, "request failed");
        }
        (self.status, Json(json!({ "kind": self.kind.word(), "error": self.why }))).into_response()
    }
}
