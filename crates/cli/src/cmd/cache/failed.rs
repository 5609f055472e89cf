//! Requests that the daemon refuses.

use serde_json::Map;
use tidecast::event::cache::Refused;
use tidecast_daemon::client::ClientError;

use crate::failure::Failure;
use crate::report::fields_of;

/// A refusal of the daemon as this command's failure.
pub(super) fn failed(error: ClientError) -> Failure {
    let refused = match &error {
        ClientError::Refused { kind, .. } => fields_of(&Refused { reason: kind.clone() }),
        _ => Map::new(),
    };
    Failure::from(anyhow::Error::from(error)).with(refused)
}
