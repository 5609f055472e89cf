//! How many callers take files at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::StatusCode;
use parking_lot::Mutex;

use crate::model::api_error::{ApiError, ErrorKind};

/// Callers that are given files at once; of one user.
const SESSIONS: usize = 256;
const OF_ONE_USER: usize = 16;

/// Running file transfers, by user.
#[derive(Clone, Default)]
pub(crate) struct Sessions(Arc<Mutex<BTreeMap<u32, usize>>>);

/// One of them, counted as long as it lives.
pub(super) struct Session {
    all: Sessions,
    user: u32,
}

impl Sessions {
    pub(super) fn begin(&self, user: u32) -> Result<Session, ApiError> {
        let mut all = self.0.lock();
        if all.values().sum::<usize>() >= SESSIONS || all.get(&user).is_some_and(|n| *n >= OF_ONE_USER) {
            let why = "too many clients are receiving files; try again later";
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ErrorKind::Wait, why));
        }
        *all.entry(user).or_default() += 1;
        Ok(Session { all: self.clone(), user })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        if let Some(count) = all.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.user);
            }
        }
    }
}
