//! foca's packets: its messages in our encoding, with every description in them verified.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, BufMut};
use foca::{Header, Member, Message};
use tidecast_identity::NodeId;

use crate::frame::{put_member, read_member};
use crate::{Keys, Peer};
use tidecast_identity::bytes::Reader;

/// Encodes and decodes foca's messages. Each description is verified and kept in memory once.
pub(crate) struct Codec<K> {
    keys: Arc<K>,
    /// Shared with foca's copy of the codec.
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    peers: BTreeMap<NodeId, Peer>,
    /// The highest known incarnation of this node.
    own: u64,
}

/// A malformed packet, or one with a description that is not signed.
#[derive(Debug, thiserror::Error)]
#[error("not a packet of a member")]
pub(crate) struct DecodeError;

impl<K> Clone for Codec<K> {
    fn clone(&self) -> Self {
        Self { keys: self.keys.clone(), known: self.known.clone() }
    }
}

impl<K: Keys> Codec<K> {
    pub(crate) fn new(keys: Arc<K>) -> Self {
        Self { keys, known: Arc::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // No code panics while the lock is held, and the data is consistent at any time.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The highest known incarnation of this node.
    pub(crate) fn own(&self) -> u64 {
        self.known().own
    }

    /// Drops descriptions that `keep` rejects, if there are more than `most`.
    pub(crate) fn prune(&self, most: usize, keep: impl Fn(&NodeId) -> bool) {
        let mut known = self.known();
        if known.peers.len() > most {
            known.peers.retain(|node, _| keep(node));
        }
    }

    /// The same description from memory, or a new one if it is signed.
    fn admit(&mut self, peer: Peer) -> Option<Peer> {
        if let Some(known) = self.known().peers.get(&peer.node()).filter(|known| **known == peer) {
            return Some(known.clone());
        }
        if !peer.is_signed(&*self.keys) {
            return None;
        }
        let mut known = self.known();
        if peer.node() == self.keys.node() {
            known.own = known.own.max(peer.incarnation());
        }
        known.peers.insert(peer.node(), peer.clone());
        drop(known);
        Some(peer)
    }

    pub(crate) fn admit_member(&mut self, member: Member<Peer>) -> Option<Member<Peer>> {
        let peer = self.admit(member.id().clone())?;
        Some(Member::new(peer, member.incarnation(), member.state()))
    }

    fn header(&mut self, r: &mut Reader<'_>) -> Option<Header<Peer>> {
        let src = Peer::read(r)?;
        let (src, src_incarnation) = (self.admit(src)?, r.u16()?);
        // The destination and the subject are only compared and written to, so they need no verification.
        let (dst, kind) = (Peer::read(r)?, r.u8()?);
        let message = match kind {
            0 => Message::Ping(r.u8()?),
            1 => Message::Ack(r.u8()?),
            2 => Message::PingReq { target: Peer::read(r)?, probe_number: r.u8()? },
            3 => Message::IndirectPing { origin: Peer::read(r)?, probe_number: r.u8()? },
            4 => Message::IndirectAck { target: Peer::read(r)?, probe_number: r.u8()? },
            5 => Message::ForwardedAck { origin: Peer::read(r)?, probe_number: r.u8()? },
            6 => Message::Announce,
            7 => Message::Feed,
            8 => Message::Gossip,
            9 => Message::TurnUndead,
            _ => return None,
        };
        Some(Header { src, src_incarnation, dst, message })
    }
}

impl<K: Keys> foca::Codec<Peer> for Codec<K> {
    type Error = DecodeError;

    fn encode_header(&mut self, header: &Header<Peer>, mut buf: impl BufMut) -> Result<(), DecodeError> {
        let mut out = header.src.bytes().to_vec();
        out.extend(header.src_incarnation.to_be_bytes());
        out.extend(header.dst.bytes());
        let (kind, about, number) = match &header.message {
            Message::Ping(n) => (0, None, Some(n)),
            Message::Ack(n) => (1, None, Some(n)),
            Message::PingReq { target, probe_number } => (2, Some(target), Some(probe_number)),
            Message::IndirectPing { origin, probe_number } => (3, Some(origin), Some(probe_number)),
            Message::IndirectAck { target, probe_number } => (4, Some(target), Some(probe_number)),
            Message::ForwardedAck { origin, probe_number } => (5, Some(origin), Some(probe_number)),
            Message::Announce => (6, None, None),
            Message::Feed => (7, None, None),
            Message::Gossip | Message::Broadcast => (8, None, None),
            Message::TurnUndead => (9, None, None),
        };
        out.push(kind);
        out.extend(about.iter().flat_map(|peer| peer.bytes()));
        out.extend(number);
        put(&out, &mut buf)
    }

    fn decode_header(&mut self, mut buf: impl Buf) -> Result<Header<Peer>, DecodeError> {
        let mut r = Reader::new(buf.chunk());
        let header = self.header(&mut r).ok_or(DecodeError)?;
        let read = buf.chunk().len() - r.left();
        buf.advance(read);
        Ok(header)
    }

    fn encode_member(&mut self, member: &Member<Peer>, mut buf: impl BufMut) -> Result<(), DecodeError> {
        let mut out = Vec::new();
        put_member(&mut out, member);
        put(&out, &mut buf)
    }

    fn decode_member(&mut self, mut buf: impl Buf) -> Result<Member<Peer>, DecodeError> {
        let mut r = Reader::new(buf.chunk());
        let member = read_member(&mut r).ok_or(DecodeError)?;
        let read = buf.chunk().len() - r.left();
        buf.advance(read);
        self.admit_member(member).ok_or(DecodeError)
    }
}

/// Writes all bytes or none.
fn put(bytes: &[u8], buf: &mut impl BufMut) -> Result<(), DecodeError> {
    if buf.remaining_mut() < bytes.len() {
        return Err(DecodeError);
    }
    buf.put_slice(bytes);
    Ok(())
}
