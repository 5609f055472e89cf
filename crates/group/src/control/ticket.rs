//! The group ticket, with which a worker finds and authenticates its coordinator.

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;

use data_encoding::{BASE32_NOPAD, BASE32_NOPAD_NOCASE};
use serde::{Deserialize, Serialize};
use tidecast_identity::NodeId;

/// The first characters of a ticket.
pub(crate) const PREFIX: &str = "tidegroup1";
/// Longest ticket, in characters.
const MAX_CHARS: usize = 4096;
/// Longest path in a ticket.
const MAX_PATH: usize = 1024;
/// Maximum number of addresses of a coordinator.
pub(crate) const MAX_ADDRS: usize = 32;

/// Proves that a worker was started by this coordinator. `Debug` hides it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Token([u8; 32]);

impl Token {
    pub(crate) fn random() -> Self {
        Self(rand::random())
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

/// A group ticket. `Display` writes it, `FromStr` reads it; it is a secret for as long as the broadcast runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupTicket {
    coordinator: [u8; 32],
    pub(crate) token: Token,
    pub(crate) addresses: Vec<SocketAddr>,
    /// The source to look for, if workers that see it may serve it.
    pub(crate) source: Option<SourceStat>,
}

/// The source as seen by a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceStat {
    pub(crate) path: Vec<u8>,
    len: u64,
    mtime: (i64, i64),
}

impl SourceStat {
    /// `None` if its metadata cannot be read, or its path is too long for a ticket.
    pub(crate) fn new(path: &Path) -> Option<Self> {
        let path = std::fs::canonicalize(path).ok()?;
        let (meta, path) = (std::fs::metadata(&path).ok()?, path.into_os_string().into_vec());
        (path.len() <= MAX_PATH).then(|| Self {
            path,
            len: meta.len(),
            mtime: (meta.mtime(), meta.mtime_nsec()),
        })
    }

    /// Whether the file or directory at `path` has the same length and time.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        Self::new(path).is_some_and(|found| (found.len, found.mtime) == (self.len, self.mtime))
    }
}

impl GroupTicket {
    pub(crate) fn new(
        coordinator: NodeId,
        token: Token,
        mut addresses: Vec<SocketAddr>,
        source: Option<SourceStat>,
    ) -> Self {
        addresses.truncate(MAX_ADDRS);
        Self { coordinator: coordinator.0, token, addresses, source }
    }

    pub(crate) fn coordinator(&self) -> NodeId {
        NodeId(self.coordinator)
    }
}

/// A text that is not a group ticket, or a damaged one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a ticket of a broadcast")]
pub struct NoTicket;

impl fmt::Display for GroupTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = postcard::to_stdvec(self).map_err(|_| fmt::Error)?;
        write!(f, "{PREFIX}{}", BASE32_NOPAD.encode(&bytes).to_ascii_lowercase())
    }
}

impl FromStr for GroupTicket {
    type Err = NoTicket;

    fn from_str(text: &str) -> Result<Self, NoTicket> {
        let text = text.trim();
        let body = text.strip_prefix(PREFIX).filter(|_| text.len() <= MAX_CHARS).ok_or(NoTicket)?;
        let bytes = BASE32_NOPAD_NOCASE.decode(body.as_bytes()).map_err(|_| NoTicket)?;
        match postcard::take_from_bytes::<Self>(&bytes) {
            Ok((ticket, [])) if ticket.addresses.len() <= MAX_ADDRS => Ok(ticket),
            _ => Err(NoTicket),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn ticket() -> GroupTicket {
        let addresses = vec!["10.0.0.1:5".parse().unwrap(), "[fd00::1]:6".parse().unwrap()];
        GroupTicket::new(NodeId([7; 32]), Token([9; 32]), addresses, None)
    }

    #[test]
    fn what_is_written_is_read() {
        let again: GroupTicket = format!(" {}\n", ticket()).parse().unwrap();
        assert_eq!(again.coordinator(), NodeId([7; 32]));
        assert_eq!(again.token.bytes(), &[9; 32]);
        assert_eq!(again.addresses, ticket().addresses);
        assert!(!format!("{:?}", ticket()).contains("9, 9"), "the secret is not shown");
    }

    #[test]
    fn most_tickets_are_short() {
        assert!(ticket().to_string().len() < 250, "{}", ticket().to_string().len());
    }

    #[test]
    fn a_source_is_known_again_by_its_length_and_time() {
        let dir = tempfile::tempdir().unwrap();
        let (here, other) = (dir.path().join("here"), dir.path().join("other"));
        std::fs::write(&here, "one").unwrap();
        let source = SourceStat::new(&here).unwrap();
        assert!(source.is_at(&here) && !source.is_at(&other));
        std::fs::write(&other, "two and more").unwrap();
        assert!(!source.is_at(&other));
        let long =
            GroupTicket { source: Some(SourceStat { path: vec![b'x'; MAX_PATH], ..source }), ..ticket() };
        assert!(long.to_string().parse::<GroupTicket>().is_ok(), "the longest path has room");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(tidegroup1)?[a-z2-7]{0,80}", cut in 0usize..100) {
            let _ = text.parse::<GroupTicket>();
            let mut whole = ticket().to_string();
            whole.truncate(whole.len().saturating_sub(cut + 1));
            prop_assert!(whole.parse::<GroupTicket>().is_err());
        }
    }
}
