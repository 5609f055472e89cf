//! The swarm of the manifest: one too long to be sent to each worker is itself broadcast first, as a file, by its own plan
//! over the same members. The manifest of that file is short, and is sent over the control channel.
//!
//! Its plan is not repaired: pieces that a lost relay does not deliver are fetched from other members, as in a swarm.

use tempfile::TempDir;
use tidecast_publish::Progress;

use super::Group;
use super::origin::Origin;
use crate::control::message::Bulk;
use crate::error::{Error, system};
use crate::plan::Issue;
use crate::source::{self, Source};
use crate::{node::Node, reach, temporary};

/// The broadcast of a manifest.
pub(super) struct ManifestSwarm {
    pub(super) origin: Origin,
    /// Describes the manifest.
    manifest: Vec<u8>,
    /// Its length and the length of its pieces, bytes.
    pub(super) size: (u64, u32),
    /// The directory of its file; removed at the end.
    _dir: TempDir,
}

impl Group {
    /// Begins to serve the manifest, if it is long.
    pub(super) async fn open_manifest_swarm(&mut self) -> Result<(), Error> {
        if self.manifest_swarm.is_some() || self.manifest.len() <= self.options.manifest_limit {
            return Ok(());
        }
        let (bytes, threads) = (self.manifest.clone(), self.options.threads);
        let written = tokio::task::spawn_blocking(move || write(&bytes, threads)).await;
        let failed = |e| system("write the manifest to a file")(std::io::Error::other(e));
        let (mut source, dir) = written.map_err(failed)??;
        let Some(opened) = source.opened.take() else { return Ok(()) };
        let (plain, algorithm) = (self.options.plain, self.options.algorithm);
        let origin = Origin::start(opened, &self.key, reach::listener()?, plain, algorithm)?;
        let size = (source.manifest.total_len(), source.manifest.piece_length());
        let manifest = source.manifest.to_bytes();
        self.manifest_swarm = Some(ManifestSwarm { origin, manifest, size, _dir: dir });
        Ok(())
    }

    /// The first epoch of the manifest's plan, with the members of the data's plan. Late members are in none.
    pub(super) async fn plan_manifest_swarm(&mut self, first: bool) -> Result<Option<Issue>, Error> {
        let (Some(manifest_swarm), Some(planning)) = (&self.manifest_swarm, &self.planning) else {
            return Ok(None);
        };
        if !first {
            return Ok(None);
        }
        let issue = planning.beside(manifest_swarm.size)?;
        // The origin connects to no member.
        manifest_swarm.origin.follow(&issue, &self.members()).await?;
        Ok(Some(issue))
    }

    /// The message about it for one worker.
    pub(super) fn bulk(&self, node: &Node, issue: Option<&Issue>) -> Option<Bulk> {
        let (manifest_swarm, (id, _)) = (self.manifest_swarm.as_ref()?, node.who.as_ref()?);
        let others = self.nodes.iter().filter_map(|n| Some((n.number?, n.who.as_ref()?.1.manifest_swarm)));
        Some(Bulk {
            manifest: manifest_swarm.manifest.clone(),
            right: manifest_swarm.origin.right(*id),
            ports: std::iter::once((0, manifest_swarm.origin.port)).chain(others).collect(),
            issue: issue.cloned(),
        })
    }
}

/// The manifest as a file that can be served.
fn write(manifest: &[u8], threads: usize) -> Result<(Source, TempDir), Error> {
    let dir = temporary::dir()?;
    let path = dir.path().join("manifest");
    std::fs::write(&path, manifest).map_err(system("write the manifest to a file"))?;
    Ok((source::publish(&path, threads, false, &Progress::new())?, dir))
}
