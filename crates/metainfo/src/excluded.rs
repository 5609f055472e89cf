//! The record of files that the publisher excluded: outside of the info dictionary, so that it changes no
//! hash.

use crate::Error;
use crate::bencode::{Cursor, Writer};
use crate::parse::fields;

/// Most patterns that are kept, and the longest.
const MAX_PATTERNS: usize = 256;
const MAX_PATTERN: usize = 512;

/// The excluded names. A hint for comparing the tree with its manifest; it is not authenticated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excluded {
    /// Patterns, as `publish --exclude` reads them.
    pub exclude: Vec<String>,
    /// Symbolic links that lead out of the tree.
    pub outside_links: bool,
}

impl Excluded {
    /// Reads the key `tidecast` of a metainfo file. A damaged key or one of another kind is ignored.
    pub(crate) fn read(torrent: &[u8], at: Option<usize>) -> Excluded {
        at.and_then(|at| Self::parse(torrent, at).ok()).unwrap_or_default()
    }

    fn parse(torrent: &[u8], at: usize) -> Result<Excluded, Error> {
        let keys = ["exclude", "outside links"];
        let [exclude, links] = fields(&mut Cursor::at(torrent, at), "tidecast key", keys)?;
        let mut left = Excluded::default();
        if let Some(at) = links {
            left.outside_links = Cursor::at(torrent, at).int()? == 1;
        }
        if let Some(at) = exclude {
            let mut c = Cursor::at(torrent, at);
            c.enter_list()?;
            while c.next_item()? {
                let pattern = std::str::from_utf8(c.bytes()?).ok().filter(|p| p.len() <= MAX_PATTERN);
                left.exclude.extend(pattern.filter(|_| left.exclude.len() < MAX_PATTERNS).map(str::to_owned));
            }
        }
        Ok(left)
    }

    /// Writes the key `tidecast`, unless it would be empty.
    pub(crate) fn write(&self, w: &mut Writer) {
        if *self == Excluded::default() {
            return;
        }
        w.key(b"tidecast").dict(|d| {
            if !self.exclude.is_empty() {
                d.key(b"exclude").list(|l| self.exclude.iter().for_each(|p| l.bytes(p.as_bytes())));
            }
            if self.outside_links {
                d.key(b"outside links").int(1);
            }
        });
    }
}
