//! A worker: one host's part in a broadcast, from the ticket to the last message.
//!
//! It runs as long as its coordinator sends messages. If the coordinator is lost after the start, the members continue
//! among themselves: a worker stays while data moves, and leaves when it does not.

mod base;
mod launches;
mod manifest_swarm;
mod place;
mod session;
mod source;

use std::future::Future;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidecast_event::bcast::Unreached;
use tidecast_identity::NodeKey;
use tidecast_net::{LocalAddress, local_addresses};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use self::launches::Launches;
use self::manifest_swarm::ManifestSwarm;
use self::session::Session;
use self::source::Offer;
use crate::broadcast::{hostname, machine};
use crate::channel::HEARTBEAT;
use crate::control::client::Client;
use crate::control::message::{Hello, News, ProbeResult, Progress, Start, ToCoordinator, ToWorker};
use crate::control::ticket::GroupTicket;
use crate::error::{Error, system};
use crate::{probe, reach};

/// The maximum time to send the last message.
const LAST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// The time for launchers to end, with the workers that they started, when the broadcast is over.
const LAUNCH_END_TIMEOUT: Duration = Duration::from_secs(60);
/// The same if the coordinator was lost: those workers may continue among themselves.
const LAUNCH_END_TIMEOUT_ALONE: Duration = Duration::from_secs(3600);

/// Called when the copy on this host is complete, while the broadcast continues for others.
pub type Placed = Box<dyn FnOnce() + Send>;

/// Takes part in a broadcast until it is over for this host. `host`: the coordinator's name of this host; `records`: the
/// directory of records of delivered files, or why there is none.
///
/// # Errors
/// Why the copy on this host is not complete; the coordinator was told, if it is still connected.
pub async fn work(
    ticket: &GroupTicket,
    host: Option<String>,
    records: Result<Option<PathBuf>, String>,
    placed: Option<Placed>,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    tokio::select! {
        result = take_part(ticket, host, (records, placed)) => result,
        () = stop => Err(Error::Stopped),
    }
}

async fn take_part(
    ticket: &GroupTicket,
    host: Option<String>,
    (records, placed): (Result<Option<PathBuf>, String>, Option<Placed>),
) -> Result<(), Error> {
    let key = NodeKey::generate()?;
    let local = local_addresses().map_err(system("list this host's networks"))?;
    let listener = reach::listener()?;
    let probe_listener = reach::listener()?;
    let before = reach::listener()?;
    let offer = Offer::find(ticket)?;
    let hello = Hello {
        host,
        scheduled: std::env::var("SLURMD_NODENAME").ok().filter(|name| !name.is_empty()),
        hostname: hostname(),
        machine: machine(),
        addresses: local.iter().cloned().map(Into::into).collect(),
        port: listener.local_addr().map_err(system("listen"))?.port(),
        answers: probe_listener.local_addr().map_err(system("listen"))?.port(),
        manifest_swarm: before.local_addr().map_err(system("listen"))?.port(),
        pass: rand::random(),
        pid: std::process::id(),
        source_offer: offer.as_ref().map(Offer::source_offer).transpose()?,
    };
    let probe_listener = tokio::net::TcpListener::from_std(probe_listener).map_err(system("listen"))?;
    let (tell, results) = probe::channel();
    let answering = tokio::spawn(reach::answer(probe_listener, key.id(), hello.pass, tell.clone()));
    let client = Client::connect(ticket, &key, &local, hello).await;
    let client = client.map_err(|e| {
        let coordinator_addresses = ticket.addresses.clone();
        Error::Unreached(Unreached { coordinator_addresses, coordinator_error: e.to_string() })
    })?;
    let mut connection = Connection::new(client, (records, placed), Launches::new(ticket.to_string()));
    let start = connection.wait_for_start(tell, results).await;
    answering.abort();
    let done = match start {
        Ok(start) => get(start, &key, [before, listener], offer, &local, &mut connection).await,
        Err(Disconnect::Finished) => Ok(()),
        Err(disconnect) => Err(disconnect.into()),
    };
    if let Err(error) = &done {
        connection.send_last(&ToCoordinator::Failed(error.to_string())).await;
    }
    connection.end_launches().await;
    done
}

