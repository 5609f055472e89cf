//! The kind of handshake that has worked with a peer before.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use parking_lot::Mutex;

use crate::handshake::HandshakeKind;

/// Addresses of which it is remembered how to begin.
const MAX_MSE_PEERS: usize = 16_384;

/// Addresses of peers that require encryption: MSE has worked with them.
#[derive(Debug, Default)]
pub(crate) struct HandshakeKinds(Mutex<BTreeSet<SocketAddr>>);

impl HandshakeKinds {
    /// How to begin with a peer, and how else.
    pub(crate) fn of(&self, addr: SocketAddr) -> [HandshakeKind; 2] {
        match self.0.lock().contains(&addr) {
            true => [HandshakeKind::Mse, HandshakeKind::Direct],
            false => [HandshakeKind::Direct, HandshakeKind::Mse],
        }
    }

    pub(crate) fn worked(&self, addr: SocketAddr, kind: HandshakeKind) {
        let mut demanding = self.0.lock();
        match kind {
            HandshakeKind::Direct => {
                demanding.remove(&addr);
            }
            HandshakeKind::Mse if demanding.len() < MAX_MSE_PEERS => {
                demanding.insert(addr);
            }
            HandshakeKind::Mse => {}
        }
    }
}
