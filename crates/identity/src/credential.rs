//! The signed statements of a private swarm, and their bytes: request to enrol, credential, revocations.
//!
//! Promises: decoded statements are canonical (decode then encode gives the same bytes) and bounded; nothing is
//! accepted before its signature or proof is checked; each signed text starts with its own context.

use std::fmt;

use data_encoding::HEXLOWER;
use ring::hmac;

use crate::bytes::Reader;
use crate::{Error, NodeId, NodeKey, Refused, Token, TokenId};

/// Default lifetime of a credential, in seconds: a day.
pub const DEFAULT_LIFETIME: u64 = 24 * 3600;
/// Longest lifetime of a credential, in seconds: a week. A revocation is remembered at least this long.
pub const MAX_LIFETIME: u64 = 7 * 24 * 3600;
/// How far ahead the clock of the owner may be, in seconds.
pub const CLOCK_SKEW: u64 = 300;
/// Most tickets in one revocation list.
pub const MAX_REVOKED: usize = 16_384;

const PROOF: &[u8] = b"tidecast enrol 1\0";
const CREDENTIAL: &[u8] = b"tidecast credential 1\0";
const REVOCATIONS: &[u8] = b"tidecast revocations 1\0";

/// The swarm a credential is for: the manifest's v2 hash, or its v1 hash followed by zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwarmId(pub [u8; 32]);

impl fmt::Display for SwarmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for SwarmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SwarmId({self})")
    }
}

/// "I hold this ticket": number and a proof that only this node, for this swarm and owner, can use. The
/// secret itself is not in it, so a wrong peer that receives it gains nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnrolRequest {
    /// The swarm to join.
    pub swarm: SwarmId,
    /// Number of the ticket.
    pub token: TokenId,
    /// HMAC-SHA256 by the ticket's secret of context, swarm, owner and node.
    pub proof: [u8; 32],
}

impl EnrolRequest {
    /// Encoded length, bytes.
    pub const LEN: usize = 32 + 8 + 32;

    /// The request of node `node`, which holds `token`, to `authority`.
    #[must_use]
    pub fn new(token: &Token, swarm: SwarmId, authority: NodeId, node: NodeId) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &token.secret.0);
        let tag = hmac::sign(&key, &proof_text(swarm, authority, node));
        let mut proof = [0; 32];
        debug_assert_eq!(tag.as_ref().len(), proof.len());
        proof.copy_from_slice(tag.as_ref());
        Self { swarm, token: token.id, proof }
    }

    /// Constant-time check of the proof.
    pub(crate) fn proves(&self, secret: &[u8; 16], authority: NodeId, node: NodeId) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        hmac::verify(&key, &proof_text(self.swarm, authority, node), &self.proof).is_ok()
    }

    /// The bytes to send.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.swarm.0[..], &self.token.0, &self.proof].concat()
    }

    /// # Errors
    /// [`Error::Malformed`] when the length is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(bytes);
        let read =
            || Some(Self { swarm: SwarmId(r.array()?), token: TokenId(r.array()?), proof: r.array()? });
        whole(read, bytes.len() == Self::LEN, "enrolment request")
    }
}

fn whole<T>(read: impl FnOnce() -> Option<T>, fits: bool, what: &'static str) -> Result<T, Error> {
    if fits { read().ok_or(Error::Malformed(what)) } else { Err(Error::Malformed(what)) }
}

fn proof_text(swarm: SwarmId, authority: NodeId, node: NodeId) -> Vec<u8> {
    [PROOF, &swarm.0, &authority.0, &node.0].concat()
}

/// The owner's word that a node may take part in a swarm until a time. Worthless to any other node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// The swarm.
    pub swarm: SwarmId,
    /// The admitted node.
    pub node: NodeId,
    /// The ticket it enrolled with.
    pub token: TokenId,
    /// When it was issued, seconds since 1970.
    pub issued: u64,
    /// When it ends, seconds since 1970.
    pub expires: u64,
    /// The owner's Ed25519 signature.
    pub signature: [u8; 64],
}

impl Credential {
    /// Encoded length, bytes.
    pub const LEN: usize = 32 + 32 + 8 + 8 + 8 + 64;

