//! Peers that deliver late: their work goes to others, they themselves are not punished.
//!
//! * Idle peers take over the end of the queue of the peer that would take longest, when they would be at
//!   least twice as fast (`steal`): only blocks that would come last are requested again, so little comes
//!   twice. When all peers together are slow, our own link is the limit: then no peer is late, and stolen
//!   requests would come twice. Duplicates have a budget; beyond it only silent peers lose requests.
//! * A peer that delivers nothing for eight times the delay that its rate explains (2 s at least) loses the
//!   requests that another peer can serve (`upkeep`), and is asked for one block at a time until it delivers.
//!   While parts of a block arrive it is not silent: behind a congested link the whole may take minutes, and
//!   cancelling it would waste them.
//! * A peer that continues so, claiming pieces that it never sends, is disconnected after about a minute. It
//!   is not banned: a slow peer may come back.

use std::ops::Range;
use std::time::Duration;

use crate::api::{Action, Block, PeerId, Reason, Time};
use crate::bitset::to_ranges;
use crate::engine::Engine;
use crate::planted::{Bug, planted};
use crate::ranges::chunks;
use crate::state::peer::Peer;
use crate::state::pieces::CELL;
use crate::state::silence::SILENCE_MOST;

/// Stealing saves at least this much, or is not worth a message.
const WORTH: Duration = Duration::from_millis(50);
/// Silence of a peer that has delivered nothing yet, after which others may take its work.
const UNKNOWN: Duration = Duration::from_millis(500);
/// Duplicates may be this share of received data, and this many bytes, before taking requests from slow peers
/// counts as harmful.
const DUPLICATES: (u64, u64) = (128, 2 << 20);
/// Silence after which that does not matter.
const SILENT: Duration = Duration::from_secs(15);
/// Idle peers that steal in one round.
const THIEVES: usize = 16;

/// The estimated time until the last requested block of `peer` arrives.
fn eta(peer: &Peer, now: Time, drain: Duration) -> Option<Duration> {
    if peer.silence.stalled() {
        return Some(SILENCE_MOST);
    }
    let silence = now.since(peer.silence.last());
    let times = (peer.window.time_for(peer.block_size()), peer.window.time_for(peer.outstanding()));
    let (Some(block), Some(all)) = times else {
        // Nothing has come from it yet.
        return (silence > UNKNOWN.max(drain * 2)).then(|| silence * 4);
    };
    let late = silence > (block * 4).max(drain * 2) + WORTH * 2;
    Some(if late { all.max(silence) * 2 } else { all.saturating_sub(silence.min(block)) })
}

/// Whether the block that `peer` is sending right now may be requested from another as well, which needs
/// `cost`.
fn may_lose_head(peer: &Peer, now: Time, cost: Duration, drain: Duration) -> bool {
    let Some(block) = peer.window.time_for(peer.block_size()) else { return true };
    let late = now.since(peer.silence.last()) > (block * 4).max(drain * 2) + WORTH * 2;
    peer.silence.stalled() || late || block > (cost + WORTH) * 4
}

impl Engine {
    /// Looks at every peer that owes us something; called a few times a second.
    pub(crate) fn look_for_slow(&mut self) {
        let now = self.env.now();
        let mut late = Vec::new();
        let drain = self.drain_time();
        for peer in self.peers.values_mut().filter(|p| !p.is_closing()) {
            let explained = peer.window.time_for(peer.block_size());
            if peer.outstanding() > 0 && peer.silence.overdue(now, explained, drain) {
                late.push(peer.id);
            }
        }
        for id in late {
            self.give_back(id);
        }
        self.let_go_hopeless();
        self.steal();
    }

    /// Part of a block has come from a peer. In a plan it is still judged by the rate of its stripe.
    pub(crate) fn on_coming(&mut self, id: PeerId) {
        let (now, planned) = (self.env.now(), self.planned());
        if let Some(peer) = self.peers.get_mut(&id).filter(|_| !planned) {
            peer.silence.coming(now);
        }
    }

    /// How long all outstanding requests take at the total rate of received data.
    fn drain_time(&self) -> Duration {
        self.downloads.drain_time()
    }

    /// Whether cancelling blocks that `peer` may still send is worth the risk of duplicates.
    pub(crate) fn may_duplicate(&self, peer: &Peer) -> bool {
        let budget = self.totals.received() / DUPLICATES.0 + DUPLICATES.1;
        self.totals.duplicate() <= budget || peer.silence.silence(self.env.now()) >= SILENT
    }

