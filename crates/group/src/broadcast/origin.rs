//! The origin: member 0, which has the data, and admits the other members.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidecast_identity::{Credential, ManifestId, NodeId, NodeKey, SwarmId, Tls, TokenId};
use tidecast_net::{Membership, Notice, RootsKey, Security, Swarm, SwarmOptions};
use tidecast_store::Opened;
use tokio::sync::mpsc;

use crate::control::message::{Member, Right};
use crate::error::Error;
use crate::plan::{Algorithm, Issue};

/// Seconds before and after now in which a member's credential is valid: longer than a broadcast and any clock skew.
const BEFORE: u64 = 24 * 3600;
const AFTER: u64 = 5 * 24 * 3600;

/// The origin's part in the swarm.
pub(super) struct Origin {
    swarm: Swarm,
    notices: Option<mpsc::Receiver<Notice>>,
    /// The source is hashed while it is sent.
    drafted: bool,
    trouble: Option<String>,
    /// `None`: the data is not encrypted, and members need no credential.
    owner: Option<Owner>,
    /// The port on which it listens.
    pub(super) port: u16,
}

impl Origin {
    /// Begins to serve.
    pub(super) fn start(
        opened: Opened,
        key: &NodeKey,
        listener: std::net::TcpListener,
        plain: bool,
        algorithm: Algorithm,
    ) -> Result<Self, Error> {
        let hash = opened.store.manifest().hash_v2().filter(|_| !plain);
        let owner = hash.map(|hash| Owner {
            key: key.clone(),
            swarm: ManifestId::V2(hash).swarm(),
            token: TokenId(rand::random()),
        });
        let security = match &owner {
            Some(owner) => {
                let (id, right) = (key.id(), Some(owner.issue(key.id())));
                let own = Membership::member(Tls::new(key)?, owner.swarm, id, None, right);
                Security::Private(Box::new(own))
            }
            None => Security::Open,
        };
        let drafted = opened.store.manifest().is_draft();
        let mut swarm = Swarm::start(SwarmOptions {
            opened,
            listen: Vec::new(),
            listeners: vec![listener],
            shared_port: None,
            port: None,
            network: None,
            security,
            policy: algorithm.policy(),
            seed_only: true,
            on_demand: None,
            group: Default::default(),
            planned: algorithm.shape().is_some(),
            roots: Some(RootsKey::Own(key.clone())).filter(|_| drafted),
            web_seeds: false,
            throttle: None,
        })?;
        let port = swarm.listen_addrs().first().map_or(0, std::net::SocketAddr::port);
        let notices = swarm.notices();
        Ok(Self { swarm, notices, drafted, trouble: None, owner, port })
    }

    /// The credential of a member, by its key.
    pub(super) fn right(&self, node: NodeId) -> Option<Right> {
        let owner = self.owner.as_ref()?;
        Some(Right { owner: owner.key.id().0, credential: owner.issue(node).to_bytes() })
    }

    /// The swarm, to set its part in the plan.
    pub(super) fn swarm(&mut self) -> &mut Swarm {
        &mut self.swarm
    }

    /// Adopts the origin's part in a plan.
    pub(super) async fn follow(&self, issue: &Issue, members: &[Member]) -> Result<(), Error> {
        let known = members.iter().map(|m| (m.number, m.clone())).collect();
        let (role, members) =
            issue.part(0, &known).map_err(|e| Error::Network(format!("invalid plan: {e}")))?;
        Ok(self.swarm.plan(role, members).await?)
    }

    /// Bytes of the source hashed so far.
    pub(super) fn hashed(&self) -> u64 {
        self.swarm.progress().borrow().verified_bytes
    }

    /// The duration of hashing, if it was done while the data was sent, and is complete.
    pub(super) fn hashing_took(&self) -> Option<Duration> {
        self.swarm.hashing_took()
    }

    /// Why the source cannot be read to its end: it changed, or it failed before it was hashed. After hashing a read
    /// error is only remembered, because other members may have the data.
    pub(super) fn failure(&mut self) -> Option<Error> {
        while let Some(Ok(notice)) = self.notices.as_mut().map(mpsc::Receiver::try_recv) {
            let Notice::Store { error } = notice else { continue };
            self.trouble = Some(error.to_string());
            if error.is_source_changed() || (self.drafted && self.hashing_took().is_none()) {
                return Some(Error::Reading(error));
            }
        }
        None
    }

    /// The last error of reading the source.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Payload sent so far, bytes.
    pub(super) fn sent(&self) -> u64 {
        self.swarm.progress().borrow().sent_bytes
    }

    /// Connected peers.
    pub(super) fn peers(&self) -> usize {
        self.swarm.progress().borrow().peers
    }

    /// Leaves the swarm; returns the bytes sent.
    pub(super) async fn stop(self) -> u64 {
        let sent = self.sent();
        self.swarm.stop().await.map_or(sent, |summary| summary.progress.sent_bytes)
    }
}

/// Issues the members' credentials.
struct Owner {
    key: NodeKey,
    swarm: SwarmId,
    token: TokenId,
}

impl Owner {
    fn issue(&self, node: NodeId) -> Credential {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let (from, until) = (now.saturating_sub(BEFORE), now.saturating_add(AFTER));
        Credential::issue(&self.key, self.swarm, node, self.token, from, until)
    }
}
