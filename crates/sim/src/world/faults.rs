//! Applies faults to the world.
//!
//! | fault | what others see |
//! |---|---|
//! | crash, full disk, leave | connections are reset; a dial is refused at once |
//! | die | nothing, until time-outs (`silence`); a dial fails after 5 s; data stays on its way |
//! | freeze | the kernel takes what fits into its buffers, then sends stall; a dial fails after 10 s |
//! | restart | a new engine with what the disk holds; old connections are reset when they are used |
//! | dead link, partition | nothing, until time-outs; what was on its way goes on after, as TCP tries again |
//! | closed | a dial fails after 5 s: the packets are dropped |

use tidecast_swarm::Event;

use super::node::Misbehaviour;
use super::{HeldEvent, World};
use crate::fault::Fault;
use crate::topology::{NodeId, Port};

impl World {
    /// The job's fault of that number strikes.
    pub(super) fn begin_fault(&mut self, number: usize) {
        let Some(fault) = self.exact(self.job.faults[number].fault.clone()) else { return };
        self.checks.fault(self.now, &fault);
        if self.apply(&fault) {
            self.met.insert(fault.kind());
        }
    }

    /// A lost piece is one that the node has; no effect if it has none.
    fn exact(&self, fault: Fault) -> Option<Fault> {
        let Fault::PieceLost { node, piece } = fault else { return Some(fault) };
        let held = &self.nodes[node.0 as usize];
        let count = self.job.lengths.len() as u32;
        let lost = |p: &u32| held.truth.has(*p) && !held.lost.contains(p);
        let piece = (piece..count).chain(0..piece).find(lost)?;
        Some(Fault::PieceLost { node, piece })
    }

    /// Whether there was anything to strike.
    fn apply(&mut self, fault: &Fault) -> bool {
        match *fault {
            Fault::Crash { node } | Fault::DiskFull { node } => self.crash(node),
            Fault::Leave { node } => self.leave(node),
            Fault::Die { node } => self.kill(node),
            Fault::Freeze { node } => self.freeze(node),
            Fault::Resume { node } => self.thaw(node),
            Fault::Restart { node, disk } => self.restart(node, disk),
            Fault::NodeRate { node, rate } => {
                self.node(node).rate = rate;
                self.wire(node)
            }
            Fault::LinkRate { link, rate } => self.link_rate(link, rate),
            Fault::LinkHeal { link } => {
                let rate = self.job.topology.links.get(link as usize).map_or(0, |l| l.rate / 8);
                self.link_rate(link, rate)
            }
            Fault::Partition { ref nodes } => {
                self.wires.partition(nodes);
                self.rejoin()
            }
            Fault::Heal { ref nodes } => self.wires.heal(nodes) && self.rejoin(),
            Fault::Refuse { node } => self.turn(node, Misbehaviour::Refuse),
            Fault::Corrupt { node } => self.turn(node, Misbehaviour::Corrupt),
            Fault::Withhold { node } => self.turn(node, Misbehaviour::Withhold),
            Fault::Lie { node } => {
                self.turn(node, Misbehaviour::Lie);
                self.claim_all(node);
                true
            }
            Fault::Closed { node } => !std::mem::replace(&mut self.node(node).closed, true),
            Fault::Reset { node } => self.reset(node),
            Fault::ClockForward { node, by } => self.clock(node, by, false),
            Fault::ClockBack { node, by } => self.clock(node, by, true),
            Fault::PieceLost { node, piece } => self.lose(node, piece),
        }
    }

    fn runs(&self, id: NodeId) -> bool {
        self.nodes[id.0 as usize].engine.is_some()
    }

    /// Whether a fault that is still to come brings the node back from where it is now.
    fn returns(&self, id: NodeId) -> bool {
        let frozen = self.nodes[id.0 as usize].frozen;
        let back = |f: &Fault| match *f {
            Fault::Restart { node, .. } => node == id,
            Fault::Resume { node } => node == id && frozen,
            _ => false,
        };
        self.job.faults.iter().any(|t| t.at > self.now && back(&t.fault))
    }

    fn crash(&mut self, id: NodeId) -> bool {
        let ran = self.runs(id);
        if ran {
            self.stop(id);
        }
        ran
    }

    fn leave(&mut self, id: NodeId) -> bool {
        let ran = self.crash(id);
        if ran {
            self.excuse(id);
        }
        ran
    }

    fn kill(&mut self, id: NodeId) -> bool {
        let lived = !std::mem::replace(&mut self.node(id).silent, true);
        self.listen();
        self.stop(id);
        self.wire(id);
        lived
    }

