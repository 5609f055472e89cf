//! `tidecast revoke TICKET`: nobody enrols with it any more, and members drop those who did.

use anyhow::Context as _;
use serde_json::json;
use tidecast_identity::{Authority, NodeKey, TokenId};

use super::source::ticket;
use super::{Context, now};
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, object};
use crate::secret::TICKET;

/// Make a ticket worthless
///
/// A `share` or `seed` that runs on this host with the same state directory hears of it within a second; the
/// nodes that joined with the ticket are cut off.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  tidecast revoke @ticket")]
pub(crate) struct Args {
    /// The ticket, or its number (16 hexadecimal digits); @FILE has the ticket, - reads it from standard input [default: $TIDECAST_TICKET]
    ticket: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let given = TICKET.given(args.ticket.as_deref()).map_err(Failure::usage)?;
    let none = || Failure::usage(anyhow::anyhow!("no ticket given; name one, or set {}", TICKET.variable));
    let token = token_of(&given.ok_or_else(none)?)?;
    let state_dir = context.own_state_dir()?;
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
    ticket(text)?.token_id().ok_or_else(|| {
        Failure::usage(anyhow::anyhow!(
            "this ticket is for an open swarm, which anyone may join: nothing to revoke"
        ))
    })
}
