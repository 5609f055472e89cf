//! The record of a cache, and its format.
//!
//! Records are JSON: an older program reads a newer one's records, and keeps unknown fields (`other`) when it writes a
//! record again. Times are seconds since 1970.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::Error;

/// Number of a cache in this store; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CacheId(pub u64);

impl fmt::Display for CacheId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for CacheId {
    type Err = std::num::ParseIntError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(s, 16).map(CacheId)
    }
}

/// Bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Bytes of disk.
    pub bytes: u64,
    /// Files, directories and links.
    pub inodes: u64,
}

impl Size {
    /// Nothing.
    pub const ZERO: Size = Size { bytes: 0, inodes: 0 };

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Size) -> Size {
        Size {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }

    /// The remaining size, not below zero.
    #[must_use]
    pub fn minus(self, other: Size) -> Size {
        Size {
            bytes: self.bytes.saturating_sub(other.bytes),
            inodes: self.inodes.saturating_sub(other.inodes),
        }
    }

    /// The larger of each.
    #[must_use]
    pub fn max(self, other: Size) -> Size {
        Size { bytes: self.bytes.max(other.bytes), inodes: self.inodes.max(other.inodes) }
    }

    /// Whether it fits into `room`, by bytes and by inodes.
    #[must_use]
    pub fn fits(self, room: Size) -> bool {
        self.bytes <= room.bytes && self.inodes <= room.inodes
    }
}

/// The state of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum State {
    /// Declared; without data, or with an interrupted upload.
    Uncommitted,
    /// Bytes are coming.
    Uploading,
    /// All there, verified, never to change.
    Committed,
    /// Damaged, or more came than was declared. Never handed out.
    Invalid,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Uncommitted => "UNCOMMITTED",
            State::Uploading => "UPLOADING",
            State::Committed => "COMMITTED",
            State::Invalid => "INVALID",
        })
    }
}

/// The local user and group among the readers of a cache, where the store serves all users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Local {
    /// User id.
    pub uid: u32,
    /// Group id; [`Local::NO_GROUP`] if this host has no group of that name.
    pub gid: u32,
}

impl Local {
    /// The number that no group has.
    pub const NO_GROUP: u32 = u32::MAX;
}

/// Parameters of [`crate::Depot::declare`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declare {
    /// Host that made the cache.
    pub origin: String,
    /// Its name there.
    pub name: String,
    /// Its version; `None` at the origin, which numbers them at the commit.
    pub version: Option<u64>,
    /// The owner.
    pub owner: String,
    /// Group of its readers.
    pub group: Option<String>,
    /// Permission to read: of 0o444, the bits for owner, group and others. The owner always may.
    pub mode: u32,
    /// It leaves the host only by a direct, authenticated stream (kept for the caller).
    pub private: bool,
    /// Lease wanted, seconds from now.
    pub lease: Option<u64>,
    /// Most that will come.
    pub size: Size,
    /// The local user and group among its readers.
    pub local: Option<Local>,
    /// The caller's own: kept, never interpreted.
    pub attributes: BTreeMap<String, Value>,
}

/// A cache, as it is written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheRecord {
    /// Its number.
    pub id: CacheId,
    /// Host that made it.
    pub origin: String,
    /// Its name there.
    pub name: String,
    /// Its version; `None` until the commit at the origin.
    #[serde(default)]
    pub version: Option<u64>,
    /// The owner.
    pub owner: String,
    /// Group of its readers.
    #[serde(default)]
    pub group: Option<String>,
    /// Bits of 0o444.
    pub mode: u32,
    /// Leaves the host by a direct stream only.
    #[serde(default)]
    pub private: bool,
    /// Its state.
    pub state: State,
    /// Why it is INVALID.
    #[serde(default)]
    pub reason: Option<String>,
    /// It is damaged: it gives no right to its objects, and its owner is not charged for them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
    /// Info-hash (v2) of its manifest.
    #[serde(default, with = "hex_option")]
    pub content: Option<[u8; 32]>,
    /// Name of the published file or directory: the one entry of its view.
    #[serde(default, with = "hex_bytes")]
    pub top: Vec<u8>,
    /// Most that may come.
    pub declared: Size,
    /// The space that it would occupy alone: distinct objects, directories, manifest.
    #[serde(default)]
    pub size: Size,
    /// The part of `size` that no other cache can share.
    #[serde(default)]
    pub own: Size,
    /// Files and symbolic links in it.
    #[serde(default)]
    pub files: u64,
    /// Bytes in its files, each counted.
    #[serde(default)]
    pub bytes: u64,
    /// When it was declared.
    pub created: u64,
    /// When it was committed.
    #[serde(default)]
    pub committed: Option<u64>,
    /// When it was last handed out or used. After a crash, at most a sweep too early.
    pub last_used: u64,
    /// When its lease ends.
    pub lease_until: u64,
    /// Never evicted.
    #[serde(default)]
    pub pinned: bool,
    /// Local owner of the view.
    #[serde(default)]
    pub local: Option<Local>,
    /// The caller's own.
    #[serde(default)]
    pub attributes: BTreeMap<String, Value>,
    /// Fields of a newer program.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

impl CacheRecord {
    /// Whether `reader` may read it.
    #[must_use]
    pub fn readable_by(&self, reader: &Reader) -> bool {
        reader.all
            || reader.owner == self.owner
            || self.mode & 0o004 != 0
            || self.mode & 0o040 != 0 && self.group.as_ref().is_some_and(|g| reader.groups.contains(g))
    }

