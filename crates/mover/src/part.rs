//! A part: the tag of a stretch of a block's payload, or of an entry that has none, and the codec of the table of parts.
//!
//! Each part contains all that is needed to write it, so any block can be written alone. In the table a part
//! is stored as the difference to the part before: the rest of its path, and its owner if it differs. Numbers
//! are LEB128.
//!
//! Promise: parts returned by [`Parts`] are safe to apply: paths are relative, without `.`, `..`, empty
//! components or NUL; stretches lie within their file and their block. Everything else is an error, without
//! panic or large allocation.

use std::sync::Arc;

use tidecast_hash::Digest;

use crate::entry::{Entry, Kind, Owner, Time};

/// Most payload of one block, and the size at whose multiples files are cut (bytes): 4 MiB, as in section 5 of the paper.
pub const BLOCK: usize = 4 << 20;
/// Longest path or link's target (bytes).
pub const MAX_PATH: usize = 4096;
/// Most bytes of one extended attribute: the kernel's limit.
const MAX_XATTR: usize = 65_536;
/// Most extended attributes of one entry.
pub(crate) const MAX_XATTRS: usize = 1024;
/// Longest name of a user or group.
const MAX_NAME: usize = 256;

/// One part of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Number of the entry in this session: parts of one file have one number.
    pub file: u64,
    /// The entry, with its attributes.
    pub entry: Entry,
    /// Which of its bytes.
    pub data: Data,
}

/// The bytes of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Data {
    /// None: the entry is not a file.
    #[default]
    None,
    /// None: does the receiver have this file already?
    Ask {
        /// Its content, for comparison.
        root: Option<Digest>,
    },
    /// The next bytes of the payload.
    Bytes {
        /// Where in the file; a multiple of [`BLOCK`].
        offset: u64,
        /// How many; fewer than [`BLOCK`] only at the end of the file.
        len: u32,
        /// Of a file no longer than [`BLOCK`] its root, else the root of 256 leaves.
        digest: Digest,
        /// The root of the whole file, in that part of a longer file that was read last.
        root: Option<Digest>,
    },
    /// Zeros that are not sent.
    Hole {
        /// Where in the file; a multiple of [`BLOCK`].
        offset: u64,
        /// How many; a multiple of [`BLOCK`] but at the end of the file.
        len: u64,
        /// As in [`Data::Bytes`]; always there for a file that is one hole and no longer than [`BLOCK`].
        root: Option<Digest>,
    },
    /// None, of a directory whose contents are not sent: its contents at the receiver stay.
    Apart,
    /// None: are these the bytes that the receiver has there since an interrupted copy?
    Same {
        /// As in [`Data::Bytes`].
        offset: u64,
        /// As in [`Data::Bytes`].
        len: u32,
        /// As in [`Data::Bytes`].
        digest: Digest,
        /// As in [`Data::Bytes`].
        root: Option<Digest>,
    },
}

impl Data {
    /// The root of its file, if it tells it.
    pub(crate) fn root(&self) -> Option<Digest> {
        match self {
            Self::None | Self::Apart => None,
            Self::Ask { root }
            | Self::Bytes { root, .. }
            | Self::Hole { root, .. }
            | Self::Same { root, .. } => *root,
        }
    }

    /// Bytes of payload.
    #[must_use]
    pub fn payload(&self) -> usize {
        match self {
            Self::Bytes { len, .. } => *len as usize,
            _ => 0,
        }
    }
}

