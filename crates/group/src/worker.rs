//! A worker: one host's part in a broadcast, from the ticket to the last message.
//!
//! It runs as long as its coordinator sends messages. If the coordinator is lost after the start, the members continue
//! among themselves: a worker stays while data moves, and leaves when it does not.

mod errands;
mod older;
mod place;
mod prelude;
mod session;
mod source;

use std::future::Future;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use tidecast_event::bcast::Unreached;
use tidecast_identity::NodeKey;
use tidecast_net::{LocalAddress, local_addresses};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use self::errands::Errands;
use self::prelude::Prelude;
use self::session::Session;
use self::source::Offer;
use crate::broadcast::{hostname, machine};
use crate::channel::BEAT;
use crate::control::client::Client;
use crate::control::message::{Hello, Met, News, Progress, Start, ToCoordinator, ToWorker};
use crate::control::ticket::GroupTicket;
use crate::error::{Error, system};
use crate::{meet, reach};

/// The maximum time to send the last message.
const GOODBYE: Duration = Duration::from_secs(5);

/// Launchers end with the workers that they started. `LEAVE`: their time when the broadcast is over; `ALONE`: when the
/// coordinator was lost, as those workers may continue among themselves.
const LEAVE: Duration = Duration::from_secs(60);
const ALONE: Duration = Duration::from_secs(3600);

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
    let door = reach::listener()?;
    let before = reach::listener()?;
    let offer = Offer::look(ticket)?;
    let hello = Hello {
        host,
        scheduled: std::env::var("SLURMD_NODENAME").ok().filter(|name| !name.is_empty()),
        hostname: hostname(),
        machine: machine(),
        addresses: local.iter().cloned().map(Into::into).collect(),
        port: listener.local_addr().map_err(system("listen"))?.port(),
        answers: door.local_addr().map_err(system("listen"))?.port(),
        prelude: before.local_addr().map_err(system("listen"))?.port(),
        pass: rand::random(),
        pid: std::process::id(),
        sight: offer.as_ref().map(Offer::sight).transpose()?,
    };
    let door = tokio::net::TcpListener::from_std(door).map_err(system("listen"))?;
    let (tell, told) = meet::channel();
    let answering = tokio::spawn(reach::answer(door, key.id(), hello.pass, tell.clone()));
    let client = Client::connect(ticket, &key, &local, hello).await;
    let client = client.map_err(|e| {
        let coordinator_addresses = ticket.addresses.clone();
        Error::Unreached(Unreached { coordinator_addresses, coordinator_error: e.to_string() })
    })?;
    let mut line = Line::new(client, (records, placed), Errands::new(ticket.to_string()));
    let start = line.wait_for_start(tell, told).await;
    answering.abort();
    let done = match start {
        Ok(start) => get(start, &key, [before, listener], offer, &local, &mut line).await,
        Err(Left::Finished) => Ok(()),
        Err(left) => Err(left.into()),
    };
    if let Err(error) = &done {
        line.say_last(&ToCoordinator::Failed(error.to_string())).await;
    }
    line.end_errands().await;
    done
}

/// Receives the data, and before it the manifest if that is sent as data.
async fn get(
    mut start: Start,
    key: &NodeKey,
    [before, listener]: [TcpListener; 2],
    offer: Option<Offer>,
    local: &[LocalAddress],
    line: &mut Line,
) -> Result<(), Error> {
    let Some(bulk) = start.bulk.take() else {
        drop(before);
        return Session::open(start, key, (listener, offer), local, line).await?.run(line).await;
    };
    let prelude = Prelude::open(bulk, &start, key, before, local).await?;
    let mut aside = Vec::new();
    let done = async {
        start.manifest = prelude.fetch(line, &mut aside).await?;
        aside.into_iter().for_each(|news| start.news.add(news));
        Session::open(start, key, (listener, offer), local, line).await?.run(line).await
    };
    let done = done.await;
    prelude.stop().await;
    done
}

/// Why the coordinator is no longer connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// All hosts are done.
    Finished,
    /// The coordinator stopped this worker.
    Stopped(String),
    /// The connection was lost.
    Lost,
}

impl From<Left> for Error {
    fn from(left: Left) -> Self {
        Error::Coordinator(match left {
            Left::Finished => "the broadcast ended without this host".into(),
            Left::Stopped(why) => format!("the coordinator stopped this worker: {why}"),
            Left::Lost => "lost the connection to the coordinator".into(),
        })
    }
}

/// Messages and ticks while a worker is running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Members, and a plan.
    News(News),
    /// Time to report the progress.
    Beat,
    /// The coordinator requests exact totals.
    Count,
    /// The coordinator is no longer connected.
    Left(Left),
}

/// The connection to the coordinator, and the progress of this worker.
pub(crate) struct Line {
    /// `None` after the connection was lost.
    client: Option<Client>,
    beat: tokio::time::Interval,
    pub(crate) progress: Progress,
    /// Called when the copy is complete.
    pub(crate) placed: Option<Placed>,
    /// The directory of records of delivered files, or why there is none.
    pub(crate) records: Result<Option<PathBuf>, String>,
    errands: Errands,
    /// All hosts are done.
    finished: bool,
}

