//! The ticket: one string with the manifest id, the addresses, and the right to join.
//!
//! `tidecast1` + base32 of a versioned binary + four bytes of checksum. Reading ignores white space and case,
//! bounds everything, and reports the defect; `Debug` never shows the secret.
//!
//! Layout (integers big-endian): version 1 · flags (bit 0 plain, 1 private, 2 v2 id) · manifest id (32 or 20
//! bytes) · if private: authority (32), token id (8), secret (16) · name length (1) and name · address count
//! (1), then each: 4 or 6, address (4 or 16), port (2) · first 4 bytes of SHA-256 of all before.
//!
//! Version 2 is of private tickets with terms: after the secret come expiry (8, seconds since 1970, 0: none) and uses
//! (4, 0: no limit). A ticket without terms is written as version 1, which every Tidecast reads.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use ring::rand::SecureRandom;

use crate::bytes::{Reader, put_address};
use crate::{Error, NodeId, SwarmId, TicketError, armour};

const PREFIX: &str = "tidecast1";
/// Without terms, and with.
const VERSIONS: [u8; 2] = [1, 2];
const PLAIN: u8 = 1;
const PRIVATE: u8 = 2;
const V2: u8 = 4;

/// Most addresses in a ticket; more are left out when it is written.
pub const MAX_ADDRS: usize = 16;
/// Longest name in a ticket, in bytes.
pub const MAX_NAME: usize = 255;
/// Most nodes that a ticket with a limit lets in.
pub const MAX_USES: u32 = 10_000;
/// Longest ticket, in characters, white space not counted.
pub const MAX_TICKET_CHARS: usize = 2048;

/// The manifest of the ticket: its v2 hash, or its v1 hash if it has no other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ManifestId {
    /// SHA-1 of the info dictionary (BEP 3).
    V1([u8; 20]),
    /// SHA-256 of the info dictionary (BEP 52).
    V2([u8; 32]),
}

impl ManifestId {
    /// The swarm that credentials are issued for.
    #[must_use]
    pub fn swarm(&self) -> SwarmId {
        match self {
            Self::V2(hash) => SwarmId(*hash),
            Self::V1(hash) => {
                let mut id = [0; 32];
                id[..20].copy_from_slice(hash);
                SwarmId(id)
            }
        }
    }

    /// The hash alone, 20 or 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::V1(hash) => hash,
            Self::V2(hash) => hash,
        }
    }
}

impl fmt::Display for ManifestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(self.as_bytes()))
    }
}

impl fmt::Debug for ManifestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if matches!(self, Self::V1(_)) { "V1" } else { "V2" };
        write!(f, "{kind}({self})")
    }
}

/// Public number of a ticket: names it in logs, credentials and revocations. Written in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub [u8; 8]);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenId({self})")
    }
}

impl FromStr for TokenId {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self, Error> {
        let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(s.as_bytes()).ok();
        bytes
            .and_then(|b| b.try_into().ok())
            .map(Self)
            .ok_or_else(|| Error::UnknownTicket(s.chars().take(80).collect()))
    }
}

/// 128 secret bits; `Debug` hides them, and they are compared only by the proof made with them.
#[derive(Clone)]
pub struct Secret(pub [u8; 16]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// The right to enrol: number and secret.
#[derive(Clone, Debug)]
pub struct Token {
    /// Public number.
    pub id: TokenId,
    /// The secret that proves possession of the ticket.
    pub secret: Secret,
}

impl Token {
    /// A fresh random token.
    ///
    /// # Errors
    /// [`Error::Random`] when the system's random generator fails.
    pub fn generate() -> Result<Self, Error> {
        let (mut id, mut secret) = ([0; 8], [0; 16]);
        let random = ring::rand::SystemRandom::new();
        random.fill(&mut id).and_then(|()| random.fill(&mut secret)).map_err(|_| Error::Random)?;
        Ok(Self { id: TokenId(id), secret: Secret(secret) })
    }
}

/// For how long and for how many a ticket is good. The owner of the swarm enforces it, by its own clock; the ticket
/// states it for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// When it ends, seconds since 1970.
    pub expires: Option<u64>,
    /// How many nodes may enrol with it, at most [`MAX_USES`]; one that enrols again is counted once.
    pub uses: Option<u32>,
}

impl Terms {
    fn is_none(self) -> bool {
        self == Self::default()
    }
}

impl From<Option<u64>> for Terms {
    fn from(expires: Option<u64>) -> Self {
        Self { expires, uses: None }
    }
}

/// The right to join.
#[derive(Clone, Debug)]
pub enum Access {
    /// Anyone: ordinary BitTorrent.
    Open,
    /// Nodes that enrol with the owner.
    Private {
        /// The owner of the swarm, which issues credentials.
        authority: NodeId,
        /// The right to enrol.
        token: Token,
    },
}

/// A ticket. `Display` writes it, `FromStr` reads it.
#[derive(Clone, Debug)]
pub struct Ticket {
    /// The manifest.
    pub manifest: ManifestId,
    /// The publisher states that an open swarm without encryption is meant: no notice is needed.
    pub plain: bool,
    /// The right to join.
    pub access: Access,
    /// For how long and for how many; only of private swarms.
    pub terms: Terms,
    /// Name of the published file or directory, for people; at most [`MAX_NAME`] bytes.
    pub name: Option<String>,
    /// Where the owner or other first holders listen; at most [`MAX_ADDRS`].
    pub addrs: Vec<SocketAddr>,
}

