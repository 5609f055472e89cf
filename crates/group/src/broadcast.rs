//! The coordinator: from a list of hosts to a report.
//!
//! One task holds all state, and receives all input through one queue: launchers, the control channel, reached addresses,
//! the hashing of the source, and the clock.

mod begin;
mod end;
mod input;
mod launching;
mod manifest_swarm;
mod measure_places;
mod origin;
mod planning;
mod roster;
mod start;

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidecast_event::bcast::News;
use tidecast_identity::NodeKey;
use tidecast_net::{LocalAddress, Network, local_addresses};
use tidecast_publish::Progress as Hashing;
use tidecast_swarm::plan::topology::Map;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(crate) use self::begin::hostname;
use self::launching::{LAUNCHES, WAITING};
use self::manifest_swarm::ManifestSwarm;
use self::measure_places::{PlaceMeasurement, ProbeListener};
use self::origin::Origin;
use self::planning::Planning;
pub(crate) use self::roster::{Roster, machine, unlisted};
use crate::channel::HEARTBEAT;
use crate::control::message::{ProbeResult, ToWorker};
use crate::control::server::{ConnId, Incoming};
use crate::control::ticket::GroupTicket;
use crate::error::{Error, system};
use crate::hosts::Host;
use crate::launch::{Job, Launch};
use crate::network::Choice;
use crate::node::{Node, Stage, gathered};
use crate::plan::Algorithm;
use crate::reach::Reached;
use crate::report::Report;
use crate::source::Source;

/// Input that may wait in the queue.
const INBOX: usize = 4096;
/// How often deadlines are checked and the state is reported.
const TICK: Duration = Duration::from_millis(100);

/// Workers with which the rate of networks is measured if drivers do not report it: two, because one may be unusual.
const TRIALS: usize = 2;

/// Options of a broadcast.
#[derive(Clone, Debug)]
pub struct Options {
    /// A file or a directory.
    pub source: PathBuf,
    /// The path of the copy on each node; `{host}` in it becomes the node's name.
    pub dest: PathBuf,
    /// The receiving hosts.
    pub hosts: Vec<Host>,
    /// How workers are started.
    pub launch: Launch,
    /// Tidecast's program on the nodes.
    pub program: PathBuf,
    /// The algorithm that distributes the data.
    pub algorithm: Algorithm,
    /// The places of hosts, for the plan; without it they are measured, if that can pay.
    pub topology: Option<Map>,
    /// The name of this host in the topology; by default its own name.
    pub name: Option<String>,
    /// How many members read the source, including this one; the others see it at the same path, and each sends a share.
    pub sources: u32,
    /// The network to use; by default the fastest that reaches all hosts.
    pub network: Option<Network>,
    /// Send the data unencrypted.
    pub plain: bool,
    /// The metainfo file to write, with which BitTorrent clients can join; only with `plain`.
    pub torrent: Option<PathBuf>,
    /// Sync the data to disk before it counts as done.
    pub durable: bool,
    /// Replace existing files that we did not deliver, or that were changed since.
    pub force: bool,
    /// Remove delivered files from a tree at the destination that the source does not have.
    pub delete: bool,
    /// Absolute paths of older versions on the hosts; their data is reused instead of sent.
    pub bases: Vec<PathBuf>,
    /// The directory of the records of delivered files on this host; other hosts use their own.
    pub records: Option<PathBuf>,
    /// A manifest longer than this (bytes) is broadcast like the data, before it, instead of sent to each host.
    pub manifest_limit: usize,
    /// Rate of a node's link in bits per second, if drivers do not report it correctly.
    pub link_rate: Option<u64>,
    /// Threads that hash; 0: one for each core.
    pub threads: usize,
}

/// A manifest up to this length is sent to each host over the control channel (bytes).
pub const MANIFEST_LIMIT: usize = 1 << 20;

impl Options {
    /// Options to copy `source` to the absolute path `dest` on each of these hosts. Workers are started by srun in a
    /// Slurm job, else by ssh; each host runs `tidecast` from its PATH.
    pub fn new(source: impl Into<PathBuf>, dest: impl Into<PathBuf>, hosts: Vec<Host>) -> Self {
        Self {
            source: source.into(),
            dest: dest.into(),
            hosts,
            launch: Launch::Auto,
            program: "tidecast".into(),
            algorithm: Algorithm::Auto,
            topology: None,
            name: None,
            sources: 1,
            network: None,
            plain: false,
            torrent: None,
            durable: false,
            force: false,
            delete: false,
            bases: Vec::new(),
            records: None,
            manifest_limit: MANIFEST_LIMIT,
            link_rate: None,
            threads: 0,
        }
    }
}

