//! A long manifest is received as data, before the data, in its own swarm, which serves other hosts until the end.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tidecast_identity::NodeKey;
use tidecast_metainfo::Manifest;
use tidecast_net::{LocalAddress, Network, Swarm};
use tidecast_store::{DownloadOptions, Durability, Store};
use tokio::time::timeout;

use super::Connection;
use super::session::{options, security};
use crate::control::message::{Bulk, Member, News, Start};
use crate::error::{Error, system};
use crate::temporary;

/// The file name of the manifest, in a private directory.
const NAME: &str = "manifest";
/// How often the progress is reported.
const LOOK: Duration = Duration::from_secs(1);

/// The swarm of the manifest.
pub(super) struct ManifestSwarm {
    swarm: Swarm,
    dir: TempDir,
}

impl ManifestSwarm {
    /// Joins the swarm.
    pub(super) async fn open(
        bulk: Bulk,
        start: &Start,
        key: &NodeKey,
        listener: TcpListener,
        local: &[LocalAddress],
    ) -> Result<Self, Error> {
        let garbled =
            |_| Error::Coordinator("malformed message about the manifest from the coordinator".into());
        let manifest = Arc::new(Manifest::parse(&bulk.manifest).map_err(garbled)?);
        let dir = temporary::dir()?;
        let name = Some(NAME.into());
        let to = DownloadOptions { durability: Durability::None, name, ..Default::default() };
        let opened = Store::download(manifest.clone(), dir.path(), &to)?;
        let security = security(&manifest, bulk.right, key)?;
        let network = start.network.map(|(ip, bits)| Network::Prefix(ip, bits));
        let mut options = options(opened, listener, security, network, local);
        options.planned = bulk.issue.is_some();
        let swarm = Swarm::start(options)?;
        let members = called_at(&start.news.members, &bulk.ports);
        match bulk.issue {
            Some(issue) => {
                let known = members.into_iter().map(|m| (m.number, m)).collect();
                let part = issue.part(start.me, &known);
                let (role, members) =
                    part.map_err(|e| Error::Coordinator(format!("invalid plan from the coordinator: {e}")))?;
                swarm.plan(role, members).await?;
            }
            None => {
                let others = members.into_iter().filter(|m| m.number != start.me);
                for member in others.filter(|m| !m.addresses.is_empty()) {
                    swarm.add_peer(member.addresses, member.number == 0).await;
                }
            }
        }
        Ok(Self { swarm, dir })
    }

    /// Waits for the manifest; messages of the coordinator meanwhile are kept in `aside`.
    pub(super) async fn fetch(
        &self,
        connection: &mut Connection,
        aside: &mut Vec<News>,
    ) -> Result<Vec<u8>, Error> {
        let mut progress = self.swarm.progress();
        loop {
            let complete = timeout(LOOK, progress.wait_for(|p| p.complete));
            if let Ok(complete) =
                connection.during(async { complete.await.map(|c| c.is_ok()) }, aside).await?
            {
                if !complete {
                    return Err(tidecast_net::Error::Stopped.into());
                }
                break;
            }
            // Received data counts as progress.
            connection.progress.received = self.swarm.progress().borrow().received_bytes;
        }
        let (store, path) = (self.swarm.store().clone(), self.dir.path().join(NAME));
        let read = tokio::task::spawn_blocking(move || {
            store.finish()?;
            std::fs::read(path).map_err(system("read the manifest"))
        });
        let read = connection.during(read, aside).await?;
        read.map_err(|e| Error::Coordinator(format!("a thread of the worker failed: {e}")))?
    }

    /// Leaves the swarm.
    pub(super) async fn stop(self) {
        let _ = self.swarm.stop().await;
    }
}

/// The members with these ports, by number; a member without one is not reachable.
fn called_at(members: &[Member], ports: &[(u32, u16)]) -> Vec<Member> {
    let ports: BTreeMap<u32, u16> = ports.iter().copied().collect();
    let there = |member: &Member| {
        let port = ports.get(&member.number);
        let at = member.addresses.iter().filter_map(|a| Some(SocketAddr::new(a.ip(), *port?)));
        Member { addresses: at.collect(), ..member.clone() }
    };
    members.iter().map(there).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn members_are_called_at_other_ports_for_the_manifest() {
        let member = |number, addresses: &[&str]| Member {
            number,
            node: [number as u8; 32],
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        };
        let members = [member(0, &["10.0.0.1:1", "[fd00::1]:1"]), member(1, &[]), member(2, &["10.0.0.3:3"])];
        let called = called_at(&members, &[(0, 7), (1, 8)]);
        assert_eq!(called, [member(0, &["10.0.0.1:7", "[fd00::1]:7"]), member(1, &[]), member(2, &[])]);
    }
}
