//! The manifest from a stock client: the info dictionary by BEP 9, piece layers by BEP 52.

use tidecast_hash::Digest;
use tidecast_metainfo::{Manifest, MissingLayer, merkle};
use tidecast_wire::ext::MAX_MANIFEST;
use tidecast_wire::{HashRange, METADATA_PIECE, Message, Metadata};

use super::Asking;
use crate::error::ConnError;

/// The largest info dictionary taken (stock clients stop at 30 MiB).
const MAX_INFO: u32 = 64 << 20;
/// Messages on other things that are passed over before the answer to a request.
const PATIENCE: usize = 10_000;

impl Asking<'_> {
    /// Introduces this node, where that is still to be done.
    pub(super) async fn greet(&mut self) -> Result<(), ConnError> {
        match self.peer.greeting.take() {
            Some(hello) => self.send(&hello).await,
            None => Ok(()),
        }
    }

    /// The manifest by its info dictionary; piece layers are still missing.
    pub(super) async fn stock(&mut self) -> Result<Manifest, ConnError> {
        self.greet().await?;
        let size = self.size().await?;
        if size == 0 || size > MAX_INFO {
            return Err(ConnError::Protocol("invalid size of the info dictionary"));
        }
        let mut info = Vec::new();
        for piece in 0..size.div_ceil(METADATA_PIECE) {
            self.send(&Message::Metadata(Metadata::Request { piece })).await?;
            let bytes = self.metadata(piece, size).await?;
            info.extend_from_slice(&bytes);
        }
        let manifest = Manifest::from_info(&info, Vec::new());
        let manifest = manifest.map_err(|_| ConnError::Protocol("malformed info dictionary"))?;
        self.check(manifest)
    }

    /// The piece layers that are missing.
    pub(super) async fn layers(&mut self, manifest: &mut Manifest) -> Result<(), ConnError> {
        let missing = manifest.missing_layers();
        // The numbers are the publisher's word; no peer could send the manifest whole.
        let hashes: u64 = missing.iter().map(|missing| u64::from(missing.pieces)).sum();
        if hashes > u64::from(MAX_MANIFEST) / size_of::<Digest>() as u64 {
            return Err(ConnError::Protocol("the manifest has more pieces than it can have hashes"));
        }
        for missing in missing {
            let layer = self.layer(manifest, missing).await?;
            let added = manifest.add_layer(missing.file, &layer);
            added.map_err(|_| ConnError::Protocol("piece layer does not match its root"))?;
        }
        Ok(())
    }

    /// The size that the peer's extension handshake gives.
    async fn size(&mut self) -> Result<u32, ConnError> {
        for _ in 0..PATIENCE {
            if let Message::ExtHandshake(hello) = self.peer.input.message().await? {
                let none = ConnError::Protocol("it offers no metadata");
                return hello.metadata_size.ok_or(none);
            }
        }
        Err(ConnError::Protocol("no extension handshake"))
    }

    async fn metadata(&mut self, want: u32, size: u32) -> Result<bytes::Bytes, ConnError> {
        for _ in 0..PATIENCE {
            match self.peer.input.message().await? {
                Message::Metadata(Metadata::Data { piece, total, bytes })
                    if piece == want && total == size =>
                {
                    return Ok(bytes);
                }
                Message::Metadata(Metadata::Reject { piece }) if piece == want => {
                    return Err(ConnError::Protocol("it rejected the request for metadata"));
                }
                _ => {}
            }
        }
        Err(ConnError::Protocol("no metadata among its messages"))
    }

    /// One file's piece layer, in ranges; the whole is checked against the root by the caller.
    async fn layer(&mut self, manifest: &Manifest, missing: MissingLayer) -> Result<Vec<Digest>, ConnError> {
        let base_layer = merkle::piece_level(manifest.piece_length());
        let length = missing.pieces.next_power_of_two().clamp(2, tidecast_wire::MAX_HASHES);
        let mut layer = Vec::new();
        for index in (0..missing.pieces).step_by(length as usize) {
            let root = missing.pieces_root;
            let range = HashRange { pieces_root: root, base_layer, index, length, proof_layers: 0 };
            self.send(&Message::HashRequest(range)).await?;
            let hashes = self.hashes(range).await?;
            let wanted = (missing.pieces - index).min(length) as usize;
            let part = hashes.get(..wanted).ok_or(ConnError::Protocol("too few hashes"))?;
            layer.extend_from_slice(part);
        }
        Ok(layer)
    }

    async fn hashes(&mut self, range: HashRange) -> Result<Vec<Digest>, ConnError> {
        for _ in 0..PATIENCE {
            match self.peer.input.message().await? {
                Message::Hashes(answer) if answer.range == range => return Ok(answer.hashes),
                Message::HashReject(answer) if answer == range => {
                    return Err(ConnError::Protocol("it rejected the request for hashes"));
                }
                _ => {}
            }
        }
        Err(ConnError::Protocol("no hashes among its messages"))
    }
}
