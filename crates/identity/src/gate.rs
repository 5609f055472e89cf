//! The access control of a private swarm at every member: which nodes are admitted, and which tickets are revoked.

use crate::{Credential, NodeId, Refused, RevocationList, SwarmId};

/// Decides whether a peer, whose key TLS has proven, may join one swarm.
#[derive(Clone, Debug)]
pub struct Gate {
    authority: NodeId,
    swarm: SwarmId,
    revoked: Option<RevocationList>,
}

impl Gate {
    /// The gate of `swarm`, owned by `authority`.
    #[must_use]
    pub fn new(authority: NodeId, swarm: SwarmId) -> Self {
        Self { authority, swarm, revoked: None }
    }

    /// The owner of the swarm.
    #[must_use]
    pub fn authority(&self) -> NodeId {
        self.authority
    }

    /// The swarm.
    #[must_use]
    pub fn swarm(&self) -> SwarmId {
        self.swarm
    }

    /// Admits the owner, and nodes with a valid credential from a ticket that is not revoked. `now` is in seconds
    /// since 1970. Check again when [`Gate::update`] returns true and when a credential expires.
    ///
    /// # Errors
    /// Why the node is rejected.
    pub fn check(&self, node: NodeId, credential: Option<&Credential>, now: u64) -> Result<(), Refused> {
        if node == self.authority {
            return Ok(());
        }
        let credential = credential.ok_or(Refused::NoCredential)?;
        credential.verify(self.authority, self.swarm, node, now)?;
        match &self.revoked {
            Some(list) if list.contains(credential.token) => Err(Refused::Revoked),
            _ => Ok(()),
        }
    }

    /// Applies a later list of revocations; true if it was later. An older or equal one is ignored without checking
    /// it.
    ///
    /// # Errors
    /// [`Refused::BadSignature`] when the list is not the owner's: its sender forged it.
    pub fn update(&mut self, list: RevocationList) -> Result<bool, Refused> {
        if self.revoked.as_ref().is_some_and(|own| own.seq >= list.seq) {
            return Ok(false);
        }
        if !list.verify(self.authority) {
            return Err(Refused::BadSignature);
        }
        self.revoked = Some(list);
        Ok(true)
    }

    /// The latest list known, to pass on to other members.
    #[must_use]
    pub fn revocations(&self) -> Option<&RevocationList> {
        self.revoked.as_ref()
    }
}