/// The progress of a broadcast.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The workers were told to start.
    pub started: bool,
    /// Bytes of the source hashed.
    pub hashed: u64,
    /// Bytes of the source; 0 while unknown.
    pub total: u64,
    /// Bytes that all hosts together need.
    pub wanted: u64,
    /// Bytes of `wanted` that are verified.
    pub verified: u64,
    /// Number of hosts.
    pub hosts: usize,
    /// Hosts whose worker is connected.
    pub joined: usize,
    /// Hosts that are complete.
    pub done: usize,
    /// Hosts that have failed.
    pub failed: usize,
    /// Payload that the origin and the additional sources have sent, bytes.
    pub origin_sent: u64,
}

/// Events of a broadcast.
#[derive(Clone, Debug)]
pub enum Event {
    /// The ticket for workers that the caller starts ([`Launch::ByCaller`]); the first event, and only then.
    Ticket(Box<GroupTicket>),
    /// The progress, several times a second.
    State(State),
    /// A problem that does not end the broadcast.
    Warning(String),
    /// News about hosts, networks and places.
    News(News),
}

/// Input of the coordinator.
enum Input {
    Control(Incoming),
    /// A launcher has ended, for this reason.
    LaunchEnded {
        places: Vec<usize>,
        why: String,
    },
    Reached {
        place: usize,
        conn: ConnId,
        reached: Vec<Reached>,
    },
    /// The result of a probe of the origin with a worker.
    ProbeResult(ProbeResult),
    /// The source is ready to be served.
    Source(Box<Result<Source, Error>>),
}

/// Runs a broadcast, and calls `tell` with its events. `stop` ends it early.
///
/// # Errors
/// Errors that end it for all hosts; the report has the hosts that fail.
pub async fn run(
    options: Options,
    stop: impl Future<Output = ()>,
    tell: &mut (dyn FnMut(Event) + Send),
) -> Result<Report, Error> {
    let (mut group, mut inputs) = Group::begin(options, tell).await?;
    let mut stop = std::pin::pin!(stop);
    let mut tick = tokio::time::interval(TICK);
    let result = loop {
        tokio::select! {
            Some(input) = inputs.recv() => {
                if let Err(error) = group.handle_input(input, tell) {
                    break Err(error);
                }
            }
            _ = tick.tick() => group.tick(tell),
            () = stop.as_mut() => break Err(Error::Stopped),
        }
        if let Err(error) = group.advance(tell).await {
            break Err(error);
        }
        if group.over() {
            group.serve_other_clients(stop, tell).await;
            break Ok(());
        }
    };
    group.end(result, tell).await
}

/// The whole state of a broadcast.
struct Group {
    options: Options,
    key: NodeKey,
    local: Vec<LocalAddress>,
    nodes: Vec<Node>,
    roster: Roster,
    /// The host of each connection.
    conns: HashMap<ConnId, usize>,
    inbox: mpsc::Sender<Input>,
    tasks: JoinSet<()>,
    launches: JoinSet<()>,
    /// Queued launches, the ticket for them, and the permits to start them.
    waiting: VecDeque<Job>,
    ticket: String,
    turns: Arc<Semaphore>,
    /// Number of launches that workers returned.
    refusals: usize,
    hashing: Arc<Hashing>,
    source: Option<Source>,
    origin: Option<Origin>,
    /// The origin's listener for probes; the measurement of places, and its result.
    probe_listener: Option<ProbeListener>,
    measurement: Option<PlaceMeasurement>,
    places: Option<Vec<Vec<String>>>,
    planning: Option<Planning>,
    manifest_swarm: Option<ManifestSwarm>,
    choice: Option<Choice>,
    /// The number of workers with which the rate of networks may still be measured.
    trials: usize,
    /// The metainfo file that workers receive.
    manifest: Vec<u8>,
    began: Instant,
    /// When the last worker connected.
    last_join: Option<Instant>,
    /// When the workers were told to start.
    started: Option<Instant>,
    /// The number of sources that have not yet reported their totals, and since when they are asked.
    counting: Option<(Instant, usize)>,
    last_beat: Instant,
    /// When to report next which hosts the launch waits for, and the pause after that.
    tell_waiting: (Instant, Duration),
}