    /// Whether others have the piece, or this peer itself has not all of it and only offered to pass it on.
    pub(crate) fn need_not_come_from(&self, id: PeerId, piece: u32) -> bool {
        let has = self.peers.get(&id).is_some_and(|p| p.have.has(piece));
        !has || self.selection.holders(piece) > 1
    }

    /// Drops requests to this peer that are no longer needed from it.
    fn give_back(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get(&id).filter(|p| self.may_duplicate(p)) else { return };
        for piece in peer.asked_pieces() {
            if self.need_not_come_from(id, piece) {
                self.take_back(id, piece, 0..u32::MAX, true);
            }
        }
    }

    fn let_go_hopeless(&mut self) {
        let hopeless = |p: &&Peer| !p.is_closing() && p.silence.is_exceeded();
        let ids: Vec<PeerId> = self.peers.values().filter(hopeless).map(|p| p.id).collect();
        for id in ids {
            let others = self
                .peers
                .values()
                .any(|p| p.id != id && !p.is_closing() && self.lacking(p) > 0 && !p.silence.stalled());
            if others {
                self.disconnect(id, Reason::Withholding);
            }
        }
    }

    /// Idle peers take over the end of the queues of slow ones; in a plan, which handles slow ones itself, of
    /// silent ones.
    fn steal(&mut self) {
        if self.env.policy().endgame {
            return;
        }
        let (now, planned) = (self.env.now(), self.planned());
        let drain = self.drain_time();
        let idle = |p: &&Peer| p.next_request.dry().is_some() && !p.silence.stalled() && p.room(now) > 0;
        let usable = |p: &&Peer| !p.interest.chokes_us() && !p.in_order() && self.lacking(p) > 0;
        let thieves: Vec<PeerId> =
            self.peers.values().filter(idle).filter(usable).map(|p| p.id).take(THIEVES).collect();
        for thief in thieves {
            let others = self.peers.values().filter(|p| p.id != thief && p.outstanding() > 0);
            let others = others.filter(|p| !planned || p.silence.stalled());
            let slowest = others.filter_map(|p| Some((eta(p, now, drain)?, p.id))).max();
            if let Some((eta, victim)) = slowest {
                self.steal_from(thief, victim, eta);
            }
        }
    }

    /// Moves up to half of the requests to `victim`, from the end, to `thief`, if that is much faster.
    fn steal_from(&mut self, thief: PeerId, victim: PeerId, eta: Duration) {
        let now = self.env.now();
        let (Some(t), Some(v)) = (self.peers.get(&thief), self.peers.get(&victim)) else { return };
        let known = t.window.rate() > 0 || v.silence.stalled();
        if !known || !self.may_duplicate(v) {
            return;
        }
        let mut left = v.outstanding().div_ceil(2).max(v.block_size()).min(t.room(now));
        let delay = t.window.delay().unwrap_or_default();
        let drain = self.drain_time();
        let cost = delay + t.window.time_for(t.outstanding() + left).unwrap_or_default();
        let cost = cost.max(drain).max(t.silence.unanswered());
        let sent = v.block_size() + v.window.on_the_way();
        let keep = if may_lose_head(v, now, cost, drain) { 0 } else { sent };
        left = left.min(v.outstanding().saturating_sub(keep));
        if left == 0 || eta < cost * 2 + WORTH {
            return;
        }
        let mut pieces: Vec<u32> = v.asked().iter().rev().map(|a| a.piece).collect();
        pieces.dedup();
        for piece in pieces {
            while left > 0 && self.may_ask(thief, piece) && !self.spares_source(thief, piece) {
                // The last cells of pieces are short: fewer bytes than this many cells may be as many requests.
                let spare = self.peers.get(&thief).map_or(0, |t| t.spare_requests());
                if spare == 0 {
                    return;
                }
                let most = u32::try_from(left / u64::from(CELL)).unwrap_or(u32::MAX).clamp(1, spare);
                let partial = self.pieces.partial(piece);
                let Some(cells) = partial.and_then(|p| p.last_asked(victim, most)) else { break };
                let bytes = self.take_back(victim, piece, cells.clone(), true);
                if bytes == 0 {
                    break;
                }
                self.ask_cells(thief, piece, cells);
                left = left.saturating_sub(bytes);
            }
        }
    }

