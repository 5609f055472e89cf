//! `tidecast revoke TICKET`: nobody enrols with it any more, and members drop those who did.

use anyhow::Context as _;
use serde_json::json;
use tidecast_identity::{Authority, NodeKey, Ticket, TokenId};

use super::{Context, now};
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, object};

/// Make a ticket worthless
///
/// A `share` or `seed` that runs on this host with the same state directory hears of it within a second; the
/// nodes that joined with the ticket are cut off.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  tidecast revoke tidecast1aqc...")]
pub(crate) struct Args {
    /// The ticket, or its number (16 hexadecimal digits)
    ticket: String,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let token = token_of(&args.ticket)?;
    let state_dir = context.state_dir()?;
    let key = NodeKey::load_or_create(&state_dir)?;
    let authority = Authority::open(&state_dir, &key)?;
    let list = authority.revoke(token, now()).with_context(|| {
        format!(
            "cannot revoke (tickets are revoked where they were issued; state directory: {})",
            state_dir.display()
        )
    })?;
    reporter.result(&format!("ticket {token} is revoked"));
    Ok(object(json!({ "ticket": token.to_string(), "revoked": list.tokens.len() })))
}

fn token_of(text: &str) -> Result<TokenId, Failure> {
    if let Ok(token) = text.parse() {
        return Ok(token);
    }
    let ticket: Ticket = text.parse().map_err(Failure::usage)?;
    ticket.token_id().ok_or_else(|| {
        Failure::usage(anyhow::anyhow!(
            "this ticket is for an open swarm, which anyone may join: nothing to revoke"
        ))
    })
}
