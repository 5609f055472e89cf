//! `tidecast share PATH`: publishes and seeds privately in one command; the first line of output is the ticket.

use std::path::PathBuf;

use tidecast::ShareOptions;

use super::describe::{Describe, open_notice};
use super::swarm::TicketArgs;
use super::{Context, run_operation, seed};
use crate::args::SwarmArgs;
use crate::failure::Outcome;
use crate::report::{Reporter, fields_of};

/// Publish and seed in one command, and print a ticket
///
/// The first line on standard output is the ticket. The swarm is private: all traffic is encrypted, and only nodes that
/// enrol with the ticket can join, until `revoke`. With --plain it is open, unencrypted BitTorrent, and the ticket only has
/// addresses. It continues when the terminal is closed; Ctrl-C or SIGTERM (kill PID) stops it.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  tidecast share /data/genomes\n  # on other hosts:\n  tidecast get @ticket --to /scratch"
)]
pub(crate) struct Args {
    /// File or directory to share
    path: PathBuf,
    #[command(flatten)]
    describe: Describe,
    #[command(flatten)]
    ticket: TicketArgs,
    #[command(flatten)]
    swarm: SwarmArgs,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let options = ShareOptions {
        tree: args.describe.options(context)?,
        ticket: args.ticket.into(),
        swarm: args.swarm.options(context)?,
        state_dir: Some(context.state_dir()?),
        threads: context.threads_for_operation(),
    };
    let private = !options.swarm.plain && !options.tree.ssl_torrent;
    let begin = || tidecast::share(&args.path, options);
    let done = run_operation::serve(begin, reporter, |started, reporter| {
        started.ticket.iter().for_each(|ticket| reporter.result(ticket));
        open_notice(started.open, reporter);
        if private {
            reporter.note("on other hosts, save this ticket in a file of mode 0600 and run: tidecast get @FILE --to DIR");
        }
    })?;
    reporter.note(&format!("stopped; {}", seed::sent(&done.totals)));
    Ok(fields_of(&done))
}