    /// `id` has a piece that a seed was asked for and has not begun to send: `id` is asked instead, if it
    /// owes less. Peers that fetch the same data spare their common source and help one another.
    pub(crate) fn relieve(&mut self, id: PeerId, piece: u32) {
        if self.planned() {
            return;
        }
        let (now, len) = (self.env.now(), u64::from(self.pieces.length(piece)));
        let partial = self.pieces.partial(piece).filter(|_| !self.env.policy().endgame);
        let Some(source) = partial.and_then(|p| p.sole_source()) else { return };
        let (Some(helper), Some(seed)) = (self.peers.get(&id), self.peers.get(&source)) else {
            return;
        };
        // The block at the head of its queue has been handed to the connection: a cancel is too late.
        let ahead = seed.asked().iter().take_while(|a| a.piece != piece);
        let ahead: u64 = ahead.map(|a| u64::from(a.bytes)).sum();
        let room = helper.room(now);
        let free = room >= len || (room > 0 && helper.outstanding() == 0);
        let able = free && !helper.silence.stalled() && !helper.interest.chokes_us();
        if !able
            || !(seed.have.is_all() || seed.is_web())
            || helper.have.is_all()
            || helper.outstanding() >= seed.outstanding()
            || ahead < seed.block_size() + seed.window.on_the_way()
            || !self.may_duplicate(seed)
        {
            return;
        }
        self.take_back(source, piece, 0..u32::MAX, true);
        if let Some(seed) = self.peers.get_mut(&source).filter(|p| p.next_request.current() == Some(piece)) {
            seed.next_request.leave_piece();
        }
        if self.may_ask(id, piece) {
            self.ask_part(id, piece, room);
        }
        self.request_checks.add(source);
    }

    /// The peer rejects our request.
    pub(crate) fn on_rejected(&mut self, id: PeerId, block: Block) {
        if !self.pieces.sound(block) || planted(Bug::IgnoreReject) {
            return;
        }
        let cells = self.pieces.cells(block);
        let bytes = self.take_back(id, block.piece, cells, false);
        let now = self.env.now();
        if let Some(peer) = self.peers.get_mut(&id)
            && bytes > 0
            && !peer.interest.chokes_us()
        {
            peer.silence.rejected(now);
            peer.next_request.leave_piece();
            self.upkeep.arm();
        }
        self.request_checks.add(id);
    }

    /// Cancels requests to `id` among `cells`; returns their bytes. `tell`: send a cancel.
    pub(crate) fn take_back(&mut self, id: PeerId, piece: u32, cells: Range<u32>, tell: bool) -> u64 {
        let gone = self.with_piece(piece, |p| p.release(id, piece, cells));
        if self.blame.is_solo(piece) {
            self.blame.abandoned(piece, id);
            self.request_checks.changed();
        }
        let bytes = self.not_awaited(id, piece, &gone, tell);
        let now = self.env.now();
        if let Some(peer) = self.peers.get_mut(&id).filter(|p| tell && bytes > 0 && p.outstanding() == 0) {
            peer.silence.requests_taken(now);
        }
        bytes
    }

    /// Notes that `id` is no longer asked for these cells, and tells it.
    pub(crate) fn not_awaited(&mut self, id: PeerId, piece: u32, cells: &[u32], tell: bool) -> u64 {
        let runs = to_ranges(cells.iter().copied());
        runs.into_iter().map(|run| self.run_not_awaited(id, piece, run, tell)).sum()
    }

