//! How nodes get certificates by themselves: once by an [`Invitation`](crate::Invitation), then again and again by the key
//! that has one.
//!
//! Promises: an invitation serves one node, however many ask at once and whatever crashes; the node that it served may ask
//! again until it expires, so an answer that was lost costs nothing. A certificate is renewed for the identity that the
//! node has, and not after it was revoked or has expired.

use data_encoding::BASE32_NOPAD;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use serde::{Deserialize, Serialize};
use x509_parser::prelude::{CertificateRevocationList, FromDer};

use super::{CERT_LIFETIME, CRL_LIFETIME, SiteCa, State};
use crate::{EnrolRequest, Error, Identity, NodeId, SwarmId, Token};

/// Most invitations that have not expired.
const MAX_INVITED: usize = 10_000;

/// The authority's record of an invitation.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Invited {
    secret: String,
    identity: String,
    /// When it expires, seconds since 1970.
    expires: u64,
    /// How long the certificates last that follow from it, seconds.
    lifetime: u64,
    /// The node that it has served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<String>,
}

impl Invited {
    pub(super) fn has_expired(&self, now: u64) -> bool {
        now >= self.expires
    }
}

/// The files that a node needs to act for its identity.
#[derive(Clone, Debug)]
pub struct Enrolled {
    /// The host or user.
    pub identity: Identity,
    /// The node's certificate, PEM.
    pub certificate: String,
    /// The site's root certificate, PEM.
    pub root: String,
    /// The revocation list, PEM.
    pub crl: String,
    /// When the certificate expires, seconds since 1970.
    pub not_after: u64,
}

