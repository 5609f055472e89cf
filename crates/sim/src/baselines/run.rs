//! Runs a schedule over the modelled network.
//!
//! Messages go as MPI sends them over TCP: up to the eager limit at once; a longer one sends this much
//! of itself, and the rest when the receiver has answered. A stop-and-wait sender (Open MPI's trees send
//! one segment at a time) so loses a round trip with every segment, which is nothing in a rack and half
//! the rate where the round trip is as long as a segment.

use std::collections::BTreeMap;

use tidecast_swarm::Time;

use super::binomial::Binomial;
use super::extend::{beginning, extend};
use super::sbcast::Sbcast;
use super::scatter::Scatter;
use super::tree::Tree;
use super::{Baseline, Hop, Schedule, Sends};
use crate::network::{Delivery, Model, Stream};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::rng::Rng;
use crate::set::PieceSet;
use crate::stage::{Stage, Step};
use crate::topology::{NodeId, Topology};

/// Bytes of an MPI message header, an answer to it, or an acknowledgement (Open MPI's `ob1`: 32 to 64).
const HEADER: u32 = 64;
/// `sbcast` sends blocks of 8 MB (`--size`).
const SBCAST_BLOCK: u64 = 8 << 20;
/// Messages in one run, at most: about ten minutes of a core.
const MOST: u64 = 200_000_000;

/// The cost of a message beside the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mpi {
    /// Bytes that are sent unasked; a longer message waits for an answer after this many.
    pub eager: u64,
    /// Nanoseconds from a message's arrival until its receiver acts on it.
    pub think: u64,
}

impl Mpi {
    /// No cost: for arithmetic.
    pub const EXACT: Mpi = Mpi { eager: u64::MAX, think: 0 };
}

impl Default for Mpi {
    /// Open MPI over TCP: `btl_tcp_eager_limit` 64 KiB; 10 microseconds of software.
    fn default() -> Self {
        Mpi { eager: 64 << 10, think: 10_000 }
    }
}

/// The broadcast data, from node 0 to all others.
#[derive(Clone, Debug)]
pub struct Broadcast<'a> {
    /// The cluster.
    pub topology: &'a Topology,
    /// The network's behaviour.
    pub model: Model,
    /// Bytes.
    pub size: u64,
    /// Bytes of a segment, for the schedules that have segments: Open MPI's best is 128 KiB.
    pub segment: u64,
    /// The cost of a message.
    pub mpi: Mpi,
    /// Draws the ranks where they are shuffled.
    pub seed: u64,
    /// The run ends here, finished or not.
    pub until: Time,
}

/// Why a broadcast cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BaselineError {
    /// Nothing to send, or segments of nothing.
    #[error("size and segment must be at least one byte")]
    Empty,
    /// It would take too long.
    #[error("{0} messages are too many to simulate (at most {MOST}); take fewer nodes")]
    TooMany(u64),
}

/// Broadcasts by `baseline`'s schedule, ranks in the order of the switches or `shuffled`. Of a long pipeline
/// only the beginning is simulated, and the rest drawn along its line.
///
/// # Errors
/// When there is nothing to send, or too many messages to simulate.
pub fn run(
    baseline: Baseline,
    shuffled: bool,
    job: &Broadcast<'_>,
    progress: &Progress,
) -> Result<Outcome, BaselineError> {
    if job.size == 0 || job.segment == 0 {
        return Err(BaselineError::Empty);
    }
    let ranks = job.topology.nodes.len() as u64;
    let part = match baseline {
        Baseline::Flat | Baseline::Binomial | Baseline::Knomial => job.size,
        Baseline::Chain | Baseline::BinomialSegmented | Baseline::Binary => job.segment,
        Baseline::ScatterAllgather => job.size.div_ceil(ranks),
        Baseline::Sbcast(_) => SBCAST_BLOCK,
    };
    let parts = if baseline == Baseline::ScatterAllgather { ranks } else { job.size.div_ceil(part) };
    let begun = beginning(baseline, shuffled, ranks, parts);
    let messages = begun.unwrap_or(parts).saturating_mul(ranks);
    if messages > MOST {
        return Err(BaselineError::TooMany(messages));
    }
    let whole = |parts: u64, size: u64| {
        let job = Broadcast { size, ..job.clone() };
        simulate(baseline, shuffled, &job, part, parts as u32, progress)
    };
    Ok(match begun {
        Some(begun) => extend(&whole(begun / 2, begun / 2 * part), whole(begun, begun * part), job.size),
        None => whole(parts, job.size),
    })
}