    /// Likewise, for cells that follow one another.
    pub(crate) fn run_not_awaited(&mut self, id: PeerId, piece: u32, run: Range<u32>, tell: bool) -> u64 {
        let block = self.pieces.block(piece, run);
        let bytes = u64::from(block.len);
        let Some(peer) = self.peers.get_mut(&id) else { return bytes };
        peer.note_gone(piece, block.len);
        self.downloads.gone(bytes);
        if tell {
            peer.allow_unrequested(bytes);
            let size = peer.request_size();
            if !peer.is_closing() {
                self.outbox.extend(chunks(block, size).map(|block| Action::Cancel { peer: id, block }));
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]
    use super::*;
    use crate::api::{Block, Event, Limits, Policy, Protocol, Setup};

    const S: u64 = 1_000_000_000;

    /// Seconds until pieces of these lengths are here from one peer that answers after a tenth of a second, where so
    /// many that never do were there before it.
    fn fetched(lengths: &[u32], silent: u32) -> u64 {
        let (all, limits) = (vec![0..lengths.len() as u32], Limits::default());
        let setup = Setup {
            lengths: lengths.into(),
            have: vec![],
            want: all,
            policy: Policy::TIDECAST,
            limits,
            seed: 1,
        };
        let mut engine = Engine::new(setup, Time(0)).unwrap();
        let (honest, mut coming, mut left) = (PeerId(silent), Vec::new(), lengths.to_vec());
        let mut events = Vec::new();
        for peer in (0..=silent).map(PeerId) {
            let protocol = Protocol::Tidecast { max_block: CELL };
            events.extend([Event::PeerUp { peer, protocol, candidate: None }, Event::HasAll { peer }]);
        }
        for now in (0..).map(|tick| Time(tick * S / 100)) {
            let due: Vec<Block> =
                coming.extract_if(.., |(at, _)| *at <= now).map(|(_, block)| block).collect();
            for block in due {
                events.push(Event::Received { peer: honest, block });
                events.push(Event::Stored { peer: honest, block, proven: true });
                left[block.piece as usize] -= block.len;
                if left[block.piece as usize] == 0 {
                    events.push(Event::PieceVerified { piece: block.piece });
                }
            }
            for event in events.drain(..).chain([Event::Tick]) {
                engine.handle(now, event);
                engine.check().unwrap();
            }
            if engine.is_complete() {
                return now.0 / S;
            }
            let at = now.after(Duration::from_millis(100));
            while let Some(action) = engine.poll() {
                match action {
                    Action::Request { peer, block } if peer == honest => coming.push((at, block)),
                    Action::RequestPieces { peer, pieces } if peer == honest => {
                        let whole = |piece| Block { piece, begin: 0, len: lengths[piece as usize] };
                        coming.extend(pieces.flat_map(|p| chunks(whole(p), CELL)).map(|block| (at, block)));
                    }
                    Action::Cancel { peer, block } if peer == honest => {
                        let within = |b: &Block| b.piece == block.piece && b.begin >= block.begin;
                        coming.retain(|(_, b)| !within(b) || b.begin >= block.begin + block.len);
                    }
                    _ => {}
                }
            }
            assert!(now.0 < 1000 * S, "{left:?}");
        }
        unreachable!()
    }

    #[test]
    fn the_silence_of_some_is_not_taken_for_our_own_slowness() {
        assert_eq!(fetched(&[47, 256 << 10], 0), 0);
        let took = [(&[47, 256 << 10][..], 1), (&[47, 256 << 10], 6), (&[64 << 10; 8], 6)];
        let took = took.map(|(lengths, silent)| fetched(lengths, silent));
        assert!(took.iter().all(|&s| s <= 20), "{took:?}");
    }

    #[test]
    fn who_delivers_slowly_is_not_silent() {
        let limits = Limits::default();
        let lengths = vec![256 << 10].into();
        let setup =
            Setup { lengths, have: vec![], want: vec![0..1], policy: Policy::TIDECAST, limits, seed: 1 };
        let mut engine = Engine::new(setup, Time(0)).unwrap();
        let mut give = |s: u64, event: Event| {
            engine.handle(Time(s * S), event);
            engine.check().unwrap();
            std::iter::from_fn(|| engine.poll()).collect::<Vec<_>>()
        };
        let mut asked = Vec::new();
        for peer in [PeerId(0), PeerId(1)] {
            give(
                0,
                Event::PeerUp { peer, protocol: Protocol::Tidecast { max_block: CELL }, candidate: None },
            );
            asked.extend(give(0, Event::HasAll { peer }).iter().filter_map(Action::peer));
        }
        // Both can give it, and the first is giving it.
        let taken_back = |said: Vec<Action>| said.iter().any(|a| matches!(a, Action::Cancel { .. }));
        assert!(asked.contains(&PeerId(0)), "{asked:?}");
        for s in 1..300 {
            let said = give(s, Event::Coming { peer: PeerId(0) });
            assert!(!taken_back(said) && !taken_back(give(s, Event::Tick)), "after {s} s");
        }
        let given_up = (300..320).find(|&s| taken_back(give(s, Event::Tick)));
        assert_eq!(given_up, Some(303));
    }
}
