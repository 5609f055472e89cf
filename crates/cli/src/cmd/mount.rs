//! `tidecast mount TICKET|MANIFEST MOUNTPOINT`: a published tree appears at once, and arrives as it is opened.
//!
//! Three processes: this one mounts and ends; a *server* (`server.rs`) answers the kernel, one for each tree on a host,
//! whatever the number of mounts; a *keeper* (`keeper.rs`) holds their devices, so that the mounts outlive a server
//! that crashes or is replaced.

mod ahead;
pub(crate) mod home;
mod keeper;
pub(crate) mod launch;
mod server;
mod view;

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde_json::{Map, Value, json};
use tidecast_metainfo::{Manifest, Warning};
use tidecast_mount::{Ask, Chosen, Guard, How, Place, clean, find, mounted_at, unmount};
use tidecast_text::{Span, escaped};

use super::source::Given;
use super::{Context, processes};
use crate::cli::SwarmArgs;
use crate::failure::{Failure, Outcome};
use crate::names;
use crate::report::{Reporter, object, round};
use crate::stop::{Stop, block_on};
use home::Home;

/// Where a process of ours finds out that it is to be the server or the keeper of its command line.
const PART: &str = "TIDECAST_MOUNT_PART";
/// How often `--foreground` looks whether the mount is still there.
const LOOK: Duration = Duration::from_millis(300);

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
    pub(crate) prefetch: ahead::Prefetch,
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
    let given = Given::read(source)?;
    let home = Home::of(&given.parse()?, &args.tree, context)?;
    let place = place(at, &guard(&[home.path().to_owned()]))?;
    let at = place.path().to_owned();
    let server = launch::server(&home, &given, reporter)?;
    let how = How { source: home.socket(), allow_other: args.allow_other };
    launch::attach(&server, &place, &how, false)?;
    let seconds = reporter.seconds();
    if args.tree.fallback.is_none() {
        launch::tell_silence(&home.socket(), reporter);
    }
    let fields = object(
        json!({ "path": names::json(&at), "socket": names::json(&home.socket()), "mount_seconds": round(seconds) }),
    );
    reporter.clear();
    let manifest = home.manifest();
    let in_its_place = manifest.as_ref().and_then(|m| m.prefix()) == Some(at.as_os_str().as_bytes());
    for warning in manifest.iter().flat_map(Manifest::warnings) {
        let told = match warning {
            Warning::OutsideLinks { .. } => true,
            Warning::LinksToPrefix { .. } => !in_its_place,
            _ => false,
        };
        if told {
            reporter.warning(&warning.to_string());
        }
    }
    reporter.result(&format!("mounted at {}", at.display()));
    if args.foreground {
        stay(&at, context)?;
    }
    Ok(fields)
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

/// Runs as the keeper or the server, if that is what this process is.
pub(crate) fn other_part(
    source: Option<&str>,
    tree: &TreeArgs,
    context: &Context<'_>,
    reporter: &mut Reporter,
) -> Option<Outcome> {
    match std::env::var(PART).as_deref() {
        Ok("keeper") => Some(keeper::run()),
        Ok("server") => Some(server::run(source, tree, context, reporter)),
        _ => None,
    }
}

/// What no mount may hide: the system, the caller's home, by `$HOME` and by the user database, and these directories.
pub(crate) fn guard(more: &[PathBuf]) -> Guard {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective()).ok().flatten();
    let mut homes: Vec<PathBuf> = user.map(|user| user.dir).into_iter().chain(std::env::home_dir()).collect();
    homes.extend_from_slice(more);
    Guard::new(&homes)
}

