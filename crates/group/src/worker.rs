//! A worker: one host's part in a broadcast, from the ticket to the last goodbye.
//!
//! It lives as long as its coordinator speaks to it. If the coordinator is lost after the start, the members go on
//! among themselves: a worker stays while anything moves, and leaves when nothing does.

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

/// How long the last message may take to leave.
const GOODBYE: Duration = Duration::from_secs(5);

/// Launchers end when the workers that they have started do; they are given so long when all is over, and so long when
/// the coordinator was lost and those workers may be going on among themselves.
const LEAVE: Duration = Duration::from_secs(60);
const ALONE: Duration = Duration::from_secs(3600);

/// What is called when the data is in place on this host, while the broadcast goes on for others.
pub type Placed = Box<dyn FnOnce() + Send>;

/// Takes part in a broadcast until it is over for this host. `host`: what the coordinator calls this host; `records`:
/// the directory in which it is recorded what was put where, or why there is none.
///
/// # Errors
/// Why the data is not in place here; the coordinator has been told, if it still listens.
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

/// Gets the data, and the manifest before it if that comes as data.
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

/// Why there is no more coordinator to talk to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Everyone is done.
    Finished,
    /// It says to stop.
    Stopped(String),
    /// It is gone.
    Lost,
}

impl From<Left> for Error {
    fn from(left: Left) -> Self {
        Error::Coordinator(match left {
            Left::Finished => "the broadcast ended without this host".into(),
            Left::Stopped(why) => format!("the coordinator stops this worker: {why}"),
            Left::Lost => "the coordinator is lost".into(),
        })
    }
}

/// What comes down the line while a worker is at work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Members, and a plan.
    News(News),
    /// Time to say how far we are.
    Beat,
    /// It wants to know exactly.
    Count,
    /// There is nobody any more.
    Left(Left),
}

/// The line to the coordinator, and how far this worker is.
pub(crate) struct Line {
    /// None once it is lost.
    client: Option<Client>,
    beat: tokio::time::Interval,
    pub(crate) progress: Progress,
    /// Who wants to know when the data is in place.
    pub(crate) placed: Option<Placed>,
    /// Where it is recorded what was put where, or why it is not.
    pub(crate) records: Result<Option<PathBuf>, String>,
    errands: Errands,
    /// Everyone is done.
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

    /// Until then it meets whom it is told to.
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

    /// The next thing to attend to: beats go on when the line is lost.
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

    /// Says how far we are. A line that breaks here is heard of by its other half.
    pub(crate) async fn tell_progress(&mut self) {
        self.say(&ToCoordinator::Progress(self.progress)).await;
    }

    pub(crate) async fn say(&mut self, message: &ToCoordinator) {
        if let Some(client) = &mut self.client
            && let Err(error) = client.say(message).await
        {
            tracing::info!(%error, "the coordinator does not hear");
        }
    }

    /// The last words: not worth waiting for if nobody takes them.
    async fn say_last(&mut self, message: &ToCoordinator) {
        let _ = tokio::time::timeout(GOODBYE, self.say(message)).await;
        // Until the other end has read it and closed, so that it is not cut off.
        let heard = async {
            while let Some(client) = &mut self.client
                && client.heard.recv().await.is_some()
            {}
        };
        let _ = tokio::time::timeout(GOODBYE, heard).await;
    }

    /// Those whom this worker has started go on, whatever came of its own part; their launchers end when they do. Here
    /// it only waits, as long as the coordinator is there, and then within bounds.
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

    /// Goes on with some work while the line is kept alive; what the line brings meanwhile is put aside.
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
