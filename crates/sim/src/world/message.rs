//! The traffic: the engines' messages with the sizes of the wire, and payload.

use std::ops::Range;

use tidecast_swarm::{Action, Block, Event, PeerId, Protocol};

use super::World;
use super::conn::Conn;
use super::joinable_plan::PlanMessage;
use super::node::HeldEvent;
use super::node::Misbehaviour;
use crate::topology::NodeId;

/// Header of a block between Tidecast peers; a stock client's is one byte shorter.
const BLOCK_HEADER: u32 = 18;

/// One message on a connection, for the end `side`.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    conn: u32,
    side: u8,
    content: Content,
}

/// The contents of a packet.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Block(Block, bool),
    /// Exactly these pieces.
    Exactly(Vec<Range<u32>>),
    /// These too.
    More(Vec<Range<u32>>),
    /// Cancels this one.
    Less(u32),
    All,
    Interested(bool),
    Choke(bool),
    Request(Block),
    Pieces(Range<u32>),
    Cancel(Block),
    Reject(Block),
    /// This piece follows unasked, in that stripe; its leaf hashes go ahead.
    Offer(u32, u16),
    /// A wish for these by the plan: the stripe whose tree the wish goes up, and whether a reader waits.
    Wish(Range<u32>, u16, bool),
    /// About a plan that members join.
    Plan(PlanMessage),
}

impl World {
    /// Sends a message of an engine to a peer.
    pub(super) fn send(&mut self, id: NodeId, action: Action) {
        let misbehaviour = self.node(id).misbehaviour;
        let count = self.job.lengths.len() as u32;
        let (peer, content) = match action {
            Action::AnnounceAll { peer, .. } if misbehaviour == Misbehaviour::Lie => (peer, Content::All),
            Action::AnnounceAll { peer, have } if have == [0..count] => (peer, Content::All),
            Action::AnnounceAll { peer, have } => (peer, Content::Exactly(have)),
            Action::Announce { .. } | Action::AnnounceLost { .. } | Action::Reject { .. }
                if misbehaviour == Misbehaviour::Lie =>
            {
                return;
            }
            Action::Announce { peer, pieces } => (peer, Content::More(pieces)),
            Action::AnnounceLost { peer, piece } => (peer, Content::Less(piece)),
            Action::Interested { peer, interested } => (peer, Content::Interested(interested)),
            Action::Choke { peer, choke } => (peer, Content::Choke(choke)),
            Action::Request { peer, block } => (peer, Content::Request(block)),
            Action::RequestPieces { peer, pieces } => (peer, Content::Pieces(pieces)),
            Action::Cancel { peer, block } => (peer, Content::Cancel(block)),
            Action::Reject { peer, block } => (peer, Content::Reject(block)),
            Action::Offer { peer, piece, stripe } => (peer, Content::Offer(piece, stripe)),
            Action::Wish { peer, pieces, stripe, urgent } => (peer, Content::Wish(pieces, stripe, urgent)),
            other => unreachable!("{other:?} is no message"),
        };
        self.post(id, peer, content);
    }

    /// The node claims every piece to all its peers.
    pub(super) fn claim_all(&mut self, id: NodeId) {
        for conn in self.node(id).live.clone().into_values() {
            let ends = &self.conns[conn as usize].ends;
            let side = usize::from(ends[1].node == id);
            let peer = ends[side].peer;
            self.post(id, peer, Content::All);
        }
    }

    pub(super) fn post(&mut self, id: NodeId, peer: PeerId, content: Content) {
        let Some((conn, side)) = self.conn_of(id, peer) else { return };
        let Conn { ends, protocol } = &self.conns[conn as usize];
        let bytes = size(&content, *protocol, &self.job.lengths);
        self.tally.control += u64::from(bytes);
        let packet = Packet { conn, side: 1 - side as u8, content };
        self.net.post(self.now, ends[side].out, bytes, packet);
    }

    /// The node that an action is about.
    pub(super) fn other_end(&self, id: NodeId, action: &Action) -> Option<NodeId> {
        if let Action::Dial { candidate } = *action {
            return Some(NodeId(candidate.0));
        }
        let (conn, side) = self.conn_of(id, action.peer()?)?;
        Some(self.conns[conn as usize].ends[1 - side].node)
    }

    /// Sends a block, good or bad.
    pub(super) fn serve(&mut self, id: NodeId, peer: PeerId, block: Block) {
        let Some((conn, side)) = self.conn_of(id, peer) else { return };
        let node = &self.nodes[id.0 as usize];
        if matches!(node.misbehaviour, Misbehaviour::Withhold | Misbehaviour::Lie) {
            return;
        }
        let partly = || node.partial.get(&block.piece).is_some_and(|p| p.holds(block));
        let good = node.misbehaviour != Misbehaviour::Corrupt && (node.truth.has(block.piece) || partly());
        let content = Content::Block(block, good);
        let packet = Packet { conn, side: 1 - side as u8, content };
        let bytes = u64::from(block.len) + u64::from(BLOCK_HEADER);
        self.coming(conn, 1 - side);
        self.net.send(self.now, self.conns[conn as usize].ends[side].out, bytes, packet);
    }