/// The mount point: a directory that may be hidden, made if need be, and no mount of ours yet.
fn place(at: &Path, guard: &Guard) -> Result<Place, Failure> {
    let absolute = std::path::absolute(at).with_context(|| format!("cannot mount at {}", at.display()))?;
    if clean(&absolute)? {
        tracing::info!(at = %absolute.display(), "a mount that nobody served any more was taken away");
    }
    if mounted_at(&absolute).is_none() {
        find(at, guard, Chosen::ByCaller).map_err(Failure::usage)?;
        std::fs::create_dir_all(at)
            .with_context(|| format!("cannot make the mount point {}", at.display()))?;
    }
    let place = Place::open(at, guard, Chosen::ByCaller).map_err(Failure::usage)?;
    if mounted_at(place.path()).is_some() {
        let at = place.path().display();
        return Err(anyhow!("{at} is mounted already; unmount it first: tidecast umount {at}").into());
    }
    Ok(place)
}

/// Until the mount is gone; on Ctrl-C it goes.
fn stay(at: &Path, context: &Context<'_>) -> Result<(), Failure> {
    block_on(context.threads(), async {
        let stop = Stop::listen()?;
        while mounted_at(at).is_some() {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = stop.wait() => {
                    let at = at.to_owned();
                    let gone = tokio::task::spawn_blocking(move || unmount(&at, true)).await;
                    return Ok(gone.context("a thread of Tidecast failed")??);
                }
            }
        }
        Ok(())
    })
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
    let at = std::path::absolute(&args.at)?;
    let mounted = match mounted_at(&at) {
        Some(mounted) => mounted,
        // By another name, if that can be found out without touching what may not answer.
        None => at.canonicalize().ok().and_then(|at| mounted_at(&at)).ok_or_else(|| {
            Failure::from(anyhow!(
                "{} is no mount of tidecast's; `tidecast status` lists those",
                at.display()
            ))
        })?,
    };
    if args.abort {
        launch::ask(&mounted.source, &Ask::Stop)?;
    }
    unmount(&mounted.at, args.lazy || args.abort)?;
    reporter.result(&format!("unmounted {}", mounted.at.display()));
    Ok(object(json!({ "path": names::json(&mounted.at) })))
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
    let all = tidecast_mount::mounts().context("cannot read the mount table")?;
    let wanted = args.at.as_ref().map(std::path::absolute).transpose()?;
    let shown: Vec<_> = all.into_iter().filter(|m| wanted.as_ref().is_none_or(|at| m.at == *at)).collect();
    if let Some(at) = wanted.as_ref().filter(|_| shown.is_empty()) {
        return Err(anyhow!("{} is no mount of tidecast's", at.display()).into());
    }
    let mut mounts: Vec<Value> = Vec::new();
    for mounted in &shown {
        if args.restart {
            launch::ask(&mounted.source, &Ask::Restart)?;
            reporter.result(&format!("{}: a new process serves it", mounted.at.display()));
            continue;
        }
        let mut fields = Map::new();
        fields.insert("path".to_owned(), names::json(&mounted.at));
        match launch::status(&mounted.source) {
            Ok(Value::Object(status)) => fields.extend(status),
            Ok(_) => {}
            Err(failure) => {
                fields.insert("dead".to_owned(), failure.error.to_string().into());
            }
        }
        view::show(&fields, reporter);
        mounts.push(Value::Object(fields));
    }
    if wanted.is_some() {
        return Ok(object(json!({ "mounts": mounts })));
    }
    let served = |pid: Option<&Value>| pid.is_some() && mounts.iter().any(|mount| mount.get("pid") == pid);
    let mut processes = crate::live::places::look();
    processes.retain(|one| !served(one.get("pid")));
    processes.iter().for_each(|one| processes::show_one(one, reporter));
    let daemon = processes::daemon(context);
    daemon.iter().for_each(|daemon| processes::show_daemon(daemon, reporter));
    if shown.is_empty() && processes.is_empty() && daemon.is_none() {
        reporter.result("nothing is mounted, and no get, share, seed, broadcast or copy of this user runs");
    }
    Ok(object(json!({ "mounts": mounts, "processes": processes, "daemon": daemon })))
}
