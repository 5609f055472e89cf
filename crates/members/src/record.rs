//! Records: signed statements of a node, with a sequence number and an expiry.
//!
//! A *holder* record states that the signer holds a cache, a *name* record the meaning of a name (it comes from the name's
//! origin, which the daemon checks by the signer's card). Records of one signer about one subject share a [`Slot`]: the one
//! with the highest sequence wins, for all members and permanently. A withdrawal is a record too (a tombstone): it stays
//! until the record that it cancels has expired.

use tidecast_identity::NodeId;

use crate::Keys;
use tidecast_identity::bytes::{Reader, put_field};

/// Longest origin or name, bytes.
pub const MAX_NAME: usize = 255;
/// Longest ad of a cache, bytes.
pub const MAX_AD: usize = 4096;
/// Longest record, bytes.
pub const MAX_RECORD: usize = 6 << 10;
const CONTEXT: &[u8] = b"tidecast record 1\0";

/// The key of a lookup: a hash of a cache or of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub [u8; 32]);

impl Key {
    /// The key of the holders of a cache.
    #[must_use]
    pub fn holders(cache: &[u8; 32]) -> Self {
        Self(tidecast_hash::sha256(&[b"tidecast holders\0".as_slice(), cache].concat()))
    }

    /// The key of all versions of a name.
    #[must_use]
    pub fn name(origin: &str, name: &str) -> Self {
        let mut text = b"tidecast name\0".to_vec();
        put_field(&mut text, origin.as_bytes());
        put_field(&mut text, name.as_bytes());
        Self(tidecast_hash::sha256(&text))
    }
}

/// The subject and the signer of a record. One record per slot is valid at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Its key for lookups.
    pub key: Key,
    /// The node that signed it.
    pub signer: NodeId,
    /// The version of a name; else 0.
    pub version: u32,
}

/// The statement of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The signer holds this cache.
    Holder {
        /// The hash of the cache.
        cache: [u8; 32],
        /// Whether the copy is complete.
        complete: bool,
    },
    /// The meaning of ORIGIN/NAME@VERSION.
    Name {
        /// The host that created it.
        origin: String,
        /// Its name there.
        name: String,
        /// Its version.
        version: u32,
        /// Hash of the manifest.
        manifest: [u8; 32],
        /// The cache's ad, for matching.
        ad: Vec<u8>,
    },
}

impl Claim {
    /// Its key for lookups.
    #[must_use]
    pub fn key(&self) -> Key {
        match self {
            Self::Holder { cache, .. } => Key::holders(cache),
            Self::Name { origin, name, .. } => Key::name(origin, name),
        }
    }

    fn version(&self) -> u32 {
        match self {
            Self::Holder { .. } => 0,
            Self::Name { version, .. } => *version,
        }
    }

    /// Whether it can be encoded and decoded.
    fn fits(&self) -> bool {
        match self {
            Self::Holder { .. } => true,
            Self::Name { origin, name, ad, .. } => {
                let sound = |s: &str| (1..=MAX_NAME).contains(&s.len());
                sound(origin) && sound(name) && ad.len() <= MAX_AD
            }
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Holder { cache, complete } => {
                out.push(1);
                out.extend(cache);
                out.push(u8::from(*complete));
            }
            Self::Name { origin, name, version, manifest, ad } => {
                out.push(2);
                put_field(out, origin.as_bytes());
                put_field(out, name.as_bytes());
                out.extend(version.to_be_bytes());
                out.extend(manifest);
                put_field(out, ad);
            }
        }
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        let claim = match r.u8()? {
            1 => {
                let cache = r.array()?;
                let complete = match r.u8()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                };
                Self::Holder { cache, complete }
            }
            2 => Self::Name {
                origin: r.text(MAX_NAME)?,
                name: r.text(MAX_NAME)?,
                version: r.u32()?,
                manifest: r.array()?,
                ad: r.field(MAX_AD)?.to_vec(),
            },
            _ => return None,
        };
        claim.fits().then_some(claim)
    }
}

/// A record with a signature, which is valid only if [`Record::is_signed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The node that signed it.
    pub signer: NodeId,
    /// Of two records in a slot, the one with the higher sequence wins.
    pub seq: u64,
    /// When it expires, milliseconds since 1970.
    pub expires: u64,
    /// Whether the signer withdraws the statement.
    pub withdrawn: bool,
    /// The statement.
    pub claim: Claim,
    /// Data that a newer program added: signed, kept and passed on like the rest.
    more: Vec<u8>,
    slot: Slot,
    signature: [u8; 64],
}

impl Record {
    /// Signs a record; `None` if a name or the ad is too long or empty.
    #[must_use]
    pub fn sign(keys: &dyn Keys, claim: Claim, seq: u64, expires: u64, withdrawn: bool) -> Option<Self> {
        let signer = keys.node();
        let slot = Slot { key: claim.key(), signer, version: claim.version() };
        let mut record =
            Self { signer, seq, expires, withdrawn, claim, more: Vec::new(), slot, signature: [0; 64] };
        record.claim.fits().then(|| {
            record.signature = keys.sign(&[CONTEXT, &record.text()].concat());
            record
        })
    }

    /// Whether the signature of its signer is valid.
    #[must_use]
    pub fn is_signed(&self, keys: &dyn Keys) -> bool {
        keys.verify(self.signer, &[CONTEXT, &self.text()].concat(), &self.signature)
    }

    /// Its slot.
    #[must_use]
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// A short identifier of this record, for acknowledgements.
    pub(crate) fn tag(&self) -> u64 {
        self.signature.iter().take(8).fold(0, |all, b| all << 8 | u64::from(*b))
    }

    /// Whether this record wins over `other` of the same slot.
    pub(crate) fn supersedes(&self, other: &Self) -> bool {
        // If a signer uses a sequence twice, a withdrawal wins, else all members choose the same record.
        let order = |r: &Self| (r.seq, r.withdrawn, r.signature);
        order(self) > order(other)
    }

    fn text(&self) -> Vec<u8> {
        let mut out = self.signer.0.to_vec();
        out.extend(self.seq.to_be_bytes());
        out.extend(self.expires.to_be_bytes());
        out.push(u8::from(self.withdrawn));
        self.claim.put(&mut out);
        out.extend(&self.more);
        out
    }

    /// Encodes the record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.text();
        out.extend(self.signature);
        out
    }

    /// Decodes a record; its signature is not checked.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_RECORD {
            return None;
        }
        let mut r = Reader::new(bytes);
        let (signer, seq, expires) = (NodeId(r.array()?), r.u64()?, r.u64()?);
        let withdrawn = match r.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let claim = Claim::read(&mut r)?;
        let (more, signature) = r.slice(r.left())?.split_last_chunk()?;
        let (more, signature) = (more.to_vec(), *signature);
        let slot = Slot { key: claim.key(), signer, version: claim.version() };
        Some(Self { signer, seq, expires, withdrawn, claim, more, slot, signature })
    }
}
