//! `tidecast get TICKET|MANIFEST|MAGNET --to DIR`: fetches what was published, and serves others meanwhile.

use std::path::PathBuf;

use anyhow::anyhow;
use tidecast::event::Text;
use tidecast::event::status::About;
use tidecast::{Durability, GetOptions};
use tidecast_text::Span;

use super::describe::open_notice;
use super::{Context, dest, drive};
use crate::args::SwarmArgs;
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};

const EXAMPLES: &str = "\
Examples:
  tidecast get @ticket --to /scratch
  tidecast get genomes.torrent --to /scratch --file '*.fa' --timeout 10m --seed-for 1h";

const AFTER: &str = concat!(
    "\
Examples:
  tidecast get @ticket --to /scratch
  tidecast get genomes.torrent --to /scratch --file '*.fa' --timeout 10m

",
    dest::standing!(),
    "

Events with --json, one a line:
  started   command, name, listen, total (bytes), magnet
  check     what is there already is being hashed; fields as of progress
  progress  seconds, stage, bytes, total, pieces (verified), pieces_total,
            rate (bytes a second), peers, received, sent, rate_in, rate_out
  warning   message; of a peer that does not answer also peer and reason (this
            may come before started); where connected peers move no byte also
            peers, silent_seconds, sending
  resumed   silent_seconds, sending: bytes move again
  done      seconds, path, files, bytes, action (delivered, replaced,
            unchanged), files_kept, files_replaced, files_stale (files_foreign:
            of them, not delivered by tidecast), files_deleted, pieces, received, sent, duplicate, corrupt, peers
            [addr, node, client, received, sent], web_seeds [url, received,
            error], cpu_seconds
            [socket, tls, hash, disk, engine, process], get_seconds; where the
            link's rate is known, link_rate_from (told, driver), bound_seconds
            and efficiency
  error     seconds, code (as the exit code), kind, message; totals as of done"
);

/// Fetch what was published, and serve others meanwhile
///
/// It appears under DIR by its own name, whole and verified, or not at all; what is interrupted goes on where it
/// was when the same command is given again.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = AFTER)]
pub(crate) struct Args {
    /// A ticket, a manifest (.torrent), or a magnet link; @FILE has the ticket, - reads it from standard input [default: $TIDECAST_TICKET]
    #[arg(value_name = "TICKET|MANIFEST|MAGNET")]
    source: Option<String>,
    /// The directory to put it into
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Fetch only files that match: a name at any depth, or a path if it has a '/'; may be repeated [default: all, or those that a
    /// magnet link selects by so=]
    #[arg(long, value_name = "GLOB")]
    file: Vec<String>,
    /// Go on serving others for so long when all is there
    #[arg(long, value_name = "DURATION")]
    seed_for: Option<Span>,
    /// Give up when not all is there after so long (exit code 3)
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
    /// batched: a power cut costs a second of work; none: for RAM and scratch, nothing is synced
    #[arg(long, value_name = "batched|none", value_parser = ["batched", "none"], hide_possible_values = true)]
    durable: Option<String>,
    /// Replace what stands there though it is no former version by our own record
    #[arg(long)]
    force: bool,
    /// Remove from the tree what was delivered there and is not published any more; with --force all that was not published
    #[arg(long)]
    delete: bool,
    /// Take what an older version has that lies there, a directory or file, instead of fetching it, wherever in its files it
    /// is; may be repeated
    #[arg(long, value_name = "PATH")]
    base: Vec<PathBuf>,
    #[command(flatten)]
    swarm: SwarmArgs,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let settings = context.settings;
    let options = GetOptions {
        files: args.file.clone(),
        seed_for: args.seed_for.or(settings.seed_for).map(|span| span.0),
        timeout: args.timeout.or(settings.timeout).map(|span| span.0),
        durability: durability(args, context)?,
        force: args.force,
        delete: args.delete,
        base: args.base.clone(),
        swarm: args.swarm.options(context)?,
        state_dir: Some(context.state_dir()?),
        threads: context.threads_for_operation(),
    };
    let source = tidecast::given_source(args.source.as_deref())?;
    reporter.about(About { to: Some(Text::of(&args.to).text), ..About::default() });
    let begin = || tidecast::get(source, &args.to, options);
    let done = drive::run(begin, reporter, |started, reporter| open_notice(started.open, reporter))?;
    done.lines().iter().for_each(|line| reporter.result(line));
    Ok(fields_of(&done))
}

fn durability(args: &Args, context: &Context<'_>) -> Result<Durability, Failure> {
    match args.durable.as_deref().or(context.settings.durable.as_deref()) {
        None | Some("batched") => Ok(Durability::Batched),
        Some("none") => Ok(Durability::None),
        Some(other) => Err(Failure::usage(anyhow!("--durable is {other:?}: write batched or none"))),
    }
}
