//! `tidecast mount TICKET|MANIFEST MOUNTPOINT`: a published tree appears at once, and arrives as it is opened.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use tidecast::event::daemon::Status;
use tidecast::event::status::{Process, Shown};
use tidecast::{Kind, Mode, MountOptions, Prefetch, Program, ServeOptions, UnmountOptions};
use tidecast_mount::server::End;
use tidecast_mount::{Packets, Role, keeper};
use tidecast_text::{Span, escaped};

use super::{Context, daemon, drive};
use crate::args::SwarmArgs;
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};

const USAGE: &str = "tidecast mount [OPTIONS] [TICKET|MANIFEST|MAGNET] <MOUNTPOINT>";

const EXAMPLES: &str = "\
Examples:
  tidecast mount @ticket /opt/env
  tidecast umount /opt/env";

const AFTER: &str = "\
The directory that was published is MOUNTPOINT itself. All names are there at
once; files come from peers when they are opened: up to 16 MiB, and programs
and libraries of any size, whole, of others the parts that are read and what
comes next. Everything is verified. It stays mounted until `tidecast umount`.

Modes:
  hybrid  what --prefetch names is fetched at once, the rest when it is opened
  file    only what is opened
  bulk    everything, what --prefetch names first

Examples:
  # A software environment, where it was built
  tidecast mount @ticket /opt/env
  /opt/env/bin/python3 -c 'import numpy'
  tidecast umount /opt/env

  # What does the program need? The next job has it fetched at once
  tidecast mount @ticket /opt/env --record /home/me/app.list
  tidecast mount @ticket /opt/env --prefetch /home/me/app.list

  # Everything, into RAM
  tidecast mount genomes.torrent /data/genomes --mode bulk --cache /dev/shm/g";

/// Show a published tree at once; its files arrive as they are opened
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = AFTER, override_usage = USAGE)]
pub(crate) struct Args {
    /// A ticket, a manifest (.torrent), or a magnet link (@FILE has the ticket, - reads it from standard input; default:
    /// $TIDECAST_TICKET), and last the directory at which the tree appears, made if need be
    // One list: of two positionals the parser lets the first be absent only where no flag stands between them.
    #[arg(value_name = "TICKET|MANIFEST|MAGNET|MOUNTPOINT", required = true, num_args = 1..=2)]
    places: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
    /// Other users may use it too
    #[arg(long)]
    allow_other: bool,
    /// Stay until it is unmounted; Ctrl-C unmounts
    #[arg(long)]
    foreground: bool,
}

/// What is mounted, and how it comes: the same for `mount` and `run`.
#[derive(clap::Args, Debug)]
pub(crate) struct TreeArgs {
    /// What is fetched without being asked for
    #[arg(long, value_name = "MODE", value_parser = ["hybrid", "file", "bulk"], default_value = "hybrid")]
    pub(crate) mode: String,
    /// A list of what to fetch first: made by --record, or by hand, a path or pattern a line
    ///
    /// auto: the list beside the manifest (env.list for env.torrent), else the file .tidecast-prefetch in the tree
    #[arg(long, value_name = "auto|none|LIST", default_value = "auto")]
    pub(crate) prefetch: OsString,
    /// Fetch first what this program of the tree needs to start, libraries and all; may be repeated
    #[arg(long, value_name = "PROG")]
    pub(crate) prefetch_exe: Vec<String>,
    /// Write down what is read, as a list for --prefetch
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Where data is kept for the next job [default: RAM if there is plenty, else the temporary directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Take what any node of the job opens, as it is opened: one plan for all who mount with this flag
    #[arg(long)]
    pub(crate) group: bool,
    /// A read fails when nobody has given its data for so long [default: 10m]
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<Span>,
    /// The same tree on a shared file system: used, verified, while peers do not give what is waited for
    #[arg(long, value_name = "DIR")]
    pub(crate) fallback: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) swarm: SwarmArgs,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let (source, at) = args.places()?;
    if let Some(outcome) = other_part(source, &args.tree, context, reporter) {
        return outcome;
    }
    let options = MountOptions {
        allow_other: args.allow_other,
        foreground: args.foreground,
        ..args.tree.options(source, context)?
    };
    let source = tidecast::given_source(source)?;
    let mounted = drive::run(
        || tidecast::mount(source, at, options),
        reporter,
        |mounted, reporter| {
            reporter.clear();
            reporter.result(&format!("mounted at {}", mounted.path.display()));
        },
    )?;
    Ok(fields_of(&mounted))
}

impl Args {
    /// What is mounted, if it is named, and where.
    fn places(&self) -> Result<(Option<&str>, &Path), Failure> {
        let (at, source) = match self.places.as_slice() {
            [at] => (at, None),
            [source, at] => (at, Some(source)),
            _ => return Err(Failure::usage(anyhow!("name one tree and one mount point"))),
        };
        let unreadable = |source: &PathBuf| anyhow!("cannot use {}: its name is not UTF-8", escaped(source));
        let source = match source {
            Some(source) => Some(source.to_str().ok_or_else(|| Failure::usage(unreadable(source)))?),
            None => None,
        };
        Ok((source, at.as_path()))
    }
}

