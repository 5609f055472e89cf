//! The driver's reaction to a silent peer: it waits as long as crate `net` waits, then closes the connection
//! and avoids the peer for a while.
//!
//! A driver without other messages sends a keep-alive every 90 s, so that a timeout only occurs where the
//! other end cannot be reached; only there is a timer kept.

use tidecast_swarm::{Event, Protocol, Time};

use super::{World, WorldEvent};
use crate::topology::NodeId;

const SECOND: u64 = 1_000_000_000;
/// Between messages a peer may be silent for this long.
const IDLE: u64 = 150 * SECOND;
/// Within a message it may be silent for this long; a block may take this long, and so much longer for each leaf.
const STALL: u64 = 20 * SECOND;
const BLOCK_MOST: u64 = 600 * SECOND;
const TRICKLE_PER_LEAF: u64 = 64 * SECOND;
const LEAF: u32 = 16 << 10;
/// While a block arrives slowly, the engine is told so this often.
const COMING: u64 = SECOND;
/// An idle peer sends a keep-alive this often.
const KEEP_ALIVE: u64 = 90 * SECOND;
/// A peer that was late is avoided for this long.
const SHUN: u64 = 60 * SECOND;

impl World {
    /// A connection may have fallen silent: every end that cannot be reached by its other end gets a timeout.
    pub(super) fn listen(&mut self) {
        let live = |(id, node): (u32, &super::Node)| {
            node.live.values().map(|&conn| (conn, self.side(conn, NodeId(id)))).collect::<Vec<_>>()
        };
        let ends: Vec<(u32, usize)> = (0..).zip(&self.nodes).flat_map(live).collect();
        for (conn, side) in ends {
            self.mistrust(conn, side);
        }
    }

    /// This end gets a timeout if the other cannot reach it.
    pub(super) fn mistrust(&mut self, conn: u32, side: usize) {
        let ends = &self.conns[conn as usize].ends;
        if !ends[side].up || ends[side].deadline.is_some() || self.keep_alives_arrive(conn, side) {
            return;
        }
        let silent = self.rng.below(KEEP_ALIVE);
        let last = ends[side].heard.0.max(self.now.0.saturating_sub(silent));
        let deadline = Time(last + IDLE);
        self.conns[conn as usize].ends[side].deadline = Some(deadline);
        self.queue.push(deadline, WorldEvent::Quiet(conn, side));
    }

    /// How long a block of which something keeps coming may take on a connection.
    fn patience(&self, conn: u32) -> u64 {
        let most = match self.conns[conn as usize].protocol {
            Protocol::Tidecast { max_block } | Protocol::Web { max_block, .. } => max_block,
            Protocol::Stock { .. } => LEAF,
        };
        BLOCK_MOST + TRICKLE_PER_LEAF * u64::from(self.longest.min(most).div_ceil(LEAF))
    }

    /// A timeout is over: data came from the other end meanwhile, or it is disconnected.
    pub(super) fn quiet(&mut self, conn: u32, side: usize) {
        let end = &mut self.conns[conn as usize].ends[side];
        let Some(deadline) = end.deadline.take() else { return };
        if !end.up {
            return;
        }
        let (heard, id) = (end.heard, end.node);
        if self.keep_alives_arrive(conn, side) {
            return;
        }
        let deadline = deadline.max(Time(heard.0 + IDLE));
        if deadline > self.now || self.nodes[id.0 as usize].frozen {
            let deadline = deadline.max(Time(self.now.0 + SECOND));
            self.conns[conn as usize].ends[side].deadline = Some(deadline);
            return self.queue.push(deadline, WorldEvent::Quiet(conn, side));
        }
        self.late(conn, side);
    }

    /// Messages of the other end would arrive, and it sends one now and then.
    fn keep_alives_arrive(&self, conn: u32, side: usize) -> bool {
        let ends = &self.conns[conn as usize].ends;
        let other = &self.nodes[ends[1 - side].node.0 as usize];
        let speaks = ends[1 - side].up && other.engine.is_some() && !other.frozen && !other.silent;
        speaks && self.wires.joins(ends[0].node, ends[1].node)
    }

    /// This end's driver has waited for too long: it closes the connection and shuns the peer.
    pub(super) fn late(&mut self, conn: u32, side: usize) {
        let ends = &self.conns[conn as usize].ends;
        let (id, other) = (ends[side].node, ends[1 - side].node);
        self.shun(id, other, self.now);
        self.down(conn, side);
        self.reset_far(conn, side);
    }

    /// `id` leaves `other` alone for a while, counted from `since`.
    pub(super) fn shun(&mut self, id: NodeId, other: NodeId, since: Time) {
        let until = Time(since.0 + SHUN);
        self.node(id).shunned.insert(other, until);
    }

    /// Whether `id` wants nothing of `other`, permanently or at present.
    pub(super) fn refuses(&self, id: NodeId, other: NodeId) -> bool {
        let node = &self.nodes[id.0 as usize];
        node.banned.contains(&other) || node.shunned.get(&other).is_some_and(|until| *until > self.now)
    }

    /// A block is on its way to this end: something of it must keep coming.
    pub(super) fn coming(&mut self, conn: u32, side: usize) {
        let end = &mut self.conns[conn as usize].ends[side];
        if end.coming == 0 {
            end.begun = self.now;
        }
        end.coming += 1;
        if !std::mem::replace(&mut end.timed, true) {
            self.queue.push(Time(self.now.0 + COMING), WorldEvent::Slow(conn, side));
        }
    }

    /// Checks the block that is in transit to this end: it has arrived, or part of it does, or the other end
    /// is disconnected. The transit time of sent data is left out.
    pub(super) fn slow(&mut self, conn: u32, side: usize) {
        let patience = self.patience(conn);
        let ends = &mut self.conns[conn as usize].ends;
        let moved = self.net.moved(self.now, ends[1 - side].out);
        let end = &mut ends[side];
        if !end.up || end.coming == 0 {
            end.timed = false;
            return;
        }
        let silent = moved.max(end.begun).0 + STALL;
        let due = Time(silent.min(end.begun.0 + patience));
        let (id, peer, last) = (end.node, end.peer, Time(self.now.0.saturating_sub(COMING)));
        let (takes_long, comes) = (end.begun <= last, moved > last);
        let frozen = self.nodes[id.0 as usize].frozen;
        if due <= self.now && !frozen {
            return self.late(conn, side);
        }
        self.queue.push(Time(self.now.0 + COMING), WorldEvent::Slow(conn, side));
        if takes_long && comes && !frozen {
            self.give(id, Event::Coming { peer });
        }
    }
}