impl Ticket {
    /// Number of the ticket, if it is one for a private swarm.
    #[must_use]
    pub fn token_id(&self) -> Option<TokenId> {
        match &self.access {
            Access::Open => None,
            Access::Private { token, .. } => Some(token.id),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut flags = if self.plain { PLAIN } else { 0 };
        if matches!(self.manifest, ManifestId::V2(_)) {
            flags |= V2;
        }
        if matches!(self.access, Access::Private { .. }) {
            flags |= PRIVATE;
        }
        let [plain, with_terms] = VERSIONS;
        let has_terms = flags & PRIVATE != 0 && !self.terms.is_none();
        let mut out = vec![if has_terms { with_terms } else { plain }, flags];
        out.extend_from_slice(self.manifest.as_bytes());
        if let Access::Private { authority, token } = &self.access {
            out.extend_from_slice(&authority.0);
            out.extend_from_slice(&token.id.0);
            out.extend_from_slice(&token.secret.0);
        }
        if has_terms {
            out.extend_from_slice(&self.terms.expires.unwrap_or(0).to_be_bytes());
            out.extend_from_slice(&self.terms.uses.unwrap_or(0).to_be_bytes());
        }
        let name = cut(self.name.as_deref().unwrap_or(""), MAX_NAME);
        out.push(name.len() as u8);
        out.extend_from_slice(name.as_bytes());
        let addrs = self.addrs.get(..MAX_ADDRS).unwrap_or(&self.addrs);
        out.push(addrs.len() as u8);
        addrs.iter().for_each(|addr| put_address(&mut out, *addr));
        out
    }

    fn decode(body: &[u8]) -> Result<Self, TicketError> {
        let mut r = Reader::new(body);
        let version = r.u8().ok_or(TicketError::Content("no content"))?;
        let [_, with_terms] = VERSIONS;
        if !VERSIONS.contains(&version) {
            return Err(TicketError::Version(version));
        }
        Self::decode_body(&mut r, version == with_terms)
    }

    fn decode_body(r: &mut Reader<'_>, has_terms: bool) -> Result<Self, TicketError> {
        let short = || TicketError::Content("a field is missing");
        let flags = r.u8().ok_or_else(short)?;
        if flags & !(PLAIN | PRIVATE | V2) != 0 {
            return Err(TicketError::Content("unknown flags"));
        }
        let manifest = if flags & V2 != 0 {
            ManifestId::V2(r.array().ok_or_else(short)?)
        } else {
            ManifestId::V1(r.array().ok_or_else(short)?)
        };
        let access = if flags & PRIVATE != 0 {
            let authority = NodeId(r.array().ok_or_else(short)?);
            let id = TokenId(r.array().ok_or_else(short)?);
            let secret = Secret(r.array().ok_or_else(short)?);
            Access::Private { authority, token: Token { id, secret } }
        } else {
            Access::Open
        };
        let terms = if has_terms {
            terms(r, flags).ok_or(TicketError::Content("malformed terms"))?
        } else {
            Terms::default()
        };
        let len = r.u8().ok_or_else(short)?;
        let name = std::str::from_utf8(r.slice(len.into()).ok_or_else(short)?)
            .map_err(|_| TicketError::Content("the name is not UTF-8"))?;
        if name.chars().any(char::is_control) {
            return Err(TicketError::Content("the name contains control characters"));
        }
        let count = usize::from(r.u8().ok_or_else(short)?);
        if count > MAX_ADDRS {
            return Err(TicketError::Content("too many addresses"));
        }
        let addrs = (0..count).map(|_| r.address()).collect::<Option<Vec<_>>>();
        let addrs = addrs.ok_or(TicketError::Content("malformed address"))?;
        r.end().ok_or(TicketError::Content("extra bytes at the end"))?;
        let name = (!name.is_empty()).then(|| name.to_owned());
        Ok(Self { manifest, plain: flags & PLAIN != 0, access, terms, name, addrs })
    }
}

/// There is one way to write each: version 2 is for private tickets that have terms.
fn terms(r: &mut Reader<'_>, flags: u8) -> Option<Terms> {
    let (expires, uses) = (r.u64()?, r.u32()?);
    let terms = Terms { expires: (expires > 0).then_some(expires), uses: (uses > 0).then_some(uses) };
    (flags & PRIVATE != 0 && !terms.is_none() && uses <= MAX_USES).then_some(terms)
}

/// The longest start of `s` that fits `max` bytes.
fn cut(s: &str, max: usize) -> &str {
    let mut end = s.len().min(max);
    while !s.is_char_boundary(end) {
        end -= 1;
    }
    &s[..end]
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&armour::write(PREFIX, self.encode()))
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(s: &str) -> Result<Self, TicketError> {
        Self::decode(&armour::read(PREFIX, s, MAX_TICKET_CHARS)?)
    }
}