/// Why a node gets no certificate.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// No such invitation, or its time is over.
    #[error("the ticket is unknown or has expired; make another: tidecast ca invite")]
    Unknown,
    /// Another node was faster.
    #[error("the ticket was used by another node; make another: tidecast ca invite")]
    Used,
    /// The request does not prove that the node has the invitation.
    #[error("the request does not prove that this node holds the ticket")]
    Proof,
    /// The node has no certificate to renew.
    #[error(
        "node {0} has no valid certificate of this authority (expired or revoked); join again: tidecast daemon init --join"
    )]
    NotEnrolled(NodeId),
    /// The authority's own trouble.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl SiteCa {
    /// SHA-256 of the root certificate (DER), by which invitations name the site.
    ///
    /// # Errors
    /// The root certificate does not parse.
    pub fn root_hash(&self) -> Result<[u8; 32], Error> {
        root_hash(&self.root_pem).ok_or_else(|| self.damaged("the root certificate does not parse"))
    }

    /// Invites one node to become `identity`, for `patience` seconds; its certificates last `lifetime` seconds each, a
    /// year if that is None.
    ///
    /// # Errors
    /// There are too many invitations, or the state cannot be written.
    pub fn invite(
        &self,
        identity: &Identity,
        patience: u64,
        lifetime: Option<u64>,
        now: u64,
    ) -> Result<Token, Error> {
        let token = Token::generate()?;
        let invited = Invited {
            secret: BASE32_NOPAD.encode(&token.secret.0),
            identity: identity.to_string(),
            expires: now.saturating_add(patience),
            lifetime: lifetime.unwrap_or(CERT_LIFETIME),
            node: None,
        };
        self.change(now, |state| {
            if state.invitations.len() >= MAX_INVITED {
                return Err(Error::TooMany { what: "invitations", limit: MAX_INVITED });
            }
            state.invitations.insert(token.id.to_string(), invited);
            Ok(())
        })?;
        Ok(token)
    }

    /// A certificate for `node`, whose key TLS has proven, by an invitation that names `authority`.
    ///
    /// # Errors
    /// The invitation does not serve this node; the state cannot be written.
    pub fn enrol(
        &self,
        request: &EnrolRequest,
        authority: NodeId,
        node: NodeId,
        now: u64,
    ) -> Result<Enrolled, EnrolError> {
        let site = SwarmId(self.root_hash()?);
        let mut enrolled = None;
        self.change(now, |state| {
            let invited = state.invitations.get_mut(&request.token.to_string()).ok_or(EnrolError::Unknown)?;
            let secret = BASE32_NOPAD.decode(invited.secret.as_bytes()).ok().and_then(|s| s.try_into().ok());
            let secret = secret.ok_or_else(|| self.damaged("an invitation in it is malformed"))?;
            if request.swarm != site || !request.proves(&secret, authority, node) {
                return Err(EnrolError::Proof);
            }
            if invited.node.as_ref().is_some_and(|served| *served != node.to_string()) {
                return Err(EnrolError::Used);
            }
            invited.node = Some(node.to_string());
            let (identity, lifetime) = (invited.identity.clone(), invited.lifetime);
            enrolled = Some(self.certify(state, &identity, lifetime, node, now)?);
            Ok::<_, EnrolError>(())
        })?;
        self.complete(enrolled)
    }

    /// A new certificate for `node`, whose key TLS has proven, for the identity of its present one.
    ///
    /// # Errors
    /// It has no valid one; the state cannot be written.
    pub fn renew(&self, node: NodeId, now: u64) -> Result<Enrolled, EnrolError> {
        let mut enrolled = None;
        self.change(now, |state| {
            let is_valid = |entry: &&super::Entry| {
                entry.node.as_ref() == Some(&node.to_string())
                    && entry.revoked.is_none()
                    && entry.not_after > now
            };
            let newest = state.issued.values().filter(is_valid).max_by_key(|entry| entry.not_after);
            let newest = newest.ok_or(EnrolError::NotEnrolled(node))?;
            let (identity, lifetime) = (newest.identity.clone(), newest.lifetime.unwrap_or(CERT_LIFETIME));
            enrolled = Some(self.certify(state, &identity, lifetime, node, now)?);
            Ok::<_, EnrolError>(())
        })?;
        self.complete(enrolled)
    }

    /// The root certificate and the revocation list, PEM, for every node of the site.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn public(&self) -> Result<(String, String), Error> {
        let path = self.dir.join(Self::CRL);
        let crl =
            std::fs::read_to_string(&path).map_err(|source| Error::File { action: "read", path, source })?;
        Ok((self.root_pem.clone(), crl))
    }

    /// Renews the date of the revocation list when a third of its time is over.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn keep_crl_fresh(&self, now: u64) -> Result<(), Error> {
        let (_, crl) = self.public()?;
        let der = CertificateRevocationListDer::from_pem_slice(crl.as_bytes());
        let dated = der.ok().and_then(|der| {
            let (_, list) = CertificateRevocationList::from_der(&der).ok()?;
            u64::try_from(list.last_update().timestamp()).ok()
        });
        match dated {
            Some(dated) if now < dated.saturating_add(CRL_LIFETIME / 3) => Ok(()),
            _ => self.renew_crl(now),
        }
    }

    /// A certificate, entered into `state`; the revocation list follows when that is written.
    fn certify(
        &self,
        state: &mut State,
        identity: &str,
        lifetime: u64,
        node: NodeId,
        now: u64,
    ) -> Result<Enrolled, EnrolError> {
        let identity: Identity =
            identity.parse().map_err(|_| self.damaged("an identity in it is malformed"))?;
        let (issued, entry) = self.sign(&identity, Some(node), lifetime, now)?;
        state.add(&issued.serial, entry)?;
        let (root, crl) = (self.root_pem.clone(), String::new());
        Ok(Enrolled { identity, certificate: issued.pem, root, crl, not_after: issued.not_after })
    }

    fn complete(&self, enrolled: Option<Enrolled>) -> Result<Enrolled, EnrolError> {
        let enrolled = enrolled.ok_or(EnrolError::Unknown)?;
        Ok(Enrolled { crl: self.public()?.1, ..enrolled })
    }
}

/// SHA-256 of a root certificate in PEM; None if it is not one.
#[must_use]
pub fn root_hash(pem: &str) -> Option<[u8; 32]> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    ring::digest::digest(&ring::digest::SHA256, &der).as_ref().try_into().ok()
}
