//! `tidecast seed MANIFEST PATH`: serves published data.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use tidecast::event::Totals;
use tidecast::event::seed::ManyDone;
use tidecast::{SeedOptions, data_below};
use tidecast_text::{Size, count};

use super::describe::open_notice;
use super::swarm::TicketArgs;
use super::{Context, read_manifest, run_operation};
use crate::args::SwarmArgs;
use crate::failure::{Failure, Outcome, reached};
use crate::report::{Reporter, fields_of};

/// Serve published data
///
/// Every piece is verified before it is offered; files that an earlier `seed` verified and that have not changed since are
/// not read again. For a manifest made with --private, the first line on standard output is a new ticket.
/// With --data one process serves several manifests on one port. It continues when the terminal is closed; Ctrl-C or
/// SIGTERM (kill PID) stops it.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "tidecast seed [OPTIONS] <MANIFEST> <PATH>\n       tidecast seed [OPTIONS] <MANIFEST>... --data <DIR>",
    after_help = "Examples:
  tidecast seed genomes.torrent /data/genomes --listen 10.0.0.1:6881
  tidecast seed torrents/*.torrent --data /data --data /scratch --upload-limit 50MB/s"
)]
pub(crate) struct Args {
    /// Manifest (.torrent) and the path of the published file or directory; with --data, manifests only
    #[arg(value_name = "MANIFEST", required = true)]
    paths: Vec<PathBuf>,
    /// Find the data of each manifest in DIR, under its published name; may be repeated, the first DIR with the name is
    /// used
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
    #[command(flatten)]
    ticket: TicketArgs,
    #[command(flatten)]
    swarm: SwarmArgs,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let options = SeedOptions {
        ticket: args.ticket.into(),
        swarm: args.swarm.options(context)?,
        state_dir: Some(context.state_dir()?),
        threads: context.threads_for_operation(),
    };
    match (args.paths.as_slice(), args.data.is_empty()) {
        ([manifest, path], true) => one(manifest, path, options, reporter),
        ([manifest], false) => {
            let path = data_below(&read_manifest(manifest)?, &args.data)?;
            one(manifest, &path, options, reporter)
        }
        (manifests, false) => many(manifests, &args.data, options, reporter),
        ([manifest], true) => {
            let shown = manifest.display();
            Err(Failure::usage(anyhow!(
                "no data given for {shown}: give its path, or the directory around it with --data"
            )))
        }
        (paths, true) => Err(Failure::usage(anyhow!(
            "{} paths given: give one MANIFEST and the PATH of its data, or MANIFEST... --data DIR",
            paths.len()
        ))),
    }
}

/// One manifest, on a port of its own.
fn one(manifest: &Path, path: &Path, options: SeedOptions, reporter: &mut Reporter) -> Outcome {
    let begin = || tidecast::seed(manifest, path, options);
    let done = run_operation::serve(begin, reporter, |started, reporter| {
        open_notice(started.open, reporter);
        started.ticket.iter().for_each(|ticket| reporter.result(ticket));
    });
    done.map(|done| {
        reporter.note(&format!("stopped; {}", sent(&done.totals)));
        fields_of(&done)
    })
}

/// The bytes sent, and the number of peers that received them.
pub(super) fn sent(totals: &Totals) -> String {
    let takers = totals.peers.iter().filter(|p| p.sent > 0).count();
    format!("{} sent to {}", Size(totals.sent), count(takers as u64, "peer"))
}

/// Several manifests, on one port.
fn many(manifests: &[PathBuf], dirs: &[PathBuf], options: SeedOptions, reporter: &mut Reporter) -> Outcome {
    let begin = || tidecast::seed_many(manifests, dirs, options);
    let done = run_operation::serve(begin, reporter, |started, reporter| {
        open_notice(started.open, reporter);
        if let Some(ticket) = &started.ticket {
            reporter.result(&format!("{}: {ticket}", crate::names::line(&started.name)));
        }
    });
    let told = |done: &ManyDone| {
        for one in &done.all.swarms {
            one.totals.iter().for_each(|totals| reporter.note(&format!("{}: {}", one.name, sent(totals))));
        }
    };
    reached(&done).into_iter().for_each(told);
    done.map(|done| fields_of(&done))
}
