//! `cache get`: fetches a cache to this host, and links or copies it into a directory.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use tidecast::{CacheName, GetCacheOptions, get_cache};
use tidecast_text::{Size, Span, count};

use crate::cmd::run_operation;
use crate::failure::Outcome;
use crate::report::{Reporter, fields_of};

/// Get a cache on this host, fetched from other hosts if necessary
///
/// Without --to it prints the path in the daemon's store. The cache is not evicted while the job that called this runs:
/// the batch job, else the script, else --pid. For a shell at a terminal: while commands run there, and a minute longer.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  tidecast cache get head/nt --to . --wait 10m")]
pub(super) struct Args {
    /// [ORIGIN/]NAME[@VERSION]
    name: CacheName,
    /// Link or copy the cache into this directory, under its own name; created if it is missing
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Choose the kind of link or copy in DIR
    #[arg(long, value_enum, default_value_t = Link::Symlink, requires = "to")]
    link: Link,
    /// Replace an existing entry of the same name in DIR, atomically
    #[arg(long, requires = "to")]
    force: bool,
    /// Give up if the cache is not complete after this time (exit code 3) [default: no limit]
    #[arg(long, value_name = "DURATION")]
    wait: Option<Span>,
    /// Use the newest version on this host, without asking the origin for a newer one [default: ask the origin, for at
    /// most 2 s]
    #[arg(long)]
    offline: bool,
    /// Prevent eviction while this process of yours runs
    #[arg(long, value_name = "PID")]
    pid: Option<i32>,
}

/// Kinds of links and copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Link {
    /// A symbolic link; a copy if the store cannot be read from here
    Symlink,
    /// Directories and hard links; as reflink if a link is not possible or if it would let more users read the file
    Hardlink,
    /// Files of your own that share blocks with the store; as copy if the file system cannot share blocks
    Reflink,
    /// A read-only bind mount (as root, or in your own mount namespace)
    Bind,
    /// Independent copies of the files
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
        // Often enough to show progress on a terminal.
        often: !reporter.is_json(),
    };
    let got = run_operation::run(|| get_cache(socket, args.name.clone(), options), reporter, |(), _| ())?;
    if let Some(why) = &got.unseen {
        reporter.note(&match args.to {
            Some(_) => format!("made a copy instead of a symbolic link: {why}"),
            None => format!("{why}; use --to DIR to make a copy"),
        });
    }
    if got.copies > 0 {
        reporter.note(&format!("copied {}, {}", count(got.copies, "file"), Size(got.copied)));
    }
    reporter.result_path(&got.made);
    Ok(fields_of(&got))
}