/// All `parts` of `job`, message by message.
pub(super) fn simulate(
    baseline: Baseline,
    shuffled: bool,
    job: &Broadcast<'_>,
    part: u64,
    parts: u32,
    progress: &Progress,
) -> Outcome {
    let ranks = job.topology.len();
    let mut run = Run {
        job,
        stage: Stage::new(job.topology, job.model, job.until, progress),
        // sbcast is plain TCP
        mpi: if let Baseline::Sbcast(_) = baseline { Mpi { eager: u64::MAX, ..job.mpi } } else { job.mpi },
        part,
        nodes: order(job, shuffled),
        streams: BTreeMap::new(),
        parts,
        has: vec![PieceSet::new(parts); ranks as usize],
        finished: vec![None; ranks as usize],
        origin_sent: 0,
        control: 0,
        duplicate: 0,
    };
    run.has[0] = PieceSet::of(parts, &[0..parts]);
    run.stage.of = u64::from(ranks) - 1;
    run.all(schedule(baseline, ranks, parts).as_mut());
    run.finish()
}

fn schedule(baseline: Baseline, ranks: u32, parts: u32) -> Box<dyn Schedule> {
    match baseline {
        Baseline::Flat => Box::new(Tree::flat(ranks)),
        Baseline::Chain => Box::new(Tree::chain(ranks, parts)),
        Baseline::Binomial => Box::new(Binomial::new(ranks)),
        Baseline::BinomialSegmented => Box::new(Tree::knomial(ranks, parts, 2)),
        Baseline::Binary => Box::new(Tree::binary(ranks, parts)),
        Baseline::Knomial => Box::new(Tree::knomial(ranks, parts, 4)),
        Baseline::ScatterAllgather => Box::new(Scatter::new(ranks)),
        Baseline::Sbcast(fanout) => Box::new(Sbcast::new(ranks, parts, fanout)),
    }
}

/// The node of each rank: the origin, then switch by switch from the origin's on.
fn order(job: &Broadcast<'_>, shuffled: bool) -> Vec<NodeId> {
    let nodes = &job.topology.nodes;
    let mut ranks: Vec<NodeId> = (0..nodes.len() as u32).map(NodeId).collect();
    let home = nodes[0].switch;
    ranks[1..].sort_by_key(|n| (nodes[n.0 as usize].switch != home, nodes[n.0 as usize].switch));
    if shuffled {
        let mut rng = Rng::new(job.seed);
        for last in (2..ranks.len()).rev() {
            ranks.swap(last, 1 + rng.below(last as u64) as usize);
        }
    }
    ranks
}

/// A message on the wire.
#[derive(Clone, Debug)]
enum Packet {
    /// A message, or as much of a long one as is sent unasked.
    Head(Hop),
    /// The receiver of a long message is ready.
    Clear(Hop),
    /// Its rest.
    Rest(Hop),
    /// No data.
    Note(u32, u32),
}

struct Run<'a> {
    job: &'a Broadcast<'a>,
    stage: Stage<'a, Packet, Packet>,
    mpi: Mpi,
    part: u64,
    /// The node of each rank.
    nodes: Vec<NodeId>,
    streams: BTreeMap<(u32, u32), Stream>,
    parts: u32,
    /// The parts of each rank.
    has: Vec<PieceSet>,
    /// By node.
    finished: Vec<Option<Time>>,
    origin_sent: u64,
    control: u64,
    duplicate: u64,
}