/// Receives the data, and before it the manifest if that is sent as data.
async fn get(
    mut start: Start,
    key: &NodeKey,
    [before, listener]: [TcpListener; 2],
    offer: Option<Offer>,
    local: &[LocalAddress],
    connection: &mut Connection,
) -> Result<(), Error> {
    let Some(bulk) = start.bulk.take() else {
        drop(before);
        return Session::open(start, key, (listener, offer), local, connection).await?.run(connection).await;
    };
    let manifest_swarm = ManifestSwarm::open(bulk, &start, key, before, local).await?;
    let mut aside = Vec::new();
    let done = async {
        start.manifest = manifest_swarm.fetch(connection, &mut aside).await?;
        aside.into_iter().for_each(|news| start.news.add(news));
        Session::open(start, key, (listener, offer), local, connection).await?.run(connection).await
    };
    let done = done.await;
    manifest_swarm.stop().await;
    done
}

/// Why the coordinator is no longer connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Disconnect {
    /// All hosts are done.
    Finished,
    /// The coordinator stopped this worker.
    Stopped(String),
    /// The connection was lost.
    Lost,
}

impl From<Disconnect> for Error {
    fn from(disconnect: Disconnect) -> Self {
        Error::Coordinator(match disconnect {
            Disconnect::Finished => "the broadcast ended without this host".into(),
            Disconnect::Stopped(why) => format!("the coordinator stopped this worker: {why}"),
            Disconnect::Lost => "lost the connection to the coordinator".into(),
        })
    }
}

/// Messages and ticks while a worker is running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WorkerEvent {
    /// Members, and a plan.
    News(News),
    /// Time to report the progress.
    Tick,
    /// The coordinator requests exact totals.
    Count,
    /// The coordinator is no longer connected.
    Disconnect(Disconnect),
}

/// The connection to the coordinator, and the progress of this worker.
pub(crate) struct Connection {
    /// `None` after the connection was lost.
    client: Option<Client>,
    beat: tokio::time::Interval,
    pub(crate) progress: Progress,
    /// [`Progress::checked`], counted while the destination is opened.
    pub(crate) checked: Arc<AtomicU64>,
    /// Called when the copy is complete.
    pub(crate) placed: Option<Placed>,
    /// The directory of records of delivered files, or why there is none.
    pub(crate) records: Result<Option<PathBuf>, String>,
    launches: Launches,
    /// All hosts are done.
    finished: bool,
}

impl Connection {
    fn new(
        client: Client,
        (records, placed): (Result<Option<PathBuf>, String>, Option<Placed>),
        launches: Launches,
    ) -> Self {
        let mut beat = interval(HEARTBEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            client: Some(client),
            beat,
            progress: Progress::default(),
            checked: Arc::default(),
            placed,
            records,
            launches,
            finished: false,
        }
    }

    /// Waits for the start, and runs the probes that the coordinator requests before it.
    async fn wait_for_start(
        &mut self,
        tell: probe::Results,
        mut results: Receiver<ProbeResult>,
    ) -> Result<Start, Disconnect> {
        let mut probes = JoinSet::new();
        loop {
            let Some(client) = &mut self.client else { return Err(Disconnect::Lost) };
            tokio::select! {
                received = client.received.recv() => match received {
                    Some(ToWorker::Start(start)) => return Ok(*start),
                    Some(ToWorker::Launch(launches)) => self.launches.start(launches),
                    Some(ToWorker::Probe(all)) => drop(probes.spawn(probe::run(all, tell.clone()))),
                    Some(ToWorker::Finish) => {
                        self.finished = true;
                        return Err(Disconnect::Finished);
                    }
                    Some(ToWorker::Stop(why)) => return Err(Disconnect::Stopped(why)),
                    Some(ToWorker::Alive | ToWorker::News(_) | ToWorker::Count) => {}
                    None => return Err(Disconnect::Lost),
                },
                (place, why) = self.launches.ended() => self.send(&ToCoordinator::LaunchEnded { place, why }).await,
                Some(result) = results.recv() => self.send(&ToCoordinator::ProbeResult(result)).await,
                _ = self.beat.tick() => self.report_progress().await,
            }
        }
    }

