//! Receives manifests. A large one is received while no other is: the memory for it is needed once, whatever
//! number of clients send one.

use std::sync::Arc;
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tidecast_metainfo::{MAX_LEN, Manifest};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::shares::Shares;
use crate::model::api_error::{ApiError, ErrorKind};

/// Most bytes of a small manifest; a user may send as many at once as requests.
const SMALL: usize = 1 << 20;
/// A client has its manifest in memory: it arrives within this time.
const ARRIVES: Duration = Duration::from_secs(30);
/// A large manifest waits this long for those of other users.
const TURN: Duration = Duration::from_secs(60);

/// The turns of large manifests.
pub(crate) struct Manifests {
    /// One waits for each user, so that a user's many do not delay others.
    users: Shares,
    large: Arc<Semaphore>,
}

impl Default for Manifests {
    fn default() -> Self {
        Self { users: Shares::new(1), large: Arc::new(Semaphore::new(1)) }
    }
}

impl Manifests {
    /// Receives and parses the manifest that a user sends; with its length, bytes.
    ///
    /// # Errors
    /// It is too long, late or malformed, or other large ones take too long.
    pub(super) async fn receive(&self, user: u32, body: &mut Body) -> Result<(Manifest, usize), ApiError> {
        let least = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        let is_small = body.size_hint().exact().is_some() && least <= SMALL;
        let too_long = || {
            let why = format!("the manifest is longer than {MAX_LEN} bytes");
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorKind::Malformed, why)
        };
        if least > MAX_LEN {
            return Err(too_long());
        }
        let turn = if is_small { None } else { Some(self.turn(user).await?) };
        let late = |_| ApiError::malformed("the manifest did not arrive in time");
        let bytes =
            match tokio::time::timeout(ARRIVES, collect(Limited::new(body, MAX_LEN))).await.map_err(late)? {
                Ok(bytes) => bytes,
                Err(error) if error.is::<LengthLimitError>() => return Err(too_long()),
                Err(error) => return Err(ApiError::malformed(format!("manifest interrupted: {error}"))),
            };
        let parse = move || {
            let _turn = turn;
            Manifest::parse(&bytes).map(|manifest| (manifest, bytes.len())).map_err(ApiError::malformed)
        };
        tokio::task::spawn_blocking(parse).await.map_err(ApiError::internal)?
    }

    async fn turn(&self, user: u32) -> Result<(OwnedSemaphorePermit, OwnedSemaphorePermit), ApiError> {
        let own = self.users.take(user).await?;
        let large = tokio::time::timeout(TURN, self.large.clone().acquire_owned()).await;
        let busy = |_| {
            let why = "the daemon is receiving other large manifests; try again later";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ErrorKind::Wait, why)
        };
        Ok((own, large.map_err(busy)?.map_err(ApiError::internal)?))
    }
}

/// All bytes of a body. Frames are released as they come: the memory for it is needed once.
async fn collect(mut body: Limited<&mut Body>) -> Result<Vec<u8>, BoxError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn endless() -> Body {
        let (_, never) = tokio::sync::mpsc::channel(1);
        Body::new(crate::client::Chunks(never))
    }

    #[tokio::test(start_paused = true)]
    async fn one_large_manifest_is_received_at_a_time_and_small_ones_beside_it() {
        let manifests = Arc::new(Manifests::default());
        let held = manifests.turn(1).await.unwrap();
        assert_eq!(manifests.receive(1, &mut endless()).await.unwrap_err().kind, ErrorKind::Wait);
        assert_eq!(manifests.receive(2, &mut endless()).await.unwrap_err().kind, ErrorKind::Wait);
        let small = manifests.receive(1, &mut Body::from("no manifest")).await;
        assert_eq!(small.unwrap_err().kind, ErrorKind::Malformed);
        drop(held);
        assert_eq!(manifests.receive(2, &mut endless()).await.unwrap_err().kind, ErrorKind::Malformed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_manifest_that_does_not_arrive_gives_its_turn_up() {
        let manifests = Manifests::default();
        let (_sender, silent) = tokio::sync::mpsc::channel(1);
        let mut silent = Body::new(crate::client::Chunks(silent));
        let error = manifests.receive(1, &mut silent).await.unwrap_err();
        assert!(error.why.contains("in time"), "{}", error.why);
        assert!(manifests.turn(1).await.is_ok());
    }
}
