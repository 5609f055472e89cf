//! Bounds on the cost of the whole run: the origin's copies, messages other than payload, bytes received
//! twice.
//!
//! The bounds are those of Tidecast's own policy; the textbook mechanisms are only measured. The same holds
//! for a plan on demand: its costs are known for calm runs only (`tests/mount.rs`).

use tidecast_swarm::Policy;

use super::{Finding, Rule, progress};
use crate::fault::Fault;
use crate::job::{Job, Protocols};
use crate::outcome::Outcome;

/// Copies that the origin of an undisturbed run sends, in tenths; and of one that has a plan
/// (`Limits::origin_copies`).
const COPIES: u64 = 35;
const COPIES_PLANNED: u64 = 15;
/// A plan that brings a member nothing for this long, seconds, has failed as far as it can know (`swarm::plan_receiver`), and it
/// fetches as in a swarm.
const ADRIFT: u64 = 2;
/// ... and for each receiver so much more, bytes: requests to the origin at the start, before any node knows
/// of another one with pieces.
const FIRST: u64 = 4 << 20;
/// ... and all that it can send in this many of the longest delays, in which no message arrives.
const DEAF: u64 = 8;
/// Control messages: parts of the payload, and bytes for each connection that a node may have.
const CONTROL: (u64, u64) = (200, 512);
/// Pieces smaller than this cost more control messages.
const CONTROL_PIECE: u32 = 64 << 10;
/// Bytes received twice: a share of the received bytes, and so much for each node (the engine holds itself to
/// a 128th and 2 MiB, beyond which only silent peers lose requests).
const TWICE: (u64, u64) = (64, 4 << 20);
/// ... and, where a cut delays messages, once the requests of a node to a seed beyond its window: this many
/// pieces of at most this many bytes (`swarm::requests`), no more than are received in a second. Other peers
/// send them meanwhile; but when the cut heals, each direction of a connection wakes up by its own
/// retransmission timer, and the pieces may be sent before the cancels arrive.
const AHEAD: (u64, u32) = (16, 4 << 20);

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Budget {
    own: bool,
    calm: bool,
    tidecast: bool,
    planned: bool,
    size: u64,
    nodes: u64,
    peers: u64,
    pieces: u64,
    longest: u64,
    deaf: u64,
    way: u64,
    ahead: u64,
    least: u32,
}

impl Budget {
    pub(super) fn new(job: &Job) -> Self {
        let policy = job.policy;
        let whole = job.lengths.split_last().map_or(&[][..], |(_, rest)| rest);
        let nodes = job.topology.nodes.len() as u64;
        Budget {
            own: policy == Policy::TIDECAST,
            calm: job.faults.is_empty() && job.wants.is_empty() && job.opens.is_none(),
            tidecast: job.protocols == Protocols::Tidecast,
            // A late node fetches the pieces that went by the plan before, and may find only the origin.
            planned: job.plan.is_some_and(|(_, stripes)| !fills_slowly(job, stripes)) && job.joins.is_empty(),
            size: job.lengths.iter().map(|&l| u64::from(l)).sum(),
            nodes,
            peers: nodes.min(job.limits.peers as u64),
            pieces: job.lengths.len() as u64,
            longest: u64::from(job.lengths.iter().copied().max().unwrap_or(0)),
            deaf: deaf(job),
            way: on_the_way(job, job.topology.nodes.iter().map(|n| n.rate / 8).max().unwrap_or(0)),
            ahead: ahead(job),
            least: whole.iter().copied().min().unwrap_or(0),
        }
    }

    /// The run is over.
    pub(super) fn end(&self, outcome: &Outcome) -> Result<(), Finding> {
        if !self.own {
            return Ok(());
        }
        let done = outcome.finished.iter().flatten().count() as u64;
        let payload = self.size * done;
        let most = payload / TWICE.0 + self.nodes * (TWICE.1 + self.way + self.ahead);
        self.within(Rule::Duplicates, outcome.duplicate, most)?;
        if self.calm {
            let first = (FIRST + 2 * self.longest).min(self.size);
            let copies = if self.planned { COPIES_PLANNED } else { COPIES };
            let most = (self.size * copies / 10 + done * first).saturating_add(self.deaf);
            self.within(Rule::OriginBudget, outcome.origin_sent, most)?;
        }
        if self.calm && self.tidecast && self.least >= CONTROL_PIECE {
            let connections = self.nodes * self.peers;
            let most = payload / CONTROL.0 + connections * (CONTROL.1 + self.pieces / 8);
            self.within(Rule::Control, outcome.control, most)?;
        }
        Ok(())
    }

    fn within(&self, rule: Rule, bytes: u64, most: u64) -> Result<(), Finding> {
        match bytes <= most {
            true => Ok(()),
            false => {
                let message = format!("{bytes} bytes, {most} at most, of {} each", self.size);
                Err((rule, message))
            }
        }
    }
}

/// Bytes that the origin can send in `DEAF` of the longest delays. No bound where it sends faster than the
/// others verify: then they have nothing to give, and its uplink nothing better to do.
fn deaf(job: &Job) -> u64 {
    let rate = job.topology.nodes.first().map_or(0, |n| n.rate / 8);
    if rate > job.host.settle { u64::MAX } else { on_the_way(job, rate).saturating_mul(DEAF) }
}

/// Without leaf hashes a relay forwards whole pieces, so that each of them takes the first piece of every
/// stripe over the slowest link before the next gets any. Where that lasts too long, a plan that is filling
/// cannot be told from one that has failed, and the origin serves the nodes as it serves a swarm.
fn fills_slowly(job: &Job, stripes: u16) -> bool {
    let longest = u64::from(job.lengths.iter().copied().max().unwrap_or(0));
    !job.leaves && longest * u64::from(stripes) > ADRIFT * progress::slowest(job)
}

/// Bytes that a cut lets a node get twice.
fn ahead(job: &Job) -> u64 {
    let holds_up = |fault: &Fault| {
        matches!(fault, Fault::LinkRate { rate: 0, .. } | Fault::Partition { .. } | Fault::Freeze { .. })
    };
    if !job.faults.iter().any(|timed| holds_up(&timed.fault)) {
        return 0;
    }
    let longest = job.lengths.iter().copied().filter(|&len| len <= AHEAD.1).max().unwrap_or(0);
    let second = job.topology.nodes.iter().map(|n| n.rate / 8).max().unwrap_or(0);
    (AHEAD.0 * u64::from(longest)).min(second)
}

/// Bytes in flight at this rate over the longest delay, plus messages of other connections that overtake: no
/// cancel arrives before them.
pub(super) fn on_the_way(job: &Job, rate: u64) -> u64 {
    let delay = job.topology.links.iter().map(|l| l.delay).max().unwrap_or(0).saturating_add(job.jitter);
    u64::try_from(u128::from(rate) * u128::from(delay) / 1_000_000_000).unwrap_or(u64::MAX)
}
