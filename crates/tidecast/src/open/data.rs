//! Where the bytes of a tree that is read come from.

use super::local::Local;

/// See the head of the file.
pub(super) enum Data {
    /// Peers, and data received from them before.
    Swarm(tidecast_mount::reader::Reader),
    /// A cache of this host's daemon.
    Local(Local),
}
