//! `cache get`: has a cache on this host, and a way to it in a directory.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use tidecast::{CacheName, GetCacheOptions, get_cache};
use tidecast_text::{Size, Span, count};

use crate::cmd::drive;
use crate::failure::Outcome;
use crate::report::{Reporter, fields_of};

/// Have a cache on this host, brought from others if need be
///
/// Without --to it prints the path. It is kept from eviction while the job runs that called this: the batch job, else the
/// script, else --pid. For a shell at a terminal that is while commands run there, and a minute longer.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  tidecast cache get head/nt --to . --wait 10m")]
pub(super) struct Args {
    /// [ORIGIN/]NAME[@VERSION]
    name: CacheName,
    /// Have it in this directory too, under its own name
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// What is made there
    #[arg(long, value_enum, default_value_t = Link::Symlink, requires = "to")]
    link: Link,
    /// Replace what has its name in that directory, in one step
    #[arg(long, requires = "to")]
    force: bool,
    /// Give up when it is not here after so long (exit code 3) [default: no limit]
    #[arg(long, value_name = "DURATION")]
    wait: Option<Span>,
    /// Give the newest version that is here, without asking the origin for a newer one [default: the origin is asked, for 2 s]
    #[arg(long)]
    offline: bool,
    /// Keep it while this process of yours runs
    #[arg(long, value_name = "PID")]
    pid: Option<i32>,
}

/// Ways to hand it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Link {
    /// A symbolic link; where the store cannot be read from here, a copy
    Symlink,
    /// Directories and hard links; where no link can be made, or it would be open to more users than the file was, as reflink
    Hardlink,
    /// Files of your own that share blocks; where that cannot be, as copy
    Reflink,
    /// A read-only bind mount (as root, or in a mount namespace of your own)
    Bind,
    /// Files of your own
    Copy,
}

pub(super) fn run(args: &Args, socket: &Path, reporter: &mut Reporter) -> Outcome {
    let options = GetCacheOptions {
        to: args.to.clone(),
        link: match args.link {
            Link::Symlink => tidecast::Link::Symlink,
            Link::Hardlink => tidecast::Link::Hardlink,
            Link::Reflink => tidecast::Link::Reflink,
            Link::Bind => tidecast::Link::Bind,
            Link::Copy => tidecast::Link::Copy,
        },
        force: args.force,
        wait: args.wait.map(|wait| wait.0),
        offline: args.offline,
        pid: args.pid,
        // In steps short enough to show progress on a terminal.
        often: !reporter.is_json(),
    };
    let got = drive::run(|| get_cache(socket, args.name.clone(), options), reporter, |(), _| ())?;
    if let Some(why) = &got.unseen {
        reporter.note(&match args.to {
            Some(_) => format!("no symbolic link is made, but a copy: {why}"),
            None => format!("{why}; --to DIR makes a copy there"),
        });
    }
    if got.copies > 0 {
        let were = if got.copies == 1 { "was" } else { "were" };
        reporter.note(&format!("{} {were} copied, {}", count(got.copies, "file"), Size(got.copied)));
    }
    reporter.result_path(&got.made);
    Ok(fields_of(&got))
}
