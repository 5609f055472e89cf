//! The nodes that may join the swarm, and the protection of its connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};
use rustls::pki_types::CertificateDer;
use tidecast_identity::ssl_torrent::SslTorrent;
use tidecast_identity::{
    Authority, Credential, EnrolRequest, Gate, NodeId, Refused, RevocationList, SwarmId, Tls, Token,
    peer_node_id,
};

use crate::error::ConnError;

/// How a swarm is protected.
pub enum Security {
    /// Ordinary BitTorrent: anyone may join, nothing is encrypted.
    Open,
    /// Mutual TLS with node keys; members hold a credential of the swarm's owner.
    Private(Box<Membership>),
    /// Mutual TLS with node keys; the swarm's operator has a list of admitted nodes.
    Known(Known),
    /// libtorrent's SSL-torrent convention: TLS with certificates that the manifest's root signed.
    Ssl(Arc<SslTorrent>),
}

/// A swarm among nodes that are known by other means than credentials: to a daemon, by their cards.
pub struct Known {
    /// This node's key as TLS configurations.
    pub tls: Tls,
    /// Whether a node, whose key TLS has proven, is admitted; checked again while it is connected.
    pub admits: Box<dyn Fn(NodeId) -> bool + Send + Sync>,
    /// The node that this one fetches from has made a plan, and names a member with which data is exchanged.
    pub named: Box<dyn Fn(NodeId) + Send + Sync>,
}

/// This node's place in a private swarm.
pub struct Membership {
    /// This node's key as TLS configurations.
    pub(crate) tls: Tls,
    pub(crate) gate: RwLock<Gate>,
    pub(crate) role: Role,
    /// The credential of each admitted peer, to check again when a ticket is revoked.
    shown: Mutex<BTreeMap<NodeId, Credential>>,
}

/// Members remembered at most; beyond it they are let in and not asked again.
const MAX_SHOWN: usize = 65_536;

/// Owner or member.
pub(crate) enum Role {
    Owner(Authority),
    Member { token: Option<Token>, credential: RwLock<Option<Credential>> },
}

impl Membership {
    /// The owner of `swarm`, which enrols other nodes.
    pub fn owner(tls: Tls, swarm: SwarmId, authority: Authority) -> Membership {
        let gate = RwLock::new(Gate::new(tls.id(), swarm));
        Membership { tls, gate, role: Role::Owner(authority), shown: Mutex::default() }
    }

    /// A node that holds a ticket of `owner`, and perhaps a credential from an earlier run.
    pub fn member(
        tls: Tls,
        swarm: SwarmId,
        owner: NodeId,
        token: Option<Token>,
        credential: Option<Credential>,
    ) -> Membership {
        let gate = RwLock::new(Gate::new(owner, swarm));
        let role = Role::Member { token, credential: RwLock::new(credential) };
        Membership { tls, gate, role, shown: Mutex::default() }
    }

    /// The credential held now, to be kept for a later run.
    pub fn credential(&self) -> Option<Credential> {
        match &self.role {
            Role::Owner(_) => None,
            Role::Member { credential, .. } => credential.read().clone(),
        }
    }

    /// This node's proof for admission: a credential, or to the owner a request to enrol.
    pub(crate) fn introduction(&self, peer: NodeId) -> Result<Introduction, Refused> {
        let gate = self.gate.read();
        let Role::Member { token, credential } = &self.role else { return Ok(Introduction::None) };
        let valid = |c: &Credential| c.verify(gate.authority(), gate.swarm(), self.tls.id(), now()).is_ok();
        if let Some(credential) = credential.read().as_ref().filter(|c| valid(c)) {
            return Ok(Introduction::Credential(credential.to_bytes()));
        }
        match token {
            Some(token) if peer == gate.authority() => {
                let request = EnrolRequest::new(token, gate.swarm(), gate.authority(), self.tls.id());
                Ok(Introduction::Enrol(request.to_bytes()))
            }
            _ => Err(Refused::NoCredential),
        }
    }

    /// The owner's answer to a request to enrol.
    pub(crate) fn redeem(&self, request: &[u8], peer: NodeId) -> Result<Credential, String> {
        let Role::Owner(authority) = &self.role else {
            return Err("this node does not own the swarm: enrol at the node that issued the ticket".into());
        };
        let request = EnrolRequest::from_bytes(request).map_err(|e| e.to_string())?;
        if let Err(error) = authority.reload_if_changed() {
            tracing::warn!(%error, "cannot reload the list of tickets");
        }
        let credential = authority.redeem(&request, peer, now()).map_err(|e| e.to_string())?;
        self.remember(peer, credential.clone());
        Ok(credential)
    }

