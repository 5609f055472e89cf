//! Web seeds (BEP 19): servers of HTTP that many nodes share, spared as the source of a plan is (`budget`).
//!
//! A web seed is a peer that has pieces, wants none, and is asked for runs. Without coordination, nodes
//! beside one web seed would each fetch the whole of it. So connected nodes that lack pieces divide it: the
//! pieces are cut into *chunks*, and each chunk belongs to the node with the highest hash of its key and the
//! chunk's number (rendezvous hashing), on which all agree without a message. A node asks the web seed for
//! its own chunks only; the others come from their owners.
//!
//! Pieces that the owner does not bring are fetched all the same: a node that has its own chunks, and is
//! waiting for peers, takes over those of which it is the next owner after two seconds, then twice as many
//! ranks each time. Pieces that a peer has already are not requested from a web seed while peers together
//! give half the rate of the web seed.
//!
//! A server that ignores ranges gives each file from its start: it is asked in order, by one node for all.

use std::ops::Range;

use crate::api::{PeerId, Protocol};
use crate::engine::Engine;
use crate::state::peer::Peer;
use crate::state::web_seeds::Activity;

/// Bytes of a chunk, and the least number of chunks.
const CHUNK: u64 = 4 << 20;
const CHUNKS: u32 = 64;

impl Engine {
    /// A connection that is a web seed.
    pub(crate) fn web_up(&mut self, id: PeerId) {
        let Some(Protocol::Web { key, in_order, .. }) = self.peers.get(&id).map(|p| p.protocol) else {
            return;
        };
        self.web_seeds.up(id, key, in_order);
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.interest.uploads_only();
        }
    }

    /// Both ends of this connection know its peer by this number.
    pub(crate) fn on_key(&mut self, id: PeerId, key: u64) {
        self.web_seeds.set_key(id, key);
        self.upkeep.arm_if(!self.web_seeds.is_empty());
    }

    pub(crate) fn web_down(&mut self, id: PeerId) {
        self.web_seeds.down(id);
    }

    /// The pieces of the server of a web seed; false if the peer is not a web seed.
    pub(crate) fn web_has(&mut self, id: PeerId, pieces: &[Range<u32>]) -> bool {
        let is_web = self.web_seeds.contains(id);
        if is_web {
            self.web_seeds.set_has(id, pieces);
            self.divide_anew();
            self.divide(id);
        }
        is_web
    }

    /// The server has not this piece.
    pub(crate) fn web_has_not(&mut self, id: PeerId, piece: u32) {
        self.web_seeds.has_not(id, piece);
    }

    /// The peers that fetch from the same web seeds as we do divide them with us; whether these are others than before.
    fn divide_anew(&mut self) -> bool {
        let fetches = |p: &Peer| !p.is_closing() && !p.have.is_all() && !p.interest.is_upload_only();
        self.web_seeds.divide_with(|id| self.peers.get(&id).is_some_and(fetches))
    }

    /// Pieces in a chunk; the same at every node.
    fn chunk(&self) -> u32 {
        let longest = u64::from(self.pieces.length(0).max(1));
        let most = u32::try_from(CHUNK / longest).unwrap_or(u32::MAX).max(1);
        (self.pieces.count() / CHUNKS).clamp(1, most)
    }

    /// Makes our share of the server's pieces the pieces of the peer.
    fn divide(&mut self, id: PeerId) {
        if let Some(ours) = self.web_seeds.ours(id, self.chunk()) {
            self.has_exactly(id, ours);
        }
    }

    /// Divides again when nodes have come or left, and takes over chunks that they do not bring.
    pub(crate) fn check_web_seeds(&mut self) {
        if self.web_seeds.is_empty() || self.pieces.left() == 0 {
            return;
        }
        // Looked at again even if nothing may be requested.
        self.upkeep.arm();
        let changed = self.divide_anew();
        for id in self.web_seeds.ids() {
            let Some(peer) = self.peers.get(&id).filter(|p| !p.is_closing()) else { continue };
            let idle = peer.outstanding() == 0 && self.lacking(peer) == 0;
            let doing = Activity { idle, rate: peer.window.rate(), received: self.totals.received() };
            if self.web_seeds.update(id, doing, changed, self.env.now()) {
                self.divide(id);
            }
        }
    }

    /// The next missing pieces of a server that gives them in order.
    pub(crate) fn next_in_order(&self, peer: &Peer, most: u32) -> Option<Range<u32>> {
        let count = self.pieces.count();
        let from = peer.next_request.cursor().unwrap_or(0).min(count);
        let missing = |piece: &u32| peer.have.has(*piece) && self.place(*piece).is_some();
        let first = (from..count).chain(0..from).find(missing)?;
        let last = first.saturating_add(most.max(1)).min(count);
        let end = (first + 1..last).find(|piece| !missing(piece)).unwrap_or(last);
        Some(first..end)
    }

    /// Peers together give at least half the rate of this web seed.
    fn fed(&self, web: &Peer) -> bool {
        let gives = |p: &&Peer| !p.is_web() && !p.is_closing() && p.outstanding() > 0;
        let rates: u64 = self.peers.values().filter(gives).map(|p| p.window.rate()).sum();
        rates > 0 && rates >= web.window.rate() / 2
    }

    /// Whether this peer is a web seed that need not be asked for the piece, because others have it and give.
    pub(crate) fn spares_web(&self, id: PeerId, piece: u32) -> bool {
        let Some(web) = self.peers.get(&id).filter(|p| p.is_web()) else { return false };
        let gives = |p: &Peer| {
            !p.is_web()
                && !p.is_closing()
                && !p.interest.chokes_us()
                && !p.silence.is_suspect()
                && p.have.has(piece)
        };
        self.fed(web) && self.peers.values().any(gives)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::api::{Action, Block, Event, Limits, Policy, Setup, Time};
    use crate::bitset::to_ranges;

    const LEN: u32 = 64 << 10;
    const PIECES: u32 = 200;
    const WEB: PeerId = PeerId(0);
    const MS: u64 = 1_000_000;

    /// A node beside a web seed; requests to the web seed are delivered at once.
    struct Node(Engine, u64, Vec<u32>);

    impl Node {
        fn new(key: u64) -> Node {
            Self::beside(key, false)
        }

        fn beside(key: u64, in_order: bool) -> Node {
            let setup = Setup {
                lengths: vec![LEN; PIECES as usize].into(),
                have: vec![],
                want: vec![0..PIECES],
                policy: Policy::TIDECAST,
                limits: Limits::default(),
                seed: key,
            };
            let mut node = Node(Engine::new(setup, Time(0)).unwrap(), 0, Vec::new());
            let protocol = Protocol::Web { max_block: LEN, in_order, key };
            node.give(Event::PeerUp { peer: WEB, protocol, candidate: None });
            node
        }

        fn give(&mut self, event: Event) {
            self.0.handle(Time(self.1), event);
            self.0.check().unwrap();
            while let Some(action) = self.0.poll() {
                let pieces = match action {
                    Action::RequestPieces { peer: WEB, pieces } => pieces,
                    Action::Request { peer: WEB, block } => block.piece..block.piece + 1,
                    _ => continue,
                };
                for piece in pieces {
                    assert!(!self.2.contains(&piece), "piece {piece} is asked for twice");
                    self.2.push(piece);
                    let block = Block { piece, begin: 0, len: LEN };
                    self.0.handle(Time(self.1), Event::Received { peer: WEB, block });
                    self.0.handle(Time(self.1), Event::Stored { peer: WEB, block, proven: false });
                    self.0.handle(Time(self.1), Event::PieceVerified { piece });
                }
            }
        }

        fn meet(&mut self, peer: PeerId, key: u64) {
            let protocol = Protocol::Tidecast { max_block: LEN };
            self.give(Event::PeerUp { peer, protocol, candidate: None });
            self.give(Event::Key { peer, key });
            self.give(Event::HasNone { peer });
        }

        fn pass(&mut self, ms: u64) {
            for _ in 0..ms / 50 {
                self.1 += 50 * MS;
                self.give(Event::Tick);
            }
        }
    }

    #[test]
    fn alone_it_fetches_all() {
        let mut node = Node::new(1);
        node.give(Event::HasAll { peer: WEB });
        assert!(node.0.is_complete());
    }

    #[test]
    fn those_who_know_each_other_fetch_different_parts() {
        let keys = [11, 22, 33, 44];
        let mut asked = vec![0; PIECES as usize];
        for own in keys {
            let mut node = Node::new(own);
            for (n, other) in (1..).zip(keys.iter().filter(|k| **k != own)) {
                node.meet(PeerId(n), *other);
            }
            node.give(Event::HasAll { peer: WEB });
            node.2.iter().for_each(|p| asked[*p as usize] += 1);
            assert!((20..90).contains(&node.2.len()), "{}", node.2.len());
        }
        assert!(asked.iter().all(|n| *n == 1), "{asked:?}");
    }

    #[test]
    fn what_the_owner_does_not_bring_is_fetched_after_a_while() {
        let mut node = Node::new(5);
        (1..=5).for_each(|n| node.meet(PeerId(n), u64::from(n) * 7));
        node.give(Event::HasAll { peer: WEB });
        let first = node.2.len();
        node.pass(1900);
        assert_eq!(node.2.len(), first);
        node.pass(400);
        assert!(node.2.len() > first && !node.0.is_complete(), "{first} {}", node.2.len());
        node.pass(7000);
        assert!(node.0.is_complete());
    }

    #[test]
    fn a_slow_owner_is_not_helped_while_it_gives() {
        let beside = |own: u64, other: u64| {
            let mut node = Node::beside(own, true);
            node.meet(PeerId(1), other);
            node.give(Event::HasAll { peer: WEB });
            node
        };
        // One of the two is the owner.
        let both = [beside(11, 22), beside(22, 11)];
        let mut node = both.into_iter().find(|node| node.2.is_empty()).unwrap();
        for piece in 0..5 {
            node.pass(1500);
            assert!(node.2.is_empty(), "after {piece} pieces");
            node.give(Event::Has { peer: PeerId(1), pieces: piece..piece + 1 });
            let block = Block { piece, begin: 0, len: LEN };
            node.give(Event::Received { peer: PeerId(1), block });
            node.give(Event::Stored { peer: PeerId(1), block, proven: false });
            node.give(Event::PieceVerified { piece });
        }
        node.pass(5000);
        assert!(!node.2.is_empty());
    }

    #[test]
    fn a_peer_that_goes_leaves_its_part_to_the_others() {
        let mut node = Node::new(5);
        node.meet(PeerId(1), 6);
        node.give(Event::HasAll { peer: WEB });
        assert!(!node.0.is_complete());
        node.give(Event::PeerDown { peer: PeerId(1) });
        node.pass(300);
        assert!(node.0.is_complete());
    }

    #[test]
    fn a_server_without_ranges_is_asked_in_order_by_one_node() {
        let all: Vec<u32> = (0..PIECES).collect();
        let owners = [11, 22, 33].map(|own| {
            let mut node = Node::beside(own, true);
            for (n, other) in (1..).zip([11, 22, 33].iter().filter(|k| **k != own)) {
                node.meet(PeerId(n), *other);
            }
            node.give(Event::HasAll { peer: WEB });
            assert!(node.2.is_empty() || node.2 == all, "{:?}", node.2);
            usize::from(node.2 == all)
        });
        assert_eq!(owners.iter().sum::<usize>(), 1);
    }

    #[test]
    fn only_what_the_server_has_is_asked_of_it() {
        let mut node = Node::new(5);
        node.give(Event::HasExactly { peer: WEB, pieces: vec![0..10, 20..30] });
        node.2.sort_unstable();
        assert_eq!(to_ranges(node.2.iter().copied()), [0..10, 20..30]);
        let mut less = Node::new(5);
        less.meet(PeerId(1), 6);
        less.0.handle(Time(0), Event::HasNot { peer: WEB, piece: 3 });
        less.give(Event::HasAll { peer: WEB });
        less.give(Event::HasNot { peer: WEB, piece: 199 });
        less.pass(6000);
        assert!(less.2.len() >= 198, "{}", less.2.len());
    }
}
