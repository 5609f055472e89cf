//! A node's card: "the holder of this certificate speaks as node N until T".
//!
//! It joins the two things that a daemon has: its own key, which TLS proves, and a certificate of the site's CA,
//! which names the host or user that it acts for. The certificate's key signs the node's name; so a certificate of
//! any kind, on any key, is sufficient, and TLS between nodes needs no change. [`crate::Trust`] verifies cards.
//!
//! Bytes: version 1; node, 32; not before and not after, seconds, 8 each; number of certificates, 1, and each with
//! its length, 2; signature scheme (as in TLS), 2, and the signature with its length, 2. Promises: decoding is
//! bounded, rejects everything else, and a decoded card encodes to the same bytes.

use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::SignatureScheme;
use rustls::crypto::ring as provider;
use rustls::sign::SigningKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use webpki::EndEntityCert;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::bytes::Reader;
use crate::date::utc;
use crate::{Error, NodeId, NodeKey};

/// Longest card, bytes. In base64 it is part of a daemon's first message, of which 16 KiB are read before proof.
pub const MAX_CARD: usize = 8 << 10;
/// Most certificates in a card: the node's and three of its issuers. The root is not among them.
const MAX_CHAIN: usize = 4;
/// Longest certificate, and all of a card together.
const MAX_CERT: usize = 6 << 10;
/// A signature by RSA of 8192 bits.
const MAX_SIGNATURE: usize = 1024;
const VERSION: u8 = 1;
const CONTEXT: &[u8] = b"tidecast card 1\0";

/// The signatures that count, best first.
const SCHEMES: [SignatureScheme; 6] = [
    SignatureScheme::ED25519,
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
];

/// Why a card is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CardError {
    /// Not the bytes of a card.
    #[error("malformed card")]
    Malformed,
    /// More certificates than are verified.
    #[error("certificate chain too long")]
    ChainTooLong,
    /// It names another node than the one that TLS has proven.
    #[error("the card belongs to another node")]
    WrongNode,
    /// The card, or a certificate of it, has run out.
    #[error("certificate has expired (valid until {}; the verifier's clock shows {})", utc(*.end), utc(*.now))]
    Expired {
        /// When it ended, seconds since 1970.
        end: u64,
        /// The verifier's clock.
        now: u64,
    },
    /// The card, or a certificate of it, begins later.
    #[error("certificate is not valid before {} (the verifier's clock shows {})", utc(*.start), utc(*.now))]
    NotYetValid {
        /// When it begins, seconds since 1970.
        start: u64,
        /// The verifier's clock.
        now: u64,
    },
    /// No trusted root has signed it.
    #[error("certificate was issued by an untrusted CA")]
    UnknownIssuer,
    /// A certificate of it was revoked.
    #[error("certificate or a certificate of its chain was revoked")]
    Revoked,
    /// The list of revoked certificates is out of date, and the site wants it fresh.
    #[error("revocation list of the issuer is out of date")]
    StaleList,
    /// The certificate's key has not signed the card.
    #[error("the card was not signed with the key of its certificate")]
    BadSignature,
    /// The certificate may not be used to sign.
    #[error("certificate does not allow client authentication (key usage)")]
    KeyUsage,
    /// The certificate is valid, but names no known identity.
    #[error("certificate identifies no host or user ({0})")]
    NoIdentity(String),
    /// Something else is wrong with a certificate.
    #[error("invalid certificate: {0}")]
    Certificate(String),
}

/// A card. It proves nothing until [`crate::Trust::verify`] accepts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The node.
    pub node: NodeId,
    /// From when, seconds since 1970.
    pub not_before: u64,
    /// Until when, seconds since 1970.
    pub not_after: u64,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    scheme: u16,
    signature: Vec<u8>,
}

impl Card {
    /// Reads a card.
    ///
    /// # Errors
    /// [`CardError::Malformed`] or [`CardError::ChainTooLong`].
    pub fn decode(bytes: &[u8]) -> Result<Self, CardError> {
        if bytes.len() > MAX_CARD {
            return Err(CardError::Malformed);
        }
        let mut r = Reader::new(bytes);
        let head = |r: &mut Reader<'_>| {
            let version = r.u8()?;
            (version == VERSION).then_some((NodeId(r.array()?), r.u64()?, r.u64()?, r.u8()?))
        };
        let (node, not_before, not_after, count) = head(&mut r).ok_or(CardError::Malformed)?;
        if usize::from(count) > MAX_CHAIN {
            return Err(CardError::ChainTooLong);
        }
        let mut rest = || {
            let mut chain = Vec::new();
            for _ in 0..count {
                chain.push(CertificateDer::from(field(&mut r, MAX_CERT)?));
            }
            let (scheme, signature) = (r.u16()?, field(&mut r, MAX_SIGNATURE)?);
            r.end()?;
            let sound = !chain.is_empty() && not_before < not_after;
            sound.then_some(Self { node, not_before, not_after, chain, scheme, signature })
        };
        rest().ok_or(CardError::Malformed)
    }

    /// The bytes of the card.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend(self.node.0);
        out.extend(self.not_before.to_be_bytes());
        out.extend(self.not_after.to_be_bytes());
        // The lengths fit: no card is made or decoded with longer parts.
        out.push(self.chain.len() as u8);
        let mut put = |bytes: &[u8]| {
            out.extend((bytes.len() as u16).to_be_bytes());
            out.extend(bytes);
        };
        self.chain.iter().for_each(|cert| put(cert));
        out.extend(self.scheme.to_be_bytes());
        out.extend((self.signature.len() as u16).to_be_bytes());
        out.extend(&self.signature);
        out
    }

    /// Name of the card: SHA-256 of its bytes.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        let mut out = [0; 32];
        out.copy_from_slice(digest(&SHA256, &self.encode()).as_ref());
        out
    }

    /// True when the key of the first certificate has signed this.
    pub(crate) fn is_signed(&self) -> bool {
        let Some(leaf) = self.chain.first() else { return false };
        let scheme = SignatureScheme::from(self.scheme);
        let algorithms = provider::default_provider().signature_verification_algorithms;
        let algorithms = algorithms.mapping.iter().find(|(s, _)| *s == scheme && SCHEMES.contains(s));
        let (Some((_, algorithms)), Ok(cert)) = (algorithms, EndEntityCert::try_from(leaf)) else {
            return false;
        };
        let text = text(self.node, self.not_before, self.not_after, leaf);
        algorithms.iter().any(|a| cert.verify_signature(*a, &text, &self.signature).is_ok())
    }
}

