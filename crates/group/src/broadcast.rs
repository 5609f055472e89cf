//! The coordinator: from a list of hosts to a report.
//!
//! One task holds all of the state and hears of everything through one queue: launchers, the control channel, dialled
//! back addresses, the source's hashing, and the clock.

mod begin;
mod end;
mod hear;
mod launching;
mod origin;
mod places;
mod planning;
mod prelude;
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
use self::origin::Origin;
use self::places::{Door, Finding};
use self::planning::Planning;
use self::prelude::Prelude;
use self::roster::Roster;
pub(crate) use self::roster::machine;
use crate::channel::BEAT;
use crate::control::message::{Met, ToWorker};
use crate::control::server::{ConnId, Heard};
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

/// Things that may wait to be heard of.
const INBOX: usize = 4096;
/// How often deadlines are looked at and the state is told.
const TICK: Duration = Duration::from_millis(100);

/// Workers by which it is tried how fast networks are, where drivers do not say: two, since one may be an odd one.
const TRIALS: usize = 2;

/// What to broadcast, to whom, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// A file or a directory.
    pub source: PathBuf,
    /// The path that it shall have on each node; `{host}` in it becomes the node's name.
    pub dest: PathBuf,
    /// To whom.
    pub hosts: Vec<Host>,
    /// How workers are started.
    pub launch: Launch,
    /// Tidecast's program on the nodes.
    pub program: PathBuf,
    /// How the data goes.
    pub algorithm: Algorithm,
    /// Where hosts are, for the plan; without it they are tried, where that can pay.
    pub topology: Option<Map>,
    /// What this host is called in the topology; by default its own name.
    pub name: Option<String>,
    /// How many members read the source, this one among them: others that see it at the same path each give a share.
    pub sources: u32,
    /// The network to use; by default the fastest that all share.
    pub network: Option<Network>,
    /// The data need not be encrypted.
    pub plain: bool,
    /// Where to write the metainfo file by which any BitTorrent client can join; only if `plain`.
    pub torrent: Option<PathBuf>,
    /// The data is synced to disk before it counts as done.
    pub durable: bool,
    /// What stands at the destination is replaced though it is no former version by our own record.
    pub force: bool,
    /// What a tree at the destination has and the source does not is removed.
    pub delete: bool,
    /// Older versions that lie at these absolute paths on the hosts that have them; what they have is not sent.
    pub bases: Vec<PathBuf>,
    /// Where it is recorded on this host what was put where; each host has its own place otherwise.
    pub records: Option<PathBuf>,
    /// A manifest longer than this (bytes) does not go to every host one by one; it is broadcast like the data, before it.
    pub manifest_limit: usize,
    /// Rate of a node's link in bits per second, where drivers do not say it right.
    pub link_rate: Option<u64>,
    /// Threads that hash; 0: one for each core.
    pub threads: usize,
}

/// A manifest up to this goes to every host over the control channel (bytes).
pub const MANIFEST_LIMIT: usize = 1 << 20;

impl Options {
    /// `source` to the absolute path `dest` on each of these hosts. Workers are started by srun within a Slurm job, else by ssh;
    /// the program of each is found as `tidecast` in its PATH.
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

/// How far the broadcast is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The group has been told to start.
    pub started: bool,
    /// Bytes of the source hashed, and in all.
    pub hashed: u64,
    /// Bytes of the source; 0 while unknown.
    pub total: u64,
    /// Bytes that all hosts want together, and of them verified.
    pub wanted: u64,
    /// See `wanted`.
    pub verified: u64,
    /// Hosts in all.
    pub hosts: usize,
    /// Those whose worker has come.
    pub joined: usize,
    /// Those that have it.
    pub done: usize,
    /// Those that have failed.
    pub failed: usize,
    /// Payload that the origin, and the sources beside it, have sent, bytes.
    pub origin_sent: u64,
}

