//! Turns the engine's actions into messages, dials and closings.

use std::ops::Range;

use bytes::Bytes;
use tidecast_swarm::{Action, Block, Candidate, Event, PeerId, Protocol, Reason};
use tidecast_wire::ext::{self, Mode};
use tidecast_wire::{BlockRange, Message, Pex, PexPeer};
use tokio::sync::mpsc::error::TrySendError;

use super::Driver;
use super::address_book::Culprit;
use crate::cpu::Stage;
use crate::input::Out;
use crate::member::Complained;
use crate::report::Notice;
use crate::security::Security;
use crate::web_seed::Seed;

/// Addresses in one introduction (BEP 11: 50).
const INTRODUCTIONS: usize = 50;

impl Driver {
    /// Does all that the engine wants done.
    pub(super) fn drain(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        loop {
            let Driver { engine, shared, .. } = self;
            let poll = || actions.extend(std::iter::from_fn(|| engine.poll()).take(super::BATCH));
            shared.cpu.measure(Stage::Engine, poll);
            if actions.is_empty() {
                break;
            }
            actions.drain(..).for_each(|action| self.act(action));
        }
        self.actions = actions;
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Dial { candidate } => self.dial(candidate),
            Action::Disconnect { peer, reason } => {
                tracing::debug!(?peer, ?reason, "disconnecting");
                self.close(peer);
            }
            Action::Ban { peer, reason } => self.ban(peer, reason),
            Action::AnnounceAll { peer, have } => self.announce_all(peer, &have),
            Action::Announce { peer, pieces } => self.announce(peer, &pieces),
            Action::AnnounceLost { peer, piece } => self.announce_lost(peer, piece),
            Action::Interested { peer, interested } => {
                self.send(peer, if interested { Message::Interested } else { Message::NotInterested });
            }
            Action::Choke { peer, choke } => {
                self.send(peer, if choke { Message::Choke } else { Message::Unchoke });
            }
            Action::Request { peer, block } => {
                let message = match self.is_tidecast(peer) {
                    true => Message::Tidecast(ext::Message::RequestBlock(ext_range(block))),
                    false => Message::Request(range(block)),
                };
                self.send(peer, message);
            }
            Action::RequestPieces { peer, pieces } => self.request_pieces(peer, pieces),
            Action::Cancel { peer, block } => self.cancel(peer, block),
            Action::Serve { peer, block } => self.put(peer, Out::Serve(block)),
            Action::Reject { peer, block } => {
                let message = match self.is_tidecast(peer) {
                    true => Message::Tidecast(ext::Message::RejectBlock(ext_range(block))),
                    false => Message::Reject(range(block)),
                };
                self.send(peer, message);
            }
            Action::Offer { peer, piece, stripe } => self.put(peer, Out::Offer { piece, stripe }),
            Action::OfferBelow { peer, below } => self.offer_below(peer, below),
            Action::Wish { peer, pieces, stripe, urgent } => self.wish(peer, pieces, stripe, urgent),
            Action::Complain { member, stripe, why } => self.complain(Complained { member, stripe, why }),
            // Progress reports it; pieces that are still to be checked matter too.
            Action::Complete => {}
        }
    }

    /// A node that has connected to us meanwhile is not dialled again, nor one that is banned.
    fn dial(&mut self, candidate: Candidate) {
        if let Some(seed) = self.address_book.web(candidate) {
            return crate::web::spawn(&self.shared, candidate, seed.clone());
        }
        let addresses = self.address_book.addresses(candidate);
        let banned = addresses.iter().any(|a| self.address_book.is_banned(&Culprit::new(None, *a)));
        if banned {
            return self.engine_event(Event::DialFailed { candidate });
        }
        if let Some(met) = self.met_at(addresses) {
            return self.met_already(candidate, met);
        }
        crate::dial_addresses::spawn(&self.shared, candidate, addresses.to_vec());
    }

    /// It understands Tidecast's own messages; of a web seed, the task that represents it does.
    fn is_tidecast(&self, peer: PeerId) -> bool {
        self.conns.get(&peer).is_some_and(|c| !matches!(c.protocol, Protocol::Stock { .. }))
    }

    pub(super) fn send(&mut self, peer: PeerId, message: Message) {
        self.put(peer, Out::Message(message));
    }

    /// A full outbox means that the connection is stuck: it is let go rather than waited for.
    fn put(&mut self, peer: PeerId, out: Out) {
        let Some(conn) = self.conns.get(&peer) else { return };
        match conn.outbox.try_send(out) {
            Err(TrySendError::Full(_)) => self.cut(peer),
            // The connection has ended; the reason, and the fault, are already in the inbox.
            Ok(()) | Err(TrySendError::Closed(_)) => {}
        }
    }

    fn ban(&mut self, peer: PeerId, reason: Reason) {
        let Some(conn) = self.conns.get(&peer) else { return };
        let (addr, node) = (conn.addr, conn.node);
        if let Some(seed) = conn.web.clone() {
            self.condemn_web(&seed);
            return self.close(peer);
        }
        let why = match reason {
            Reason::CorruptData => "it sent bytes that do not match their hashes".to_owned(),
            Reason::Protocol(rule) => format!("protocol violation: {rule}"),
            Reason::Flooding => "it sent more requests than allowed".to_owned(),
            Reason::Withholding => "it announced pieces and did not send them".to_owned(),
            Reason::Useless | Reason::TooMany => format!("{reason:?}"),
        };
        if let Some(listens) = conn.listens {
            self.address_book.ban(Culprit::new(None, listens), None);
        }
        self.condemn(addr, node, None, why);
        self.close(peer);
    }

    /// A web seed that sent wrong data is dropped; others at its address are not to blame.
    pub(super) fn condemn_web(&mut self, seed: &Seed) {
        seed.drop_it();
        let why = "dropped: it sent bytes that do not match their hashes".to_owned();
        tracing::warn!(url = seed.url, why, "web seed");
        self.notify(Notice::WebSeed { url: seed.url.clone(), why });
    }

    fn announce_all(&mut self, peer: PeerId, have: &[Range<u32>]) {
        let pieces = self.manifest.piece_count();
        let all = matches!(have, [r] if r.start == 0 && r.end == pieces);
        let Some(conn) = self.conns.get_mut(&peer) else { return };
        let greeting = conn.greeting.take();
        match conn.protocol {
            Protocol::Web { .. } => {}
            Protocol::Tidecast { .. } => {
                for message in ext::describe(0, Mode::Reset, have) {
                    self.send(peer, Message::Tidecast(message));
                }
            }
            Protocol::Stock { fast: true } if all => self.send(peer, Message::HaveAll),
            Protocol::Stock { fast: true } if have.is_empty() => self.send(peer, Message::HaveNone),
            Protocol::Stock { .. } if have.is_empty() => {}
            Protocol::Stock { .. } => self.send(peer, Message::Bitfield(bitfield(have, pieces))),
        }
        if let Some(greeting) = greeting {
            self.send(peer, greeting);
        }
    }

    fn announce(&mut self, peer: PeerId, pieces: &[Range<u32>]) {
        if self.is_tidecast(peer) {
            for message in ext::describe(0, Mode::Add, pieces) {
                self.send(peer, Message::Tidecast(message));
            }
        } else {
            for piece in pieces.iter().cloned().flatten() {
                self.send(peer, Message::Have(piece));
            }
        }
    }

    /// A stock client without BEP 54 is not told: its requests are rejected.
    fn announce_lost(&mut self, peer: PeerId, piece: u32) {
        if self.is_tidecast(peer) {
            let lost = piece..piece.saturating_add(1);
            for message in ext::describe(0, Mode::Remove, &[lost]) {
                self.send(peer, Message::Tidecast(message));
            }
        } else {
            self.send(peer, Message::DontHave(piece));
        }
    }

    /// Only members of a plan offer pieces.
    fn offer_below(&mut self, peer: PeerId, below: u32) {
        if self.conns.get(&peer).is_some_and(|c| c.takes_offers) {
            self.send(peer, Message::Tidecast(ext::Message::OfferBelow { channel: 0, below }));
        }
    }

    /// Only members of a plan pass it on.
    fn wish(&mut self, peer: PeerId, pieces: Range<u32>, stripe: u16, urgent: bool) {
        if !self.conns.get(&peer).is_some_and(|c| c.takes_offers) {
            return;
        }
        for first in pieces.clone().step_by(ext::MAX_PIECES as usize) {
            let pieces =
                ext::PieceRange { channel: 0, first, count: (pieces.end - first).min(ext::MAX_PIECES) };
            self.send(peer, Message::Tidecast(ext::Message::Wish { stripe, urgent, pieces }));
        }
    }

    fn request_pieces(&mut self, peer: PeerId, pieces: Range<u32>) {
        for first in pieces.clone().step_by(ext::MAX_PIECES as usize) {
            let count = (pieces.end - first).min(ext::MAX_PIECES);
            let range = ext::PieceRange { channel: 0, first, count };
            self.send(peer, Message::Tidecast(ext::Message::RequestPieces(range)));
        }
    }

    fn cancel(&mut self, peer: PeerId, block: Block) {
        if self.is_tidecast(peer) {
            let message = ext::Message::CancelBlock(ext_range(block));
            return self.send(peer, Message::Tidecast(message));
        }
        let step = tidecast_wire::STOCK_BLOCK;
        let end = block.begin + block.len;
        for begin in (block.begin..end).step_by(step as usize) {
            let len = step.min(end - begin);
            self.send(peer, Message::Cancel(BlockRange { piece: block.piece, begin, len }));
        }
    }

    /// Sends all peers the list of revoked tickets.
    pub(super) fn pass_on_revocations(&mut self) {
        let Security::Private(membership) = &self.shared.security else { return };
        let Some(list) = membership.revocations().map(Bytes::from) else { return };
        for peer in self.conns.keys().copied().collect::<Vec<_>>() {
            let message = ext::Message::Revoked { channel: 0, list: list.clone() };
            self.send(peer, Message::Tidecast(message));
        }
    }

    /// Wakes the connections; each knows which roots its peer lacks.
    pub(super) fn pass_on_roots(&mut self) {
        for peer in self.conns.keys().copied().collect::<Vec<_>>() {
            self.put(peer, Out::Roots);
        }
    }

    /// Introduces new peers to all connected ones, so that a ticket with one address is enough for all peers to
    /// find each other.
    pub(super) fn introduce(&mut self) {
        let peers: Vec<PeerId> = self.conns.keys().copied().collect();
        for peer in peers {
            let Some(conn) = self.conns.get_mut(&peer) else { continue };
            let end = self.met.len().min(conn.introduced + INTRODUCTIONS);
            let fresh = self.met.get(conn.introduced..end).unwrap_or_default();
            let own = conn.listens;
            let addrs: Vec<_> = fresh.iter().copied().filter(|a| Some(*a) != own).collect();
            conn.introduced = end;
            if addrs.is_empty() {
                continue;
            }
            let message = match conn.protocol {
                Protocol::Web { .. } => continue,
                Protocol::Tidecast { .. } => Message::Tidecast(ext::Message::Peers { channel: 0, addrs }),
                Protocol::Stock { .. } if self.manifest.private() => continue,
                Protocol::Stock { .. } => {
                    let added = addrs.into_iter().map(|addr| PexPeer { addr, flags: 0 }).collect();
                    Message::Pex(Pex { added, dropped: Vec::new() })
                }
            };
            self.send(peer, message);
        }
    }
}

fn range(block: Block) -> BlockRange {
    BlockRange { piece: block.piece, begin: block.begin, len: block.len }
}

fn ext_range(block: Block) -> ext::BlockRange {
    ext::BlockRange { channel: 0, piece: block.piece, begin: block.begin, len: block.len }
}

/// BEP 3: high bit of the first byte is piece 0, spare bits are zero.
fn bitfield(have: &[Range<u32>], pieces: u32) -> Bytes {
    let mut bits = vec![0_u8; (pieces as usize).div_ceil(8)];
    for piece in have.iter().cloned().flatten() {
        if let Some(byte) = bits.get_mut(piece as usize / 8) {
            *byte |= 0x80 >> (piece % 8);
        }
    }
    bits.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitfields_have_the_high_bit_first() {
        assert_eq!(&bitfield(&[0..1, 7..10], 12)[..], [0b1000_0001, 0b1100_0000]);
    }
}
