//! Magnet links of BitTorrent (BEP 9, and BEP 52's `btmh`).

/// A magnet link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Magnet {
    /// v1 info-hash (`xt=urn:btih:`).
    pub v1: Option<[u8; 20]>,
    /// v2 info-hash (`xt=urn:btmh:1220`).
    pub v2: Option<[u8; 32]>,
    /// Name to show (`dn`).
    pub name: Option<String>,
    /// Tracker URLs (`tr`).
    pub trackers: Vec<String>,
    /// Peers, `host:port` (`x.pe`).
    pub peers: Vec<String>,
}

/// Why a magnet link cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MagnetError {
    /// It does not start with `magnet:?`.
    #[error("not a magnet link: it must start with `magnet:?`")]
    Scheme,
}