/// The defect of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged table of parts: {0}")]
pub struct BadTable(&'static str);

type Result<T> = std::result::Result<T, BadTable>;

/// Writes a table of parts.
#[derive(Debug, Default)]
pub struct TableWriter {
    bytes: Vec<u8>,
    path: Vec<u8>,
    owner: Option<Owner>,
}

impl TableWriter {
    /// Begins a table, in a buffer that is used again.
    #[must_use]
    pub fn new(mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        Self { bytes: buffer, path: Vec::new(), owner: None }
    }

    /// Bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The table.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// Adds a part.
    pub fn push(&mut self, file: u64, entry: &Entry, data: &Data) {
        let same_owner = self.owner.as_ref() == Some(&entry.attributes.owner);
        let xattrs = &entry.attributes.xattrs;
        let flags = kind_code(&entry.kind) | u8::from(same_owner) << 4 | u8::from(xattrs.is_some()) << 5;
        self.bytes.push(flags);
        self.number(file);
        let shared = self.path.iter().zip(&entry.path).take_while(|(a, b)| a == b).count();
        self.number(shared as u64);
        self.text(&entry.path[shared..]);
        self.path.truncate(shared);
        self.path.extend_from_slice(&entry.path[shared..]);
        self.number(u64::from(entry.attributes.mode));
        self.number(zigzag(entry.attributes.mtime.seconds));
        self.number(u64::from(entry.attributes.mtime.nanos));
        if !same_owner {
            let owner = &entry.attributes.owner;
            self.number(u64::from(owner.uid));
            self.number(u64::from(owner.gid));
            self.text(owner.user.as_bytes());
            self.text(owner.group.as_bytes());
            self.owner = Some(owner.clone());
        }
        if let Some(xattrs) = xattrs {
            self.number(xattrs.len() as u64);
            for (name, value) in xattrs {
                self.text(name);
                self.text(value);
            }
        }
        self.kind(&entry.kind);
        self.data(data);
    }

    fn kind(&mut self, kind: &Kind) {
        match kind {
            Kind::File { len, .. } => self.number(*len),
            Kind::Symlink { target: path } | Kind::HardLink { to: path } => self.text(path),
            Kind::Device { number, .. } => self.number(*number),
            Kind::Dir | Kind::Fifo | Kind::Socket => {}
        }
    }

    fn data(&mut self, data: &Data) {
        let (code, root) = match data {
            Data::None => (0, None),
            Data::Apart => (5, None),
            Data::Ask { root } => (1, root.as_ref()),
            Data::Bytes { root, .. } => (2, root.as_ref()),
            Data::Hole { root, .. } => (3, root.as_ref()),
            Data::Same { root, .. } => (4, root.as_ref()),
        };
        self.bytes.push(code | u8::from(root.is_some()) << 4);
        match data {
            Data::Bytes { offset, len, digest, .. } | Data::Same { offset, len, digest, .. } => {
                self.number(*offset);
                self.number(u64::from(*len));
                self.bytes.extend_from_slice(digest);
            }
            Data::Hole { offset, len, .. } => {
                self.number(*offset);
                self.number(*len);
            }
            Data::None | Data::Apart | Data::Ask { .. } => {}
        }
        self.bytes.extend(root.into_iter().flatten());
    }

    fn number(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.bytes.push(n as u8);
    }

    fn text(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }
}

/// Reads a table of parts, one after another into one [`Part`].
#[derive(Debug)]
pub struct Parts<'t> {
    rest: &'t [u8],
    /// Bytes of payload that no part has claimed yet.
    payload: usize,
    first: bool,
}

impl<'t> Parts<'t> {
    /// The table of a block with this many bytes of payload.
    #[must_use]
    pub fn new(table: &'t [u8], payload: usize) -> Self {
        Self { rest: table, payload, first: true }
    }

    /// The next part takes the place of `part`, which must be the one before; false at the end.
    ///
    /// # Errors
    /// When the table is not as [`TableWriter`] writes them.
    pub fn next(&mut self, part: &mut Part) -> Result<bool> {
        if self.rest.is_empty() {
            return if self.payload == 0 { Ok(false) } else { Err(BadTable("payload without a part")) };
        }
        if self.first {
            part.entry.path.clear();
        }
        let flags = self.byte()?;
        part.file = self.number()?;
        self.path(&mut part.entry.path)?;
        let attributes = &mut part.entry.attributes;
        attributes.mode = self.small("mode out of range", 0o7777)?;
        attributes.mtime = Time {
            seconds: unzigzag(self.number()?),
            nanos: self.small("nanoseconds out of range", 999_999_999)?,
        };
        if flags & 1 << 4 == 0 {
            attributes.owner = self.owner()?;
        } else if self.first {
            return Err(BadTable("first part without an owner"));
        }
        attributes.xattrs = None;
        if flags & 1 << 5 != 0 {
            let xattrs = attributes.xattrs.insert(Vec::new());
            let count = self.small("too many extended attributes", MAX_XATTRS as u32)?;
            for _ in 0..count {
                let (name, value) = (self.text(255)?.to_vec(), self.text(MAX_XATTR)?.to_vec());
                xattrs.push((name, value));
            }
        }
        part.entry.kind = self.kind(flags & 0xf)?;
        part.data = self.data(&part.entry)?;
        self.first = false;
        Ok(true)
    }

    fn path(&mut self, path: &mut Vec<u8>) -> Result<()> {
        let shared = self.small("shared path prefix out of range", MAX_PATH as u32)? as usize;
        let rest = self.text(MAX_PATH)?;
        if shared > path.len() || shared + rest.len() > MAX_PATH {
            return Err(BadTable("path too long"));
        }
        path.truncate(shared);
        path.extend_from_slice(rest);
        if is_safe(path) { Ok(()) } else { Err(BadTable("path may lead outside of the destination")) }
    }

    fn owner(&mut self) -> Result<Owner> {
        let (uid, gid) =
            (self.small("user out of range", u32::MAX)?, self.small("group out of range", u32::MAX)?);
        Ok(Owner { uid, gid, user: self.name()?, group: self.name()? })
    }

    fn name(&mut self) -> Result<Arc<str>> {
        let text = std::str::from_utf8(self.text(MAX_NAME)?).map_err(|_| BadTable("name is not UTF-8"))?;
        Ok(text.into())
    }

    fn kind(&mut self, code: u8) -> Result<Kind> {
        Ok(match code {
            0 => Kind::Dir,
            1 | 2 => Kind::File { len: self.length()?, sparse: code == 2 },
            3 => Kind::Symlink { target: self.link()? },
            4 => {
                let to = self.link()?;
                if !is_safe(&to) || to.is_empty() {
                    return Err(BadTable("hard link to a path outside of the copy"));
                }
                Kind::HardLink { to }
            }
            5 => Kind::Fifo,
            8 => Kind::Socket,
            6 | 7 => Kind::Device { character: code == 7, number: self.number()? },
            _ => return Err(BadTable("unknown kind of entry")),
        })
    }

