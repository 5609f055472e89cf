//! Requests that the daemon refuses.

use tidecast_daemon::client::ClientError;

use crate::failure::Failure;

/// A refusal of the daemon as this command's failure.
pub(super) fn failed(error: ClientError) -> Failure {
    Failure::from(tidecast::refusal(error))
}
