//! `broadcast`: the same bytes at the same path on every host.

use std::path::PathBuf;

use tidecast_event::bcast::{Done, Hosts, News, Started};
use tidecast_event::{Error, PartialResult, Progress, Stage};
use tidecast_group::{Algorithm, Event, GroupTicket, Options, State};
use tidecast_node::RECORDS;
use tidecast_text::{count, escaped};

use crate::doctor::{DoctorPurpose, host_limits};
use crate::operation::{Operation, Work, start};
use crate::state;

/// Below this efficiency a setting of this host may be the reason.
const SLOW: f64 = 0.8;

/// The operation of [`broadcast`].
pub type Broadcast = Operation<Started, Done, News>;

/// Puts a file or directory at the same path on many hosts, at once: a worker is started on each, and they pass the data on to
/// each other.
///
/// Hosts need the program `tidecast`, of this version; [`BroadcastOptions::program`](Options::program) is its
/// path.
///
/// ```no_run
/// use tidecast::{BroadcastOptions, broadcast, hosts};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let options = BroadcastOptions::new("/sw/env", "/scratch/env", hosts::parse("node[001-064]")?);
/// let done = broadcast(options).wait_blocking()?;
/// println!("{} hosts in {} s", done.hosts_done, done.transfer_seconds);
/// # Ok(())
/// # }
/// ```
///
/// Processes that run already can be its workers:
///
/// ```
/// use tidecast::event::bcast::News;
/// use tidecast::{BroadcastOptions, Event, Launch, WorkerOptions, broadcast, hosts, worker};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let (data, to) = (dir.path().join("data"), dir.path().join("{host}/data"));
/// # let state_dir = Some(dir.path().join("state"));
/// # std::fs::write(&data, "the same bytes")?;
/// let mut options = BroadcastOptions::new(&data, to, hosts::parse("a,b")?);
/// options.launch = Launch::ByCaller;
/// let mut broadcasting = broadcast(options);
/// let mut workers = Vec::new();
/// while let Some(event) = broadcasting.next_blocking() {
///     if let Event::News(News::Ticket(ticket)) = event {
///         for host in ["a", "b"] {
///             let host = Some(host.to_owned());
///             # let state_dir = state_dir.clone();
///             workers.push(worker(ticket.parse()?, WorkerOptions { host, state_dir, ..Default::default() }));
///         }
///     }
/// }
/// assert_eq!(broadcasting.wait_blocking()?.hosts_done, 2);
/// # Ok(())
/// # }
/// ```
///
/// If hosts fail, the others complete, and the error has their result as [`PartialResult::Bcast`].
pub fn broadcast(options: Options) -> Broadcast {
    start(options.threads, async move |work| run(options, work).await)
}

async fn run(options: Options, work: &Work<Started, Done, News>) -> Result<Done, Error> {
    if options.sources > 1 && !matches!(options.algorithm, Algorithm::Auto | Algorithm::Plan) {
        return Err(Error::usage("several sources need the algorithm auto or plan"));
    }
    let (source, dest) = (options.source.clone(), options.dest.display().to_string());
    if let Some(part) = no_placeholder(&dest) {
        let part = escaped(part);
        work.warning(format!(
            "{part} in the destination is taken literally; the name of each host is {{host}}"
        ));
    }
    work.started(Started { command: "bcast", source, dest, hosts: options.hosts.len() });
    let mut tell = |event| tell(event, work);
    let report = tidecast_group::run(options, work.stop.wait(), &mut tell).await.map_err(failed)?;
    let mut done = report.summary(work.seconds());
    if let Some(link) = done.link.filter(|link| link.efficiency < SLOW) {
        done.host_limits = host_limits(DoctorPurpose::Bcast, Some(link.link_rate));
    }
    match done.hosts_failed {
        0 => Ok(done),
        failed => {
            let error = format!("{failed} of {} failed", count(done.hosts.len() as u64, "host"));
            Err(Error::fault(error).with(PartialResult::Bcast(Box::new(done))))
        }
    }
}

/// A part of a destination in braces other than `{host}`.
fn no_placeholder(dest: &str) -> Option<&str> {
    let in_braces = |(at, _)| {
        let part = dest.get(at..)?;
        part.get(..=part.find('}')?)
    };
    dest.match_indices('{').filter_map(in_braces).find(|part| *part != "{host}")
}

fn failed(error: tidecast_group::Error) -> Error {
    match error {
        tidecast_group::Error::Stopped => Error::interrupted(error),
        other => Error::fault(other),
    }
}

fn tell(event: Event, work: &Work<Started, Done, News>) {
    match event {
        Event::State(state) => work.progress(progress(&state)),
        Event::Warning(text) => work.warning(text),
        Event::Ticket(ticket) => work.news(News::Ticket(ticket.to_string())),
        Event::News(news) => work.news(news),
    }
}

fn progress(state: &State) -> Progress {
    let hosts = Some(Hosts { hosts: state.hosts, hosts_done: state.done, hosts_failed: state.failed });
    let (stage, bytes, total) = if state.started {
        (Stage::Bcast, state.verified, state.wanted)
    } else if state.total == 0 || state.hashed < state.total {
        (Stage::Hash, state.hashed, state.total)
    } else {
        (Stage::Launch, state.joined as u64, state.hosts as u64)
    };
    Progress { stage, bytes, total, hosts, ..Progress::default() }
}

/// The operation of [`worker`].
pub type Worker = Operation<(), ()>;

/// How to take part in a broadcast.
#[derive(Debug, Clone, Default)]
pub struct WorkerOptions {
    /// The name of this host in the broadcast. Default: its own name.
    pub host: Option<String>,
    /// Where this node keeps records of delivered files. Default:
    /// [`default_state_dir`](crate::default_state_dir).
    pub state_dir: Option<PathBuf>,
    /// Threads to work with. Default: one for each core.
    pub threads: Option<usize>,
}

/// Joins a broadcast as one of its hosts, as `tidecast worker` does. `ticket` is that of [`News::Ticket`], or
/// the one that the starting process passed to the program.
pub fn worker(ticket: GroupTicket, options: WorkerOptions) -> Worker {
    start(options.threads.unwrap_or(0), async move |work| {
        work.started(());
        // Without a directory for records no file counts as a former version; the broadcast continues.
        let records = state::own(options.state_dir.as_deref());
        let records = records.map(|dir| Some(dir.join(RECORDS))).map_err(|error| error.in_full());
        let done = tidecast_group::work(&ticket, options.host, records, None, work.stop.wait()).await;
        done.map_err(|error| match error {
            tidecast_group::Error::Stopped => Error::interrupted("interrupted"),
            other => Error::fault(other),
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn several_sources_are_refused_where_no_plan_divides_the_work() {
        let mut options = Options::new("data", "/to", tidecast_group::hosts::parse("a,b").unwrap());
        (options.sources, options.algorithm) = (2, Algorithm::Chain);
        let error = broadcast(options).wait_blocking().unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Usage, "{error}");
    }

    #[test]
    fn misspelt_placeholders_are_found() {
        for (dest, found) in [
            ("/scratch/{host}/env", None),
            ("/scratch/{hots}/env", Some("{hots}")),
            ("{host}/{}", Some("{}")),
            ("/a{b", None),
            ("/a}b{", None),
        ] {
            assert_eq!(no_placeholder(dest), found);
        }
    }
}
