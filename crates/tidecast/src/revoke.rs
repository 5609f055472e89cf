//! `revoke`: a ticket enrols no further node, and members disconnect the nodes that it enrolled.

use std::path::PathBuf;

use tidecast_event::revoke::Done;
use tidecast_event::{Context as _, Error, Fault as _};
use tidecast_identity::{Authority, NodeKey, TokenId};
use tidecast_node::{now, read_ticket};

use crate::state;

/// How to revoke.
#[derive(Debug, Clone, Default)]
pub struct RevokeOptions {
    /// Where the node keeps its key that has issued the ticket. Default: [`default_state_dir`](crate::default_state_dir).
    pub state_dir: Option<PathBuf>,
}

/// Makes a ticket worthless; `ticket` may also be its number (16 hexadecimal digits).
///
/// A [`share`](crate::share()) or [`seed`](crate::seed()) that runs on this host with the same state
/// directory notices it within a second; the nodes that joined with the ticket are disconnected.
///
/// ```
/// use tidecast::{RevokeOptions, ShareOptions, SwarmOptions, revoke, share};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let data = dir.path().join("data");
/// # std::fs::write(&data, "")?;
/// # let state_dir = Some(dir.path().join("state"));
/// let swarm = SwarmOptions::loopback();
/// let sharing = share(&data, ShareOptions { swarm, state_dir: state_dir.clone(), ..Default::default() });
/// let ticket = sharing.ready_blocking()?.ticket.unwrap_or_default();
/// assert_eq!(revoke(&ticket, RevokeOptions { state_dir })?.revoked, 1);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// It is not a ticket, is one of an open swarm, or was issued elsewhere.
pub fn revoke(ticket: &str, options: RevokeOptions) -> Result<Done, Error> {
    let token = token_of(ticket)?;
    let state_dir = state::own(options.state_dir.as_deref())?;
    let key = NodeKey::load_or_create(&state_dir).fault()?;
    let authority = Authority::open(&state_dir, &key).fault()?;
    let list = authority.revoke(token, now()).with_context(|| {
        format!(
            "cannot revoke the ticket (revoke it where it was issued; state directory: {})",
            state_dir.display()
        )
    })?;
    Ok(Done { ticket: token.to_string(), revoked: list.tokens.len() })
}

fn token_of(text: &str) -> Result<TokenId, Error> {
    if let Ok(token) = text.parse() {
        return Ok(token);
    }
    read_ticket(text)?.token_id().ok_or_else(|| {
        Error::usage("nothing to revoke: the ticket is for an open swarm, which anyone may join")
    })
}
