//! `tidecast mount TICKET|MANIFEST MOUNTPOINT`: shows a published tree at once, and fetches its files when they are opened.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use tidecast::event::daemon::Status;
use tidecast::event::status::{Process, Shown};
use tidecast::{Kind, Mode, MountOptions, Mounted, Prefetch, Program, ServeOptions, UnmountOptions};
use tidecast_mount::server::End;
use tidecast_mount::{Packets, Role, keeper};
use tidecast_text::{Span, escaped, with_causes};

use super::{Context, daemon, run_operation};
use crate::args::SwarmArgs;
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};

const USAGE: &str = "tidecast mount [OPTIONS] [TICKET|MANIFEST|MAGNET] <MOUNTPOINT>";

const EXAMPLES: &str = "\
Examples:
  tidecast mount @ticket /opt/env
  tidecast umount /opt/env";

const AFTER: &str = include_str!("../../help/mount.txt");

/// Mount a published tree at once; its files are fetched when they are opened
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = AFTER, override_usage = USAGE)]
pub(crate) struct Args {
    /// A ticket, a manifest (.torrent), or a magnet link (@FILE reads a ticket from a file, - from standard input; default:
    /// $TIDECAST_TICKET), and last the mount point, created if it is missing
    // One list, because clap allows an optional first of two positionals only if no flag is between them.
    #[arg(value_name = "TICKET|MANIFEST|MAGNET|MOUNTPOINT", required = true, num_args = 1..=2)]
    places: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
    /// Allow other users to access the mount
    #[arg(long)]
    allow_other: bool,
    /// Run in the foreground until unmounted, also when the terminal is closed; Ctrl-C or SIGTERM (kill PID) unmounts
    #[arg(long)]
    foreground: bool,
}

