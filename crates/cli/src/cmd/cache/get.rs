//! `cache get`: has a cache on this host, and a way to it in a directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::ValueEnum;
use serde_json::{Map, json};
use tidecast_daemon::api::types::{CacheInfo, Get, Got, How, Place, Placed};
use tidecast_daemon::name::CacheName;

use super::place::{bind, symlink};
use super::{Ask, failed};
use crate::failure::{Code, Failure, Outcome};
use crate::report::{Reporter, Snapshot, object};
use crate::units::{Size, Span, count};

/// The daemon is asked again after so long at most, seconds.
const ASK: u64 = 10;

/// Have a cache on this host, brought from others if need be
///
/// Without --to it prints the path. It is kept while the process that called this runs (a job's script, or --pid).
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
    /// Give up when it is not here after so long (exit code 3) [default: no limit]
    #[arg(long, value_name = "DURATION")]
    wait: Option<Span>,
    /// Keep it while this process of yours runs
    #[arg(long, value_name = "PID")]
    pid: Option<i32>,
}

/// Ways to hand it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Link {
    /// A symbolic link
    Symlink,
    /// Directories and hard links; where no link can be made, as reflink
    Hardlink,
    /// Files of your own that share blocks; where that cannot be, as copy
    Reflink,
    /// A read-only bind mount (as root, or in a mount namespace of your own)
    Bind,
    /// Files of your own
    Copy,
}

pub(super) async fn run(args: &Args, ask: &Ask, reporter: &mut Reporter) -> Outcome {
    let how = match args.link {
        Link::Hardlink => Some(How::Hardlink),
        Link::Reflink => Some(How::Reflink),
        Link::Copy => Some(How::Copy),
        Link::Symlink | Link::Bind => None,
    };
    let dir = args
        .to
        .as_ref()
        .map(|dir| dir.canonicalize().with_context(|| format!("cannot find {}", dir.display())));
    let dir = dir.transpose()?;
    let ready = fetch(args, ask, reporter).await?;
    let path = ready.path()?.to_owned();
    let top = path.file_name().context("the daemon names no file")?.to_string_lossy().into_owned();
    let made = match (&dir, how) {
        (None, _) => path.clone(),
        (Some(dir), None) if args.link == Link::Bind => bind(&path, &dir.join(top))?,
        (Some(dir), None) => symlink(&path, &dir.join(top))?,
        (Some(dir), Some(how)) => {
            let place = Place { dir: dir.clone(), name: top, how, ..Place::default() };
            let get = Get {
                name: ready.info.name.clone(),
                pid: args.pid,
                place: Some(place),
                wait: ASK,
                copy_for: None,
            };
            let wait = Duration::from_secs(3600);
            let got: Got = ask.client.post("/v1/get", &get, wait).await.map_err(failed)?;
            let Got::Ready { placed: Some(placed), .. } = got else {
                return Err(anyhow!("the daemon says nothing of what it made").into());
            };
            tell(&placed, reporter);
            placed.path
        }
    };
    reporter.clear();
    reporter.result_path(&made);
    let mut fields = ready.fields();
    fields.insert("made".into(), crate::names::json(&made));
    Ok(fields)
}

fn tell(placed: &Placed, reporter: &Reporter) {
    if placed.copies > 0 {
        let were = if placed.copies == 1 { "was" } else { "were" };
        reporter.note(&format!("{} {were} copied, {}", count(placed.copies, "file"), Size(placed.copied)));
    }
}

/// A cache that is here.
struct Ready {
    info: CacheInfo,
    seconds: f64,
    method: Option<String>,
}

impl Ready {
    fn path(&self) -> Result<&Path, Failure> {
        Ok(self.info.path.as_deref().context("the daemon names no path")?)
    }

    fn fields(&self) -> Map<String, serde_json::Value> {
        let mut fields = object(json!(self.info));
        fields.insert("fetched_seconds".into(), json!(self.seconds));
        fields.insert("method".into(), json!(self.method));
        fields
    }
}

/// Asks until it is here.
async fn fetch(args: &Args, ask: &Ask, reporter: &mut Reporter) -> Result<Ready, Failure> {
    let began = Instant::now();
    loop {
        let left = args.wait.map(|wait| wait.0.saturating_sub(began.elapsed()));
        // In steps short enough to show progress on a terminal.
        let wait =
            left.map_or(ASK, |left| left.as_secs().min(ASK)).min(if reporter.is_json() { ASK } else { 1 });
        let get = Get { name: args.name.to_string(), wait, pid: args.pid, ..Get::default() };
        let got: Got = ask.client.post("/v1/get", &get, Duration::from_secs(wait)).await.map_err(failed)?;
        match got {
            Got::Ready { info, seconds, method, .. } => {
                return Ok(Ready { info: *info, seconds, method: method.map(|m| m.to_string()) });
            }
            Got::Wait { why, bytes, total } => {
                reporter.progress(&Snapshot { stage: "get", bytes, total, ..Snapshot::default() });
                if left.is_some_and(|left| left.is_zero()) {
                    let error = anyhow!("{} is not here after {}: {why}", args.name, Span(began.elapsed()));
                    return Err(Failure { code: Code::Cut, error, fields: Map::new() });
                }
            }
        }
    }
}
