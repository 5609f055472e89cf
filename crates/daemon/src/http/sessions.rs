//! How many callers take files at once.

use std::sync::Arc;

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::shares::UserShares;
use crate::model::api_error::{ApiError, ErrorKind};

/// Callers that are given files at once; of one user.
const SESSIONS: usize = 256;
const OF_ONE_USER: usize = 16;

/// Running file transfers, of all users and of each.
#[derive(Clone)]
pub(crate) struct Sessions {
    all: Arc<Semaphore>,
    users: UserShares,
}

/// One of them, counted as long as it lives.
pub(super) struct Session {
    _permits: [OwnedSemaphorePermit; 2],
}

impl Default for Sessions {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(SESSIONS)), users: UserShares::new(OF_ONE_USER) }
    }
}

impl Sessions {
    pub(super) fn begin(&self, user: u32) -> Result<Session, ApiError> {
        let of_user = self.users.of(user).try_acquire_owned();
        let permits = of_user.and_then(|of_user| Ok([of_user, self.all.clone().try_acquire_owned()?]));
        let _permits = permits.map_err(|_| {
            let why = "too many clients are receiving files; try again later";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ErrorKind::Wait, why)
        })?;
        Ok(Session { _permits })
    }
}