    /// Whether `peer` is let in with this credential (as it came off the wire).
    pub(crate) fn check(&self, peer: NodeId, credential: Option<&[u8]>) -> Result<(), String> {
        let credential = credential.map(Credential::from_bytes).transpose().map_err(|e| e.to_string())?;
        self.gate.read().check(peer, credential.as_ref(), now()).map_err(|e| e.to_string())?;
        if let Some(credential) = credential {
            self.remember(peer, credential);
        }
        Ok(())
    }

    fn remember(&self, peer: NodeId, credential: Credential) {
        let mut shown = self.shown.lock();
        if shown.len() < MAX_SHOWN {
            shown.insert(peer, credential);
        }
    }

    /// Whether a peer that was let in may stay.
    fn still_admits(&self, peer: NodeId) -> bool {
        let shown = self.shown.lock();
        self.gate.read().check(peer, shown.get(&peer), now()).is_ok()
    }

    /// Keeps a credential that the owner has just given to this node.
    pub(crate) fn accept(&self, bytes: &[u8]) -> Result<(), String> {
        let Role::Member { credential, .. } = &self.role else { return Ok(()) };
        let new = Credential::from_bytes(bytes).map_err(|e| e.to_string())?;
        let gate = self.gate.read();
        new.verify(gate.authority(), gate.swarm(), self.tls.id(), now()).map_err(|e| e.to_string())?;
        *credential.write() = Some(new);
        Ok(())
    }

    /// Takes a list of revocations that a peer passed on; true if it was news.
    pub(crate) fn learn_revocations(&self, bytes: &[u8]) -> Result<bool, String> {
        let list = RevocationList::from_bytes(bytes).map_err(|e| e.to_string())?;
        self.gate.write().update(list).map_err(|e| e.to_string())
    }

    /// The latest list of revocations, for passing on.
    pub(crate) fn revocations(&self) -> Option<Vec<u8>> {
        self.gate.read().revocations().map(RevocationList::to_bytes)
    }

    /// On the owner: applies changes of `tidecast revoke`; true if there are any.
    pub(crate) fn refresh(&self) -> bool {
        let Role::Owner(authority) = &self.role else { return false };
        match authority.reload_if_changed() {
            Ok(true) => self.gate.write().update(authority.revocations()).unwrap_or(false),
            Ok(false) => false,
            Err(error) => {
                tracing::warn!(%error, "cannot reload the list of tickets");
                false
            }
        }
    }
}

/// The first message of a node's proof.
pub(crate) enum Introduction {
    None,
    Credential(Vec<u8>),
    Enrol(Vec<u8>),
}

impl Security {
    /// Whether a connected peer may stay.
    pub(crate) fn still_admits(&self, node: Option<NodeId>) -> bool {
        match (self, node) {
            (Security::Private(membership), Some(node)) => membership.still_admits(node),
            (Security::Known(known), Some(node)) => (known.admits)(node),
            (Security::Private(_) | Security::Known(_), None) => false,
            _ => true,
        }
    }

    /// The node at the other end of a TLS connection, in swarms with node keys.
    pub(crate) fn proven_node(
        &self,
        certs: Option<&[CertificateDer<'_>]>,
    ) -> Result<Option<NodeId>, ConnError> {
        match self {
            Security::Private(_) | Security::Known(_) => proven(certs).map(Some),
            _ => Ok(None),
        }
    }

    /// Nodes are known by their keys.
    pub(crate) fn knows_nodes(&self) -> bool {
        matches!(self, Security::Private(_) | Security::Known(_))
    }

    /// This node issues the tickets.
    pub(crate) fn is_owner(&self) -> bool {
        matches!(self, Security::Private(m) if matches!(m.role, Role::Owner(_)))
    }

    /// The swarm uses TLS on every connection.
    pub fn is_encrypted(&self) -> bool {
        !matches!(self, Security::Open)
    }
}

/// The node at the other end of a finished handshake.
pub(crate) fn proven(certs: Option<&[CertificateDer<'_>]>) -> Result<NodeId, ConnError> {
    peer_node_id(certs).map_err(|e| ConnError::Tls(e.to_string()))
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
