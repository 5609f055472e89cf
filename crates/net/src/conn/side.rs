//! Requests of a peer besides data: the manifest, hashes, leaf hashes; and the addresses of other peers that it
//! sends. The connection answers them itself: the engine has nothing to decide here.

use std::net::SocketAddr;
use std::ops::Range;

use tidecast_hash::{Digest, Fingerprint, LEAF};
use tidecast_wire::ext::{self, FINGERPRINT, MAX_FINGERPRINTS, Message as Ext, Reason};
use tidecast_wire::{HashRange, Hashes, METADATA_PIECE, Message, Metadata};

use super::link::Link;
use crate::error::ConnError;
use crate::input::{Input, Out};
use crate::shared::Shared;

impl Link {
    async fn reply(&self, message: Message) -> Result<(), ConnError> {
        self.outbox.send(Out::Message(message)).await.map_err(|_| ConnError::Closed)
    }

    /// Addresses that a peer named are candidates like any other; each is a node of its own.
    pub(super) async fn found(&self, addrs: impl Iterator<Item = SocketAddr>) -> Result<(), ConnError> {
        for addr in addrs {
            let input = Input::Found { addresses: vec![addr], told: false };
            self.shared.inbox.send(input).await.map_err(|_| ConnError::Stopping)?;
        }
        Ok(())
    }

    /// BEP 9: the info dictionary in pieces of 16 KiB.
    pub(super) async fn answer_metadata(&self, message: &Metadata) -> Result<(), ConnError> {
        let Metadata::Request { piece } = *message else { return Ok(()) };
        let info = self.shared.manifest.info_bytes();
        let from = piece as usize * METADATA_PIECE as usize;
        let answer = match info.get(from..info.len().min(from + METADATA_PIECE as usize)) {
            Some(bytes) if !bytes.is_empty() => {
                let total = u32::try_from(info.len()).unwrap_or(u32::MAX);
                Metadata::Data { piece, total, bytes: bytes.to_vec().into() }
            }
            _ => Metadata::Reject { piece },
        };
        self.reply(Message::Metadata(answer)).await
    }

    /// BEP 52: a range of a file's tree with its proof; a range that cannot be proven is rejected.
    pub(super) async fn answer_hashes(&self, range: HashRange) -> Result<(), ConnError> {
        let answer = match self.hashes(range) {
            Some(hashes) => Message::Hashes(Hashes { range, hashes }),
            None => Message::HashReject(range),
        };
        self.reply(answer).await
    }

    fn hashes(&self, range: HashRange) -> Option<Vec<Digest>> {
        let shared = &self.shared;
        crate::hashes::answer(&shared.manifest, &shared.store, &shared.layers, &range)
    }

    /// The remaining requests of the Tidecast extension.
    pub(super) async fn answer(&self, message: Ext) -> Result<(), ConnError> {
        let answer = match message {
            Ext::ManifestRequest(range) => self.manifest_part(range),
            Ext::LeavesRequest(range) => self.leaves_part(range),
            Ext::FingerprintsRequest(range) => self.fingerprints(range).await,
            Ext::Attach { channel, .. } => Ext::Detach { channel, reason: Reason::UNKNOWN_SWARM },
            _ => return Ok(()),
        };
        self.reply(Message::Tidecast(answer)).await
    }

    fn manifest_part(&self, range: ext::ManifestRange) -> Ext {
        let whole = self.shared.manifest_bytes();
        let from = range.offset as usize;
        let to =
            whole.len().min(from.saturating_add(range.len as usize)).min(from.saturating_add(ext::MAX_CHUNK));
        if from >= to {
            return Ext::ManifestReject(range);
        }
        let total = u32::try_from(whole.len()).unwrap_or(u32::MAX);
        Ext::ManifestData { channel: 0, offset: range.offset, total, bytes: whole.slice(from..to) }
    }

    fn leaves_part(&self, range: ext::LeafRange) -> Ext {
        let leaves = self.shared.settler.leaves(range.piece).unwrap_or_default();
        let first = range.first as usize;
        match leaves.get(first..first.saturating_add(range.count as usize)) {
            Some(hashes) if !hashes.is_empty() && hashes.len() <= ext::MAX_LEAVES => {
                let hashes = hashes.to_vec();
                Ext::Leaves { channel: 0, piece: range.piece, first: range.first, hashes }
            }
            _ => Ext::LeavesReject(range),
        }
    }

    /// Fingerprints of leaves: of the requested pieces, as many complete ones as this node has and one answer
    /// holds.
    async fn fingerprints(&self, range: ext::PieceRange) -> Ext {
        let (shared, reading) = (&self.shared, self.shared.clone());
        let pieces = range.pieces();
        let pieces = pieces.start..pieces.end.min(shared.manifest.piece_count());
        let bytes = shared.fingerprints.of(pieces, move |pieces| fingerprints(&reading, pieces)).await;
        let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else {
            return Ext::FingerprintsReject(range);
        };
        if let Some(throttle) = &shared.throttle {
            throttle.send(bytes.len() as u64).await;
        }
        Ext::Fingerprints { channel: 0, first: range.first, bytes }
    }
}

/// Read from the disk: of the pieces as many whole ones as one answer holds.
fn fingerprints(shared: &Shared, pieces: Range<u32>) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), Vec::new());
    let aligned = shared.manifest.layout().is_aligned();
    for piece in pieces.filter(|_| aligned) {
        let len = shared.manifest.piece_len(piece) as usize;
        if all.len() / FINGERPRINT + len.div_ceil(LEAF) > MAX_FINGERPRINTS {
            break;
        }
        // The source of a draft is there before it is hashed.
        if !(shared.seed_only && shared.roots.is_some() || shared.settler.is_verified(piece)) {
            break;
        }
        buffer.resize(len, 0);
        if shared.store.read_unverified(piece, 0, &mut buffer).is_err() {
            break;
        }
        all.extend(Fingerprint::of_leaves(&buffer).flat_map(Fingerprint::to_bytes));
    }
    all
}
