//! Keeps one swarm announced to all its trackers, and hands over the peers from their replies.
//!
//! The tiers of a manifest are used by BEP 12: in each only until one tracker answers, the next only if all of a
//! tier fail (`tiers.rs`). Trackers named by the user are all used: they are few, the user's own, and nodes with
//! different ones would not find each other.
//!
//! A hybrid manifest is announced under both of its hashes. `started` is sent first and repeated until it is
//! accepted, `completed` once, `stopped` at the end within two seconds. A tracker that fails is retried, at first
//! after a second, then less and less often, at last every five minutes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::RngExt;
use rand::seq::SliceRandom;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, warn};

use crate::tiers::Order;
use crate::tracker::{self, Announce, Event, Options, Response};
use crate::{DiscoveredPeers, Error, InfoHash, PeerId, Source, TrackerUrl};

/// Most trackers used of one manifest; the rest are ignored.
const MAX_TRACKERS: usize = 64;
/// Most announces under way at once.
const MAX_IN_FLIGHT: usize = 32;
/// A tracker is contacted no more often than this, however short its interval.
const MIN_INTERVAL: Duration = Duration::from_secs(5);
/// However long the interval, it gets an announcement this often.
const MAX_INTERVAL: Duration = Duration::from_secs(3600);
/// First and longest wait after a failure.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// First wait after a tracker has rejected an announce.
const RETRY_REFUSED: Duration = Duration::from_secs(30);
/// A tracker that has not answered for this long does not keep the next one waiting.
const LATE: Duration = Duration::from_secs(5);
/// The maximum time to announce that the peer has stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The swarm to announce, and its trackers.
#[derive(Debug, Clone)]
pub struct Config {
    /// Trackers. Those that cannot be used are reported by [`Announcer::status`] and otherwise ignored.
    pub trackers: Trackers,
    /// The swarm, under each of its names.
    pub hashes: Vec<InfoHash>,
    /// Our peer id.
    pub peer_id: PeerId,
    /// The port on which we accept peers.
    pub port: u16,
    /// The progress of the download at the start.
    pub progress: Progress,
    /// How many peers to ask for; `None` leaves it to the tracker.
    pub numwant: Option<u32>,
    /// How trackers are reached.
    pub options: Options,
}

/// Tracker URLs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trackers {
    /// All of them are used.
    pub named: Vec<String>,
    /// In tiers, as a manifest has them: one that answers is enough.
    pub tiers: Vec<Vec<String>>,
}

impl Trackers {
    /// Whether there is no tracker.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.named.iter().chain(self.tiers.iter().flatten()).next().is_none()
    }
}

/// How far a download is, in bytes of payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Sent to peers since the start.
    pub uploaded: u64,
    /// Received from peers since the start.
    pub downloaded: u64,
    /// Still missing.
    pub left: u64,
}

/// The state of one tracker for one of the hashes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// The tracker, as the manifest writes it.
    pub url: String,
    /// The swarm's name there.
    pub hash: InfoHash,
    /// How many announces it has answered.
    pub answered: u64,
    /// Why the latest one failed, if it did.
    pub error: Option<String>,
    /// The tracker's warning for the user.
    pub warning: Option<String>,
    /// How many peers the latest answer named.
    pub peers: usize,
    /// How many seeders it knows.
    pub seeders: Option<u32>,
    /// How many others it knows.
    pub leechers: Option<u32>,
}

