//! `tidecast admin`: administrator's commands to the daemon of this host, or of all hosts.

use clap::Subcommand;
use tidecast::event::daemon::{Checked, CommandResult, CommandResults, Status};
use tidecast::{Caches, DaemonLimits, Order};
use tidecast_text::Size;

use super::{Context, daemon};
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};
use crate::stop::{block_on, or_cut};

/// Administer the daemon of this host, or of all hosts: status, pause, drain, limit, fsck
///
/// For root, or for the user who runs the daemon. A command takes effect at once, with --all on every daemon of the site
/// that is alive. Daemons accept commands from the hosts in their setting `admins`, or from any host of the site without
/// it; a user's daemon accepts them from that user's other daemons. A store is verified (fsck) on its own host only.
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
    /// Apply to all hosts of the site
    #[arg(long, conflicts_with = "host")]
    all: bool,
    /// Apply to this host [default: the local host]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Show the state of the daemon
    Status(Where),
    /// Accept no new caches, and let other hosts wait for data, until `resume`; a restart does not resume
    Pause(Where),
    /// Accept no new caches until `resume`, but keep serving other hosts; a restart does not resume
    Drain(Where),
    /// Accept new caches again
    Resume(Where),
    /// Change limits until the daemon restarts; permanent limits belong in its configuration
    Limit(LimitArgs),
    /// Verify every byte of this host's store, and repair damaged files from other hosts; a cache that no host can repair
    /// becomes INVALID
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
    /// Limit the disk space of all caches
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
    /// Limit the number of caches that are fetched at the same time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    transfers: Option<u32>,
    /// Limit the bytes per second sent to other hosts; 0: no limit
    #[arg(long, value_name = "SIZE")]
    upload: Option<Size>,
    /// Limit the bytes per second received from other hosts; 0: no limit
    #[arg(long, value_name = "SIZE")]
    download: Option<Size>,
    /// Limit the bytes per second written to disk; 0: no limit
    #[arg(long, value_name = "SIZE")]
    disk_rate: Option<Size>,
    /// Limit the CPU time, in cores; 0: no limit
    #[arg(long, value_name = "N", value_parser = not_negative)]
    cores: Option<f64>,
    /// Reduce the rates and CPU limits to this share while a job uses a cache, e.g. 0.06
    #[arg(long, value_name = "SHARE", value_parser = share)]
    busy: Option<f64>,
}

fn not_negative(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if number >= 0.0 && number.is_finite() { Ok(number) } else { Err("use a number of 0 or more".into()) }
}

fn share(text: &str) -> Result<f64, String> {
    not_negative(text).ok().filter(|share| *share <= 1.0).ok_or_else(|| "use a share from 0 to 1".into())
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

/// Prints a line for each host; fails if the command failed on any of them.
fn tell_all(told: Vec<CommandResult>, reporter: &Reporter) -> Outcome {
    let width = told.iter().map(|one| one.host.chars().count()).max().unwrap_or(0);
    told.iter().for_each(|one| reporter.result(&format!("{:<width$}  {}", one.host, one.line())));
    let (all, undone) = (told.len(), told.iter().filter(|one| one.status.is_none()).count());
    let fields = fields_of(&CommandResults { hosts: told });
    match undone {
        0 => Ok(fields),
        n => Err(Failure::from(anyhow::anyhow!("the command failed on {n} of {all} hosts")).with(fields)),
    }
}

fn tell(status: &Status, reporter: &Reporter) -> Outcome {
    status.lines(super::now()).iter().for_each(|line| reporter.result(line));
    Ok(fields_of(status))
}

fn checked(report: &Checked, reporter: &Reporter) -> Outcome {
    report.warnings().iter().for_each(|text| reporter.warning(text));
    let fields = fields_of(report);
    match report.outcome() {
        Ok(text) => reporter.result(&text),
        Err(problem) => return Err(Failure::from(anyhow::anyhow!(problem)).with(fields)),
    }
    Ok(fields)
}