    /// ORIGIN/NAME@VERSION; without a version, ORIGIN/NAME.
    #[must_use]
    pub fn full_name(&self) -> String {
        match self.version {
            Some(v) => format!("{}/{}@{v}", self.origin, self.name),
            None => format!("{}/{}", self.origin, self.name),
        }
    }

    /// Whether its lease has expired.
    #[must_use]
    pub fn expired(&self, now: u64) -> bool {
        !self.pinned && self.lease_until <= now
    }

    /// All there and good.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        self.state == State::Committed
    }
}

/// The user on whose behalf a request is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reader {
    /// The owner it acts as.
    pub owner: String,
    /// The groups it is in.
    pub groups: Vec<String>,
    /// May read everything: the host's administrator.
    pub all: bool,
}

impl Reader {
    /// A reader without groups.
    #[must_use]
    pub fn owner(owner: &str) -> Self {
        Reader { owner: owner.to_owned(), ..Reader::default() }
    }
}

/// Filter of caches; `None` matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this host.
    pub origin: Option<String>,
    /// Of this name.
    pub name: Option<String>,
    /// Of this owner.
    pub owner: Option<String>,
    /// In this state.
    pub state: Option<State>,
    /// Readable by.
    pub reader: Option<Reader>,
}

impl Filter {
    /// Whether a cache is asked for.
    #[must_use]
    pub fn matches(&self, r: &CacheRecord) -> bool {
        self.origin.as_ref().is_none_or(|o| *o == r.origin)
            && self.name.as_ref().is_none_or(|n| *n == r.name)
            && self.owner.as_ref().is_none_or(|o| *o == r.owner)
            && self.state.is_none_or(|s| s == r.state)
            && self.reader.as_ref().is_none_or(|who| r.readable_by(who))
    }
}

/// One version of a name, whether it is still here or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// The version.
    pub version: u64,
    /// Info-hash (v2) of its manifest.
    #[serde(with = "hex_option")]
    pub content: Option<[u8; 32]>,
    /// The owner.
    pub owner: String,
    /// Bytes in its files.
    pub bytes: u64,
    /// Files and links.
    pub files: u64,
    /// When it was committed here.
    pub committed: u64,
    /// When it left this store.
    #[serde(default)]
    pub removed: Option<u64>,
    /// Fields of a newer program.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// Checks the name of a user or a group: those of directory services have more letters (`alice@site.org`, `SITE\alice`).
pub(crate) fn check_account(name: &str) -> Result<(), Error> {
    check_name(&name.replace('@', "."))
}

/// Checks a part of a name: one component of a path, printable, without the marks of a cache's name.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let why = match name {
        "" => "the name is empty",
        "." | ".." => "the name must not leave its directory",
        _ if name.len() > 255 => "the name is longer than 255 bytes",
        _ if name.contains(['/', '@']) => "`/` and `@` separate the parts of a cache's name",
        _ if name.chars().any(char::is_control) => "the name contains control characters",
        _ => return Ok(()),
    };
    Err(Error::Name { name: name.chars().take(64).flat_map(char::escape_default).collect(), why })
}

mod hex_bytes {
    use super::*;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&HEXLOWER.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(d)?;
        HEXLOWER.decode(text.as_bytes()).map_err(serde::de::Error::custom)
    }
}

mod hex_option {
    use super::*;

    pub(super) fn serialize<S: Serializer>(hash: &Option<[u8; 32]>, s: S) -> Result<S::Ok, S::Error> {
        hash.map(|h| HEXLOWER.encode(&h)).serialize(s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<[u8; 32]>, D::Error> {
        let Some(text) = Option::<String>::deserialize(d)? else {
            return Ok(None);
        };
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(serde::de::Error::custom)?;
        bytes.try_into().map(Some).map_err(|_| serde::de::Error::custom("a hash must have 32 bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_newer_program_wrote_is_kept() {
        let text = r#"{"id":7,"origin":"o","name":"n","owner":"a","mode":256,"state":"COMMITTED",
            "declared":{"bytes":1,"inodes":2},"created":1,"last_used":2,"lease_until":3,"colour":{"x":[1]}}"#;
        let record: CacheRecord = serde_json::from_str(text).unwrap();
        let again: Value = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        assert_eq!(again["colour"]["x"][0], 1);
        assert_eq!(again["state"], "COMMITTED");
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for bad in ["", ".", "..", "a/b", "a@1", "a\n", "\u{1b}[2J", &"x".repeat(256)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        check_name("ähre-1.2_x").unwrap();
        for fine in ["alice@site.org", "SITE\\john smith", "12345", "domain users@site.org", "host$"] {
            check_account(fine).unwrap();
        }
        for bad in ["", "a/b", "a\n", "..", &"x".repeat(256)] {
            assert!(check_account(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn owner_group_and_others_read_by_the_mode() {
        let text = r#"{"id":7,"origin":"o","name":"n","owner":"a","group":"g","mode":288,"state":"COMMITTED",
            "declared":{"bytes":1,"inodes":2},"created":1,"last_used":2,"lease_until":3}"#;
        let r: CacheRecord = serde_json::from_str(text).unwrap();
        assert!(r.readable_by(&Reader::owner("a")));
        assert!(!r.readable_by(&Reader::owner("b")));
        assert!(r.readable_by(&Reader { owner: "b".into(), groups: vec!["g".into()], all: false }));
        assert!(r.readable_by(&Reader { all: true, ..Reader::default() }));
    }
}
