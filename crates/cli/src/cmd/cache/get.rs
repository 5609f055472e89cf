//! `cache get`: has a cache on this host, and a way to it in a directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::ValueEnum;
use serde_json::{Map, json};
use tidecast_daemon::client::fetch::{Fetch, FetchError, Ready, Waiting};
use tidecast_daemon::client::hand_out::{self, hand_out};
use tidecast_daemon::materialize::{self, Made};
use tidecast_daemon::name::CacheName;
use tidecast_text::{Size, Span, count};

use super::{Ask, failed};
use crate::failure::{Code, Failure, Outcome};
use crate::report::{Reporter, Snapshot, object};
use crate::stop::{Stop, or_cut};

/// Why nothing has come is told after so long.
const UNTOLD: Duration = Duration::from_secs(3);

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
    or_cut(give(args, &ready, dir.as_deref(), ask, reporter)).await
}

/// Gives what is here to whoever asked.
async fn give(args: &Args, ready: &Ready, dir: Option<&Path>, ask: &Ask, reporter: &mut Reporter) -> Outcome {
    if let Some(why) = &ready.older {
        reporter.warning(why);
    }
    let made = match dir {
        None => {
            if let Err(why) = materialize::sees(&ready.info) {
                reporter.note(&format!("{why}; --to DIR makes a copy there"));
            }
            ready.info.path.clone().context("the daemon names no path")?
        }
        Some(dir) => make(args, ready, dir, ask, reporter).await?,
    };
    reporter.clear();
    reporter.result_path(&made);
    let mut fields = fields(ready);
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
    let link = match args.link {
        Link::Symlink => hand_out::Link::Symlink,
        Link::Hardlink => hand_out::Link::Hardlink,
        Link::Reflink => hand_out::Link::Reflink,
        Link::Bind => hand_out::Link::Bind,
        Link::Copy => hand_out::Link::Copy,
    };
    if let (Link::Symlink, Err(why)) = (args.link, materialize::sees(&ready.info)) {
        reporter.note(&format!("no symbolic link is made, but a copy: {why}"));
    }
    let out = hand_out(&ask.client, &ready.info, dir, link, args.force).await.map_err(unmade)?;
    if let Some(made) = &out.made {
        tell(made, reporter);
    }
    Ok(out.path)
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

fn fields(ready: &Ready) -> Map<String, serde_json::Value> {
    let mut fields = object(json!(ready.info));
    fields.insert("fetched_seconds".into(), json!(ready.seconds));
    fields.insert("method".into(), json!(ready.method));
    fields.insert("older".into(), json!(ready.older));
    fields
}

/// Asks until it is here; `reason`: what it waits for, by the last answer.
async fn fetch(
    args: &Args,
    ask: &Ask,
    reason: &mut Option<String>,
    reporter: &mut Reporter,
) -> Result<Ready, Failure> {
    let began = Instant::now();
    let what = Fetch {
        name: args.name.to_string(),
        wait: args.wait.map(|wait| wait.0),
        pid: args.pid,
        offline: args.offline,
        // In steps short enough to show progress on a terminal.
        often: !reporter.is_json(),
    };
    let told = |waiting| match waiting {
        Waiting::Away(why) => *reason = Some(why),
        Waiting::Coming { why, bytes, total } => {
            *reason = Some(why.clone()).filter(|why| !why.is_empty());
            if bytes == 0 && began.elapsed() >= UNTOLD {
                let text = format!("nothing of {} has come yet: {why}", args.name);
                reporter.silence(&text, object(json!({ "reason": why })));
            }
            reporter.progress(&Snapshot { stage: "get", bytes, total, ..Snapshot::default() });
        }
    };
    ask.client.fetch(&what, told).await.map_err(|error| match error {
        FetchError::Client(error) => failed(error),
        late @ FetchError::Late { .. } => Failure::new(Code::Cut, late),
    })
}
