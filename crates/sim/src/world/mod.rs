//! A cluster that lives: unmodified engines, one a node, on the modelled network.
//!
//! The world plays the driver for every engine and keeps the rules of the engine's surface: every
//! block received gets one verdict, every complete piece one. It knows the truth (which bytes are
//! good on whose disk), which the engines do not, so that `check` can compare.

mod conn;
mod faults;
mod joinable_plan;
mod message;
mod node;
mod open;
mod planning;
mod result;
mod silence;
mod storage;
mod wires;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use tidecast_swarm::{
    Action, Block, Candidate, Complaint, Engine, Event, Limits, PeerId, Setup, SetupError, Time,
};

use self::conn::Conn;
use self::joinable_plan::JoinedMembers;
use self::message::Packet;
use self::node::HeldEvent;
pub use self::node::{Misbehaviour, Node};
use self::planning::Planning;
use self::wires::Wires;
use crate::check::{Checks, Truth, Violation, Watch};
use crate::event_queue::EventQueue;
use crate::job::Job;
use crate::links::Links;
use crate::network::{Delivery, Network};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::rng::Rng;
use crate::topology::NodeId;

/// A node asks this often for other nodes, nanoseconds.
const ANNOUNCE: u64 = 60_000_000_000;
/// Random connections in addition to the parents that a plan names, as in crate `net`.
const PLANNED_NEIGHBOURS: usize = 4;
/// Steps between two words of progress.
const TELL: u64 = 4096;

