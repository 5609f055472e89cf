//! `tidecast run TICKET -- COMMAND`: runs a command in its own mount namespace, in which the tree is where it was built,
//! so that RPATH, `$ORIGIN`, `#!` lines and virtual environments work. It needs no privilege, and leaves nothing behind:
//! the mount ends with the last process in the namespace.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::ErrorKind::NotFound;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, anyhow};
use tidecast_mount::launch::{self, Interrupts, Start};
use tidecast_mount::namespace::{
    Error, Inside, Report, Settled, end_as, missing_behind, place_of_command, separate, settle, show,
    supervise,
};
use tidecast_mount::{Chosen, Guard, Home, How, Packets, Place, find};
use tidecast_node::{MessageSender, MessageSink};
use tidecast_text::with_causes;

use super::Context;
use super::mount::{TreeArgs, other_part};
use crate::failure::{Failure, Outcome};
use crate::report::Reporter;

const EXAMPLES: &str = "\
Examples:
  tidecast run @ticket -- /opt/env/bin/python3 train.py";

const AFTER: &str = include_str!("../../help/run.txt");

/// Run a command that sees a published tree at the path it was built for, without privileges
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = AFTER)]
pub(crate) struct Args {
    /// A ticket, a manifest (.torrent), or a magnet link; @FILE reads a ticket from a file, - from standard input [default:
    /// $TIDECAST_TICKET]
    #[arg(value_name = "TICKET|MANIFEST|MAGNET")]
    source: Option<String>,
    #[command(flatten)]
    tree: TreeArgs,
    /// Show the tree to the command at this path, even over a directory with files [default: the path in the manifest]
    #[arg(long, value_name = "PREFIX")]
    at: Option<PathBuf>,
    /// Command and its arguments
    #[arg(value_name = "COMMAND", last = true, required = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    if let Some(outcome) = other_part(args.source.as_deref(), &args.tree, context, reporter) {
        return outcome;
    }
    let report = Report::of_environment();
    let Err(failure) = show_and_execute(args, context, reporter, report.as_ref());
    match report {
        None => Err(failure),
        Some(report) => {
            report.failed(failure.kind, with_causes(failure.error.as_ref()));
            reporter.clear();
            std::process::exit(failure.kind as i32)
        }
    }
}

/// Returns only on failure, of which `report` is not told yet.
fn show_and_execute(
    args: &Args,
    context: &Context<'_>,
    reporter: &Reporter,
    report: Option<&Report>,
) -> Result<Infallible, Failure> {
    if let Some(inside) = Inside::of_environment()? {
        let server = launch::join(&inside.socket)?;
        let guard = Guard::of_user(&[]);
        separate()?;
        let place = Place::open(&inside.at, &guard, Chosen::ByCaller).map_err(Failure::usage)?;
        return Err(become_command(args, server, &place, (inside.socket, true), report));
    }
    let source = tidecast::given_source(args.source.as_deref())?;
    let home = Home::of(&source, args.tree.cache.as_deref().or(context.settings.cache.as_deref()))?;
    let guard = Guard::of_user(&[home.path().to_owned()]);
    if let Some(at) = &args.at {
        // Reject an invalid path before any data is fetched.
        find(at, &guard, Chosen::ByCaller).map_err(Failure::usage)?;
    }
    let sink: &dyn MessageSink = match report {
        Some(report) => report,
        None => reporter,
    };
    let messages = MessageSender::new(sink);
    let start = || Start::again(&source, Box::new(Interrupts::take()?), &messages);
    let server = launch::server(&home, &source, start).map_err(tidecast::Error::from)?;
    if args.tree.fallback.is_none() {
        launch::silence(&home.socket(), || false).into_iter().for_each(|why| messages.warning(why));
    }
    let (at, chosen) = match &args.at {
        Some(at) => (std::path::absolute(at)?, Chosen::ByCaller),
        None => (prefix(&home, &args.command)?, Chosen::ByManifest),
    };
    // Until the server holds the directory too.
    let mut _held = None;
    let (place, hold) = match settle(&at, &guard, chosen).map_err(unsettled)? {
        Settled::Held(held) => {
            let mut inside =
                Command::new(std::env::current_exe().context("cannot find the path of this program")?);
            let json = context.global.json.then_some("--json");
            inside.arg("run").args(json).arg("inside").arg("--").args(&args.command);
            report.map(|report| report.lend(&mut inside)).transpose()?;
            let code = supervise(held, &home.socket(), &mut inside)?;
            drop(server);
            end_as(code)
        }
        Settled::There(held) => {
            _held = held;
            separate()?;
            (Place::open(&at, &guard, chosen).map_err(Failure::usage)?, true)
        }
        Settled::Shown(absent) => {
            let here = std::env::current_dir().context("cannot determine the working directory")?;
            separate()?;
            let at = show(&absent, &home.scratch()?)?;
            // The working directory may now be below the new mount: enter it again by its path.
            std::env::set_current_dir(&here)
                .with_context(|| format!("cannot enter {} again", here.display()))?;
            (Place::open(&at, &guard, chosen).map_err(Failure::usage)?, false)
        }
    };
    Err(become_command(args, server, &place, (home.socket(), hold), report))
}

fn unsettled(error: Error) -> Failure {
    match error {
        Error::Unfit(_) => Failure::usage(error),
        other => other.into(),
    }
}

/// Mounts in this namespace, and executes the command in this process; returns only on failure. `hold`: as
/// [`launch::attach`] takes it.
fn become_command(
    args: &Args,
    server: Packets,
    place: &Place,
    (source, hold): (PathBuf, bool),
    report: Option<&Report>,
) -> Failure {
    let how = How { source, allow_other: false };
    if let Err(error) = launch::attach(&server, place, &how, hold) {
        return error.into();
    }
    drop(server);
    let Some((program, rest)) = args.command.split_first() else {
        return Failure::usage(anyhow!("no command given"));
    };
    let mut command = Command::new(program);
    Report::forget(Inside::forget(command.args(rest)));
    report.into_iter().for_each(Report::begins);
    let error = command.exec();
    let program = Path::new(program);
    let missing = (error.kind() == NotFound).then(|| missing_behind(program)).flatten();
    let why = missing.unwrap_or_else(|| error.to_string());
    Failure::usage(anyhow!("cannot run {}: {why}", program.display()))
}

/// The path that the tree was built for, by its manifest, else by the path of the command.
fn prefix(home: &Home, command: &[OsString]) -> Result<PathBuf, Failure> {
    let manifest = home.manifest().ok_or_else(|| anyhow!("the mount server has no manifest"))?;
    let prefix = manifest.prefix().map(|p| PathBuf::from(std::ffi::OsStr::from_bytes(p)));
    let prefix = prefix.filter(|p| p.is_absolute()).or_else(|| place_of_command(&manifest, command));
    prefix.ok_or_else(|| {
        Failure::usage(anyhow!(
            "the manifest does not record the path that this tree was built for, and the command has no path in the tree; give it with --at (publish --built-for PATH records it)"
        ))
    })
}
