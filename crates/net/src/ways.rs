//! The kind of handshake that has worked with a peer before.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use parking_lot::Mutex;

use crate::handshake::Way;

/// Addresses of which it is remembered how to begin.
const MAX_WAYS: usize = 16_384;

/// Addresses of peers that require encryption: MSE has worked with them.
#[derive(Debug, Default)]
pub(crate) struct Ways(Mutex<BTreeSet<SocketAddr>>);

impl Ways {
    /// How to begin with a peer, and how else.
    pub(crate) fn of(&self, addr: SocketAddr) -> [Way; 2] {
        match self.0.lock().contains(&addr) {
            true => [Way::Mse, Way::Direct],
            false => [Way::Direct, Way::Mse],
        }
    }

    pub(crate) fn worked(&self, addr: SocketAddr, way: Way) {
        let mut demanding = self.0.lock();
        match way {
            Way::Direct => {
                demanding.remove(&addr);
            }
            Way::Mse if demanding.len() < MAX_WAYS => {
                demanding.insert(addr);
            }
            Way::Mse => {}
        }
    }
}
