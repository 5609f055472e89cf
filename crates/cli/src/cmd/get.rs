//! `tidecast get TICKET|MANIFEST|MAGNET --to DIR`: fetches a published file or tree, and serves other peers meanwhile.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use tidecast::event::Text;
use tidecast::event::status::About;
use tidecast::{Durability, GetOptions};
use tidecast_text::Span;

use super::describe::open_notice;
use super::{Context, run_operation};
use crate::args::SwarmArgs;
use crate::failure::Outcome;
use crate::report::{Reporter, fields_of};

const EXAMPLES: &str = "\
Examples:
  tidecast get @ticket --to /scratch
  tidecast get genomes.torrent --to /scratch --file '*.fa' --timeout 10m --seed-for 1h";

const AFTER: &str = concat!(
    include_str!("../../help/get.txt"),
    "\n",
    include_str!("../../help/existing_files.txt"),
    include_str!("../../help/get_events.txt")
);

/// Fetch a published file or tree, and serve other peers meanwhile
///
/// It appears in DIR under its published name when it is complete and verified. To resume an interrupted download, give
/// the same command again.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = AFTER)]
pub(crate) struct Args {
    /// A ticket, a manifest (.torrent), or a magnet link; @FILE reads a ticket from a file, - from standard input [default:
    /// $TIDECAST_TICKET]
    #[arg(value_name = "TICKET|MANIFEST|MAGNET")]
    source: Option<String>,
    /// Write into this directory
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Fetch only files that match: a name at any depth, or a path if GLOB has a '/'; a name that exists is taken literally;
    /// may be repeated [default: all, or the files that a magnet link selects by so=]
    #[arg(long, value_name = "GLOB")]
    file: Vec<OsString>,
    /// Continue serving other peers for this time after the download [default: 0s]
    #[arg(long, value_name = "DURATION")]
    seed_for: Option<Span>,
    /// Give up if the download is not complete after this time (exit code 3) [default: no limit]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
    /// Sync to disk in batches, so that a power failure loses a second of work (batched), or not at all, for RAM and
    /// scratch (none) [default: batched]
    #[arg(long, value_name = "batched|none", value_parser = durabilities(), hide_possible_values = true)]
    durable: Option<Durability>,
    /// Replace existing files that tidecast did not deliver, or that were changed since
    #[arg(long)]
    force: bool,
    /// Remove delivered files that are no longer published; with --force all files that are not published
    #[arg(long)]
    delete: bool,
    /// Reuse data of an older version at PATH, a directory or file, instead of fetching it, even if it moved within a file;
    /// may be repeated
    #[arg(long, value_name = "PATH")]
    base: Vec<PathBuf>,
    #[command(flatten)]
    swarm: SwarmArgs,
}

fn durabilities() -> impl TypedValueParser<Value = Durability> {
    PossibleValuesParser::new(["batched", "none"]).try_map(|name| tidecast::settings::durability(&name))
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let settings = context.settings;
    let options = GetOptions {
        files: args.file.clone(),
        seed_for: args.seed_for.or(settings.seed_for).map(|span| span.0),
        timeout: args.timeout.or(settings.timeout).map(|span| span.0),
        durability: args.durable.or(settings.durable).unwrap_or_default(),
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
    let done = run_operation::run(begin, reporter, |started, reporter| open_notice(started.open, reporter))?;
    done.lines().iter().for_each(|line| reporter.result(line));
    Ok(fields_of(&done))
}
