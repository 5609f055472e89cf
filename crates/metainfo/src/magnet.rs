//! Magnet links of BitTorrent (BEP 9, BEP 52's `btmh`, and the files that BEP 53's `so` selects).
//!
//! Promise: reading is bounded and never panics; a link written by [`Magnet`] reads back the same.

use data_encoding::{BASE32_NOPAD_NOCASE, HEXLOWER, HEXLOWER_PERMISSIVE};
use std::fmt::{self, Write};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Longest link that is read, in bytes.
const MAX_LEN: usize = 64 << 10;
/// Most trackers, and most peers, that are kept.
const MAX_ITEMS: usize = 200;
/// Most ranges of selected files.
const MAX_RANGES: usize = 10_000;
/// Multihash prefix of SHA2-256: code 0x12, 0x20 bytes.
const SHA2_256: &str = "1220";

/// A magnet link.
///
/// ```
/// # use tidecast_metainfo::Magnet;
/// let link = "magnet:?xt=urn:btih:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa&dn=a%20file";
/// let magnet: Magnet = link.parse()?;
/// assert_eq!(magnet.v1, Some([0xaa; 20]));
/// assert_eq!(magnet.name.as_deref(), Some("a file"));
/// assert_eq!(magnet.to_string(), link);
/// # Ok::<(), tidecast_metainfo::MagnetError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Magnet {
    /// v1 info-hash (`xt=urn:btih:`, hexadecimal or base32).
    pub v1: Option<[u8; 20]>,
    /// v2 info-hash (`xt=urn:btmh:1220`).
    pub v2: Option<[u8; 32]>,
    /// Name to show (`dn`).
    pub name: Option<String>,
    /// Tracker URLs (`tr`).
    pub trackers: Vec<String>,
    /// Peers, `host:port` (`x.pe`).
    pub peers: Vec<String>,
    /// Files, by their numbers in the manifest's list ([`Manifest::listed`](crate::Manifest::listed)); empty for all (`so`).
    pub select: Vec<RangeInclusive<u32>>,
    /// Web seeds, URLs (`ws`).
    pub web_seeds: Vec<String>,
}

/// Why a magnet link cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MagnetError {
    /// It does not start with `magnet:?`.
    #[error("not a magnet link: it must start with `magnet:?`")]
    Scheme,
    /// It is longer than any real link.
    #[error("the magnet link has {0} bytes; the limit is {MAX_LEN}")]
    TooLong(usize),
    /// No `xt` that BitTorrent knows.
    #[error("the magnet link names no torrent; it needs xt=urn:btih:… or xt=urn:btmh:1220…")]
    NoHash,
    /// An info-hash that is not valid.
    #[error(
        "invalid info-hash `{0}` in the magnet link: btih needs 40 hexadecimal or 32 base32 \
         digits, btmh 1220 and 64 hexadecimal digits"
    )]
    Hash(String),
    /// A `%` that is not followed by two hexadecimal digits, or bytes that are not UTF-8.
    #[error("the magnet link has a malformed escape in `{0}`")]
    Escape(String),
    /// A selection of files that is not valid.
    #[error(
        "invalid file selection `so={0}` in the magnet link; write numbers and ranges with commas (so=0,2,4-6)"
    )]
    Select(String),
    /// Two different hashes of one kind.
    #[error("the magnet link names two different torrents")]
    TwoHashes,
}

impl FromStr for Magnet {
    type Err = MagnetError;

    fn from_str(link: &str) -> Result<Self, MagnetError> {
        if link.len() > MAX_LEN {
            return Err(MagnetError::TooLong(link.len()));
        }
        let scheme = link.get(..8).filter(|s| s.eq_ignore_ascii_case("magnet:?"));
        let query = scheme.and_then(|_| link.get(8..));
        let mut magnet = Magnet::default();
        for pair in query.ok_or(MagnetError::Scheme)?.split('&') {
            let Some((key, value)) = pair.split_once('=') else {
                continue;
            };
            // Parameters may be numbered: xt.1, tr.2.
            let key = match key.rsplit_once('.') {
                Some((stem, n)) if n.bytes().all(|b| b.is_ascii_digit()) => stem,
                _ => key,
            };
            match key {
                "xt" => magnet.add_hash(&unescape(value)?)?,
                "dn" => magnet.name = Some(unescape(&value.replace('+', " "))?),
                "tr" if magnet.trackers.len() < MAX_ITEMS => magnet.trackers.push(unescape(value)?),
                "so" => select(&unescape(value)?, &mut magnet.select)?,
                "x.pe" if magnet.peers.len() < MAX_ITEMS => magnet.peers.push(unescape(value)?),
                "ws" if magnet.web_seeds.len() < MAX_ITEMS => magnet.web_seeds.push(unescape(value)?),
                _ => {}
            }
        }
        if magnet.v1.is_none() && magnet.v2.is_none() {
            return Err(MagnetError::NoHash);
        }
        Ok(magnet)
    }
}

