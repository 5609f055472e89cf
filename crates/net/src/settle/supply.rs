//! Whole pieces from a source other than a peer: verified first, then stored like data of peers.

use tidecast_hash::LEAF;
use tidecast_store::Error;
use tidecast_swarm::{Block, PeerId};

use super::table::Admitted;
use super::{Desk, Settler};

/// The sender, for blame: no connection has this number.
const NOBODY: PeerId = PeerId(u32::MAX);

impl Settler {
    /// Stores a piece. False, and nothing is stored, if it does not match the manifest. Parts already on disk, or
    /// being written, stay.
    ///
    /// # Errors
    /// The store's error.
    pub(crate) fn supply(&self, piece: u32, bytes: &[u8]) -> Result<bool, Error> {
        let shared = &self.shared;
        let expected = shared.manifest.expected(piece);
        let mut digests = Vec::new();
        if expected.v2.is_some() {
            digests.resize(bytes.len().div_ceil(LEAF), [0; 32]);
            tidecast_hash::leaves(bytes, &mut digests);
            if !shared.matches(piece, &digests) {
                return Ok(false);
            }
            if shared.table.lacks_leaves(piece) {
                shared.table.know(piece, digests.clone());
            }
        } else if expected.v1 != Some(tidecast_hash::sha1(bytes)) {
            return Ok(false);
        }
        let len = shared.manifest.piece_len(piece);
        let whole = Block { piece, begin: 0, len };
        let parts = match shared.table.admit(NOBODY, whole, len, &digests) {
            Admitted::Write { .. } => vec![(whole, true)],
            Admitted::Partly { parts, .. } => parts,
            Admitted::Duplicate => Vec::new(),
            Admitted::Bad => return Ok(true),
        };
        let mut written = Ok(());
        for (part, _) in parts.into_iter().filter(|(_, fresh)| *fresh) {
            let from = part.begin as usize;
            let data = bytes.get(from..from + part.len as usize).unwrap_or_default();
            written = written.and_then(|()| shared.store.write(piece, part.begin, data));
            match &written {
                Ok(()) => shared.table.stored(part, !digests.is_empty()),
                Err(_) => shared.table.forget(part),
            }
        }
        // No connection has received it: the engine is notified of the piece, not of blocks.
        shared.deliver(&mut Desk { unsaid: Some(piece), ..Desk::default() });
        written.map(|()| true)
    }
}