    fn link(&mut self) -> Result<Vec<u8>> {
        let target = self.text(MAX_PATH)?;
        if target.contains(&0) { Err(BadTable("link target contains a NUL")) } else { Ok(target.to_vec()) }
    }

    fn data(&mut self, entry: &Entry) -> Result<Data> {
        let code = self.byte()?;
        let rooted = code & 1 << 4 != 0;
        let is_file = matches!(entry.kind, Kind::File { .. });
        let data = match code & 0xf {
            0 => Data::None,
            5 if entry.kind == Kind::Dir => Data::Apart,
            1 => Data::Ask { root: self.root(rooted)? },
            2 => {
                let (offset, len) = (self.number()?, self.small("length out of range", BLOCK as u32)?);
                let digest = self.digest()?;
                self.payload =
                    self.payload.checked_sub(len as usize).ok_or(BadTable("part longer than the payload"))?;
                self.stretch(entry, offset, u64::from(len))?;
                Data::Bytes { offset, len, digest, root: self.root(rooted)? }
            }
            3 => {
                let (offset, len) = (self.number()?, self.number()?);
                self.stretch(entry, offset, len)?;
                Data::Hole { offset, len, root: self.root(rooted)? }
            }
            4 => {
                let (offset, len) = (self.number()?, self.small("length out of range", BLOCK as u32)?);
                let digest = self.digest()?;
                self.stretch(entry, offset, u64::from(len))?;
                Data::Same { offset, len, digest, root: self.root(rooted)? }
            }
            _ => return Err(BadTable("unknown kind of data")),
        };
        if is_file == matches!(data, Data::None | Data::Apart) {
            Err(BadTable("data does not match the kind of its entry"))
        } else {
            Ok(data)
        }
    }

    /// Stretches begin at multiples of a block and reach to the next, or to the end of the file.
    fn stretch(&self, entry: &Entry, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= entry.len());
        let aligned = |n: u64| n.is_multiple_of(BLOCK as u64);
        match end {
            Some(end)
                if aligned(offset)
                    && (end == entry.len() || aligned(len))
                    && (len > 0 || entry.is_empty()) =>
            {
                Ok(())
            }
            _ => Err(BadTable("stretch does not fit its file")),
        }
    }

    fn root(&mut self, there: bool) -> Result<Option<Digest>> {
        there.then(|| self.digest()).transpose()
    }

    fn digest(&mut self) -> Result<Digest> {
        let (digest, rest) = self.rest.split_first_chunk::<32>().ok_or(CUT)?;
        self.rest = rest;
        Ok(*digest)
    }

    fn byte(&mut self) -> Result<u8> {
        let (byte, rest) = self.rest.split_first().ok_or(CUT)?;
        self.rest = rest;
        Ok(*byte)
    }

    fn number(&mut self) -> Result<u64> {
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            n |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(n);
            }
        }
        Err(BadTable("number of more than 64 bits"))
    }

    /// A length of a file: no file system has longer ones.
    fn length(&mut self) -> Result<u64> {
        let len = self.number()?;
        if i64::try_from(len).is_ok() { Ok(len) } else { Err(BadTable("length out of range")) }
    }

    fn small(&mut self, what: &'static str, most: u32) -> Result<u32> {
        let n = self.number()?;
        u32::try_from(n).ok().filter(|n| *n <= most).ok_or(BadTable(what))
    }

    fn text(&mut self, most: usize) -> Result<&'t [u8]> {
        let len = self.number()?;
        let len = usize::try_from(len).ok().filter(|len| *len <= most).ok_or(BadTable("text too long"))?;
        let (text, rest) = self.rest.split_at_checked(len).ok_or(CUT)?;
        self.rest = rest;
        Ok(text)
    }
}

const CUT: BadTable = BadTable("table ends too early");

/// Whether a path is one below the destination, or the destination itself (empty).
#[must_use]
pub fn is_safe(path: &[u8]) -> bool {
    path.is_empty()
        || (path.len() <= MAX_PATH
            && !path.contains(&0)
            && path
                .split(|b| *b == b'/')
                .all(|name| !matches!(name, b"" | b"." | b"..") && name.len() <= 255))
}

fn kind_code(kind: &Kind) -> u8 {
    match kind {
        Kind::Dir => 0,
        Kind::File { sparse, .. } => 1 + u8::from(*sparse),
        Kind::Symlink { .. } => 3,
        Kind::HardLink { .. } => 4,
        Kind::Fifo => 5,
        Kind::Socket => 8,
        Kind::Device { character, .. } => 6 + u8::from(*character),
    }
}

fn zigzag(n: i64) -> u64 {
    (n as u64) << 1 ^ (n >> 63) as u64
}

fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

#[cfg(test)]
#[path = "part_tests.rs"]
mod tests;
