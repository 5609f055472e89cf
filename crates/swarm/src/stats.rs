//! Numbers for people and tests; no decision reads them.

use crate::api::PeerId;

/// Totals since the engine was made, and the current state. Bytes unless noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Payload received, whatever its fate.
    pub received: u64,
    /// Payload received that was new and is on disk.
    pub stored: u64,
    /// Payload received that was there already.
    pub duplicate: u64,
    /// Payload received that did not match its hashes.
    pub bad: u64,
    /// Payload sent.
    pub served: u64,
    /// Requested and not yet received.
    pub outstanding: u64,
    /// Received and not yet stored or refused.
    pub unsettled: u64,
    /// Handed to connections and not yet sent.
    pub serving: u64,
    /// Live connections.
    pub peers: usize,
    /// Live connections to peers that have everything.
    pub seeds: usize,
    /// Addresses known.
    pub candidates: usize,
    /// Pieces of the swarm.
    pub pieces: u32,
    /// Pieces verified.
    pub verified: u32,
    /// Pieces wanted and not verified.
    pub wanted_left: u32,
    /// Their bytes.
    pub wanted_left_bytes: u64,
    /// Pieces in flight or awaiting their verdict.
    pub in_flight: usize,
    /// Peers banned.
    pub banned: u64,
}

/// Numbers of one live connection. Bytes unless noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStats {
    /// Which.
    pub peer: PeerId,
    /// Payload received from it.
    pub received: u64,
    /// Payload received from it that was new and is on disk.
    pub stored: u64,
    /// Payload received from it that was there already.
    pub duplicate: u64,
    /// Payload sent to it.
    pub served: u64,
    /// Requested from it and not yet received.
    pub outstanding: u64,
    /// Its request window.
    pub window: u64,
    /// Bytes per second it delivers; 0 when not known.
    pub rate: u64,
    /// Bytes per second it takes; 0 when not known.
    pub upload_rate: u64,
    /// Its requests that wait to be served, in blocks and pieces.
    pub queued: usize,
    /// Pieces it has.
    pub pieces: u32,
    /// It chokes us.
    pub chokes_us: bool,
    /// We choke it.
    pub choked: bool,
    /// It has delivered nothing for longer than its rate explains.
    pub stalled: bool,
}