impl TreeArgs {
    /// As options of the library; `source`: the word that names it, beside which a list may lie.
    pub(crate) fn options(
        &self,
        source: Option<&str>,
        context: &Context<'_>,
    ) -> Result<MountOptions, Failure> {
        let serve = ServeOptions {
            mode: match self.mode.as_str() {
                "file" => Mode::File,
                "bulk" => Mode::Bulk,
                _ => Mode::Hybrid,
            },
            prefetch: match self.prefetch.to_str() {
                Some("auto") => source.and_then(list_beside).map_or(Prefetch::Auto, Prefetch::List),
                Some("none") => Prefetch::None,
                _ => Prefetch::List(self.prefetch.clone().into()),
            },
            prefetch_exe: self.prefetch_exe.clone(),
            record: self.record.clone(),
            cache: self.cache.clone().or_else(|| context.settings.cache.clone()),
            group: self.group,
            timeout: self.timeout.or(context.settings.timeout).map(|time| time.0),
            fallback: self.fallback.clone(),
            swarm: self.swarm.options(context)?,
        };
        Ok(MountOptions {
            serve,
            program: Program::Own,
            state_dir: Some(context.state_dir()?),
            threads: context.threads_for_operation(),
            ..Default::default()
        })
    }
}

/// The list that lies beside a manifest: of the same name but for the ending.
fn list_beside(source: &str) -> Option<PathBuf> {
    let path = Path::new(source).with_extension("list");
    (Path::new(source).is_file() && path.is_file()).then_some(path)
}

/// Runs as the keeper or the server of a mount, if that is what this process is.
pub(crate) fn other_part(
    source: Option<&str>,
    tree: &TreeArgs,
    context: &Context<'_>,
    reporter: &mut Reporter,
) -> Option<Outcome> {
    Some(match Role::of_environment()? {
        Role::Keeper => keep(),
        Role::Server => serve(source, tree, context, reporter),
    })
}

fn keep() -> Outcome {
    let status = keeper::keep()?;
    if status.success() {
        return Ok(Default::default());
    }
    let kind = Kind::of_exit(status.code().and_then(|code| code.try_into().ok()).unwrap_or_default());
    Err(Failure::new(kind, anyhow!("the server has ended: {status}")))
}

fn serve(source: Option<&str>, tree: &TreeArgs, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let keeper = std::io::stdin().as_fd().try_clone_to_owned().context("the keeper is not there")?;
    let options = tree.options(source, context)?;
    reporter.go_live("mount");
    let source = match tidecast_secret::inherited()? {
        Some(ticket) => ticket.parse()?,
        None => tidecast::given_source(source)?,
    };
    let begin = || tidecast::serve_mount(source, Packets::inherited(keeper), options);
    let end = drive::serve(begin, reporter, |_, _| {
        if let Err(error) = keeper::leave_stdout() {
            tracing::error!(%error, "the command that waits for this process waits in vain");
        }
    })?;
    if end == End::Restart {
        std::process::exit(i32::from(keeper::RESTART));
    }
    Ok(Default::default())
}

/// End a mount
#[derive(clap::Args, Debug)]
pub(crate) struct UmountArgs {
    /// Where it is
    #[arg(value_name = "MOUNTPOINT")]
    at: PathBuf,
    /// Even while it is in use: it is out of sight at once, and gone when nobody uses it any more
    #[arg(long)]
    lazy: bool,
    /// End the process that serves it too: whoever waits for data gets an error. All mounts of the tree are dead then
    #[arg(long)]
    abort: bool,
}

pub(crate) fn umount(args: &UmountArgs, reporter: &Reporter) -> Outcome {
    let done = tidecast::unmount(&args.at, UnmountOptions { lazy: args.lazy, abort: args.abort })?;
    reporter.result(&format!("unmounted {}", done.path.display()));
    Ok(fields_of(&done))
}

/// Show what runs: gets, shares, seeds, broadcasts, copies and mounts of this user; peers, rates, the last error
///
/// Of a mount also what was fetched, from whom, and who waits for what; of the cache daemon what is on its way for this
/// user, or for its administrator all of it.
#[derive(clap::Args, Debug)]
pub(crate) struct StatusArgs {
    /// Of one mount [default: all]
    #[arg(value_name = "MOUNTPOINT")]
    at: Option<PathBuf>,
    /// Replace the process that serves it by a new one, of the program as it is installed now; the mount stays
    #[arg(long, requires = "at")]
    restart: bool,
}

pub(crate) fn status(args: &StatusArgs, context: &Context<'_>, reporter: &Reporter) -> Outcome {
    let mut shown = tidecast::mounts().context("cannot read the mount table")?;
    if let Some(at) = args.at.as_ref().map(std::path::absolute).transpose()? {
        shown.retain(|mounted| mounted.at == at);
        if shown.is_empty() {
            return Err(anyhow!("{} is no mount of tidecast's", at.display()).into());
        }
    }
    if args.restart {
        for mounted in &shown {
            mounted.restart()?;
            reporter.result(&format!("{}: a new process serves it", mounted.at.display()));
        }
        return Ok(fields_of(&Shown::default()));
    }
    let mut mounts = Vec::new();
    for mounted in &shown {
        let state = mounted.state();
        state.lines().iter().for_each(|line| reporter.result(line));
        mounts.push(state);
    }
    if args.at.is_some() {
        return Ok(fields_of(&Shown { mounts, ..Shown::default() }));
    }
    let served = |pid| mounts.iter().any(|m| m.status.as_ref().is_some_and(|s| Some(s.pid) == pid));
    let mut processes = tidecast::status::processes();
    processes.retain(|one| !served(one.pid));
    processes.iter().flat_map(Process::lines).for_each(|line| reporter.result(&line));
    let daemon = daemon::to_ask(context).ok().and_then(|socket| tidecast::daemon::status(&socket));
    daemon.iter().flat_map(Status::lines_in_short).for_each(|line| reporter.result(&line));
    if shown.is_empty() && processes.is_empty() && daemon.is_none() {
        reporter.result("nothing is mounted, and no get, share, seed, broadcast or copy of this user runs");
    }
    Ok(fields_of(&Shown { mounts, processes: Some(processes), daemon: Some(daemon.map(Box::new)) }))
}