    /// The next message or tick; ticks continue after the connection is lost.
    pub(crate) async fn next(&mut self) -> WorkerEvent {
        loop {
            let Some(client) = &mut self.client else {
                self.beat.tick().await;
                return WorkerEvent::Tick;
            };
            tokio::select! {
                received = client.received.recv() => match received {
                    Some(ToWorker::News(news)) => return WorkerEvent::News(*news),
                    Some(ToWorker::Launch(launches)) => self.launches.start(launches),
                    Some(ToWorker::Finish) => {
                        self.finished = true;
                        return WorkerEvent::Disconnect(Disconnect::Finished);
                    }
                    Some(ToWorker::Stop(why)) => return WorkerEvent::Disconnect(Disconnect::Stopped(why)),
                    Some(ToWorker::Count) => return WorkerEvent::Count,
                    Some(ToWorker::Alive | ToWorker::Start(_) | ToWorker::Probe(_)) => {}
                    None => {
                        self.client = None;
                        return WorkerEvent::Disconnect(Disconnect::Lost);
                    }
                },
                (place, why) = self.launches.ended() => self.send(&ToCoordinator::LaunchEnded { place, why }).await,
                _ = self.beat.tick() => return WorkerEvent::Tick,
            }
        }
    }

    /// Reports the progress. A failure is noticed by the reading half of the connection.
    pub(crate) async fn report_progress(&mut self) {
        self.progress.checked = self.checked.load(Ordering::Relaxed);
        self.send(&ToCoordinator::Progress(self.progress)).await;
    }

    pub(crate) async fn send(&mut self, message: &ToCoordinator) {
        if let Some(client) = &mut self.client
            && let Err(error) = client.send(message).await
        {
            tracing::info!(%error, "cannot send to the coordinator");
        }
    }

    /// Sends the last message; does not wait if the connection is lost.
    async fn send_last(&mut self, message: &ToCoordinator) {
        let _ = tokio::time::timeout(LAST_MESSAGE_TIMEOUT, self.send(message)).await;
        // Wait until the other end has read it and closed, so that it is not lost.
        let received = async {
            while let Some(client) = &mut self.client
                && client.received.recv().await.is_some()
            {}
        };
        let _ = tokio::time::timeout(LAST_MESSAGE_TIMEOUT, received).await;
    }

    /// Waits for the workers that this one started, which continue even if its own part failed; their launchers end with
    /// them. The wait lasts as long as the coordinator is connected, and then within bounds.
    async fn end_launches(&mut self) {
        while !self.launches.is_empty() && !self.finished && self.client.is_some() {
            match self.next().await {
                WorkerEvent::Disconnect(_) => break,
                WorkerEvent::Tick => self.report_progress().await,
                WorkerEvent::News(_) | WorkerEvent::Count => {}
            }
        }
        let bound = if self.client.is_some() { LAUNCH_END_TIMEOUT } else { LAUNCH_END_TIMEOUT_ALONE };
        let _ = tokio::time::timeout(bound, self.launches.all_ended()).await;
    }

    /// Runs `work` while the connection is kept alive; messages meanwhile are kept in `aside`.
    pub(crate) async fn during<T>(
        &mut self,
        work: impl Future<Output = T>,
        aside: &mut Vec<News>,
    ) -> Result<T, Disconnect> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                event = self.next() => match event {
                    WorkerEvent::News(news) => aside.push(news),
                    WorkerEvent::Tick | WorkerEvent::Count => self.report_progress().await,
                    WorkerEvent::Disconnect(disconnect) => return Err(disconnect),
                },
            }
        }
    }
}
