//! `daemon`: keeps caches on this host, and replicates them between hosts.
//!
//! [`DaemonOptions::prepare`] prepares a process for the daemon: its priority, its confinement.
//! [`Host::start`] runs it.

mod config;
mod confine;
mod directory;
mod init;
mod on_demand;
pub mod service;
mod socket;

use std::path::Path;
use std::time::Duration;

use tidecast_daemon::client::Client;
use tidecast_daemon::{Config, Daemon};
use tidecast_event::daemon::{Done, Started};
use tidecast_event::{Context as _, Error};
use tokio::sync::watch;

pub use self::config::DaemonOptions;
pub use self::init::{InitOptions, InviteOptions, daemon_dir, init, invite};
pub use self::on_demand::OnDemand;
pub use self::socket::socket;
use crate::mount::Program;
use crate::operation::{Operation, start};
use crate::settings::Table;
use directory::Directory;
pub use tidecast_daemon::CatalogueAt;

/// A daemon's time limit to report its status.
const ANSWER: Duration = Duration::from_secs(2);
/// Others go first.
const NICE: i32 = 10;

/// The operation of a [`Host`].
pub type CacheDaemon = Operation<Started, Done>;

/// A process that is ready to be a daemon.
#[derive(Debug)]
pub struct Host {
    config: Config,
    table: Table,
    program: Program,
    threads: usize,
}

impl DaemonOptions {
    /// Lowers the priority of this process, and holds it to the daemon's own files where the kernel can. For
    /// a process that runs only the daemon, before it has other threads: a process with threads is not
    /// confined.
    ///
    /// # Errors
    /// The settings are invalid, or a directory cannot be made.
    pub fn prepare(self) -> Result<Host, Error> {
        let mut config = config::config(&self)?;
        // Threads inherit it; so does the kernel's order of their reads and writes.
        let nice = self.table.nice.unwrap_or(NICE);
        if let Err(error) = rustix::process::setpriority_process(None, nice) {
            config.without.push(format!("nice {nice} ({error})"));
        }
        config.confined = confine::confine(&self.table, &config)?;
        Ok(Host { config, table: self.table, program: self.program, threads: self.threads.unwrap_or(0) })
    }
}

impl Host {
    /// Functions that are missing because the daemon's user lacks a privilege.
    #[must_use]
    pub fn without(&self) -> &[String] {
        &self.config.without
    }

    /// Runs the daemon until it is stopped, which is its normal end. Whenever `hangups` changes, certificate and trust are read
    /// again.
    #[must_use]
    pub fn start(self, hangups: watch::Receiver<u64>) -> CacheDaemon {
        start(self.threads, async move |work| {
            let Self { config, table, program, .. } = self;
            let root = table.serve.clone();
            let served = root.map(|root| Directory::start(root, table, &config.dir, &program)).transpose()?;
            let (socket, confined) = (config.socket.clone(), config.confined.clone());
            let serves = served.as_ref().map(|served| served.url().to_owned());
            let ready = |status: &tidecast_event::daemon::Status| {
                work.started(Started {
                    command: "daemon",
                    name: status.name.clone(),
                    node: status.node.clone(),
                    socket,
                    listen: status.addresses.clone(),
                    caches: status.caches,
                    bytes: status.bytes,
                    capacity: status.capacity,
                    serves,
                    confined,
                });
            };
            let ran = Daemon::run(config, ready, work.stop.wait(), hangups).await;
            ran.context("the daemon cannot run")?;
            Ok(Done { seconds: work.seconds() })
        })
    }
}

/// How the daemon is that listens at `socket`, within 2 s; None if none answers.
#[must_use]
pub fn status(socket: &Path) -> Option<tidecast_event::daemon::Status> {
    if !socket.exists() {
        return None;
    }
    let client = Client::new(socket);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async { tokio::time::timeout(ANSWER, client.status()).await.ok()?.ok() })
}
