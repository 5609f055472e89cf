//! `tidecast doctor`: whether this host is fit for its network.

mod fix;
mod peers;

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use tidecast::{DoctorOptions, DoctorPurpose};
use tidecast_text::{Rate, Span};

use super::run_operation;
use crate::failure::{Outcome, reached};
use crate::report::{Reporter, fields_of};

/// Check whether this host is fit for its network
///
/// Reads the settings of the host and changes none. Each finding has the value read, the value wanted for this link, the
/// reason, the predicted loss of throughput, and the commands that mend it; the costliest comes first. The exit code is 1
/// if a setting costs more than 5% of the link's rate. With --peers it checks other hosts and the paths between them.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  tidecast doctor
  tidecast doctor --for copy --link 100gbit --rtt 80ms
  tidecast doctor --peers 'node[001-064]'")]
pub(crate) struct Args {
    /// Check for this command only (may be repeated) [default: all]
    #[arg(long = "for", value_name = "COMMAND", value_parser = purpose())]
    purposes: Vec<DoctorPurpose>,
    /// Judge settings for a link of this rate [default: of the fastest interface that is up]
    #[arg(long, value_name = "RATE")]
    link: Option<Rate>,
    /// Judge settings for a path of this round-trip time [default: 50ms for copy and field, else 1ms]
    #[arg(long, value_name = "TIME")]
    rtt: Option<Span>,
    /// Check this directory of a store or cache, its disk and file system too (may be repeated)
    #[arg(long = "dir", value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Measure each setting that a network namespace has, alone, between two namespaces, and write and read in each --dir
    /// (about 3 s a finding)
    #[arg(long, conflicts_with = "undo")]
    measure: bool,
    /// Show the commands that mend the findings, ask, and run them; --undo restores all values
    #[arg(long, conflicts_with = "undo", group = "asks")]
    fix: bool,
    /// With --fix: print a shell script that makes the changes, and change nothing
    #[arg(long, requires = "fix")]
    dry_run: bool,
    /// Restore all values that --fix has changed, and remove its files
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    peers: peers::Args,
    /// Do not ask: with --fix, make the changes; with --peers, measure rates
    #[arg(long, requires = "asks", conflicts_with = "dry_run")]
    yes: bool,
}

/// Reads the name of a command that the host is checked for.
fn purpose() -> impl TypedValueParser<Value = DoctorPurpose> {
    let named = |name: String| DoctorPurpose::ALL.into_iter().find(|of| of.name() == name);
    PossibleValuesParser::new(DoctorPurpose::ALL.map(DoctorPurpose::name))
        .try_map(move |name| named(name).ok_or("there is no such command"))
}

pub(crate) fn run(args: &Args, verbose: bool, reporter: &mut Reporter) -> Outcome {
    if let Some(list) = &args.peers.peers {
        return peers::run(&args.peers, list, args.yes, reporter);
    }
    let options = DoctorOptions {
        purposes: args.purposes.clone(),
        link: args.link.map(|rate| rate.0),
        rtt: args.rtt.map(|time| time.0),
        dirs: args.dirs.clone(),
        measure: args.measure,
        ..DoctorOptions::default()
    };
    if args.undo {
        return fix::undo(options, reporter);
    }
    if args.fix {
        return fix::fix(fix::How { dry_run: args.dry_run, yes: args.yes }, options, reporter);
    }
    let begin = || tidecast::doctor(options);
    let done = run_operation::run(begin, reporter, |started, reporter| {
        started.assumed.iter().for_each(|text| reporter.note(&format!("assuming {text}")));
    });
    reached(&done).iter().flat_map(|done| done.lines(verbose)).for_each(|line| reporter.result(&line));
    Ok(fields_of(&done?))
}
