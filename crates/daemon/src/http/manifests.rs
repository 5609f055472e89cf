//! Receives manifests. A large one is received while no other is: the memory for it is needed once, whatever
//! number of clients send one.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use http_body_util::BodyExt;
use tidecast_metainfo::{MAX_LEN, Manifest};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::shares::{UserShares, take};
use crate::model::api_error::{ApiError, ErrorKind};

/// Most bytes of a small manifest; a user may send as many at once as requests.
const SMALL: usize = 1 << 20;
/// A client has its manifest in memory: it arrives within this time, and longer by its length at this rate, bytes a
/// microsecond.
const ARRIVES: Duration = Duration::from_secs(5);
const RATE: u64 = 10;
/// A large manifest waits this long for those of other users.
const TURN: Duration = Duration::from_secs(60);

/// The turns of large manifests.
pub(crate) struct Manifests {
    /// One waits for each user, so that a user's many do not delay others.
    users: UserShares,
    large: Arc<Semaphore>,
}

impl Default for Manifests {
    fn default() -> Self {
        Self { users: UserShares::new(1), large: Arc::new(Semaphore::new(1)) }
    }
}

impl Manifests {
    /// Receives and parses the manifest that a user sends; with its length, bytes.
    ///
    /// # Errors
    /// It is too long, late or malformed, or other large ones take too long.
    pub(super) async fn receive(&self, user: u32, body: &mut Body) -> Result<(Manifest, usize), ApiError> {
        if body.size_hint().lower() > MAX_LEN as u64 {
            return Err(too_long());
        }
        let mut bytes = Vec::new();
        read(body, &mut bytes, SMALL).await?;
        let turn = if bytes.len() > SMALL { Some(self.turn(user).await?) } else { None };
        if turn.is_some() {
            read(body, &mut bytes, MAX_LEN).await?;
        }
        let parse = move || {
            let _turn = turn;
            Manifest::parse(&bytes).map(|manifest| (manifest, bytes.len())).map_err(ApiError::malformed)
        };
        tokio::task::spawn_blocking(parse).await.map_err(ApiError::internal)?
    }

    async fn turn(&self, user: u32) -> Result<(OwnedSemaphorePermit, OwnedSemaphorePermit), ApiError> {
        let own = take(&self.users, user).await?;
        let large = tokio::time::timeout(TURN, self.large.clone().acquire_owned()).await;
        let busy = |_| {
            let why = "the daemon is receiving other large manifests; try again later";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ErrorKind::Wait, why)
        };
        Ok((own, large.map_err(busy)?.map_err(ApiError::internal)?))
    }
}

fn too_long() -> ApiError {
    let why = format!("the manifest is longer than {MAX_LEN} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorKind::Malformed, why)
}

/// Reads a body to its end, or until there are more than `most` bytes. Frames are released as they come: the memory
/// for them is needed once.
async fn read(body: &mut Body, bytes: &mut Vec<u8>, most: usize) -> Result<(), ApiError> {
    let (began, before) = (Instant::now(), bytes.len());
    while bytes.len() <= most {
        let received = (bytes.len() - before) as u64;
        let until = began + ARRIVES + Duration::from_micros(received / RATE);
        let late = |_| ApiError::interrupted("the manifest did not arrive in time");
        let Some(frame) = timeout_at(until, body.frame()).await.map_err(late)? else { return Ok(()) };
        let frame = frame.map_err(|e| ApiError::interrupted(format!("manifest interrupted: {e}")))?;
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > MAX_LEN {
            return Err(too_long());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn large() -> Body {
        Body::from(vec![b'd'; SMALL + 1])
    }

    #[tokio::test(start_paused = true)]
    async fn one_large_manifest_is_received_at_a_time_and_small_ones_beside_it() {
        let manifests = Manifests::default();
        let held = manifests.turn(1).await.unwrap();
        assert_eq!(manifests.receive(2, &mut large()).await.unwrap_err().kind, ErrorKind::Wait);
        let small = manifests.receive(1, &mut Body::from("no manifest")).await;
        assert_eq!(small.unwrap_err().kind, ErrorKind::Malformed);
        drop(held);
        assert_eq!(manifests.receive(2, &mut large()).await.unwrap_err().kind, ErrorKind::Malformed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_manifest_that_does_not_arrive_is_given_up() {
        let (sender, chunks) = tokio::sync::mpsc::channel(1);
        let mut silent = Body::new(crate::client::Chunks(chunks));
        let began = Instant::now();
        sender.send(Ok(vec![b'd'; SMALL + 1].into())).await.unwrap();
        let manifests = Manifests::default();
        let error = manifests.receive(1, &mut silent).await.unwrap_err();
        assert!(error.why.contains("in time"), "{}", error.why);
        assert!(began.elapsed() < Duration::from_secs(6));
        assert!(manifests.turn(1).await.is_ok(), "its turn is free again");
    }
}
