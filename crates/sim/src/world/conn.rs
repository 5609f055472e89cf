//! Connections: dialling, refusal, closing, and the identity of the remote node.
//!
//! Times are the driver's (crate `net`): a dial takes three round trips (TCP, TLS, handshakes), an unanswered
//! one fails after five seconds, one whose handshake stops after ten.

use tidecast_swarm::{Candidate, Event, PeerId, Protocol, Time};

use super::{NodeEvent, World, WorldEvent};
use crate::job::Protocols;
use crate::network::Stream;
use crate::topology::NodeId;

/// An unanswered dial has failed after this time, nanoseconds.
const UNANSWERED: u64 = 5_000_000_000;
/// An unfinished handshake has failed after this time.
const HANDSHAKE: u64 = 10_000_000_000;
/// Bytes that a kernel buffers for a program that does not read: about the size to which Linux lets a buffer
/// grow.
const WINDOW: u64 = 4 << 20;
/// Largest block between Tidecast peers.
const MAX_BLOCK: u32 = 1 << 20;

/// One connection; its two ends are sides 0 (the dialer) and 1.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) ends: [End; 2],
    pub(super) protocol: Protocol,
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct End {
    pub(super) node: NodeId,
    /// The engine's id of the connection.
    pub(super) peer: PeerId,
    /// Carries the messages of this end.
    pub(super) out: Stream,
    /// Its engine has the connection.
    pub(super) up: bool,
    /// The time of the last data from the other end.
    pub(super) heard: Time,
    /// When it gives the other end up, where that is silent.
    pub(super) deadline: Option<Time>,
    /// Blocks on their way to it; when the first of them began; a time-out for it is set.
    pub(super) coming: u32,
    pub(super) begun: Time,
    pub(super) timed: bool,
    /// Bytes that its program, which stands still, has not read.
    pub(super) waiting: u64,
}

impl World {
    pub(super) fn dial(&mut self, id: NodeId, candidate: Candidate) {
        let other = NodeId(candidate.0);
        if self.refuses(id, other) || self.nodes[id.0 as usize].live.contains_key(&other) {
            return self.later(self.now, id, NodeEvent::DialFailed(candidate));
        }
        let took = 3 * self.net.rtt(id, other) + 2 * self.job.host.think;
        self.later(Time(self.now.0 + took), id, NodeEvent::Dialled(candidate));
    }

    /// The dial has had its time: it is a connection, or was refused, or goes unanswered.
    pub(super) fn dialled(&mut self, id: NodeId, candidate: Candidate) {
        let other = NodeId(candidate.0);
        let to = &self.nodes[other.0 as usize];
        let (frozen, runs) = (to.frozen, to.engine.is_some());
        if to.silent || to.closed || !self.wires.joins(id, other) || !self.wires.reaches(id, other) {
            return self.later(Time(self.now.0 + UNANSWERED), id, NodeEvent::DialFailed(candidate));
        }
        if frozen {
            let at = Time(self.now.0 + HANDSHAKE);
            self.shun(id, other, at);
            return self.later(at, id, NodeEvent::DialFailed(candidate));
        }
        // Of a program that has ended: a new connection comes from another program.
        if let Some(&stale) =
            to.live.get(&id).filter(|c| !self.conns[**c as usize].ends[self.side(**c, id)].up)
        {
            self.down(stale, self.side(stale, other));
        }
        let connected = |a: NodeId, b: NodeId| self.nodes[a.0 as usize].live.contains_key(&b);
        let refused = !runs || self.refuses(other, id) || self.refuses(id, other);
        if refused || id == other || connected(id, other) || connected(other, id) {
            return self.give(id, Event::DialFailed { candidate });
        }
        self.connect(id, other, candidate);
    }

    fn connect(&mut self, id: NodeId, other: NodeId, candidate: Candidate) {
        let number = self.conns.len() as u32;
        let end = |world: &mut Self, node: NodeId, to: NodeId, side: u8| {
            let out = world.net.open(world.now, node, to);
            let this = world.node(node);
            let peer = PeerId(this.peers.len() as u32);
            this.peers.push((number, side));
            this.live.insert(to, number);
            End {
                node,
                peer,
                out,
                up: true,
                heard: world.now,
                deadline: None,
                coming: 0,
                begun: Time(0),
                timed: false,
                waiting: 0,
            }
        };
        let ends = [end(self, id, other, 0), end(self, other, id, 1)];
        let peers = [ends[0].peer, ends[1].peer];
        let protocol = self.protocol(id, other);
        self.conns.push(Conn { ends, protocol });
        self.up(id, peers[0], protocol, Some(candidate));
        if self.conns[number as usize].ends[1].up {
            self.up(other, peers[1], protocol, None);
        }
    }

