//! An additional source: if the broadcast's source can be read on this host too (a shared file system), a second member of
//! the group serves a share of it from here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::TcpListener;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use tidecast_identity::NodeKey;
use tidecast_metainfo::Manifest;
use tidecast_net::{LocalAddress, Network, Notice, RootsKey, Swarm};
use tidecast_store::{SeedOptions, Store};
use tokio::sync::mpsc;

use super::session::{options, security};
use crate::control::message::{Member, SourceMember, SourceOffer};
use crate::control::ticket::GroupTicket;
use crate::error::{Error, system};
use crate::plan::Issue;
use crate::reach;

/// The source on this host, which it can serve if it is asked to.
pub(super) struct Offer {
    path: PathBuf,
    key: NodeKey,
    listener: TcpListener,
}

impl Offer {
    /// Looks for the source on this host. Its content is not trusted: each piece is verified before it is served.
    pub(super) fn find(ticket: &GroupTicket) -> Result<Option<Self>, Error> {
        let Some(source_stat) = &ticket.source else { return Ok(None) };
        let path = PathBuf::from(OsString::from_vec(source_stat.path.clone()));
        if !source_stat.is_at(&path) {
            return Ok(None);
        }
        Ok(Some(Self { path, key: NodeKey::generate()?, listener: reach::listener()? }))
    }

    /// The offer for the coordinator.
    pub(super) fn source_offer(&self) -> Result<SourceOffer, Error> {
        let port = self.listener.local_addr().map_err(system("listen"))?.port();
        Ok(SourceOffer { node: self.key.id().0, port })
    }
}

/// The member that serves it.
pub(super) struct Source {
    swarm: Swarm,
    number: u32,
    pub(super) notices: Option<mpsc::Receiver<Notice>>,
}

impl Source {
    /// Opens the source, and begins to serve its share. `owner`: the member that is trusted for the roots of a draft.
    pub(super) async fn open(
        offer: Offer,
        source_member: SourceMember,
        (manifest, owner): (Arc<Manifest>, Option<RootsKey>),
        (network, local): (Option<Network>, &[LocalAddress]),
        (issue, members): (&Issue, &BTreeMap<u32, Member>),
    ) -> Result<Self, Error> {
        let (role, known) =
            issue.part(source_member.number, members).map_err(|e| Error::Network(e.to_string()))?;
        let mut opened = Store::seed(manifest.clone(), &offer.path, &SeedOptions::default())?;
        let share: Vec<_> = role.share(manifest.piece_count()).map(|piece| piece..piece + 1).collect();
        (opened.to_check, opened.wanted) = (share.clone(), share);
        let security = security(&manifest, source_member.right, &offer.key)?;
        let mut options = options(opened, offer.listener, security, network, local);
        (options.seed_only, options.planned, options.roots) = (true, true, owner);
        let mut swarm = Swarm::start(options)?;
        swarm.plan(role, known).await?;
        // The roots of a draft come from the origin only.
        if let Some(origin) = members.get(&0) {
            swarm.add_peer(origin.addresses.clone(), true).await;
        }
        Ok(Self { number: source_member.number, notices: swarm.notices(), swarm })
    }

    /// Adopts its part in a new epoch.
    pub(super) async fn follow(&self, issue: &Issue, members: &BTreeMap<u32, Member>) -> Result<(), Error> {
        let part = issue.part(self.number, members).map_err(|e| Error::Network(e.to_string()));
        let (role, members) = part?;
        Ok(self.swarm.plan(role, members).await?)
    }

    /// Payload sent so far, bytes.
    pub(super) fn sent(&self) -> u64 {
        self.swarm.progress().borrow().sent_bytes
    }

    /// Leaves the swarm; returns the bytes sent.
    pub(super) async fn stop(self) -> u64 {
        let sent = self.sent();
        self.swarm.stop().await.map_or(sent, |summary| summary.progress.sent_bytes)
    }
}