fn field(r: &mut Reader<'_>, most: usize) -> Option<Vec<u8>> {
    let len = usize::from(r.u16()?);
    (len <= most).then(|| r.slice(len)).flatten().map(<[u8]>::to_vec)
}

/// The signed bytes. They include the certificate: a key with two certificates must not stand for both.
fn text(node: NodeId, not_before: u64, not_after: u64, leaf: &CertificateDer<'_>) -> Vec<u8> {
    let mut text = CONTEXT.to_vec();
    text.extend(node.0);
    text.extend(not_before.to_be_bytes());
    text.extend(not_after.to_be_bytes());
    text.extend(digest(&SHA256, leaf).as_ref());
    text
}

/// A certificate with its key, which can make cards.
#[derive(Debug)]
pub struct Holder {
    chain: Vec<CertificateDer<'static>>,
    key: Arc<dyn SigningKey>,
}

impl Holder {
    /// From PEM: certificates, the holder's own first, and its key; without one, `node`'s key is taken.
    ///
    /// # Errors
    /// [`Error::Trust`] if the text holds no certificate, too many or too long ones, or a key that is not supported.
    pub fn from_pem(pem: &[u8], node: &NodeKey) -> Result<Self, Error> {
        let bad = |why: &str| Error::Trust(why.to_owned());
        let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|e| Error::Trust(format!("not PEM: {e}")))?;
        if chain.is_empty()
            || chain.len() > MAX_CHAIN
            || chain.iter().map(|c| c.len()).sum::<usize>() > MAX_CERT
        {
            return Err(bad("expected one to four certificates, of at most 6 KiB together"));
        }
        let key = match PrivateKeyDer::from_pem_slice(pem) {
            Ok(key) => key,
            Err(rustls_pki_types::pem::Error::NoItemsFound) => node.private_der(),
            Err(_) => return Err(bad("cannot parse the private key; it must not be encrypted")),
        };
        let key =
            provider::sign::any_supported_type(&key).map_err(|_| bad("unsupported type of private key"))?;
        Ok(Self { chain, key })
    }

    /// From when until when all its certificates are good, seconds since 1970.
    ///
    /// # Errors
    /// [`Error::Trust`] if one does not parse.
    pub fn validity(&self) -> Result<(u64, u64), Error> {
        let (mut from, mut until) = (0, u64::MAX);
        for cert in &self.chain {
            let (_, cert) = X509Certificate::from_der(cert).map_err(|e| Error::Trust(e.to_string()))?;
            let seconds = |t: i64| u64::try_from(t).unwrap_or(0);
            from = from.max(seconds(cert.validity().not_before.timestamp()));
            until = until.min(seconds(cert.validity().not_after.timestamp()));
        }
        Ok((from, until))
    }

    /// A card for `node`, from now on for `lifetime` seconds.
    ///
    /// # Errors
    /// [`Error::Trust`] if the key cannot sign, or is not that of the certificate.
    pub fn card(&self, node: NodeId, now: u64, lifetime: u64) -> Result<Card, Error> {
        let unfit = |_| Error::Trust("the private key cannot sign".into());
        let [leaf, ..] = self.chain.as_slice() else { return Err(Error::Trust("no certificate".into())) };
        let signer = self.key.choose_scheme(&SCHEMES);
        let signer = signer.ok_or_else(|| Error::Trust("the private key cannot sign cards".into()))?;
        let (not_before, not_after) = (now, now.saturating_add(lifetime.max(1)));
        let signature = signer.sign(&text(node, not_before, not_after, leaf)).map_err(unfit)?;
        let (chain, scheme) = (self.chain.clone(), signer.scheme().into());
        let card = Card { node, not_before, not_after, chain, scheme, signature };
        if !card.is_signed() {
            return Err(Error::Trust("the private key does not belong to the certificate".into()));
        }
        Ok(card)
    }
}