    /// Lets `node` into `swarm` from `issued` until `expires` (seconds since 1970); `key` is the owner's. For owners
    /// that know their members by other means than tickets.
    #[must_use]
    pub fn issue(
        key: &NodeKey,
        swarm: SwarmId,
        node: NodeId,
        token: TokenId,
        issued: u64,
        expires: u64,
    ) -> Self {
        let mut credential = Self { swarm, node, token, issued, expires, signature: [0; 64] };
        credential.signature = key.sign(&credential.signed_text());
        credential
    }

    /// Checks everything but revocation: the owner's signature, the swarm, the node, and the dates at `now`
    /// (seconds since 1970).
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn verify(&self, authority: NodeId, swarm: SwarmId, node: NodeId, now: u64) -> Result<(), Refused> {
        if self.swarm != swarm {
            return Err(Refused::WrongSwarm);
        }
        if self.node != node {
            return Err(Refused::WrongNode);
        }
        if !authority.verify(&self.signed_text(), &self.signature) {
            return Err(Refused::BadSignature);
        }
        if self.issued > now.saturating_add(CLOCK_SKEW) {
            return Err(Refused::NotYetValid);
        }
        let limit = self.issued.saturating_add(MAX_LIFETIME).min(self.expires);
        if now >= limit { Err(Refused::Expired) } else { Ok(()) }
    }

    fn signed_text(&self) -> Vec<u8> {
        [CREDENTIAL, &self.body()].concat()
    }

    fn body(&self) -> Vec<u8> {
        let dates = [self.issued.to_be_bytes(), self.expires.to_be_bytes()].concat();
        [&self.swarm.0[..], &self.node.0, &self.token.0, &dates].concat()
    }

    /// The bytes to send.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.body()[..], &self.signature].concat()
    }

    /// # Errors
    /// [`Error::Malformed`] when the length is wrong. The signature is not checked here.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(bytes);
        let read = || {
            Some(Self {
                swarm: SwarmId(r.array()?),
                node: NodeId(r.array()?),
                token: TokenId(r.array()?),
                issued: r.u64()?,
                expires: r.u64()?,
                signature: r.array()?,
            })
        };
        whole(read, bytes.len() == Self::LEN, "credential")
    }
}

/// The tickets that the owner has revoked, signed and numbered: of two lists the later is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationList {
    /// Number of the list; grows with every change.
    pub seq: u64,
    /// Revoked tickets, ascending, each once.
    pub tokens: Vec<TokenId>,
    /// The owner's Ed25519 signature.
    pub signature: [u8; 64],
}

impl RevocationList {
    pub(crate) fn issue(key: &NodeKey, seq: u64, mut tokens: Vec<TokenId>) -> Self {
        tokens.sort_unstable();
        tokens.dedup();
        debug_assert!(tokens.len() <= MAX_REVOKED);
        let mut list = Self { seq, tokens, signature: [0; 64] };
        list.signature = key.sign(&[REVOCATIONS, &list.body()].concat());
        list
    }

    /// True when the signature is that of `authority`.
    #[must_use]
    pub fn verify(&self, authority: NodeId) -> bool {
        authority.verify(&[REVOCATIONS, &self.body()].concat(), &self.signature)
    }

    /// True when the list names `token`.
    #[must_use]
    pub fn contains(&self, token: TokenId) -> bool {
        self.tokens.binary_search(&token).is_ok()
    }

    fn body(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(12 + 8 * self.tokens.len());
        out.extend_from_slice(&self.seq.to_be_bytes());
        out.extend_from_slice(&(self.tokens.len() as u32).to_be_bytes());
        self.tokens.iter().for_each(|t| out.extend_from_slice(&t.0));
        out
    }

    /// The bytes to send: at most 76 + 8 × [`MAX_REVOKED`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.body()[..], &self.signature].concat()
    }

    /// # Errors
    /// [`Error::Malformed`] when a length is wrong, the list is over [`MAX_REVOKED`], or not ascending. The
    /// signature is not checked here.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(bytes);
        let read = || {
            let seq = r.u64()?;
            let count = usize::try_from(r.u32()?).ok().filter(|&n| n <= MAX_REVOKED)?;
            let tokens =
                r.slice(8 * count)?.as_chunks::<8>().0.iter().map(|c| TokenId(*c)).collect::<Vec<_>>();
            let signature = r.array()?;
            r.end()?;
            tokens.is_sorted_by(|a, b| a < b).then_some(Self { seq, tokens, signature })
        };
        whole(read, true, "revocation list")
    }
}
