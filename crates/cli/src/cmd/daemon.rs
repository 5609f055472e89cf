//! `tidecast daemon`: keeps caches on this host, and replicates them between hosts.

mod init;

use std::path::PathBuf;

use tidecast::Program;
use tidecast::daemon::{CatalogueAt, DaemonOptions, OnDemand};
use tidecast::event::daemon::Started;
use tidecast::settings::{Listen, Table, Text};
use tidecast_text::{Size, Span};

use super::{Context, run_operation};
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};

const AFTER: &str = include_str!("../../help/daemon.txt");

/// Keep caches on this host, and replicate them between hosts
///
/// Users connect to its unix socket with `tidecast cache`, HTCondor jobs with `tidecast_plugin`; the kernel reports the
/// user of each connection. Daemons connect to each other by mutual TLS, and each decides which caches it accepts.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Serve all users of this host, as an ordinary user such as tidecast [default: only if root runs the daemon]
    #[arg(long)]
    system: bool,
    /// Keep all data in DIR [default: /var/lib/tidecast with --system or for root]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Listen for local users on this unix socket [default: /run/tidecast/daemon.sock with --system or for root]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Listen for other daemons on this address [default: any address, port 6980, if there is a trust file]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<Listen>,
    /// Set the name of this host for other daemons, the origin of its caches [default: the host's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Connect to this daemon: HOST[:PORT] or NAME=HOST[:PORT]; may be repeated
    #[arg(long, value_name = "HOST")]
    peer: Vec<String>,
    /// Find other daemons in a catalogue: condor, etcd://HOST:PORT[,HOST:PORT..] or file:/PATH (one peer per line)
    #[arg(long, value_name = "WHERE")]
    catalogue: Option<CatalogueAt>,
    /// Read the trusted certificate authorities and nodes from FILE (TOML; see docs/trust.md)
    #[arg(long, value_name = "FILE")]
    trust: Option<PathBuf>,
    /// Use this host certificate and its key (PEM)
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Share files with other daemons of the same NAME on this machine [default: an id of the machine]
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
    /// Exit after this time without a request if no job uses a cache
    #[arg(long, value_name = "DURATION")]
    idle: Option<Span>,
    /// Also serve this directory to `tidecast copy`, as `tidecast copy-server` does: as the user who runs the daemon; root
    /// must set serve_as or serve_as_root in the configuration
    #[arg(long, value_name = "DIR")]
    serve: Option<PathBuf>,
    /// Limit the disk space of caches [default: the free space of the file system, less 1 GiB]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    Init(init::Args),
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    if let Some(What::Init(args)) = &args.what {
        return init::run(args, context, reporter);
    }
    let host = args.options(context).prepare()?;
    if !host.without().is_empty() {
        reporter.note(&format!("runs without {}", host.without().join(", ")));
    }
    let started = |started: &Started, reporter: &Reporter| {
        started.lines().iter().for_each(|line| reporter.result(line));
    };
    Ok(fields_of(&run_operation::daemon(|hangups| host.start(hangups), reporter, started)?))
}

impl Args {
    /// The options: flags override settings.
    fn options(&self, context: &Context<'_>) -> DaemonOptions {
        let table = context.settings.daemon.clone().unwrap_or_default();
        DaemonOptions {
            table: Table {
                system: self.system || table.system,
                dir: self.dir.clone().or(table.dir),
                listen: self.listen.map(Text).or(table.listen),
                name: self.name.clone().or(table.name),
                peer: if self.peer.is_empty() { table.peer } else { self.peer.clone() },
                catalogue: self.catalogue.clone().map(Text).or(table.catalogue),
                trust: self.trust.clone().or(table.trust),
                certificate: self.certificate.clone().or(table.certificate),
                machine: self.machine.clone().or(table.machine),
                serve: self.serve.clone().or(table.serve),
                capacity: self.capacity.map(Text).or(table.capacity),
                ..table
            },
            socket: self.socket.clone().or_else(|| context.settings.socket.clone()),
            idle: self.idle.map(|idle| idle.0),
            program: Program::Own,
            state_dir: context.state_dir().ok(),
            threads: context.threads_for_operation(),
        }
    }
}

/// The socket of the daemon of this user.
pub(crate) fn to_ask(context: &Context<'_>) -> Result<PathBuf, Failure> {
    Ok(tidecast::daemon::socket(context.settings, context.global.state_dir.as_deref())?)
}

/// As [`to_ask`]; starts a daemon for this user if there is no daemon.
pub(crate) fn to_ask_or_start(context: &Context<'_>) -> Result<PathBuf, Failure> {
    let (state_dir, config) = (context.global.state_dir.clone(), context.global.config.clone());
    Ok(OnDemand { program: Program::Own, state_dir, config }.socket(context.settings)?)
}
