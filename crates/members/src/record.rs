//! Records: what a node says in its own name, signed, numbered and with an end.
//!
//! A *holder* record says that the signer holds a cache, a *name* record what a name means (and comes from its origin:
//! whether the signer is that, its card says, not this crate). Records about one thing by one signer share a
//! [`Slot`]: of them the one with the highest sequence holds, for everybody and for good. A withdrawal is a record
//! like the others (a tombstone): it stays until whatever it cancels has run out.

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

/// What records are looked up by: a hash of a cache or of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub [u8; 32]);

impl Key {
    /// Of the holders of a cache.
    #[must_use]
    pub fn holders(cache: &[u8; 32]) -> Self {
        Self(tidecast_hash::sha256(&[b"tidecast holders\0".as_slice(), cache].concat()))
    }

    /// Of all versions of a name.
    #[must_use]
    pub fn name(origin: &str, name: &str) -> Self {
        let mut text = b"tidecast name\0".to_vec();
        put_field(&mut text, origin.as_bytes());
        put_field(&mut text, name.as_bytes());
        Self(tidecast_hash::sha256(&text))
    }
}

/// What a record is about, and by whom. One holds at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// What it is looked up by.
    pub key: Key,
    /// Who has signed it.
    pub signer: NodeId,
    /// Of a name: which version. Else 0.
    pub version: u32,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The signer holds this cache.
    Holder {
        /// Which: a hash that the daemons agree on.
        cache: [u8; 32],
        /// All of it, or a part so far.
        complete: bool,
    },
    /// ORIGIN/NAME@VERSION is this.
    Name {
        /// The host that made it.
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
    /// What it is looked up by.
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

    /// True when it can be written and read back.
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

/// A signed record. What is in it was said by its signer only if [`Record::is_signed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Who says it.
    pub signer: NodeId,
    /// Of two in a slot, the one with the higher sequence holds.
    pub seq: u64,
    /// Until when, milliseconds since 1970.
    pub expires: u64,
    /// True: the signer takes it back.
    pub withdrawn: bool,
    /// What it says.
    pub claim: Claim,
    /// What a newer program says besides: signed, kept and passed on like the rest.
    more: Vec<u8>,
    slot: Slot,
    signature: [u8; 64],
}

impl Record {
    /// Says it; none if a name or the ad is too long or empty.
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

    /// True when its signer has said it.
    #[must_use]
    pub fn is_signed(&self, keys: &dyn Keys) -> bool {
        keys.verify(self.signer, &[CONTEXT, &self.text()].concat(), &self.signature)
    }

    /// What it is about.
    #[must_use]
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// A short name of exactly this record, for acknowledging it.
    pub(crate) fn tag(&self) -> u64 {
        self.signature.iter().take(8).fold(0, |all, b| all << 8 | u64::from(*b))
    }

    /// True when this one holds and `other`, of the same slot, does not.
    pub(crate) fn beats(&self, other: &Self) -> bool {
        // One signer, one sequence, two records: a withdrawal holds, else everybody chooses the same.
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

    /// The record as it travels.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.text();
        out.extend(self.signature);
        out
    }

    /// Reads a record; its signature is not looked at.
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
