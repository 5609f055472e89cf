//! `cache get`: has a cache on this host, and a way to it in a directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::ValueEnum;
use serde_json::{Map, json};
use tidecast_daemon::api::types::{CacheInfo, Get, Got};
use tidecast_daemon::materialize::{self, How, Made, Wanted};
use tidecast_daemon::name::CacheName;

use super::place::bind;
use super::{Ask, Away, failed};
use crate::failure::{Code, Failure, Outcome};
use crate::report::{Reporter, Snapshot, object};
use crate::stop::{Stop, or_cut};
use crate::units::{Size, Span, count};

/// The daemon is asked again after so long at most, seconds.
const ASK: u64 = 4;
/// Why nothing has come is told after so long.
const UNTOLD: Duration = Duration::from_secs(3);
/// A daemon that has gone is looked for again after so long.
const AGAIN: Duration = Duration::from_millis(300);

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

pub(super) async fn run(args: &Args, ask: &Ask, reporter: &mut Reporter) -> Outcome {
    let dir = args
        .to
        .as_ref()
        .map(|dir| dir.canonicalize().with_context(|| format!("cannot find {}", dir.display())));
    let dir = dir.transpose()?;
    let (stop, mut why) = (Stop::listen()?, None);
    let ready = tokio::select! {
        ready = fetch(args, ask, &mut why, reporter) => Some(ready?),
        () = stop.wait() => None,
    };
    let Some(ready) = ready else {
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        let error =
            anyhow!("interrupted before {} was here{why}; the same command goes on from here", args.name);
        return Err(Failure::new(Code::Cut, error));
    };
    or_cut(hand_out(args, &ready, dir.as_deref(), ask, reporter)).await
}

/// Gives what is here to whoever asked.
async fn hand_out(
    args: &Args,
    ready: &Ready,
    dir: Option<&Path>,
    ask: &Ask,
    reporter: &mut Reporter,
) -> Outcome {
    if let Some(why) = &ready.older {
        reporter.warning(why);
    }
    let made = match dir {
        None => {
            if let Err(why) = materialize::sees(&ready.info) {
                reporter.note(&format!("{why}; --to DIR makes a copy there"));
            }
            ready.path()?.to_owned()
        }
        Some(dir) => make(args, ready, dir, ask, reporter).await?,
    };
    reporter.clear();
    reporter.result_path(&made);
    let mut fields = ready.fields();
    fields.insert("made".into(), crate::names::json(&made));
    Ok(fields)
}

/// Makes in a directory what was asked for, by this process's own rights.
async fn make(
    args: &Args,
    ready: &Ready,
    dir: &Path,
    ask: &Ask,
    reporter: &Reporter,
) -> Result<PathBuf, Failure> {
    let path = ready.path()?;
    let name = path.file_name().context("the daemon names no file")?;
    let how = match args.link {
        Link::Hardlink => How::Hardlink,
        Link::Reflink => How::Reflink,
        Link::Copy => How::Copy,
        Link::Bind => return Ok(bind(path, &dir.join(name))?),
        Link::Symlink => match materialize::sees(&ready.info) {
            Ok(_) => return materialize::symlink(path, dir, name, args.force).map_err(unmade),
            Err(why) => {
                reporter.note(&format!("no symbolic link is made, but a copy: {why}"));
                How::Reflink
            }
        },
    };
    let wanted = Wanted {
        dir: dir.to_owned(),
        name: name.to_owned(),
        subpath: PathBuf::new(),
        how,
        force: args.force,
    };
    let made = materialize::place(&ask.client, &ready.info, wanted).await.map_err(unmade)?;
    tell(&made, reporter);
    Ok(made.path)
}

fn unmade(error: materialize::Error) -> Failure {
    match error {
        materialize::Error::Client(error) => failed(error),
        other => anyhow::Error::from(other).into(),
    }
}

fn tell(made: &Made, reporter: &Reporter) {
    if made.copies > 0 {
        let were = if made.copies == 1 { "was" } else { "were" };
        reporter.note(&format!("{} {were} copied, {}", count(made.copies, "file"), Size(made.copied)));
    }
}

/// A cache that is here.
struct Ready {
    info: CacheInfo,
    seconds: f64,
    method: Option<String>,
    older: Option<String>,
}

impl Ready {
    fn path(&self) -> Result<&Path, Failure> {
        Ok(self.info.path.as_deref().context("the daemon names no path")?)
    }

    fn fields(&self) -> Map<String, serde_json::Value> {
        let mut fields = object(json!(self.info));
        fields.insert("fetched_seconds".into(), json!(self.seconds));
        fields.insert("method".into(), json!(self.method));
        fields.insert("older".into(), json!(self.older));
        fields
    }
}

/// Asks until it is here; `reason`: what it waits for, by the last answer.
async fn fetch(
    args: &Args,
    ask: &Ask,
    reason: &mut Option<String>,
    reporter: &mut Reporter,
) -> Result<Ready, Failure> {
    let (began, job) = (Instant::now(), crate::batch::job());
    let mut away = Away::new(args.wait.map(|wait| wait.0));
    loop {
        let left = args.wait.map(|wait| wait.0.saturating_sub(began.elapsed()));
        // In steps short enough to show progress on a terminal.
        let wait =
            left.map_or(ASK, |left| left.as_secs().min(ASK)).min(if reporter.is_json() { ASK } else { 1 });
        let (name, job) = (args.name.to_string(), job.clone());
        let get = Get { name, wait, pid: args.pid, job, offline: args.offline, ..Get::default() };
        let got = match ask.client.post::<Got>("/v1/get", &get, Duration::from_secs(wait)).await {
            Err(error) if away.waits(&error) => {
                if left.is_some_and(|left| left.is_zero()) {
                    let error = anyhow!("{} is not here after {}: {error}", args.name, Span(began.elapsed()));
                    return Err(Failure { code: Code::Cut, error, fields: Map::new() });
                }
                *reason = Some(error.to_string());
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            other => other.map_err(failed)?,
        };
        away.heard();
        match got {
            Got::Ready { info, seconds, method, older } => {
                return Ok(Ready { info: *info, seconds, method: method.map(|m| m.to_string()), older });
            }
            Got::Wait { why, bytes, total } => {
                *reason = Some(why.clone()).filter(|why| !why.is_empty());
                if bytes == 0 && began.elapsed() >= UNTOLD {
                    let text = format!("nothing of {} has come yet: {why}", args.name);
                    reporter.silence(&text, object(json!({ "reason": why })));
                }
                reporter.progress(&Snapshot { stage: "get", bytes, total, ..Snapshot::default() });
                if left.is_some_and(|left| left.is_zero()) {
                    let error = anyhow!("{} is not here after {}: {why}", args.name, Span(began.elapsed()));
                    return Err(Failure { code: Code::Cut, error, fields: Map::new() });
                }
            }
        }
    }
}
