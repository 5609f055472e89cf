//! `tidecast admin`: what an administrator has the daemon of this host do.

use clap::Subcommand;
use tidecast::event::daemon::{AllRuled, Checked, Ruled, Status};
use tidecast::{Caches, DaemonLimits, Order};
use tidecast_text::{Size, count, escaped};

use super::{Context, daemon};
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};
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
    let daemon = Caches::new(&daemon::to_ask(context)?);
    let failed = |error| Failure::from(anyhow::Error::from(error));
    let (order, at) = match &args.what {
        What::Status(at) => (Order::Status, at),
        What::Pause(at) => (Order::Pause, at),
        What::Drain(at) => (Order::Drain, at),
        What::Resume(at) => (Order::Resume, at),
        What::Limit(args) => (Order::Limit(args.limits.limits()), &args.at),
        What::Fsck => {
            let check = async { checked(&daemon.check().await.map_err(failed)?, reporter) };
            return block_on(context.threads(), or_cut(check));
        }
    };
    let work = async {
        if at.all || at.host.is_some() {
            let told = daemon.order_site(&order, at.host.as_deref()).await.map_err(failed)?;
            return tell_all(told, reporter);
        }
        tell(&daemon.order(&order).await.map_err(failed)?, reporter)
    };
    block_on(context.threads(), or_cut(work))
}

impl LimitFlags {
    fn limits(&self) -> DaemonLimits {
        let bytes = |size: Option<Size>| size.map(|size| size.0);
        DaemonLimits {
            capacity: bytes(self.capacity),
            transfers: self.transfers,
            upload: bytes(self.upload),
            download: bytes(self.download),
            disk_rate: bytes(self.disk_rate),
            cores: self.cores,
            busy: self.busy,
        }
    }
}

/// A line for each host; it is a failure if one has not done it.
fn tell_all(told: Vec<Ruled>, reporter: &Reporter) -> Outcome {
    let width = told.iter().map(|one| one.host.chars().count()).max().unwrap_or(0);
    told.iter().for_each(|one| reporter.result(&format!("{:<width$}  {}", one.host, one.line())));
    let (all, undone) = (told.len(), told.iter().filter(|one| one.status.is_none()).count());
    let fields = fields_of(&AllRuled { hosts: told });
    match undone {
        0 => Ok(fields),
        n => Err(Failure::from(anyhow::anyhow!("{n} of {all} hosts have not done it")).with(fields)),
    }
}

fn tell(status: &Status, reporter: &Reporter) -> Outcome {
    status.lines(super::now()).iter().for_each(|line| reporter.result(line));
    Ok(fields_of(status))
}

fn checked(report: &Checked, reporter: &Reporter) -> Outcome {
    let Checked { caches, objects, damaged, repaired, lost, .. } = report;
    let what =
        format!("{}, {}, {} read", count(*caches, "cache"), count(*objects, "object"), Size(report.bytes));
    let fields = fields_of(report);
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
