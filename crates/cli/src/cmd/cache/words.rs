//! Words that several commands about caches use.

use serde_json::Map;
use tidecast::event::cache::Came;
use tidecast_daemon::client::ClientError;
use tidecast_text::Size;

use crate::failure::Failure;

/// A refusal of the daemon as this command's failure.
pub(super) fn failed(error: ClientError) -> Failure {
    let mut fields = Map::new();
    if let ClientError::Refused { kind, .. } = &error {
        fields.insert("reason".into(), kind.clone().into());
    }
    Failure::from(anyhow::Error::from(error)).with(fields)
}

/// Where bytes came from.
pub(crate) fn how_it_came(came: &Came) -> String {
    let parts = [
        (came.origin, "from the origin"),
        (came.peers, "from other hosts"),
        (came.parent, "from another daemon of this machine"),
        (came.link, "linked from there"),
    ];
    let said = parts.iter().filter(|(bytes, _)| *bytes > 0);
    said.map(|(bytes, whence)| format!("{} {whence}", Size(*bytes))).collect::<Vec<_>>().join(", ")
}
