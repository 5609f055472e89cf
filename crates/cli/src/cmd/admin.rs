//! `tidecast admin`: what an administrator has the daemon of this host do.

use clap::Subcommand;
use serde_json::json;
use std::time::Duration;
use tidecast_daemon::api::types::{Came, Checked, Limit, Limits, Ruled, Status};
use tidecast_daemon::client::Client;
use tidecast_text::{Size, Span, count, escaped};

use super::{Context, daemon};
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, object};
use crate::stop::{block_on, or_cut};

/// Look after the daemon of this host, or of all hosts: status, pause, drain, limits, check
///
/// For root, or for the user whose daemon it is. It takes effect at once, with --all on every daemon of the site that
/// is alive: a host's daemon is obeyed by the others (see the setting `admins`), a user's by that user's others. A store
/// is verified (fsck) on its own host only.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  tidecast admin status\n  tidecast admin limit --capacity 500GB\n  tidecast admin drain --host node07\n  tidecast admin status --all\n  tidecast admin fsck"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Args, Debug)]
struct Where {
    /// On all hosts of the site
    #[arg(long, conflicts_with = "host")]
    all: bool,
    /// On this host instead of the one where you are
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

#[derive(Subcommand, Debug)]
enum What {
    /// How the daemon is
    Status(Where),
    /// Take nothing new, and have others wait, until it is resumed: also when the daemon is started anew
    Pause(Where),
    /// Take nothing new, until it is resumed, also when the daemon is started anew; what is here is still given to others
    Drain(Where),
    /// Take new caches again
    Resume(Where),
    /// Change limits, until the daemon is started anew: for good they stand in its configuration
    Limit(LimitArgs),
    /// Verify every byte of the store of this host, and repair from other hosts what is damaged; what nobody has is INVALID
    Fsck,
}

#[derive(clap::Args, Debug)]
struct LimitArgs {
    #[command(flatten)]
    at: Where,
    #[command(flatten)]
    limits: LimitFlags,
}

#[derive(clap::Args, Debug)]
#[group(required = true, multiple = true)]
struct LimitFlags {
    /// Most that caches may occupy
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
    /// Caches that are fetched at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    transfers: Option<u32>,
    /// Most bytes a second to other hosts; 0: no limit. So for the next two
    #[arg(long, value_name = "SIZE")]
    upload: Option<Size>,
    /// Most bytes a second from other hosts
    #[arg(long, value_name = "SIZE")]
    download: Option<Size>,
    /// Most bytes a second to the disk
    #[arg(long, value_name = "SIZE")]
    disk_rate: Option<Size>,
    /// Most CPU time, in cores; 0: no limit
    #[arg(long, value_name = "N", value_parser = not_negative)]
    cores: Option<f64>,
    /// The share of all that while a job uses a cache: 0.06
    #[arg(long, value_name = "SHARE", value_parser = share)]
    busy: Option<f64>,
}

fn not_negative(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if number >= 0.0 && number.is_finite() { Ok(number) } else { Err("write 0 or more".into()) }
}

fn share(text: &str) -> Result<f64, String> {
    not_negative(text).ok().filter(|share| *share <= 1.0).ok_or_else(|| "write a share: 0 to 1".into())
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let client = Client::new(&daemon::to_ask(context)?);
    let failed = |error| Failure::from(anyhow::Error::from(error));
    let here = Where { all: false, host: None };
    let at = match &args.what {
        What::Status(at) | What::Pause(at) | What::Drain(at) | What::Resume(at) => at,
        What::Limit(args) => &args.at,
        What::Fsck => &here,
    };
    let elsewhere = at.all || at.host.is_some();
    let work = async {
        let (word, limit) = match &args.what {
            What::Status(_) if elsewhere => ("status", Limit::default()),
            What::Status(_) => {
                let status: Status = client.get("/v1/daemon").await.map_err(failed)?;
                return tell(&status, reporter);
            }
            What::Fsck => {
                let long = Duration::from_secs(7 * 86_400);
                let report: Checked = client.post("/v1/fsck", &json!({}), long).await.map_err(failed)?;
                return checked(&report, reporter);
            }
            What::Pause(_) => ("pause", Limit::default()),
            What::Drain(_) => ("drain", Limit::default()),
            What::Resume(_) => ("resume", Limit::default()),
            What::Limit(LimitArgs { limits: args, .. }) => {
                let bytes = |size: Option<Size>| size.map(|size| size.0);
                let limit = Limit {
                    capacity: bytes(args.capacity),
                    transfers: args.transfers,
                    upload: bytes(args.upload),
                    download: bytes(args.download),
                    disk_rate: bytes(args.disk_rate),
                    cores: args.cores,
                    busy: args.busy,
                };
                ("limit", limit)
            }
        };
        if elsewhere {
            let host = at.host.as_deref().map_or(String::new(), |host| {
                format!("?host={}", tidecast_text::percent_encode(host.as_bytes(), ""))
            });
            let path = format!("/v1/site/{word}{host}");
            let told: Vec<Ruled> = client.post(&path, &limit, Duration::ZERO).await.map_err(failed)?;
            return tell_all(&told, reporter);
        }
        let path = format!("/v1/admin/{word}");
        let status: Status = client.post(&path, &limit, Duration::ZERO).await.map_err(failed)?;
        tell(&status, reporter)
    };
    block_on(context.threads(), or_cut(work))
}

/// A line for each host; it is a failure if one has not done it.
fn tell_all(told: &[Ruled], reporter: &Reporter) -> Outcome {
    let width = told.iter().map(|one| one.host.chars().count()).max().unwrap_or(0);
    for one in told {
        let what = match (&one.status, &one.why) {
            (Some(status), _) => format!(
                "{}, {}, {} of {}, knows {}",
                status.state,
                count(status.caches, "cache"),
                Size(status.bytes),
                Size(status.capacity),
                count(status.members, "host")
            ),
            (None, why) => format!("not done: {}", why.as_deref().unwrap_or("it does not say why")),
        };
        reporter.result(&format!("{:<width$}  {what}", one.host));
    }
    let fields = object(json!({ "hosts": told }));
    match told.iter().filter(|one| one.status.is_none()).count() {
        0 => Ok(fields),
        n => Err(Failure::from(anyhow::anyhow!("{n} of {} hosts have not done it", told.len())).with(fields)),
    }
}

fn tell(status: &Status, reporter: &Reporter) -> Outcome {
    let up = Span(Duration::from_secs(super::now().saturating_sub(status.started)));
    reporter.result(&format!("{}, {} for {up}, tidecast {}", status.name, status.state, status.version));
    reporter.result(&format!(
        "{}, {} of {}, {} reserved; sent {}, received {}",
        count(status.caches, "cache"),
        Size(status.bytes),
        Size(status.capacity),
        Size(status.reserved),
        Size(status.sent),
        Size(status.received)
    ));
    if let Some(configured) = status.configured.filter(|configured| *configured < status.capacity) {
        reporter.result(&format!(
            "capacity {}, exceeded until leases of caches that were made here end or others need the room",
            Size(configured)
        ));
    }
    if status.came != Came::default() {
        reporter.result(&format!("caches came: {}", super::cache::how_it_came(&status.came)));
    }
    reporter.result(&may_take(&status.limits));
    reporter.result(&format!("serves {} as uid {}; {}", status.serves, status.user, status.confined));
    if !status.without.is_empty() {
        reporter.result(&format!("without {}", status.without.join(", ")));
    }
    if let Some(parent) = &status.parent {
        reporter.result(&format!("takes caches from {parent}, another daemon of this machine"));
    }
    for (what, names) in [("speaks with", &status.peers), ("fetches", &status.transfers)] {
        if !names.is_empty() {
            reporter.result(&format!("{what} {}", names.join(", ")));
        }
    }
    for used in &status.uses {
        reporter.result(&format!("{} is used by {}", used.cache, super::cache::used_by(used)));
    }
    Ok(object(json!(status)))
}

fn may_take(limits: &Limits) -> String {
    let rate = |what: &str, cap: Option<u64>| cap.map(|cap| format!("{what} {}/s", Size(cap)));
    let caps = [
        limits.cores.map(|cores| format!("{cores:.2} cores")),
        rate("sends", limits.upload),
        rate("receives", limits.download),
        rate("writes", limits.disk_rate),
        Some(format!("{} of blocks in memory", Size(limits.memory))),
    ];
    let caps: Vec<String> = caps.into_iter().flatten().collect();
    let when = if limits.busy { " while jobs use caches" } else { "" };
    format!("takes at most{when}: {}; cgroup: {}", caps.join(", "), limits.cgroup)
}

fn checked(report: &Checked, reporter: &Reporter) -> Outcome {
    let Checked { caches, objects, damaged, repaired, lost, .. } = report;
    let what =
        format!("{}, {}, {} read", count(*caches, "cache"), count(*objects, "object"), Size(report.bytes));
    let fields = object(json!(report));
    // What an older daemon does not say of it.
    let lost = (*lost).max(report.bad);
    for unread in &report.unread {
        let (path, caches) = (escaped(&unread.path), unread.caches.join(", "));
        reporter.warning(&format!("cannot read {path}: {}; of {caches}, which stay as they are", unread.why));
    }
    if report.clean {
        reporter.result(&format!("{what}: clean"));
        return Ok(fields);
    }
    let what = format!("{what}: {damaged} damaged, {repaired} repaired, {lost} lost");
    if lost == 0 && report.invalid.is_empty() && !report.unread.is_empty() {
        let unread = count(report.unread.len() as u64, "file");
        let error = anyhow::anyhow!(
            "{what}; {unread} could not be read: check the disk of this host, then run tidecast admin fsck again"
        );
        return Err(Failure::from(error).with(fields));
    }
    if lost == 0 && report.invalid.is_empty() {
        reporter.result(&what);
        return Ok(fields);
    }
    let error = anyhow::anyhow!("{what}; INVALID: {}", report.invalid.join(", "));
    Err(Failure::from(error).with(fields))
}
