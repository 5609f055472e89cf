//! `doctor_peers`: whether hosts and the paths between them are fit for the network.

use tidecast_doctor::peers::{self, Error as PeersError, Event, Results};
use tidecast_event::peers::{Done, News, Started};
use tidecast_event::{Error, PartialResult};
use tidecast_group::agents::AgentTicket;
use tidecast_text::count;

use crate::operation::{Operation, Work, start};

pub use tidecast_doctor::peers::{
    Options as PeersOptions, estimate as estimate_peers, topology as peers_topology,
};

/// What [`doctor_peers`] runs as.
pub type DoctorPeers = Operation<Started, Done, News>;

/// Checks hosts and the paths between them: starts an agent on each, by the launchers of [`broadcast`](crate::broadcast()),
/// and measures reachability, round-trip times, losses, MTU, clocks, and if [`PeersOptions::rates`] the rates of TCP.
///
/// Hosts need the program `tidecast`, of this version.
///
/// ```no_run
/// use tidecast::{Launch, PeersOptions, doctor_peers, hosts};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let hosts = hosts::parse("node[001-064]")?;
/// let options = PeersOptions { hosts, launch: Launch::Auto, program: "tidecast".into(), rates: true };
/// let done = doctor_peers(options).wait_blocking()?;
/// println!("{} groups of hosts", done.groups.len());
/// # Ok(())
/// # }
/// ```
///
/// If a host fails or a path has a fault, the error has what was measured as [`PartialResult::Peers`].
pub fn doctor_peers(options: PeersOptions) -> DoctorPeers {
    start(1, async move |work| run(options, work).await)
}

async fn run(options: PeersOptions, work: &Work<Started, Done, News>) -> Result<Done, Error> {
    work.started(Started { command: "doctor", hosts: options.hosts.len(), rates: options.rates });
    let mut tell = |event, results: &Results| tell(event, results, work);
    let results = peers::run(options, work.stop.wait(), &mut tell).await.map_err(failed)?;
    let done = results.summary(work.seconds());
    let failed = done.hosts.iter().filter(|host| !host.ok).count();
    let mut parts = Vec::new();
    if failed > 0 {
        parts.push(format!("{failed} of {} failed", count(done.hosts.len() as u64, "host")));
    }
    if !done.faults.is_empty() {
        parts.push(count(done.faults.len() as u64, "fault"));
    }
    match parts.is_empty() {
        true => Ok(done),
        false => Err(Error::fault(parts.join(", ")).with(PartialResult::Peers(Box::new(done)))),
    }
}

fn failed(error: PeersError) -> Error {
    match error {
        PeersError::Stopped => Error::interrupted("interrupted"),
        other => Error::fault(other),
    }
}

fn tell(event: Event, results: &Results, work: &Work<Started, Done, News>) {
    match event {
        Event::Aliases(host, names) => work.news(News::Aliases { host, names }),
        Event::Stage(name, pairs) => work.news(News::Stage { name, pairs }),
        Event::Failed(host, reason) => work.news(News::Failed { host, reason }),
        Event::Probed(from, to) => {
            results.path(from, to).into_iter().for_each(|path| work.news(News::Path(Box::new(path))));
        }
    }
}

/// What [`agent`] runs as.
pub type Agent = Operation<(), ()>;

/// Takes part in [`doctor_peers`] as one of its hosts, as `tidecast worker` does with such a ticket. `host`: the name of this
/// host there, if the launcher gave it.
pub fn agent(ticket: AgentTicket, host: Option<String>) -> Agent {
    start(2, async move |work| {
        work.started(());
        peers::agent(&ticket, host, work.stop.wait()).await.map_err(failed)
    })
}