    /// The program ends. If its machine lives, the kernel resets every connection.
    fn stop(&mut self, id: NodeId) {
        for conn in std::mem::take(&mut self.node(id).live).into_values() {
            let side = self.side(conn, id);
            let end = &mut self.conns[conn as usize].ends[side];
            end.up = false;
            let out = end.out;
            self.net.close(self.now, out);
            self.reset_far(conn, side);
        }
        let node = self.node(id);
        (node.engine, node.wake, node.frozen) = (None, None, false);
        node.parts = false;
        node.incarnation += 1;
        node.inbox.clear();
        node.partial.clear();
        node.wrong.clear();
        for piece in std::mem::take(&mut node.lost) {
            node.truth.remove(piece);
        }
        if !self.returns(id) {
            self.excuse(id);
        }
        if !self.nodes[id.0 as usize].silent {
            self.coordinated(id, false);
        }
    }

    fn freeze(&mut self, id: NodeId) -> bool {
        if !self.runs(id) || std::mem::replace(&mut self.node(id).frozen, true) {
            return false;
        }
        self.listen();
        if !self.returns(id) {
            self.excuse(id);
        }
        true
    }

    fn thaw(&mut self, id: NodeId) -> bool {
        if !std::mem::take(&mut self.node(id).frozen) {
            return false;
        }
        for held in std::mem::take(&mut self.node(id).inbox) {
            match held {
                HeldEvent::Event(event) => self.give(id, event),
                HeldEvent::Packet(packet) => self.read(packet),
                HeldEvent::Own(own) => self.go_on(id, own),
            }
        }
        for conn in self.node(id).live.clone().into_values() {
            let side = self.side(conn, id);
            let now = self.now;
            let end = &mut self.conns[conn as usize].ends[side];
            (end.waiting, end.begun) = (0, now);
            self.hold(conn, 1 - side);
        }
        for piece in std::mem::take(&mut self.node(id).lost) {
            self.lose(id, piece);
        }
        self.give(id, Event::Tick);
        true
    }

    fn restart(&mut self, id: NodeId, disk: bool) -> bool {
        let node = &self.nodes[id.0 as usize];
        if !node.joined && !node.silent {
            return false;
        }
        self.stop(id);
        let node = self.node(id);
        node.silent = false;
        node.banned.clear();
        node.shunned.clear();
        if !disk {
            node.truth.clear();
        }
        self.wire(id);
        self.join(id);
        if self.lacks(id) || self.opens(id) {
            self.await_node(id);
        } else {
            self.completed(id);
        }
        true
    }

    fn turn(&mut self, id: NodeId, misbehaviour: Misbehaviour) -> bool {
        let node = self.node(id);
        node.misbehaviour = misbehaviour;
        node.guilty = true;
        self.excuse(id);
        true
    }

    fn reset(&mut self, id: NodeId) -> bool {
        let live = self.node(id).live.clone();
        for &conn in live.values() {
            let side = self.side(conn, id);
            self.down(conn, side);
            self.reset_far(conn, side);
        }
        !live.is_empty()
    }

    fn clock(&mut self, id: NodeId, by: u64, back: bool) -> bool {
        let by = i64::try_from(by).unwrap_or(i64::MAX);
        let node = self.node(id);
        node.offset = node.offset.saturating_add(if back { -by } else { by });
        self.give(id, Event::Tick);
        self.runs(id)
    }

    /// A piece is lost from the disk; a stopped program finds out when it resumes.
    fn lose(&mut self, id: NodeId, piece: u32) -> bool {
        let node = self.node(id);
        if node.frozen {
            node.lost.push(piece);
            return true;
        }
        node.truth.remove(piece);
        self.give(id, Event::PieceLost { piece });
        if self.lacks(id) && !self.nodes[id.0 as usize].awaited {
            self.await_node(id);
            self.announce(id);
        }
        true
    }

    /// The node's card gets the rate that it has now; none where its machine is dead.
    fn wire(&mut self, id: NodeId) -> bool {
        let node = &self.nodes[id.0 as usize];
        let rate = if node.silent { 0 } else { node.rate };
        self.set_rates([id.out(), id.inward()], rate)
    }

    fn link_rate(&mut self, link: u32, rate: u64) -> bool {
        let ports = self.job.topology.link_ports(link);
        self.set_rates(ports, rate)
    }

    fn set_rates(&mut self, ports: [Port; 2], rate: u64) -> bool {
        for port in ports {
            self.wires.set_alive(port, rate > 0);
            self.net.set_rate(self.now, port, rate);
        }
        if rate == 0 {
            self.listen();
        }
        true
    }

    /// Streams between nodes that a partition parts stand still, others go on.
    fn rejoin(&mut self) -> bool {
        for id in (0..self.nodes.len() as u32).map(NodeId) {
            for conn in self.node(id).live.clone().into_values() {
                let side = self.side(conn, id);
                self.hold(conn, side);
            }
        }
        self.listen();
        true
    }
}