    /// An engine gets a connection; the other end has announced in its handshake the length of its queue.
    fn up(&mut self, id: NodeId, peer: PeerId, protocol: Protocol, candidate: Option<Candidate>) {
        let requests = self.job.limits.queued_requests as u32;
        self.give(id, Event::PeerUp { peer, protocol, candidate });
        self.introduce(id, peer);
        if let Some((conn, side)) = self.conn_of(id, peer) {
            let other = self.conns[conn as usize].ends[1 - side].node;
            self.join_plan(id, peer, other);
        }
        self.give(id, Event::QueueLimit { peer, requests });
    }

    fn protocol(&self, a: NodeId, b: NodeId) -> Protocol {
        let tidecast = Protocol::Tidecast { max_block: MAX_BLOCK };
        match (self.job.protocols, a.0 % 3, b.0 % 3) {
            (Protocols::Tidecast, ..) | (Protocols::Mixed, 2, 2) => tidecast,
            (Protocols::Stock { fast }, ..) => Protocol::Stock { fast },
            (Protocols::Mixed, 1, _) | (Protocols::Mixed, _, 1) => Protocol::Stock { fast: false },
            (Protocols::Mixed, ..) => Protocol::Stock { fast: true },
        }
    }

    /// The live connection that a node's engine calls `peer`, and the node's side of it.
    pub(super) fn conn_of(&self, id: NodeId, peer: PeerId) -> Option<(u32, usize)> {
        let &(conn, side) = self.nodes[id.0 as usize].peers.get(peer.0 as usize)?;
        let side = usize::from(side);
        self.conns[conn as usize].ends[side].up.then_some((conn, side))
    }

    /// A node closes a connection: it knows now, the other end when the news has travelled.
    pub(super) fn hang_up(&mut self, id: NodeId, peer: PeerId) {
        if let Some((conn, side)) = self.conn_of(id, peer) {
            self.queue.push(self.now, WorldEvent::Down(conn, side));
            self.reset_far(conn, side);
        }
    }

    /// The end opposite `side` learns after the path's delay that the connection is closed, if this machine
    /// lives and the network joins the two; else it has to find out.
    pub(super) fn reset_far(&mut self, conn: u32, side: usize) {
        let ends = &self.conns[conn as usize].ends;
        let (a, b) = (ends[side].node, ends[1 - side].node);
        if self.nodes[a.0 as usize].silent || !self.wires.joins(a, b) {
            self.mistrust(conn, 1 - side);
        } else if ends[1 - side].up {
            let at = Time(self.now.0 + self.net.rtt(a, b) / 2);
            self.queue.push(at, WorldEvent::Down(conn, 1 - side));
        }
    }

    /// One end learns that its connection is closed.
    pub(super) fn down(&mut self, conn: u32, side: usize) {
        let now = self.now;
        let Conn { ends, .. } = &mut self.conns[conn as usize];
        if !std::mem::take(&mut ends[side].up) {
            return;
        }
        let (id, peer, out) = (ends[side].node, ends[side].peer, ends[side].out);
        let other = ends[1 - side].node;
        self.net.close(now, out);
        self.node(id).live.remove(&other);
        let finished = self.nodes[id.0 as usize].engine.as_ref().is_some_and(|engine| engine.has_all(peer));
        self.give(id, Event::PeerDown { peer });
        self.ungather(id, other, finished);
    }

    /// A node's side of a connection.
    pub(super) fn side(&self, conn: u32, id: NodeId) -> usize {
        usize::from(self.conns[conn as usize].ends[1].node == id)
    }

    /// Bytes wait at an end whose program stands still; when its buffer is full, the sender stalls.
    pub(super) fn buffer(&mut self, conn: u32, side: usize, bytes: u64) {
        let waiting = &mut self.conns[conn as usize].ends[side].waiting;
        *waiting += bytes;
        if *waiting > WINDOW {
            self.hold(conn, 1 - side);
        }
    }

    /// Messages of this end are delayed while a partition is in their way or the other end's buffer is full.
    pub(super) fn hold(&mut self, conn: u32, side: usize) {
        let ends = &self.conns[conn as usize].ends;
        let on = self.wires.parts(ends[0].node, ends[1].node) || ends[1 - side].waiting > WINDOW;
        self.net.hold(self.now, ends[side].out, on);
    }
}