impl Run<'_> {
    /// Runs until every rank has everything, nothing happens any longer or time is up.
    fn all(&mut self, schedule: &mut dyn Schedule) {
        let mut sends = Sends::default();
        schedule.start(&mut sends);
        self.dispatch(&mut sends);
        while let Some(step) = self.stage.next() {
            match step {
                Step::Net(Delivery::Sent { message, .. }) => match message {
                    Packet::Head(hop) if self.bytes(&hop) <= self.mpi.eager => {
                        schedule.sent(&hop, &mut sends)
                    }
                    Packet::Rest(hop) => schedule.sent(&hop, &mut sends),
                    _ => {}
                },
                Step::Net(Delivery::Arrived { message, .. }) if self.mpi.think > 0 => {
                    self.stage.queue.push(Time(self.stage.now.0 + self.mpi.think), message);
                }
                Step::Net(Delivery::Arrived { message, .. }) | Step::Beside(message) => {
                    self.act(message, schedule, &mut sends);
                }
            }
            self.dispatch(&mut sends);
        }
    }

    /// A packet has arrived and its receiver handles it.
    fn act(&mut self, packet: Packet, schedule: &mut dyn Schedule, sends: &mut Sends) {
        match packet {
            Packet::Head(hop) if self.bytes(&hop) > self.mpi.eager => {
                self.post(hop.to, hop.from, Packet::Clear(hop));
            }
            Packet::Head(hop) | Packet::Rest(hop) => {
                self.book(&hop);
                schedule.arrived(&hop, sends);
            }
            Packet::Clear(hop) => {
                let rest = self.bytes(&hop) - self.mpi.eager;
                let stream = self.stream(hop.from, hop.to);
                self.stage.net.send(self.stage.now, stream, rest, Packet::Rest(hop));
            }
            Packet::Note(from, to) => schedule.noted(from, to, sends),
        }
    }

    /// Books a message that is wholly there.
    fn book(&mut self, hop: &Hop) {
        let to = hop.to as usize;
        for part in hop.parts.clone() {
            if self.has[to].has(part) {
                self.duplicate += self.length(part);
                continue;
            }
            self.has[to].insert(part);
            if self.has[to].count() == self.parts {
                self.finished[self.nodes[to].0 as usize] = Some(self.stage.now);
                self.stage.done += 1;
            }
        }
        self.stage.note(u64::from(hop.to) << 32 | u64::from(hop.parts.start));
    }

    /// Sends the parts that the schedule requests.
    fn dispatch(&mut self, sends: &mut Sends) {
        for hop in sends.data.drain(..) {
            let bytes = self.bytes(&hop);
            if hop.from == 0 {
                self.origin_sent += bytes;
            }
            let stream = self.stream(hop.from, hop.to);
            self.stage.net.send(self.stage.now, stream, bytes.clamp(1, self.mpi.eager), Packet::Head(hop));
        }
        for (from, to) in sends.notes.drain(..) {
            self.post(from, to, Packet::Note(from, to));
        }
    }

    /// Sends a message without data.
    fn post(&mut self, from: u32, to: u32, packet: Packet) {
        self.control += u64::from(HEADER);
        let stream = self.stream(from, to);
        self.stage.net.post(self.stage.now, stream, HEADER, packet);
    }

    /// The connection between two ranks, opened with its first message.
    fn stream(&mut self, from: u32, to: u32) -> Stream {
        let (net, nodes, now) = (&mut self.stage.net, &self.nodes, self.stage.now);
        let open = || net.open(now, nodes[from as usize], nodes[to as usize]);
        *self.streams.entry((from, to)).or_insert_with(open)
    }

    fn length(&self, part: u32) -> u64 {
        self.bytes(&Hop { from: 0, to: 0, parts: part..part + 1 })
    }

    fn bytes(&self, hop: &Hop) -> u64 {
        let upto = |part: u32| (self.part * u64::from(part)).min(self.job.size);
        upto(hop.parts.end) - upto(hop.parts.start)
    }

    fn finish(mut self) -> Outcome {
        self.finished.remove(0);
        Outcome {
            finished: self.finished,
            size: self.job.size,
            origin_sent: self.origin_sent,
            control: self.control,
            duplicate: self.duplicate,
            ..self.stage.finish()
        }
    }
}
