//! Older versions on this host: those that the user names, and existing files at the destination.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use tidecast_event::Phase;
use tidecast_metainfo::Manifest;
use tidecast_net::{Compare, Compared, Security, compare, local_addresses};
use tidecast_node::{DiscoveredPeers, Finders, MessageSender, SwarmSettings};
use tidecast_store::{Base, Select};
use tokio::sync::mpsc;

/// Peers that may have the data, each with its addresses, and the search for more of them.
pub(super) struct Peers {
    pub(super) peers: Vec<Vec<SocketAddr>>,
    pub(super) finding: Option<(Finders, mpsc::Receiver<DiscoveredPeers>)>,
}

/// The parts of the data in them, by the fingerprints of a peer. If no peer is known yet, the first peers
/// that are found are asked, and added to `peers`.
pub(super) async fn compared(
    manifest: &Arc<Manifest>,
    select: &Select,
    (mut bases, to): (Vec<Base>, &Path),
    (Peers { peers, finding }, security): (&mut Peers, Security),
    settings: &SwarmSettings,
    messages: &MessageSender<'_>,
) -> Compared {
    // It is judged later whether that may be replaced.
    bases.extend(Base::open(&to.join(OsStr::from_bytes(manifest.name_bytes()))).ok());
    if bases.is_empty() {
        return Compared { bases, received: 0 };
    }
    messages.phase(Phase::Comparing);
    let files = match select {
        Select::All => (0..manifest.file_count()).collect(),
        Select::Files(files) => files.clone(),
    };
    let on_network = |all: Vec<_>| match &settings.network {
        Some(network) => all.into_iter().filter(|address| network.holds(address)).collect(),
        None => Vec::new(),
    };
    let what = Compare {
        manifest: manifest.clone(),
        files,
        security: Arc::new(security),
        sources: on_network(local_addresses().unwrap_or_default()),
        fill: true,
        throttle: settings.throttle.clone(),
    };
    let asked = async {
        if peers.is_empty()
            && finding.is_none()
            && let Some((finders, found)) = Finders::ahead(manifest, settings, messages).await
        {
            *finding = Some(finders);
            peers.extend(found.into_iter().map(|peer| vec![peer]));
        }
        peers.iter().flatten().copied().collect()
    };
    compare(what, bases, asked).await
}