impl Magnet {
    fn add_hash(&mut self, urn: &str) -> Result<(), MagnetError> {
        let bad = || MagnetError::Hash(urn.chars().take(100).collect());
        if let Some(text) = strip_prefix(urn, "urn:btih:") {
            let bytes = match text.len() {
                40 => HEXLOWER_PERMISSIVE.decode(text.as_bytes()),
                32 => BASE32_NOPAD_NOCASE.decode(text.as_bytes()),
                _ => return Err(bad()),
            };
            let hash = bytes.ok().and_then(|b| b.try_into().ok()).ok_or_else(bad)?;
            set(&mut self.v1, hash)
        } else if let Some(text) = strip_prefix(urn, "urn:btmh:") {
            let hex = text.strip_prefix(SHA2_256).ok_or_else(bad)?;
            let bytes = HEXLOWER_PERMISSIVE.decode(hex.as_bytes());
            let hash = bytes.ok().and_then(|b| b.try_into().ok()).ok_or_else(bad)?;
            set(&mut self.v2, hash)
        } else {
            // Other kinds of links share the scheme.
            Ok(())
        }
    }

    /// The 20-byte swarm ids: the v1 hash, then the truncated v2 one.
    pub fn swarm_hashes(&self) -> Vec<[u8; 20]> {
        let short = self.v2.as_ref().and_then(|hash| hash.first_chunk().copied());
        self.v1.into_iter().chain(short).collect()
    }
}

/// Reads a list of numbers and ranges. Empty items are ignored, as by other clients.
fn select(text: &str, all: &mut Vec<RangeInclusive<u32>>) -> Result<(), MagnetError> {
    let bad = || MagnetError::Select(text.chars().take(100).collect());
    let number = |digits: &str| {
        let plain = digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse::<u32>().ok().filter(|_| plain).ok_or_else(bad)
    };
    let before = all.len();
    for item in text.split(',').filter(|item| !item.is_empty()) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let range = number(first)?..=number(last)?;
        if range.is_empty() || all.len() >= MAX_RANGES {
            return Err(bad());
        }
        all.push(range);
    }
    if all.len() == before { Err(bad()) } else { Ok(()) }
}

fn set<T: PartialEq>(slot: &mut Option<T>, hash: T) -> Result<(), MagnetError> {
    match slot {
        Some(other) if *other != hash => Err(MagnetError::TwoHashes),
        _ => {
            *slot = Some(hash);
            Ok(())
        }
    }
}

fn strip_prefix<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| text.get(prefix.len()..))?
}

fn unescape(text: &str) -> Result<String, MagnetError> {
    let bad = || MagnetError::Escape(text.chars().take(100).collect());
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let (hex, tail) = rest.split_at_checked(2).ok_or_else(bad)?;
        out.extend(HEXLOWER_PERMISSIVE.decode(hex).map_err(|_| bad())?);
        rest = tail;
    }
    String::from_utf8(out).map_err(|_| bad())
}

/// Writes characters that RFC 3986 allows unescaped as they are, the rest as `%XX`.
fn escape(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                f.write_char(byte.into())?;
            }
            _ => write!(f, "%{byte:02X}")?,
        }
    }
    Ok(())
}

impl fmt::Display for Magnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("magnet:?")?;
        let mut first = true;
        let mut pair = |f: &mut fmt::Formatter<'_>, key: &str| {
            let join = if std::mem::take(&mut first) { "" } else { "&" };
            write!(f, "{join}{key}=")
        };
        if let Some(hash) = &self.v1 {
            pair(f, "xt")?;
            write!(f, "urn:btih:{}", HEXLOWER.encode(hash))?;
        }
        if let Some(hash) = &self.v2 {
            pair(f, "xt")?;
            write!(f, "urn:btmh:{SHA2_256}{}", HEXLOWER.encode(hash))?;
        }
        let lists = [("tr", &self.trackers), ("ws", &self.web_seeds), ("x.pe", &self.peers)];
        let lists = lists.map(|(key, values)| (key, values.as_slice()));
        for (key, values) in [("dn", self.name.as_slice())].into_iter().chain(lists) {
            for value in values {
                pair(f, key)?;
                escape(f, value)?;
            }
        }
        if !self.select.is_empty() {
            pair(f, "so")?;
        }
        for (i, range) in self.select.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{comma}{first}")?,
                (first, last) => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}