/// What happens on the way.
#[derive(Clone, Debug)]
pub enum Event {
    /// What workers need to know that come by themselves ([`Launch::Themselves`]); first of all, and only then.
    Ticket(Box<GroupTicket>),
    /// The state, some times a second.
    State(State),
    /// Something odd that stops nobody.
    Warning(String),
    /// What is told of hosts, networks and places.
    News(News),
}

/// What the coordinator hears.
enum Input {
    Control(Heard),
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
    /// The origin has met a worker.
    Met(Met),
    /// The source can be served.
    Source(Box<Result<Source, Error>>),
}

/// Broadcasts, and tells of it on the way. `stop` ends it early.
///
/// # Errors
/// What ends it for all; hosts that fail are in the report.
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
                if let Err(error) = group.hear(input, tell) {
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
            group.see_off(stop, tell).await;
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
    /// Which host a connection belongs to.
    conns: HashMap<ConnId, usize>,
    inbox: mpsc::Sender<Input>,
    tasks: JoinSet<()>,
    launches: JoinSet<()>,
    /// What is still to be started, with what ticket, and turns to do it.
    waiting: VecDeque<Job>,
    ticket: String,
    turns: Arc<Semaphore>,
    /// Launches that workers have handed back.
    refusals: usize,
    hashing: Arc<Hashing>,
    source: Option<Source>,
    origin: Option<Origin>,
    /// Where others meet the origin; the search for places, and what came of it.
    door: Option<Door>,
    finding: Option<Finding>,
    places: Option<Vec<Vec<String>>>,
    planning: Option<Planning>,
    prelude: Option<Prelude>,
    choice: Option<Choice>,
    /// Workers by which it may still be tried how fast networks are.
    trials: usize,
    /// The metainfo file, as it is handed out.
    manifest: Vec<u8>,
    began: Instant,
    /// When a worker came last.
    last_join: Option<Instant>,
    /// When the group was told to start.
    started: Option<Instant>,
    /// Sources that have still to say what they have sent, and since when they are asked.
    counting: Option<(Instant, usize)>,
    last_beat: Instant,
    /// When it is to be told next for whom the launch waits, and the pause after that.
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
            door: None,
            finding: None,
            places: None,
            planning: None,
            prelude: None,
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
        group.open_door()?;
        let ticket = group.open_control()?;
        group.hash();
        group.launch_all(ticket, tell)?;
        Ok((group, inputs))
    }

    /// Deadlines, signs of life, the state.
    fn tick(&mut self, tell: &mut (dyn FnMut(Event) + Send)) {
        let now = Instant::now();
        let others = self.nodes.iter().map(|n| n.moved).max().unwrap_or(now);
        let beat = now - self.last_beat >= BEAT;
        for node in &mut self.nodes {
            if let Some(why) = node.overdue(now, others) {
                let source = self.origin.as_ref().and_then(Origin::trouble);
                node.fail(source.map_or(why.clone(), |trouble| format!("{why}; the origin: {trouble}")));
            }
            if beat {
                node.say(ToWorker::Alive);
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
            // What a failed host wanted is wanted no more.
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

    /// Does what can be done now.
    async fn advance(&mut self, tell: &mut (dyn FnMut(Event) + Send)) -> Result<(), Error> {
        let now = Instant::now();
        self.launch_more();
        if let Some(error) = self.origin.as_mut().and_then(Origin::failure) {
            if !self.nodes.iter().any(|n| matches!(n.stage, Stage::Done(..))) {
                return Err(error);
            }
            // Those that have it keep it, and are in the report.
            self.nodes.iter_mut().for_each(|node| node.fail(error.to_string()));
        }
        if self.started.is_none()
            && self.source.is_some()
            && gathered(&self.nodes, self.began, self.last_join, now)
        {
            self.start(tell)?;
            self.started = Some(Instant::now());
            self.begin_finding();
        }
        if self.started.is_some() && !self.find_places(tell) {
            self.start_ready().await?;
            self.replan().await?;
        }
        Ok(())
    }

    fn over(&mut self) -> bool {
        !self.nodes.iter().any(Node::open) && self.counted()
    }
}
