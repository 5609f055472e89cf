//! Limits of one user's requests in progress, so that no user can take the daemon's memory or threads from
//! others. Further requests of a user wait for the user's own, in order.
//!
//! A request counts until its response has left the daemon: the response is passed on in small [`Portions`], of
//! which the connection buffers only a few.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tokio::sync::OwnedSemaphorePermit;

use super::listener::Cred;
use crate::host::shares::Shares;
use crate::model::api_error::{ApiError, ErrorKind};

/// A request waits this long for earlier ones of its user. It holds a connection only.
const WAITS: Duration = Duration::from_mins(10);
/// Bytes of a response that are passed to the connection at a time.
const PORTION: usize = 64 << 10;

/// Requests at once, by user.
pub(crate) type UserShares = Shares<u32>;

/// Waits for a permit of this user.
///
/// # Errors
/// Earlier requests of the user take too long.
pub(super) async fn take(shares: &UserShares, user: u32) -> Result<OwnedSemaphorePermit, ApiError> {
    let busy = |_| {
        let why = format!("{} earlier requests of this user are still in progress", shares.each());
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ErrorKind::Wait, why)
    };
    let permit = tokio::time::timeout(WAITS, shares.of(user).acquire_owned()).await.map_err(busy)?;
    permit.map_err(ApiError::internal)
}

/// For a route: its requests, with their responses, count as requests of their user.
pub(super) async fn counted(State(shares): State<UserShares>, request: Request, next: Next) -> Response {
    let user = match request.extensions().get::<ConnectInfo<Cred>>() {
        Some(ConnectInfo(Cred(Some(cred), _))) => cred.uid(),
        _ => u32::MAX,
    };
    match take(&shares, user).await {
        Ok(permit) => {
            let body = |body| Body::new(Portions { body, rest: Bytes::new(), _permit: permit });
            next.run(request).await.map(body)
        }
        Err(error) => error.into_response(),
    }
}

/// A body in portions. Its permit is returned when the connection has accepted the last one.
struct Portions {
    body: Body,
    rest: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl HttpBody for Portions {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => return Poll::Ready(other),
            }
        }
        let len = self.rest.len().min(PORTION);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(len)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        let (rest, inner) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = hyper::body::SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_user_waits_for_its_own_requests_only() {
        let shares = UserShares::new(2);
        let first = take(&shares, 1).await.unwrap();
        let _second = take(&shares, 1).await.unwrap();
        let _other = take(&shares, 2).await.unwrap();
        assert_eq!(take(&shares, 1).await.unwrap_err().kind, ErrorKind::Wait);
        drop(first);
        drop(take(&shares, 1).await.unwrap());
    }

    #[tokio::test]
    async fn a_permit_is_held_until_the_last_portion_is_taken() {
        let shares = UserShares::new(1);
        let bytes: Vec<u8> = (0..3 * PORTION + 7).map(|n| n as u8).collect();
        let permit = take(&shares, 1).await.unwrap();
        let mut body = Portions { body: bytes.clone().into(), rest: Bytes::new(), _permit: permit };
        assert_eq!(body.size_hint().exact(), Some(bytes.len() as u64));
        let mut read = Vec::new();
        while let Some(frame) = body.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            assert!(data.len() <= PORTION && shares.of(1).available_permits() == 0);
            read.extend_from_slice(&data);
            assert_eq!(body.is_end_stream(), read.len() == bytes.len());
        }
        assert!(read == bytes);
        drop(body);
        assert_eq!(shares.of(1).available_permits(), 1);
    }
}