impl Line {
    fn new(
        client: Client,
        (records, placed): (Result<Option<PathBuf>, String>, Option<Placed>),
        errands: Errands,
    ) -> Self {
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            client: Some(client),
            beat,
            progress: Progress::default(),
            placed,
            records,
            errands,
            finished: false,
        }
    }

    /// Waits for the start, and runs the meetings that the coordinator requests before it.
    async fn wait_for_start(&mut self, tell: meet::Tell, mut told: Receiver<Met>) -> Result<Start, Left> {
        let mut meetings = JoinSet::new();
        loop {
            let Some(client) = &mut self.client else { return Err(Left::Lost) };
            tokio::select! {
                heard = client.heard.recv() => match heard {
                    Some(ToWorker::Start(start)) => return Ok(*start),
                    Some(ToWorker::Launch(errands)) => self.errands.start(errands),
                    Some(ToWorker::Meet(all)) => drop(meetings.spawn(meet::keep(all, tell.clone()))),
                    Some(ToWorker::Finish) => {
                        self.finished = true;
                        return Err(Left::Finished);
                    }
                    Some(ToWorker::Stop(why)) => return Err(Left::Stopped(why)),
                    Some(ToWorker::Alive | ToWorker::News(_) | ToWorker::Count) => {}
                    None => return Err(Left::Lost),
                },
                (place, why) = self.errands.ended() => self.say(&ToCoordinator::LaunchEnded { place, why }).await,
                Some(met) = told.recv() => self.say(&ToCoordinator::Met(met)).await,
                _ = self.beat.tick() => self.tell_progress().await,
            }
        }
    }

    /// The next message or tick; ticks continue after the connection is lost.
    pub(crate) async fn next(&mut self) -> Word {
        loop {
            let Some(client) = &mut self.client else {
                self.beat.tick().await;
                return Word::Beat;
            };
            tokio::select! {
                heard = client.heard.recv() => match heard {
                    Some(ToWorker::News(news)) => return Word::News(*news),
                    Some(ToWorker::Launch(errands)) => self.errands.start(errands),
                    Some(ToWorker::Finish) => {
                        self.finished = true;
                        return Word::Left(Left::Finished);
                    }
                    Some(ToWorker::Stop(why)) => return Word::Left(Left::Stopped(why)),
                    Some(ToWorker::Count) => return Word::Count,
                    Some(ToWorker::Alive | ToWorker::Start(_) | ToWorker::Meet(_)) => {}
                    None => {
                        self.client = None;
                        return Word::Left(Left::Lost);
                    }
                },
                (place, why) = self.errands.ended() => self.say(&ToCoordinator::LaunchEnded { place, why }).await,
                _ = self.beat.tick() => return Word::Beat,
            }
        }
    }

    /// Reports the progress. A failure is noticed by the reading half of the connection.
    pub(crate) async fn tell_progress(&mut self) {
        self.say(&ToCoordinator::Progress(self.progress)).await;
    }

    pub(crate) async fn say(&mut self, message: &ToCoordinator) {
        if let Some(client) = &mut self.client
            && let Err(error) = client.say(message).await
        {
            tracing::info!(%error, "cannot send to the coordinator");
        }
    }

    /// Sends the last message; does not wait if the connection is lost.
    async fn say_last(&mut self, message: &ToCoordinator) {
        let _ = tokio::time::timeout(GOODBYE, self.say(message)).await;
        // Wait until the other end has read it and closed, so that it is not lost.
        let heard = async {
            while let Some(client) = &mut self.client
                && client.heard.recv().await.is_some()
            {}
        };
        let _ = tokio::time::timeout(GOODBYE, heard).await;
    }

    /// Waits for the workers that this one started, which continue even if its own part failed; their launchers end with
    /// them. The wait lasts as long as the coordinator is connected, and then within bounds.
    async fn end_errands(&mut self) {
        while !self.errands.is_empty() && !self.finished && self.client.is_some() {
            match self.next().await {
                Word::Left(_) => break,
                Word::Beat => self.tell_progress().await,
                Word::News(_) | Word::Count => {}
            }
        }
        let bound = if self.client.is_some() { LEAVE } else { ALONE };
        let _ = tokio::time::timeout(bound, self.errands.all_ended()).await;
    }

    /// Runs `work` while the connection is kept alive; messages meanwhile are kept in `aside`.
    pub(crate) async fn during<T>(
        &mut self,
        work: impl Future<Output = T>,
        aside: &mut Vec<News>,
    ) -> Result<T, Left> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                word = self.next() => match word {
                    Word::News(news) => aside.push(news),
                    Word::Beat | Word::Count => self.tell_progress().await,
                    Word::Left(left) => return Err(left),
                },
            }
        }
    }
}