/// The task that keeps a swarm announced. [`Announcer::stop`] tells the trackers that the peer has
/// stopped; dropping it just ends the task.
pub struct Announcer {
    progress: watch::Sender<Progress>,
    more: Arc<Notify>,
    status: Arc<Mutex<Vec<Status>>>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Announcer {
    /// Starts announcing. Peers go into `found`, and are dropped while it is full.
    ///
    /// Must be called within a tokio runtime.
    #[must_use]
    pub fn start(config: Config, found: mpsc::Sender<DiscoveredPeers>) -> Self {
        let (progress, progress_rx) = watch::channel(config.progress);
        let (stop, stop_rx) = oneshot::channel();
        let more = Arc::new(Notify::new());
        let (entries, order, status) = entries(&config);
        let status = Arc::new(Mutex::new(status));
        let run = Run {
            completed: config.progress.left == 0,
            key: rand::random(),
            config,
            entries,
            order,
            in_flight: JoinSet::new(),
            progress: progress_rx,
            found,
            status: Arc::clone(&status),
        };
        let task = tokio::spawn(run.run(stop_rx, Arc::clone(&more)));
        Self { progress, more, status, stop, task }
    }

    /// Reports the progress of the download. Reaching `left == 0` announces `completed` at once; everything else
    /// waits for the next announce, so this may be called often.
    pub fn progress(&self, now: Progress) {
        self.progress.send_if_modified(|last| {
            let completed = last.left != 0 && now.left == 0;
            *last = now;
            completed
        });
    }

    /// Asks for peers now, or as soon as each tracker's least interval allows.
    pub fn want_peers(&self) {
        self.more.notify_one();
    }

    /// The state of each tracker.
    #[must_use]
    pub fn status(&self) -> Vec<Status> {
        self.status.lock().clone()
    }

    /// Sends event `stopped` to the trackers that have accepted an announce, within about two seconds, and ends.
    pub async fn stop(self) {
        // Both fail only when the task has ended already.
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

/// One tracker and one hash.
struct Entry {
    url: TrackerUrl,
    hash: InfoHash,
    /// When to announce next; meaningless while one is under way.
    due: Instant,
    /// Not before this time, even on request.
    earliest: Instant,
    /// The event of the announce in progress.
    saying: Option<Event>,
    /// When the announce that is under way, or was last, has begun.
    sent: Option<Instant>,
    /// `started` was accepted.
    started: bool,
    /// `completed` must still be sent, after `started`.
    owes_completed: bool,
    failures: u32,
    tracker_id: Option<Vec<u8>>,
}

/// One entry for each usable tracker and hash, their order, and one status for each and for the unusable ones.
fn entries(config: &Config) -> (Vec<Entry>, Vec<Order>, Vec<Status>) {
    let now = Instant::now();
    let (mut entries, mut status, mut unusable) = (Vec::new(), Vec::new(), Vec::new());
    let mut urls: Vec<TrackerUrl> = Vec::new();
    let mut usable = |texts: &[String]| {
        let from = urls.len();
        for text in texts {
            match TrackerUrl::parse(text) {
                Ok(url) if urls.contains(&url) => {}
                Ok(_) if urls.len() >= MAX_TRACKERS => {
                    warn!(tracker = %text.escape_default(), "too many trackers; ignored");
                }
                Ok(url) => urls.push(url),
                Err(error) if unusable.len() < MAX_TRACKERS => {
                    let url = crate::error::printable(text.as_bytes());
                    unusable.push(Status { url, error: Some(error.to_string()), ..Status::default() });
                }
                Err(_) => {}
            }
        }
        from..urls.len()
    };
    let named = usable(&config.trackers.named);
    let tiers: Vec<_> = config.trackers.tiers.iter().map(|tier| usable(tier)).collect();
    // Shuffled once (BEP 12), and for each hash alike: a tracker's answer for one holds for the other.
    let tiers = tiers.into_iter().map(|tier| {
        let mut tier: Vec<usize> = tier.collect();
        tier.shuffle(&mut rand::rng());
        tier
    });
    let tiers: Vec<Vec<usize>> = tiers.filter(|tier| !tier.is_empty()).collect();
    let mut order = Vec::new();
    for &hash in &config.hashes {
        let at = |url: usize| entries.len() + url;
        order.extend(named.clone().map(|url| Order::new(vec![vec![at(url)]])));
        order.push(Order::new(tiers.iter().map(|tier| tier.iter().map(|url| at(*url)).collect()).collect()));
        for url in &urls {
            status.push(Status { url: url.to_string(), hash, ..Status::default() });
            entries.push(Entry {
                url: url.clone(),
                hash,
                due: now,
                earliest: now,
                saying: None,
                sent: None,
                started: false,
                owes_completed: false,
                failures: 0,
                tracker_id: None,
            });
        }
    }
    status.extend(unusable);
    (entries, order, status)
}

struct Run {
    config: Config,
    /// Random for the life of this task (BEP 3 `key`).
    key: u32,
    /// Everything was there from the start, or `completed` has been noted.
    completed: bool,
    entries: Vec<Entry>,
    order: Vec<Order>,
    in_flight: JoinSet<(usize, Event, Result<Response, Error>)>,
    progress: watch::Receiver<Progress>,
    found: mpsc::Sender<DiscoveredPeers>,
    status: Arc<Mutex<Vec<Status>>>,
}

impl Run {
    async fn run(mut self, mut stop: oneshot::Receiver<()>, more: Arc<Notify>) {
        let stopped = loop {
            self.send_due();
            let next = self.next();
            let full = self.in_flight.len() >= MAX_IN_FLIGHT;
            tokio::select! {
                asked = &mut stop => break asked.is_ok(),
                Some(done) = self.in_flight.join_next() => {
                    if let Ok((at, event, result)) = done {
                        self.answered(at, event, result);
                    }
                }
                () = until(next), if !full => {}
                changed = self.progress.changed() => {
                    if changed.is_err() {
                        break false;
                    }
                    self.note_completed();
                }
                () = more.notified() => {
                    let now = Instant::now();
                    self.entries.iter_mut().for_each(|e| e.due = e.due.min(e.earliest.max(now)));
                }
            }
        };
        if stopped {
            let _ = timeout(STOP_TIMEOUT, self.announce_stopped()).await;
        }
    }

    /// The entries to contact now.
    fn asked(&self, now: Instant) -> Vec<usize> {
        let fails = |at: usize| self.entries.get(at).is_none_or(|e| e.fails(now));
        self.order.iter().flat_map(|order| order.asked(fails)).collect()
    }

    /// When there is something to do next: an announce is due, or one is late and lets the next tracker have its turn.
    fn next(&self) -> Option<Instant> {
        let now = Instant::now();
        let asked = self.asked(now);
        let turn = asked.iter().filter_map(|at| self.entries.get(*at));
        turn.filter_map(
            |e| if e.saying.is_some() { e.late().filter(|late| *late > now) } else { Some(e.due) },
        )
        .min()
    }

    /// Sends due announces, within the limit of concurrent ones.
    fn send_due(&mut self) {
        let now = Instant::now();
        for at in self.asked(now) {
            if self.in_flight.len() >= MAX_IN_FLIGHT {
                return;
            }
            let Some(entry) = self.entries.get_mut(at).filter(|e| e.saying.is_none() && e.due <= now) else {
                continue;
            };
            entry.sent = Some(now);
            let event = match (entry.started, entry.owes_completed) {
                (false, _) => Event::Started,
                (true, true) => Event::Completed,
                (true, false) => Event::None,
            };
            entry.saying = Some(event);
            let (url, ask) = (entry.url.clone(), self.ask(at, event));
            let options = self.config.options.clone();
            self.in_flight.spawn(async move { (at, event, tracker::announce(&url, &ask, &options).await) });
        }
    }

    fn ask(&self, at: usize, event: Event) -> Announce {
        let progress = *self.progress.borrow();
        let entry = self.entries.get(at);
        Announce {
            info_hash: entry.map(|e| e.hash).unwrap_or_default(),
            peer_id: self.config.peer_id,
            port: self.config.port,
            uploaded: progress.uploaded,
            downloaded: progress.downloaded,
            left: progress.left,
            event,
            numwant: if event == Event::Stopped { Some(0) } else { self.config.numwant },
            key: self.key,
            tracker_id: entry.and_then(|e| e.tracker_id.clone()),
        }
    }

    fn note_completed(&mut self) {
        let progress = *self.progress.borrow_and_update();
        if progress.left == 0 && !self.completed {
            self.completed = true;
            // Data that existed already does not count as downloaded (BEP 3).
            if progress.downloaded == 0 {
                return;
            }
            let now = Instant::now();
            for entry in &mut self.entries {
                entry.owes_completed = true;
                if entry.failures == 0 {
                    entry.due = now;
                }
            }
        }
    }

    fn answered(&mut self, at: usize, event: Event, result: Result<Response, Error>) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        entry.saying = None;
        match result {
            Ok(response) => {
                let (hash, source) = (entry.hash, Source::Tracker(entry.url.shared()));
                entry.accepted(event, &response);
                self.order.iter_mut().for_each(|order| order.answered(at));
                self.report(at, |status| {
                    status.answered += 1;
                    status.error = None;
                    status.warning.clone_from(&response.warning);
                    status.peers = response.peers.len();
                    status.seeders = response.seeders;
                    status.leechers = response.leechers;
                });
                self.hand_over(hash, source, response.peers);
            }
            Err(error) => {
                debug!(tracker = %entry.url, %error, "announce failed");
                entry.failed(&error);
                self.report(at, |status| status.error = Some(error.to_string()));
            }
        }
    }

    fn report(&self, at: usize, change: impl FnOnce(&mut Status)) {
        if let Some(status) = self.status.lock().get_mut(at) {
            change(status);
        }
    }

    fn hand_over(&self, hash: InfoHash, source: Source, peers: Vec<SocketAddr>) {
        if !peers.is_empty() && self.found.try_send(DiscoveredPeers { hash, source, peers }).is_err() {
            debug!("dropped peers of a tracker: the queue is full");
        }
    }

    /// Tells the trackers that know us, or may soon, that we leave; before it, that the download is complete, if
    /// they were not told.
    async fn announce_stopped(&mut self) {
        self.note_completed();
        // A tracker counts announces: a `completed` in progress is awaited, not sent again.
        let _ = timeout(STOP_TIMEOUT / 2, async {
            while self.entries.iter().any(|e| e.saying == Some(Event::Completed)) {
                let Some(done) = self.in_flight.join_next().await else { break };
                if let Ok((at, event, result)) = done {
                    self.answered(at, event, result);
                }
            }
        })
        .await;
        self.in_flight.abort_all();
        let options = Options {
            timeout: STOP_TIMEOUT,
            udp_first_wait: Some(STOP_TIMEOUT / 4),
            ..self.config.options.clone()
        };
        let mut leaving = JoinSet::new();
        for at in 0..self.entries.len() {
            if let Some(entry) = self.entries.get(at).filter(|e| e.started || e.saying.is_some()) {
                let (url, ask) = (entry.url.clone(), self.ask(at, Event::Stopped));
                let owes = entry.owes_completed && entry.saying != Some(Event::Completed);
                let completed = owes.then(|| self.ask(at, Event::Completed));
                let options = options.clone();
                leaving.spawn(async move {
                    if let Some(completed) = completed {
                        let _ = tracker::announce(&url, &completed, &options).await;
                    }
                    tracker::announce(&url, &ask, &options).await
                });
            }
        }
        while leaving.join_next().await.is_some() {}
    }
}

impl Entry {
    /// Another tracker is asked meanwhile.
    fn fails(&self, now: Instant) -> bool {
        self.failures > 0 || self.saying.is_some() && self.late().is_some_and(|late| late <= now)
    }

    /// When the announce that is under way lets others have their turn.
    fn late(&self) -> Option<Instant> {
        self.sent.filter(|_| self.failures == 0).map(|sent| sent + LATE)
    }

    fn accepted(&mut self, event: Event, response: &Response) {
        let now = Instant::now();
        let interval = response.interval.clamp(MIN_INTERVAL, MAX_INTERVAL);
        let least = response.min_interval.unwrap_or(interval / 2).clamp(MIN_INTERVAL, interval);
        self.failures = 0;
        self.earliest = now + least;
        // A little early and not all at once: nodes that started together shall not stay together.
        self.due = now + interval.mul_f64(rand::rng().random_range(0.9..1.0));
        if let Some(id) = &response.tracker_id {
            self.tracker_id = Some(id.clone());
        }
        self.started = true;
        if event == Event::Completed {
            self.owes_completed = false;
        } else if self.owes_completed {
            // It came about while this announce was under way.
            self.due = now;
        }
    }

    fn failed(&mut self, error: &Error) {
        let refused = matches!(error, Error::Refused { .. } | Error::Status { .. });
        let first = if refused { RETRY_REFUSED } else { RETRY.0 };
        let wait = first.saturating_mul(1 << self.failures.min(16)).min(RETRY.1);
        self.failures += 1;
        self.due = Instant::now() + wait.mul_f64(rand::rng().random_range(0.75..1.25));
        self.earliest = self.due;
    }
}

/// Waits for `when`; for ever if there is nothing to wait for.
async fn until(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}
