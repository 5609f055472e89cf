//! `cache create`: the files are read by this process, with its user's rights, and handed to the daemon.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use tidecast_daemon::api::types::{CacheInfo, Create, Method};
use tidecast_daemon::client::create::{Error, Prepared};
use tidecast_publish::Progress;
use tidecast_text::{Size, Span, count};

use super::{Ask, failed};
use crate::failure::{Code, Failure, Outcome};
use crate::report::{Reporter, Snapshot, object};

/// Make a cache of files, kept by this host's daemon from now on
///
/// The files are copied into its store (or were there already, in another cache of yours); the originals are yours to
/// change. Equal content under the same name is the same version, of which what is said by options changes while no other
/// host has a copy; other content is the next version.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  tidecast cache create nt /data/blast/nt --lease 30d --methods swarm,direct"
)]
pub(super) struct Args {
    /// What to call it
    name: String,
    /// A directory, whose content it will be, or files of one directory
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// How long it is wanted: where room is short, it goes only after what is wanted no more; `pin` keeps it whatever comes
    /// [default: the daemon's, 7d]
    #[arg(long, value_name = "DURATION")]
    lease: Option<Span>,
    /// Wait so long for room that running jobs or transfers take (exit code 3 when there is none) [default: fail at once]
    #[arg(long, value_name = "DURATION")]
    wait: Option<Span>,
    /// How it may travel, preferred first: swarm, direct
    #[arg(long, value_name = "METHOD", value_delimiter = ',')]
    methods: Vec<Method>,
    /// Hosts it is offered to: a ClassAd expression over their ads (TARGET.TotalDisk > 1000000)
    #[arg(long, value_name = "CLASSAD", value_parser = expression)]
    policy: Option<String>,
    /// Hosts that may have it: a ClassAd expression over their ads
    #[arg(long, value_name = "CLASSAD", value_parser = expression)]
    requirements: Option<String>,
    /// Only you may read it, and it leaves this host by DIRECT only
    #[arg(long)]
    private: bool,
    /// Copies to keep on hosts, the one here among them [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    replicas: Option<u32>,
    /// Who may read it: 700, 750 or 755, as of a directory [default: whoever could read all the files]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    mode: Option<u32>,
    /// The group for whom the mode's middle digit is [default: yours]
    #[arg(long)]
    group: Option<String>,
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode & 0o022 != 0 => Err("nobody writes to a cache: write 700, 750 or 755".into()),
        Ok(mode) if mode & !0o777 == 0 && mode & 0o400 != 0 => Ok(mode),
        _ => Err("write it in octal, as of a directory: 700, 750 or 755".into()),
    }
}

/// The text, if it is one that daemons understand: before all is hashed.
fn expression(text: &str) -> Result<String, String> {
    tidecast_classad::Expr::parse(text).map(|_| text.to_owned()).map_err(|e| e.to_string())
}

pub(super) async fn run(args: &Args, ask: &Ask, reporter: &mut Reporter) -> Outcome {
    let create = Create {
        name: args.name.clone(),
        lease: args.lease.map(|lease| lease.0.as_secs()),
        methods: args.methods.clone(),
        policy: args.policy.clone(),
        requirements: args.requirements.clone(),
        private: args.private,
        replicas: args.replicas.unwrap_or(0),
        mode: args.mode,
        group: args.group.clone(),
        found: false,
    };
    if let Some(why) = create.contradiction() {
        return Err(Failure::usage(anyhow::anyhow!(why)));
    }
    let prepared = prepare(args, reporter).await?;
    prepared.warnings().iter().for_each(|warning| reporter.warning(warning));
    let wait = args.wait.map(|wait| wait.0);
    let made = prepared.make(&ask.client, create, wait).await.map_err(not_made)?;
    let info = &made.info;
    reporter.clear();
    reporter.result(&format!(
        "{}: {} in {}, {} of them new here; {}",
        info.name,
        Size(info.bytes),
        count(info.files, "file"),
        Size(made.sent),
        info.path.as_deref().map_or(String::new(), |path| path.display().to_string())
    ));
    let reason = made.narrowed_by.map(|(path, mode)| format!("{} has mode {mode:o}", path.display()));
    if let Some(reason) = &reason {
        reporter.note(&format!(
            "readable by {} only: {reason}; --mode 755 opens it to all users",
            readers_of(info)
        ));
    }
    let mut fields = object(json!(info));
    fields.insert("mode_reason".into(), json!(reason));
    fields.insert("sent".into(), made.sent.into());
    Ok(fields)
}

fn not_made(error: Error) -> Failure {
    let wait = || object(json!({ "reason": "wait" }));
    match error {
        Error::Client(error) => failed(error),
        Error::NoRoom(_) => Failure::from(error).with(wait()),
        Error::Late { .. } => Failure::new(Code::Cut, error).with(wait()),
        other => other.into(),
    }
}

fn readers_of(info: &CacheInfo) -> String {
    match &info.group {
        Some(group) if info.mode & 0o040 != 0 => format!("{} and group {group}", info.owner),
        _ => info.owner.clone(),
    }
}

/// Walks and hashes, and shows how far it is.
async fn prepare(args: &Args, reporter: &mut Reporter) -> Result<Prepared, Failure> {
    let progress = Arc::new(Progress::new());
    let (paths, name, telling) = (args.paths.clone(), args.name.clone(), progress.clone());
    let mut work = tokio::task::spawn_blocking(move || Prepared::of(&paths, &name, &telling));
    loop {
        tokio::select! {
            done = &mut work => return Ok(done.context("a thread of Tidecast failed")??),
            () = tokio::time::sleep(Duration::from_millis(100)) => {
                let (bytes, total) = (progress.bytes(), progress.total());
                reporter.progress(&Snapshot { stage: "hash", bytes, total, ..Snapshot::default() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_cache_can_have_is_refused_before_anything_is_read() {
        for fine in ["700", "750", "755", "0755", "555"] {
            assert!(mode(fine).is_ok(), "{fine}");
        }
        for bad in ["777", "775", "722", "077", "1755", "rwx", ""] {
            assert!(mode(bad).is_err(), "{bad}");
        }
        assert!(expression("TARGET.TotalDisk > 5").is_ok() && expression("1 +").is_err());
    }
}
