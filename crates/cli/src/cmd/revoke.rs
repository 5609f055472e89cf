//! `tidecast revoke TICKET`: nobody enrols with it any more, and members drop those who did.

use anyhow::anyhow;
use tidecast::RevokeOptions;

use super::Context;
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};
use tidecast_secret::TICKET;

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
    let none = || Failure::usage(anyhow!("no ticket given; name one, or set {}", TICKET.variable));
    let done =
        tidecast::revoke(&given.ok_or_else(none)?, RevokeOptions { state_dir: Some(context.state_dir()?) })?;
    reporter.result(&format!("ticket {} is revoked", done.ticket));
    Ok(fields_of(&done))
}
