//! The true state of one node, kept beside its engine: which pieces are intact on its disk, whether it is
//! honest and running, which peers it knows, which of its dials failed.

use std::collections::{BTreeMap, BTreeSet};

use tidecast_swarm::{Action, Block, Candidate, Engine, Event, Limits, Reason, Time};

use super::bounds::{self, ActionCount, CheckSchedule, Connections};
use super::{Finding, Rule};
use crate::fault::Fault;
use crate::set::PieceSet;
use crate::topology::NodeId;

/// An address that failed is left alone for this long, nanoseconds: the engine promises 0.25 s.
const REDIAL: u64 = 200_000_000;

/// Bytes verified by a hash.
const LEAF: u32 = 16 << 10;

/// See the head of the file.
#[derive(Debug)]
pub(super) struct NodeTruth {
    /// It misbehaves, or has.
    pub(super) guilty: bool,
    /// Something has happened to it for which others may well drop it, or it them.
    pub(super) hurt: bool,
    pub(super) burst: ActionCount,
    /// Intact on its disk, and announced.
    good: PieceSet,
    /// The wanted pieces of a program when it starts, and now; all pieces where there is no set.
    begins: Option<PieceSet>,
    wants: Option<PieceSet>,
    started: bool,
    runs: bool,
    /// Lost on the disk; the engine is told when it runs again.
    lost: BTreeSet<u32>,
    /// Intact on its disk, not announced yet.
    settled: BTreeSet<u32>,
    /// Leaves of pieces that are not whole, by piece: good on its disk, and proven.
    leaves: BTreeMap<u32, PieceSet>,
    /// The piece that the last event was about.
    touched: Option<u32>,
    /// The peers that it was told of.
    known: BTreeSet<NodeId>,
    failed: BTreeMap<Candidate, Time>,
    /// Its clock has jumped: its pauses are not ours.
    jumped: bool,
    schedule: CheckSchedule,
    connections: Connections,
    /// The longest piece, bytes, and the pushed bytes of a parent.
    longest: u64,
    pushed: u64,
}

impl NodeTruth {
    pub(super) fn new(pieces: u32, (longest, pushed): (u64, u64)) -> Self {
        NodeTruth {
            guilty: false,
            hurt: false,
            burst: ActionCount::default(),
            good: PieceSet::new(pieces),
            begins: None,
            wants: None,
            started: false,
            runs: false,
            lost: BTreeSet::new(),
            settled: BTreeSet::new(),
            leaves: BTreeMap::new(),
            touched: None,
            known: BTreeSet::new(),
            failed: BTreeMap::new(),
            jumped: false,
            schedule: CheckSchedule::default(),
            connections: Connections::default(),
            longest,
            pushed,
        }
    }

    /// The wanted pieces of each of its programs at the start.
    pub(super) fn begins(&mut self, pieces: PieceSet) {
        self.begins = Some(pieces);
    }

    /// Whether it has been told of `other`.
    pub(super) fn knows(&self, other: NodeId) -> bool {
        self.known.contains(&other)
    }

    /// A piece that it wants and lacks, and `other` has.
    pub(super) fn could_get(&self, other: &NodeTruth) -> Option<u32> {
        self.good.first_lacking(&other.good, self.wants.as_ref().unwrap_or(&other.good))
    }

    /// The node starts.
    pub(super) fn begin(&mut self, engine: &Engine) -> Result<(), Finding> {
        for piece in std::mem::take(&mut self.lost) {
            self.good.remove(piece);
        }
        if !self.started {
            engine.have_ranges().into_iter().flatten().for_each(|piece| self.good.insert(piece));
        }
        (self.started, self.runs) = (true, true);
        self.settled.clear();
        self.leaves.clear();
        self.failed.clear();
        self.known.clear();
        self.connections = Connections::default();
        // This program was not told of the files opened before.
        self.wants = self.begins.clone();
        self.whole(engine)
    }

    /// A fault is about to strike this node.
    pub(super) fn struck(&mut self, fault: &Fault) {
        match fault {
            Fault::PieceLost { piece, .. } => drop(self.lost.insert(*piece)),
            Fault::Closed { .. } => {}
            Fault::Restart { disk: false, .. } => {
                self.good.clear();
                self.hurt = true;
            }
            Fault::ClockForward { .. } | Fault::ClockBack { .. } => {
                (self.jumped, self.hurt) = (true, true);
            }
            _ => self.hurt = true,
        }
    }

    /// All bytes of a piece are on its disk.
    pub(super) fn settled(&mut self, piece: u32, good: bool) {
        if good {
            self.settled.insert(piece);
        }
    }

    /// Good bytes are on its disk, each leaf compared with its hash.
    pub(super) fn proven(&mut self, block: Block) {
        let most = self.longest.div_ceil(LEAF.into()) as u32;
        let proven = self.leaves.entry(block.piece).or_insert_with(|| PieceSet::new(most));
        leaves(block).for_each(|leaf| proven.insert(leaf));
    }

