//! One node: its engine, and the state of its driver and its disk.

use std::collections::{BTreeMap, BTreeSet};

use tidecast_swarm::{Block, Engine, Event, PeerId, Setup, Time};

use super::NodeEvent;
use super::message::Packet;
use crate::set::PieceSet;
use crate::topology::NodeId;

/// How a node misbehaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Misbehaviour {
    /// Not at all.
    #[default]
    None,
    /// Every block it sends is wrong.
    Corrupt,
    /// It claims everything and sends nothing that it has not.
    Lie,
    /// It takes requests and sends nothing.
    Withhold,
    /// It rejects every request.
    Refuse,
}

/// See the head of the file.
#[derive(Debug)]
pub struct Node {
    /// None while its program does not run.
    pub engine: Option<Engine>,
    /// The setup of the program; `have` comes from the disk.
    pub setup: Setup,
    /// The program stands still.
    pub frozen: bool,
    /// The machine is dead: nothing leaves it, nothing is answered.
    pub silent: bool,
    /// It accepts no connection.
    pub closed: bool,
    /// Its misbehaviour.
    pub misbehaviour: Misbehaviour,
    /// It has misbehaved at some time: the rules no longer protect it.
    pub guilty: bool,
    /// Pieces that are good on its disk.
    pub truth: PieceSet,
    /// When it was first complete.
    pub finished: Option<Time>,
    /// The run waits for it.
    pub awaited: bool,
    /// It has a part in a plan that it has joined.
    pub(super) parts: bool,
    /// It has been started.
    pub joined: bool,
    /// Nodes it refuses.
    pub banned: BTreeSet<NodeId>,
    /// Nodes it leaves alone until a time.
    pub(super) shunned: BTreeMap<NodeId, Time>,
    /// The rate of its network card, bytes per second.
    pub(super) rate: u64,
    /// Counts its programs: work that one began does not continue in the next.
    pub(super) incarnation: u32,
    /// Its clock is this far from the world's, nanoseconds.
    pub(super) offset: i64,
    /// Events that wait until it resumes, in order.
    pub(super) inbox: Vec<HeldEvent>,
    /// Pieces whose loss it has not found out.
    pub(super) lost: Vec<u32>,
    /// When it is woken, if it is.
    pub(super) wake: Option<Time>,
    /// Connection and side by `PeerId`, which counts up over restarts.
    pub(super) peers: Vec<(u32, u8)>,
    /// The live connection to each other node.
    pub(super) live: BTreeMap<NodeId, u32>,
    /// Pieces whose blocks come in.
    pub(super) partial: BTreeMap<u32, Partial>,
    /// Wrong blocks of pieces that failed: named when the right data is known.
    pub(super) wrong: BTreeMap<u32, Vec<(PeerId, Block)>>,
    /// Files it has read, of those that it opens, and whether it reads the next.
    pub(super) files: usize,
    pub(super) reads: bool,
    /// When the hashing and writing of its data is done.
    pub(super) settled: Time,
}

/// Blocks of a piece that is not verified: length, sender and goodness by first byte.
#[derive(Debug, Default)]
pub(super) struct Partial {
    pub(super) blocks: BTreeMap<u32, (u32, PeerId, bool)>,
    pub(super) bytes: u32,
}

/// Events that a stopped program has not handled.
#[derive(Debug)]
pub(super) enum HeldEvent {
    Event(Event),
    Packet(Packet),
    Own(NodeEvent),
}

impl Node {
    pub(super) fn new(setup: Setup, rate: u64) -> Self {
        let truth = PieceSet::of(setup.lengths.len() as u32, &setup.have);
        Node {
            engine: None,
            setup,
            frozen: false,
            silent: false,
            closed: false,
            misbehaviour: Misbehaviour::None,
            guilty: false,
            truth,
            finished: None,
            awaited: false,
            parts: false,
            joined: false,
            banned: BTreeSet::new(),
            shunned: BTreeMap::new(),
            rate,
            incarnation: 0,
            offset: 0,
            inbox: Vec::new(),
            lost: Vec::new(),
            wake: None,
            peers: Vec::new(),
            live: BTreeMap::new(),
            partial: BTreeMap::new(),
            wrong: BTreeMap::new(),
            files: 0,
            reads: false,
            settled: Time(0),
        }
    }

    /// The world's time on this node's clock.
    pub(super) fn local(&self, now: Time) -> Time {
        Time(now.0.saturating_add_signed(self.offset))
    }

    /// A time of this node's clock in the world's.
    pub(super) fn global(&self, at: Time) -> Time {
        Time(at.0.saturating_add_signed(self.offset.saturating_neg()))
    }
}