    /// The last byte of a block has left its sender.
    pub(super) fn sent(&mut self, packet: &Packet) {
        let Content::Block(block, _) = packet.content else { return };
        let end = &self.conns[packet.conn as usize].ends[1 - usize::from(packet.side)];
        if end.up {
            let (node, peer) = (end.node, end.peer);
            self.tally.origin_sent += if node.0 == 0 { u64::from(block.len) } else { 0 };
            self.give(node, Event::Sent { peer, block });
        }
    }

    /// Rejects requests; false when there are none.
    fn refuse(&mut self, id: NodeId, peer: PeerId, content: &Content) -> bool {
        let whole = |piece: u32| Block { piece, begin: 0, len: self.job.lengths[piece as usize] };
        let blocks: Vec<Block> = match content {
            Content::Request(block) => vec![*block],
            Content::Pieces(pieces) => pieces.clone().map(whole).collect(),
            _ => return false,
        };
        for block in blocks {
            self.post(id, peer, Content::Reject(block));
        }
        true
    }

    /// A packet is there.
    pub(super) fn arrived(&mut self, packet: Packet) {
        let (conn, side) = (packet.conn, usize::from(packet.side));
        let end = &self.conns[conn as usize].ends[side];
        let (id, up) = (end.node, end.up);
        let (silent, frozen) = (self.nodes[id.0 as usize].silent, self.nodes[id.0 as usize].frozen);
        if silent {
            return;
        }
        if !up {
            // The connection no longer exists: the kernel reports it.
            return self.reset_far(conn, side);
        }
        let end = &mut self.conns[conn as usize].ends[side];
        end.heard = self.now;
        if let Content::Block(block, _) = packet.content {
            end.coming -= 1;
            end.begun = self.now;
            if frozen {
                self.buffer(conn, side, u64::from(block.len));
            }
        }
        if frozen {
            return self.node(id).inbox.push(HeldEvent::Packet(packet));
        }
        self.read(packet);
    }

    /// The program reads a packet that its kernel has.
    pub(super) fn read(&mut self, packet: Packet) {
        let end = &self.conns[packet.conn as usize].ends[usize::from(packet.side)];
        let (id, peer) = (end.node, end.peer);
        if !end.up {
            return;
        }
        if self.nodes[id.0 as usize].misbehaviour == Misbehaviour::Refuse
            && self.refuse(id, peer, &packet.content)
        {
            return;
        }
        let event = match packet.content {
            Content::Plan(said) => return self.send_plan_message(id, peer, said),
            Content::Block(block, good) => return self.received(id, peer, block, good),
            Content::More(pieces) => Event::HasMore { peer, pieces },
            Content::Less(piece) => Event::HasNot { peer, piece },
            Content::Exactly(pieces) => Event::HasExactly { peer, pieces },
            Content::All => Event::HasAll { peer },
            Content::Interested(true) => Event::Interested { peer },
            Content::Interested(false) => Event::NotInterested { peer },
            Content::Choke(true) => Event::Choked { peer },
            Content::Choke(false) => Event::Unchoked { peer },
            Content::Request(block) => Event::Requested { peer, block },
            Content::Pieces(pieces) => Event::RequestedPieces { peer, pieces },
            Content::Cancel(block) => Event::Canceled { peer, block },
            Content::Reject(block) => Event::Rejected { peer, block },
            Content::Offer(piece, stripe) => Event::Offered { peer, piece, stripe },
            Content::Wish(pieces, stripe, urgent) => Event::Wished { peer, pieces, stripe, urgent },
        };
        self.give(id, event);
    }
}

/// Bytes of a message on the wire, its length prefix included (docs/wire-extension.md; BEP 3, 6).
fn size(content: &Content, protocol: Protocol, lengths: &[u32]) -> u32 {
    let tidecast = matches!(protocol, Protocol::Tidecast { .. });
    let bitfield = (lengths.len() as u32).div_ceil(8);
    match content {
        Content::Exactly(ranges) if tidecast => (14 + 8 * ranges.len() as u32).min(14 + bitfield),
        Content::More(ranges) if tidecast => (14 + 8 * ranges.len() as u32).min(14 + bitfield),
        Content::All | Content::Less(_) if tidecast => 22,
        Content::Request(_) | Content::Cancel(_) | Content::Reject(_) if tidecast => 21,
        Content::Exactly(_) => 5 + bitfield,
        Content::More(ranges) => 9 * ranges.iter().map(|r| r.len() as u32).sum::<u32>(),
        Content::Less(_) => 10,
        Content::All | Content::Interested(_) | Content::Choke(_) => 5,
        Content::Request(_) | Content::Cancel(_) | Content::Reject(_) | Content::Pieces(_) => 17,
        Content::Offer(piece, _) => 15 + 17 + 32 * lengths[*piece as usize].div_ceil(16 << 10),
        Content::Wish(..) => 20,
        Content::Plan(PlanMessage::Part(role)) => {
            role.stripes.iter().map(|e| 128 * (1 + e.children.len() as u32)).sum()
        }
        Content::Plan(_) => 64,
        Content::Block(block, _) => block.len + BLOCK_HEADER,
    }
}
