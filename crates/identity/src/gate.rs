//! The door of a private swarm, as every member keeps it: who is let in, and which tickets no longer count.

use crate::{Credential, NodeId, Refused, RevocationList, SwarmId};

/// Decides whether a peer, whose key TLS has proven, may take part in one swarm.
#[derive(Clone, Debug)]
pub struct Gate {
    authority: NodeId,
    swarm: SwarmId,
    revoked: Option<RevocationList>,
}

impl Gate {
    /// The door of `swarm`, owned by `authority`.
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

    /// Lets in the owner, and nodes with a valid credential from a ticket that is not revoked. `now` is in
    /// seconds since 1970. Ask again when [`Gate::update`] says true and when a credential ends.
    ///
    /// # Errors
    /// Why the node is not let in.
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

    /// Takes over a later list of revocations; true if it was later. An older or equal one is passed over
    /// without checking it.
    ///
    /// # Errors
    /// [`Refused::BadSignature`] when the list is not the owner's: whoever sent it lies.
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