/// Options of the mounted tree: the same for `mount` and `run`.
#[derive(clap::Args, Debug)]
pub(crate) struct TreeArgs {
    /// Choose which files are fetched before they are opened
    #[arg(long, value_name = "MODE", value_parser = ["hybrid", "file", "bulk"], default_value = "hybrid")]
    pub(crate) mode: String,
    /// Fetch the files in this list first: written by --record, or by hand, one path or pattern per line
    ///
    /// auto: use the list next to the manifest (env.list for env.torrent), else the file .tidecast-prefetch in the tree
    #[arg(long, value_name = "auto|none|LIST", default_value = "auto")]
    pub(crate) prefetch: OsString,
    /// Fetch first the files that this program of the tree needs to start, with its libraries; may be repeated
    #[arg(long, value_name = "PROG")]
    pub(crate) prefetch_exe: Vec<String>,
    /// Record the files that are read to FILE, as a list for --prefetch
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Keep fetched data in DIR for later jobs [default: RAM if enough is free, else the temporary directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Fetch files as soon as any node of the job opens them, by one plan for all mounts with this flag
    #[arg(long)]
    pub(crate) group: bool,
    /// Fail a read if no peer supplies its data for this time [default: 10m]
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<Span>,
    /// Read from this copy of the tree on a shared file system, with verification, while peers do not supply the data
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
        ..args.tree.options(source, context, reporter)?
    };
    let source = tidecast::given_source(source)?;
    let mounted = run_operation::run(
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
    /// The source, if it is given, and the mount point.
    fn places(&self) -> Result<(Option<&str>, &Path), Failure> {
        let (at, source) = match self.places.as_slice() {
            [source] if is_source(source) => {
                let why = "missing mount point: name a directory after the ticket, manifest or magnet link";
                return Err(Failure::usage(anyhow!("{why}")));
            }
            [at] => (at, None),
            [source, at] => (at, Some(source)),
            _ => return Err(Failure::usage(anyhow!("give one source and one mount point"))),
        };
        let unreadable = |source: &PathBuf| anyhow!("cannot use {}: the path is not UTF-8", escaped(source));
        let source = match source {
            Some(source) => Some(source.to_str().ok_or_else(|| Failure::usage(unreadable(source)))?),
            None => None,
        };
        Ok((source, at.as_path()))
    }
}

/// Whether the only word is a source without a mount point: a new directory of this name is not wanted.
fn is_source(word: &Path) -> bool {
    let text = word.to_string_lossy();
    let begins = ["@", "tidecast1", "magnet:"].iter().any(|start| text.starts_with(start));
    (begins || text == "-" || text.ends_with(".torrent")) && !word.is_dir()
}

impl TreeArgs {
    /// As options of the library; `source`: the source's word, next to which a prefetch list may be.
    pub(crate) fn options(
        &self,
        source: Option<&str>,
        context: &Context<'_>,
        reporter: &Reporter,
    ) -> Result<MountOptions, Failure> {
        let serve = ServeOptions {
            mode: match self.mode.as_str() {
                "file" => Mode::File,
                "bulk" => Mode::Bulk,
                _ => Mode::Hybrid,
            },
            prefetch: match self.prefetch.to_str() {
                Some("auto") => source.map_or(Prefetch::Auto, |source| automatic(source, reporter)),
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

/// The prefetch list next to the manifest, if there is one that can be used; else that of the tree. A list that another user may
/// have put there, or that is no list, does not make the command fail.
fn automatic(source: &str, reporter: &Reporter) -> Prefetch {
    match tidecast_mount::list_beside(Path::new(source)) {
        Ok(list) => list.map_or(Prefetch::Auto, Prefetch::List),
        Err(error) => {
            reporter.warning(&format!("{}; it is ignored", with_causes(&error)));
            Prefetch::Auto
        }
    }
}

/// Runs as the keeper or the server of a mount, if this process was started as one.
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
    Err(Failure::new(kind, anyhow!("the server of the mount ended: {status}")))
}

fn serve(source: Option<&str>, tree: &TreeArgs, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let keeper = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .context("cannot use the connection to the keeper process")?;
    let options = tree.options(source, context, reporter)?;
    reporter.go_live("mount");
    let source = match tidecast_secret::inherited()? {
        Some(ticket) => ticket.parse()?,
        None => tidecast::given_source(source)?,
    };
    let begin = || tidecast::serve_mount(source, Packets::inherited(keeper), options);
    let end = run_operation::serve(begin, reporter, |_, _| {
        if let Err(error) = keeper::leave_stdout() {
            tracing::error!(%error, "cannot notify the waiting command that the mount is ready");
        }
    })?;
    if end == End::Restart {
        std::process::exit(i32::from(keeper::RESTART));
    }
    Ok(Default::default())
}

/// Unmount a tree
#[derive(clap::Args, Debug)]
pub(crate) struct UmountArgs {
    /// Mount point
    #[arg(value_name = "MOUNTPOINT")]
    at: PathBuf,
    /// Unmount even while processes use the mount: hide it at once, remove it when the last of them ends
    #[arg(long)]
    lazy: bool,
    /// Also end the process that serves the mount: pending reads fail, and all mounts of the tree stop working
    #[arg(long)]
    abort: bool,
}

pub(crate) fn umount(args: &UmountArgs, reporter: &Reporter) -> Outcome {
    let done = tidecast::unmount(&args.at, UnmountOptions { lazy: args.lazy, abort: args.abort })?;
    reporter.result(&format!("unmounted {}", done.path.display()));
    Ok(fields_of(&done))
}

/// Show running gets, shares, seeds, broadcasts, copies and mounts of this user: peers, rates, the last error
///
/// For a mount also the data fetched, its sources, and the processes that wait for data; for the cache daemon this user's
/// transfers in progress, or all of them for its administrator.
#[derive(clap::Args, Debug)]
pub(crate) struct StatusArgs {
    /// Show one mount [default: all, and all processes]
    #[arg(value_name = "MOUNTPOINT")]
    at: Option<PathBuf>,
    /// Restart the process that serves the mount, with the program as it is installed now; the mount stays
    #[arg(long, requires = "at")]
    restart: bool,
}

pub(crate) fn status(args: &StatusArgs, context: &Context<'_>, reporter: &Reporter) -> Outcome {
    let shown = match &args.at {
        Some(at) => vec![tidecast::find_mount(at)?],
        None => {
            let mut all = tidecast::mounts().context("cannot read the mount table")?;
            all.retain(Mounted::is_own);
            all
        }
    };
    if args.restart {
        for mounted in &shown {
            mounted.restart()?;
            reporter.result(&format!("restarted the server of {}", mounted.at.display()));
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
        reporter.result("no mount, and no running get, share, seed, broadcast or copy of this user");
    }
    Ok(fields_of(&Shown { mounts, processes: Some(processes), daemon: Some(daemon.map(Box::new)) }))
}
