//! `tidecast run TICKET -- COMMAND`: a command in a mount namespace of its own, in which the tree is where it was built,
//! so that RPATH, `$ORIGIN`, `#!` lines and virtual environments work. It needs no privilege, and leaves nothing behind:
//! when the last process in the namespace ends, so does the mount.

mod place;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, anyhow};
use nix::sched::{CloneFlags, unshare};
use rustix::mount::MountPropagationFlags;
use tidecast_mount::How;

use super::Context;
use super::mount::home::Home;
use super::mount::{TreeArgs, launch, other_part};
use super::source::Given;
use crate::failure::{Failure, Outcome};
use crate::report::Reporter;

const EXAMPLES: &str = "\
Examples:
  tidecast run @ticket -- /opt/env/bin/python3 train.py";

const AFTER: &str = "\
The command sees the tree at the path it was published from, or at --at,
whether that exists on this host or not; everything else is as it was. Nobody
else sees it. The exit code is the command's.

Examples:
  # As it was built, without being root
  tidecast run @ticket -- /opt/env/bin/python3 train.py

  # Somewhere else
  tidecast run tools.torrent --at /tools -- /tools/bin/blastn -version";

/// Run a command that sees a published tree where it was built; no privilege needed
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = AFTER)]
pub(crate) struct Args {
    #[command(flatten)]
    tree: TreeArgs,
    /// Where the command sees the tree [default: where it was published from]
    #[arg(long, value_name = "PREFIX")]
    at: Option<PathBuf>,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", last = true, required = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    if let Some(outcome) = other_part(&args.tree, context, reporter) {
        return outcome;
    }
    let given = Given::read(args.tree.source.as_deref())?;
    let home = Home::of(&given.parse()?, &args.tree, context)?;
    let server = launch::server(&home, &given, reporter)?;
    let at = match &args.at {
        Some(at) => std::path::absolute(at)?,
        None => prefix(&home)?,
    };
    let here = std::env::current_dir().context("cannot tell where this is run")?;
    separate()?;
    let at = place::make(&at, &home.scratch()?)?;
    // What was the same path before may be below something new now.
    std::env::set_current_dir(&here).with_context(|| format!("cannot go back to {}", here.display()))?;
    let how = How { source: home.socket(), allow_other: false };
    launch::attach(&server, &at, &how)?;
    drop(server);
    let (program, rest) = args.command.split_first().ok_or_else(|| anyhow!("there is no command"))?;
    let error = Command::new(program).args(rest).exec();
    Err(Failure::usage(anyhow!("cannot run {}: {error}", Path::new(program).display())))
}

/// Where the tree was published from.
fn prefix(home: &Home) -> Result<PathBuf, Failure> {
    let manifest = home.manifest().ok_or_else(|| anyhow!("the server has lost its manifest"))?;
    let prefix = manifest.prefix().map(|p| PathBuf::from(std::ffi::OsStr::from_bytes(p)));
    prefix.filter(|p| p.is_absolute()).ok_or_else(|| {
        Failure::usage(anyhow!(
            "nobody wrote down where this tree was published from: say where it is to be with --at"
        ))
    })
}

/// Leaves the host's mount namespace; who may not do that, does it as root of a user namespace of its own.
fn separate() -> Result<(), Failure> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if unshare(CloneFlags::CLONE_NEWNS).is_err() {
        let why = "this host lets users make no user namespaces (user.max_user_namespaces, kernel.unprivileged_userns_clone)";
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).context(why)?;
        let write = |name: &str, text: String| {
            let path = format!("/proc/self/{name}");
            std::fs::write(&path, text).with_context(|| format!("cannot write {path}"))
        };
        write("setgroups", "deny".to_owned())?;
        write("uid_map", format!("{user} {user} 1"))?;
        write("gid_map", format!("{group} {group} 1"))?;
    }
    // What is mounted from here on is for this namespace only.
    let private = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).context("cannot keep mounts to this namespace")?;
    Ok(())
}
