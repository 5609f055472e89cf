//! `tidecast share PATH`: publish and seed in one, privately; the first line is the ticket.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use tidecast_net::Security;

use super::describe::{Describe, Extras, describe, open_notice};
use super::swarm::{Choices, Part, Running};
use super::{Context, member, seed};
use crate::cli::SwarmArgs;
use crate::failure::Outcome;
use crate::report::Reporter;
use crate::stop::{Stop, block_on, hangups};

/// Publish and seed in one; the first line on standard output is the ticket
///
/// The swarm is private: all is encrypted, and only nodes that enrol with the ticket take part, until `revoke`.
/// With --plain it is open, unencrypted BitTorrent, and the ticket merely says where. Ctrl-C stops it.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  tidecast share /data/genomes\n  # elsewhere:\n  tidecast get @ticket --to /scratch"
)]
pub(crate) struct Args {
    /// The file or directory
    path: PathBuf,
    #[command(flatten)]
    describe: Describe,
    #[command(flatten)]
    ticket: member::TicketArgs,
    #[command(flatten)]
    swarm: SwarmArgs,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let choices = Choices::new(&args.swarm, context)?;
    let terms = args.ticket.terms(!choices.plain && !args.describe.ssl_torrent)?;
    let state_dir = context.own_state_dir()?;
    block_on(context.threads(), async {
        let stop = Stop::listen()?;
        let _hangups = hangups()?;
        let extras = Extras { trackers: choices.trackers.clone(), private: !choices.plain };
        let leaves = tempfile::NamedTempFile::new_in(&state_dir).or_else(|_| tempfile::NamedTempFile::new());
        let leaves = leaves.context("cannot make a temporary file")?;
        let how = &args.describe;
        let published =
            describe(&args.path, how, extras, Some(leaves.path()), context, reporter, &stop).await?;
        let manifest = Arc::new(published.manifest);
        let mut opened = seed::open(&manifest, &args.path, &state_dir)?;
        // Every byte has just been read and hashed.
        opened.believe(leaves.as_file())?;
        let ssl = manifest.ssl_cert().is_some();
        let (security, authority) = if ssl {
            (member::ssl(&manifest, &args.swarm, &state_dir)?, None)
        } else if choices.plain {
            (Security::Open, None)
        } else {
            let (security, authority) = member::owner(&manifest, &state_dir)?;
            (security, Some(authority))
        };
        let running = Running::start(opened, security, &choices, Part::Seed)?;
        let listen = running.swarm.listen_addrs().to_vec();
        let network = choices.network.as_ref();
        let ticket = member::ticket(&manifest, authority.as_ref(), terms, choices.plain, &listen, network)?
            .to_string();
        reporter.result(&ticket);
        reporter.started("share", seed::started(&manifest, &listen, Some(ticket)));
        open_notice(&manifest, choices.plain, reporter);
        if authority.is_some() {
            reporter.note("to get it elsewhere, put this ticket into a file of mode 0600 and run: tidecast get @FILE --to DIR");
        }
        seed::serve(running, &choices, &stop, reporter).await
    })
}
