//! `tidecast revoke TICKET`: no node can enrol with it any more, and members disconnect nodes that did.

use anyhow::anyhow;
use tidecast::RevokeOptions;

use super::Context;
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};
use tidecast_secret::TICKET;

/// Revoke a ticket
///
/// A `share` or `seed` that runs on this host with the same state directory applies it within a second: it rejects the
/// ticket, and disconnects the nodes that joined with it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  tidecast revoke @ticket")]
pub(crate) struct Args {
    /// The ticket, or its number (16 hexadecimal digits); @FILE reads the ticket from a file, - from standard input
    /// [default: $TIDECAST_TICKET]
    ticket: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let given = TICKET.given(args.ticket.as_deref()).map_err(Failure::usage)?;
    let none =
        || Failure::usage(anyhow!("no ticket given; give one as an argument, or set {}", TICKET.variable));
    let done =
        tidecast::revoke(&given.ok_or_else(none)?, RevokeOptions { state_dir: Some(context.state_dir()?) })?;
    reporter.result(&format!("revoked ticket {}", done.ticket));
    Ok(fields_of(&done))
}