impl Group {
    async fn begin(
        options: Options,
        tell: &mut (dyn FnMut(Event) + Send),
    ) -> Result<(Self, mpsc::Receiver<Input>), Error> {
        let (inbox, inputs) = mpsc::channel(INBOX);
        let key = NodeKey::generate()?;
        let local = local_addresses().map_err(system("list this host's networks"))?;
        let roster = Roster::of(&options).await?;
        let hosts = roster.hosts();
        let options = Options { hosts, ..options };
        let now = Instant::now();
        let nodes: Vec<Node> = options.hosts.iter().map(|h| Node::new(h.clone(), now)).collect();
        for (node, names) in nodes.iter().zip(&roster.aliases).filter(|(_, names)| !names.is_empty()) {
            tell(Event::News(News::Aliases { host: node.host.name.clone(), names: names.clone() }));
        }
        let mut group = Self {
            options,
            key,
            local,
            nodes,
            roster,
            conns: HashMap::new(),
            inbox,
            tasks: JoinSet::new(),
            launches: JoinSet::new(),
            waiting: VecDeque::new(),
            ticket: String::new(),
            turns: Arc::new(Semaphore::new(LAUNCHES)),
            refusals: 0,
            hashing: Arc::new(Hashing::new()),
            source: None,
            origin: None,
            probe_listener: None,
            measurement: None,
            places: None,
            planning: None,
            manifest_swarm: None,
            choice: None,
            trials: TRIALS,
            manifest: Vec::new(),
            began: now,
            last_join: None,
            started: None,
            counting: None,
            last_beat: now,
            tell_waiting: (now + WAITING, WAITING),
        };
        group.open_probe_listener()?;
        let ticket = group.open_control()?;
        group.hash();
        group.launch_all(ticket, tell)?;
        Ok((group, inputs))
    }

    /// Checks deadlines, sends keep-alives, and reports the state.
    fn tick(&mut self, tell: &mut (dyn FnMut(Event) + Send)) {
        let now = Instant::now();
        let others = self.nodes.iter().map(|n| n.moved).max().unwrap_or(now);
        let beat = now - self.last_beat >= HEARTBEAT;
        for node in &mut self.nodes {
            if let Some(why) = node.overdue(now, others) {
                let source = self.origin.as_ref().and_then(Origin::trouble);
                node.fail(source.map_or(why.clone(), |trouble| format!("{why}; the origin: {trouble}")));
            }
            if beat {
                node.send(ToWorker::Alive);
            }
        }
        if beat {
            self.last_beat = now;
        }
        self.tell_waiting(now, tell);
        tell(Event::State(self.state()));
    }

    fn state(&self) -> State {
        let sum = |of: fn(&Node) -> u64| self.nodes.iter().map(of).sum();
        let count = |is: fn(&Node) -> bool| self.nodes.iter().filter(|n| is(n)).count();
        State {
            started: self.started.is_some(),
            hashed: self.hashed(),
            total: self.source.as_ref().map_or(self.hashing.total(), |s| s.manifest.total_len()),
            // The data of failed hosts does not count.
            wanted: sum(|n| if matches!(n.stage, Stage::Failed(_)) { 0 } else { n.progress.wanted }),
            verified: sum(|n| if matches!(n.stage, Stage::Failed(_)) { 0 } else { n.progress.verified }),
            hosts: self.nodes.len(),
            joined: count(|n| n.who.is_some()),
            done: count(|n| matches!(n.stage, Stage::Done(..))),
            failed: count(|n| matches!(n.stage, Stage::Failed(_))),
            origin_sent: self.origin.as_ref().map_or(0, Origin::sent) + sum(|n| n.progress.served),
        }
    }

    /// Bytes of the source hashed by now.
    fn hashed(&self) -> u64 {
        let draft = self.source.as_ref().is_some_and(|s| s.manifest.is_draft());
        match self.origin.as_ref().filter(|_| draft) {
            Some(origin) => origin.hashed(),
            None => self.hashing.bytes(),
        }
    }

    /// Does the work that is possible now.
    async fn advance(&mut self, tell: &mut (dyn FnMut(Event) + Send)) -> Result<(), Error> {
        let now = Instant::now();
        self.launch_more();
        if let Some(error) = self.origin.as_mut().and_then(Origin::failure) {
            if !self.nodes.iter().any(|n| matches!(n.stage, Stage::Done(..))) {
                return Err(error);
            }
            // Complete hosts keep the copy, and are complete in the report.
            self.nodes.iter_mut().for_each(|node| node.fail(error.to_string()));
        }
        if self.started.is_none()
            && self.source.is_some()
            && gathered(&self.nodes, self.began, self.last_join, now)
        {
            self.start(tell)?;
            self.started = Some(Instant::now());
            self.begin_measurement();
        }
        if self.started.is_some() && !self.measure_places(tell) {
            self.start_ready().await?;
            self.replan().await?;
        }
        Ok(())
    }

    fn over(&mut self) -> bool {
        !self.nodes.iter().any(Node::open) && self.counted()
    }
}