    /// Whether all of a block is good and known to be.
    fn may_serve(&self, block: Block) -> bool {
        let proven = || self.leaves.get(&block.piece);
        self.good.has(block.piece) || proven().is_some_and(|p| leaves(block).all(|leaf| p.has(leaf)))
    }

    /// Its engine is about to be told.
    pub(super) fn event(&mut self, at: Time, event: &Event) -> Result<(), Finding> {
        self.touched = None;
        self.burst = ActionCount::default();
        match *event {
            Event::PieceVerified { piece } => {
                self.touched = Some(piece);
                self.good.insert(piece);
                self.leaves.remove(&piece);
                if !self.settled.remove(&piece) {
                    return Err((Rule::Driver, format!("piece {piece} is called verified and is not good")));
                }
            }
            Event::PieceFailed { piece } => {
                self.touched = Some(piece);
                self.leaves.remove(&piece);
            }
            Event::PieceLost { piece } => {
                self.touched = Some(piece);
                self.lost.remove(&piece);
                self.good.remove(piece);
            }
            Event::Candidate { candidate, .. } => {
                self.known.insert(NodeId(candidate.0));
                self.failed.remove(&candidate);
            }
            Event::Priority { ref pieces, priority: 1.. } => {
                if let Some(wants) = &mut self.wants {
                    pieces.clone().for_each(|piece| wants.insert(piece));
                }
            }
            Event::DialFailed { candidate } => drop(self.failed.insert(candidate, at)),
            Event::PeerUp { .. } => self.connections.opened(),
            Event::PeerDown { .. } => self.connections.closed(),
            _ => {}
        }
        Ok(())
    }

    /// Its engine wants something done.
    pub(super) fn action(&self, at: Time, action: &Action, engine: &Engine) -> Result<(), Finding> {
        match action {
            Action::Serve { block, .. } if !self.may_serve(*block) => {
                Err((Rule::Unverified, format!("serves {block:?}, which is not good on its disk")))
            }
            Action::Dial { candidate } => match self.failed.get(candidate) {
                Some(failed) if !self.jumped && at.0 < failed.0 + REDIAL => {
                    let after = (at.0 - failed.0) / 1_000_000;
                    Err((Rule::Redialled, format!("dials {candidate:?} {after} ms after that failed")))
                }
                _ => Ok(()),
            },
            Action::Complete if !engine.is_complete() => {
                Err((Rule::Unverified, String::from("says that it is complete and is not")))
            }
            Action::Complete => self.whole(engine),
            _ => Ok(()),
        }
    }

    /// Whether a peer may ban or drop this node for that; `excused`: neither it nor the network between the
    /// two is in order.
    pub(super) fn blame(&self, action: &Action, excused: bool) -> Result<(), Finding> {
        let late_for_reason = excused || self.hurt;
        match *action {
            Action::Ban { reason, .. } if !self.guilty => {
                Err((Rule::HonestBanned, format!("who is honest, is banned for {reason:?}")))
            }
            Action::Disconnect { reason, .. } if !self.guilty => match reason {
                Reason::Useless | Reason::TooMany => Ok(()),
                Reason::Withholding if late_for_reason => Ok(()),
                _ => Err((Rule::HonestDropped, format!("who is honest, is dropped for {reason:?}"))),
            },
            _ => Ok(()),
        }
    }

    /// Its engine has dealt with the event.
    pub(super) fn after(&self, engine: &Engine) -> Result<(), Finding> {
        let Some(piece) = self.touched else { return Ok(()) };
        self.same(piece, engine.have(piece))
    }

    fn same(&self, piece: u32, have: bool) -> Result<(), Finding> {
        match (have, self.good.has(piece)) {
            (true, false) => {
                Err((Rule::Unverified, format!("counts piece {piece}, which is not good on its disk")))
            }
            (false, true) => Err((Rule::Lost, format!("no longer has piece {piece}, which it had verified"))),
            _ => Ok(()),
        }
    }

    /// Its engine has exactly the pieces that it should. O(pieces).
    pub(super) fn whole(&self, engine: &Engine) -> Result<(), Finding> {
        (0..engine.stats().pieces).try_for_each(|piece| self.same(piece, engine.have(piece)))
    }

    /// Looks at the engine's numbers now and then, and at everything it holds seldom.
    pub(super) fn sampled(&mut self, engine: &Engine, limits: &Limits) -> Result<(), Finding> {
        let due = self.schedule.next();
        if due.numbers {
            bounds::numbers(
                engine,
                limits,
                (self.known.len(), &mut self.connections),
                (self.longest, self.pushed),
            )?;
        }
        if due.everything {
            let stats = engine.stats();
            self.schedule.spent(stats.peers as u64 * u64::from(stats.pieces));
            self.whole(engine)?;
            bounds::invariants(engine)?;
        }
        Ok(())
    }
}

/// The leaves of a block, by number within its piece.
fn leaves(block: Block) -> std::ops::Range<u32> {
    block.begin / LEAF..(block.begin + block.len).div_ceil(LEAF)
}