/// Why a job cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The engine refuses it.
    #[error("the engine rejected the job: {0}")]
    Setup(#[from] SetupError),
    /// A fault or a join names a node that the topology has not.
    #[error("unknown node {0}; the topology has nodes 0 to {1}")]
    NoSuchNode(u32, usize),
    /// There is no plan for it.
    #[error("cannot make a plan: {0}")]
    Plan(#[from] tidecast_swarm::plan::PlanError),
}

/// Something that happens later.
#[derive(Debug)]
enum WorldEvent {
    /// A node comes.
    Join(NodeId),
    /// A node's engine asked to be woken.
    Wake(NodeId),
    /// Something that a program of a node began; nothing where it is no longer the same program.
    Own(NodeId, u32, NodeEvent),
    /// One end of a connection learns that it is closed.
    Down(u32, usize),
    /// One end of a connection has waited for a sign of life.
    Quiet(u32, usize),
    /// One end of a connection has waited for a block.
    Slow(u32, usize),
    /// The job's fault of that number.
    Fault(usize),
    /// The coordinator receives a node's report about another.
    Complaint(NodeId, u32, Complaint),
    /// The coordinator may make a new epoch.
    Replan,
    /// A node is told of it.
    Epoch(NodeId),
    /// The maker of a plan that members join may make a new epoch.
    Gather,
    /// Link use is noted.
    Sample,
}

/// Work that a node's program began and that now ends.
#[derive(Debug)]
enum NodeEvent {
    /// A dial ends, well or not.
    Dialled(Candidate),
    /// A dial has failed.
    DialFailed(Candidate),
    /// A block was hashed and written.
    Verdict(PeerId, Block, bool),
    /// All blocks of a piece are there.
    Settle(u32),
    /// It asks again for other nodes.
    Announce,
    /// Its user opens the next file.
    Open,
    /// It is told of others.
    Spares,
}

/// See the head of the file.
#[derive(Debug)]
pub struct World {
    now: Time,
    job: Job,
    net: Network<Packet>,
    wires: Wires,
    nodes: Vec<Node>,
    conns: Vec<Conn>,
    queue: EventQueue<WorldEvent>,
    checks: Checks,
    /// The first rule that was broken.
    broken: Option<Violation>,
    rng: Rng,
    /// Nodes that have joined, of which newcomers are told.
    present: Vec<NodeId>,
    /// Length of the longest piece.
    longest: u32,
    /// Kinds of faults that struck.
    met: BTreeSet<&'static str>,
    /// Nodes whose completion the run waits for.
    awaited: usize,
    tally: Tally,
    links: Links,
    /// The coordinator's knowledge, where there is a plan.
    planning: Option<Planning>,
    /// The planner's knowledge of a plan that members join.
    joinable: Option<JoinedMembers>,
}

/// Sums over the run.
#[derive(Debug, Default)]
struct Tally {
    events: u64,
    control: u64,
    origin_sent: u64,
    duplicate: u64,
    verified: u64,
}

impl World {
    /// The world of `job` at its start, checked at every step.
    ///
    /// # Errors
    /// When the engine refuses the job, or it names a node that is not there.
    pub fn new(job: &Job) -> Result<Self, JobError> {
        Self::watched(job, Watch::Full)
    }

    /// The same, checked as `watch` requests.
    ///
    /// # Errors
    /// When the engine refuses the job, or it names a node that is not there.
    pub fn watched(job: &Job, watch: Watch) -> Result<Self, JobError> {
        let count = job.topology.nodes.len();
        let named = job.joins.iter().map(|&(_, n)| n).chain(job.wants.iter().map(|w| w.0));
        if let Some(stranger) = named.into_iter().find(|n| n.0 as usize >= count) {
            return Err(JobError::NoSuchNode(stranger.0, count - 1));
        }
        let mut world = World {
            now: Time(0),
            net: Network::new(&job.topology, job.model).with_jitter(job.jitter, !job.seed),
            wires: Wires::new(&job.topology),
            nodes: Vec::with_capacity(count),
            conns: Vec::new(),
            queue: EventQueue::default(),
            checks: Checks::new(job, watch),
            broken: None,
            rng: Rng::new(job.seed),
            present: Vec::new(),
            longest: job.lengths.iter().copied().max().unwrap_or(0),
            met: BTreeSet::new(),
            awaited: 0,
            tally: Tally::default(),
            links: Links::new(&job.topology),
            planning: Planning::new(job)?,
            joinable: JoinedMembers::new(job),
            job: job.clone(),
        };
        let lengths: Arc<[u32]> = job.lengths.clone().into();
        let mut wants: BTreeMap<NodeId, Vec<Range<u32>>> = job.wants.iter().cloned().collect();
        let joins: BTreeMap<NodeId, Time> = job.joins.iter().map(|&(at, node)| (node, at)).collect();
        for id in (0..count as u32).map(NodeId) {
            let setup = world.setup(id, &lengths, wants.remove(&id));
            Engine::new(setup.clone(), Time(0))?;
            let rate = job.topology.nodes[id.0 as usize].rate / 8;
            world.nodes.push(Node::new(setup, rate));
        }
        for id in (0..count as u32).map(NodeId) {
            let spread = if id.0 == 0 { 0 } else { world.rng.below(job.spread) };
            let at = joins.get(&id).copied().unwrap_or(Time(spread));
            world.queue.push(at, WorldEvent::Join(id));
            world.await_node(id);
        }
        for (number, timed) in job.faults.iter().enumerate() {
            world.queue.push(timed.at, WorldEvent::Fault(number));
        }
        if job.jitter > 0 {
            world.met.insert("reorder");
        }
        world.queue.push(Time(0), WorldEvent::Sample);
        Ok(world)
    }

    fn setup(&mut self, id: NodeId, lengths: &Arc<[u32]>, wants: Option<Vec<Range<u32>>>) -> Setup {
        let all = vec![0..lengths.len() as u32];
        let wants = if self.job.opens.is_some() { Some(Vec::new()) } else { wants };
        let (have, want) = if id.0 == 0 { (all, vec![]) } else { (vec![], wants.unwrap_or(all)) };
        let Job { policy, mut limits, .. } = self.job;
        if self.planning.is_some() && !self.job.gathers {
            limits.random_neighbours = limits.random_neighbours.min(PLANNED_NEIGHBOURS);
        }
        Setup { lengths: lengths.clone(), have, want, policy, limits, seed: self.rng.next() }
    }

    /// Runs to the end: every node that can be complete is, or the job's time is up.
    ///
    /// # Errors
    /// The first rule that was broken.
    pub fn run(&mut self, progress: &Progress) -> Result<Outcome, Violation> {
        let of = self.nodes.len() as u64 * self.job.lengths.len() as u64;
        let mut steps = 0u64;
        while self.step()? {
            steps += 1;
            if steps.is_multiple_of(TELL) && !progress.tell(self.now, self.tally.verified, of) {
                break;
            }
        }
        self.finish()
    }

    /// One thing more; false at the end.
    ///
    /// # Errors
    /// The first rule that was broken.
    pub fn step(&mut self) -> Result<bool, Violation> {
        let (net, queue) = (self.net.next(), self.queue.next());
        let Some(at) = [net, queue].into_iter().flatten().min() else { return Ok(false) };
        if at > self.job.until || self.awaited == 0 {
            return Ok(false);
        }
        debug_assert!(at >= self.now, "time runs backwards");
        self.now = at;
        if net.is_some_and(|n| n <= at) {
            if let Some(delivery) = self.net.pop(at) {
                self.delivered(delivery);
            }
        } else if let Some(thing) = self.queue.pop() {
            self.happen(thing);
        }
        if self.checks.step(at) {
            let mut checks = std::mem::take(&mut self.checks);
            let judged = checks.progress(at, self);
            self.checks = checks;
            judged?;
        }
        self.broken.take().map_or(Ok(true), Err)
    }

    /// Notes the first rule that was broken.
    fn record(&mut self, judged: Result<(), Violation>) {
        if let Err(violation) = judged {
            self.broken.get_or_insert(violation);
        }
    }

    fn happen(&mut self, thing: WorldEvent) {
        match thing {
            WorldEvent::Join(node) => self.join(node),
            WorldEvent::Wake(node) => {
                let now = self.now;
                if self.node(node).wake == Some(now) {
                    self.node(node).wake = None;
                    self.give(node, Event::Tick);
                }
            }
            WorldEvent::Own(node, incarnation, _) if self.node(node).incarnation != incarnation => {}
            WorldEvent::Own(node, _, own) if self.node(node).frozen => {
                self.node(node).inbox.push(HeldEvent::Own(own))
            }
            WorldEvent::Own(node, _, own) => self.go_on(node, own),
            WorldEvent::Down(conn, side) => self.down(conn, side),
            WorldEvent::Quiet(conn, side) => self.quiet(conn, side),
            WorldEvent::Slow(conn, side) => self.slow(conn, side),
            WorldEvent::Fault(number) => self.begin_fault(number),
            WorldEvent::Complaint(node, about, why) => self.complained(node, about, why),
            WorldEvent::Replan => self.replan(),
            WorldEvent::Epoch(node) => self.hand_plan(node),
            WorldEvent::Gather => self.next_epoch(),
            WorldEvent::Sample => self.sample(),
        }
    }

    /// Schedules the end of some work, if the node's program is still the same by then.
    fn later(&mut self, at: Time, id: NodeId, own: NodeEvent) {
        let incarnation = self.node(id).incarnation;
        self.queue.push(at, WorldEvent::Own(id, incarnation, own));
    }

    fn go_on(&mut self, id: NodeId, own: NodeEvent) {
        match own {
            NodeEvent::Dialled(candidate) => self.dialled(id, candidate),
            NodeEvent::DialFailed(candidate) => self.give(id, Event::DialFailed { candidate }),
            NodeEvent::Verdict(peer, block, good) => self.verdict(id, peer, block, good),
            NodeEvent::Settle(piece) => self.settle(id, piece),
            NodeEvent::Announce => self.announce(id),
            NodeEvent::Open => self.open(id),
            NodeEvent::Spares => self.add_candidates(id),
        }
    }

    fn delivered(&mut self, delivery: Delivery<Packet>) {
        match delivery {
            Delivery::Sent { message, .. } => self.sent(&message),
            Delivery::Arrived { message, .. } => self.arrived(message),
        }
    }

    /// Passes an event to a node's engine and carries out its actions.
    fn give(&mut self, id: NodeId, event: Event) {
        let now = self.now;
        let node = self.node(id);
        if node.frozen {
            node.inbox.push(HeldEvent::Event(event));
            return;
        }
        let local = node.local(now);
        if node.engine.is_none() {
            return;
        }
        self.tally.events += 1;
        self.checks.event(now, id, &event);
        if let Some(engine) = &mut self.node(id).engine {
            engine.handle(local, event);
        }
        while let Some(action) = self.node(id).engine.as_mut().and_then(Engine::poll) {
            let other = self.other_end(id, &action);
            if let Some(engine) = &self.nodes[id.0 as usize].engine {
                let judged = self.checks.action(now, id, &action, other, engine);
                self.record(judged);
            }
            self.act(id, action);
        }
        if let Some(engine) = &self.nodes[id.0 as usize].engine {
            let judged = self.checks.after(now, id, engine);
            self.record(judged);
        }
        self.rewake(id);
    }

    /// Asks to be called back when the engine wants to be.
    fn rewake(&mut self, id: NodeId) {
        let now = self.now;
        let node = self.node(id);
        let Some(at) = node.engine.as_ref().and_then(Engine::wakeup) else { return };
        let at = node.global(at).max(now);
        if node.wake.is_none_or(|old| at < old) {
            node.wake = Some(at);
            self.queue.push(at, WorldEvent::Wake(id));
        }
    }

    fn act(&mut self, id: NodeId, action: Action) {
        match action {
            Action::Dial { candidate } => self.dial(id, candidate),
            Action::Disconnect { peer, .. } => self.hang_up(id, peer),
            Action::Ban { peer, .. } => {
                if let Some((conn, side)) = self.conn_of(id, peer) {
                    let other = self.conns[conn as usize].ends[1 - side].node;
                    self.node(id).banned.insert(other);
                }
                self.hang_up(id, peer);
            }
            Action::Complete => self.completed(id),
            Action::Serve { peer, block } => self.serve(id, peer, block),
            Action::Complain { member, why, .. } => self.complain(id, member, why),
            message => self.send(id, message),
        }
    }

    /// A node starts its program, and is told of others, and they of it. A dead machine starts nothing.
    fn join(&mut self, id: NodeId) {
        if self.node(id).silent || self.node(id).engine.is_some() {
            return;
        }
        self.start(id);
        if !std::mem::replace(&mut self.node(id).joined, true) {
            self.present.push(id);
            if self.now.0 > self.job.spread {
                self.met.insert("join");
            }
        }
    }

    /// Starts a node's program with the contents of its disk.
    fn start(&mut self, id: NodeId) {
        let now = self.now;
        let node = &mut self.nodes[id.0 as usize];
        let setup = Setup { have: node.truth.ranges(), ..node.setup.clone() };
        // The same setup was accepted when the world was made.
        node.engine = Engine::new(setup, node.local(now)).ok();
        if let Some(engine) = &node.engine {
            let judged = self.checks.begin(now, id, engine);
            self.record(judged);
        }
        self.coordinated(id, true);
        self.begin_to_join(id);
        self.announce(id);
        self.begin_to_open(id);
        for candidate in self.spares(id) {
            self.give(id, Event::Candidate { candidate, told: false });
        }
        self.give(id, Event::Tick);
    }

    /// A node is told of others, repeatedly while it lacks pieces or may: from trackers and connected nodes,
    /// or of the current plan, in case it has missed a change.
    fn announce(&mut self, id: NodeId) {
        self.hand_plan(id);
        for (candidate, told) in self.acquaintances(id) {
            self.give(id, Event::Candidate { candidate, told });
        }
        if self.lacks(id) || self.opens(id) {
            self.later(Time(self.now.0 + ANNOUNCE), id, NodeEvent::Announce);
        }
    }

    /// The nodes that a newcomer is told of: the origin, as long as it can hold all of them, and some at
    /// random.
    fn acquaintances(&mut self, id: NodeId) -> Vec<(Candidate, bool)> {
        if self.planning.is_some() || self.joinable.is_some() {
            // The plan has told it.
            return Vec::new();
        }
        let Limits { peers, .. } = self.job.limits;
        let mut out = Vec::new();
        if id.0 != 0 && (id.0 as usize) < peers / 4 * 3 {
            out.push((Candidate(0), true));
        }
        let known = self.present.len() as u64;
        if known <= u64::from(self.job.acquaintances) {
            let others = self.present.iter().filter(|n| n.0 != 0 && **n != id);
            out.extend(others.map(|n| (Candidate(n.0), false)));
            return out;
        }
        let mut seen = BTreeSet::from([id.0, 0]);
        for _ in 0..self.job.acquaintances {
            let node = self.present[self.rng.below(known) as usize].0;
            if seen.insert(node) {
                out.push((Candidate(node), false));
            }
        }
        out
    }

    /// Its program runs and is not complete.
    fn lacks(&self, id: NodeId) -> bool {
        self.nodes[id.0 as usize].engine.as_ref().is_some_and(|engine| !engine.is_complete())
    }

    /// A node wants these pieces too from now on, and the run waits for it: a reader has opened a file.
    pub fn want(&mut self, id: NodeId, pieces: Range<u32>) {
        let node = self.node(id);
        node.finished = None;
        node.setup.want.push(pieces.clone());
        self.await_node(id);
        self.give(id, Event::Priority { pieces, priority: 1 });
    }

    fn completed(&mut self, id: NodeId) {
        if self.opens(id) {
            return;
        }
        let now = self.now;
        let node = self.node(id);
        node.finished = node.finished.or(Some(now));
        self.excuse(id);
    }

    /// The run waits for this node.
    fn await_node(&mut self, id: NodeId) {
        let opens = self.job.opens.is_some();
        let node = self.node(id);
        if !node.awaited && !node.guilty && id.0 != 0 && (opens || !node.setup.want.is_empty()) {
            node.awaited = true;
            self.awaited += 1;
        }
    }

    /// The run no longer waits for this node.
    fn excuse(&mut self, id: NodeId) {
        if std::mem::take(&mut self.node(id).awaited) {
            self.awaited -= 1;
        }
    }

    fn node(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    /// The nodes, for checkers and reports.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Simulated time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Nodes that the run still waits for.
    #[must_use]
    pub fn awaited(&self) -> usize {
        self.awaited
    }

    /// Kinds of faults that have struck something that was there.
    #[must_use]
    pub fn effective_faults(&self) -> &BTreeSet<&'static str> {
        &self.met
    }

    /// Events that engines have handled.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.tally.events
    }
}

impl Truth for World {
    fn nodes(&self) -> u32 {
        self.nodes.len() as u32
    }

    fn engine(&self, node: NodeId) -> Option<&Engine> {
        let node = &self.nodes[node.0 as usize];
        node.engine.as_ref().filter(|_| !node.frozen && !node.silent)
    }

    fn awaited(&self, node: NodeId) -> bool {
        self.nodes[node.0 as usize].awaited
    }

    fn can_connect(&self, from: NodeId, to: NodeId) -> bool {
        let runs = |n: NodeId| Truth::engine(self, n).is_some();
        let accepts = !self.nodes[to.0 as usize].closed && self.wires.reaches(from, to);
        runs(from) && runs(to) && accepts && self.wires.joins(from, to)
    }
}
