//! State shared by all tasks of one swarm.

use std::net::IpAddr;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use tidecast_metainfo::Manifest;
use tidecast_store::Store;
use tokio::sync::mpsc;

use crate::cpu::Cpu;
use crate::fingerprints::Fingerprints;
use crate::handshake::Local;
use crate::handshake_kinds::HandshakeKinds;
use crate::hashes::LayerCache;
use crate::iface::{LocalAddress, shared_source, source_for};
use crate::input::Input;
use crate::member::Group;
use crate::pool::Pool;
use crate::roots::Roots;
use crate::security::Security;
use crate::settle::Settler;
use crate::throttle::Throttle;

pub(crate) struct Shared {
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) store: Arc<Store>,
    pub(crate) settler: Settler,
    /// Of a draft.
    pub(crate) roots: Option<Arc<Roots>>,
    pub(crate) pool: Pool,
    pub(crate) throttle: Option<Arc<Throttle>>,
    pub(crate) cpu: Arc<Cpu>,
    pub(crate) security: Security,
    pub(crate) peer_id: [u8; 20],
    pub(crate) listen_port: Option<u16>,
    /// Addresses of the network that the user chose; empty: any.
    pub(crate) sources: Vec<LocalAddress>,
    /// Addresses on which this node listens, unless it does so on all.
    pub(crate) listening: Vec<LocalAddress>,
    pub(crate) inbox: mpsc::Sender<Input>,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) next_peer: AtomicU32,
    pub(crate) start: Instant,
    /// Nothing is to be fetched: data that does not match is damage.
    pub(crate) seed_only: bool,
    pub(crate) group: Group,
    /// Nodes that fetch everything share the requests to web seeds.
    pub(crate) divides: bool,
    /// Peers that demand encryption.
    pub(crate) handshake_kinds: HandshakeKinds,
    pub(crate) whole_manifest: OnceLock<Bytes>,
    pub(crate) layers: LayerCache,
    pub(crate) fingerprints: Fingerprints,
}

impl Shared {
    /// The metainfo file, made once, at the first peer that asks.
    pub(crate) fn manifest_bytes(&self) -> &Bytes {
        self.whole_manifest.get_or_init(|| self.manifest.to_bytes().into())
    }

    /// The address to dial `remote` from, if it matters.
    pub(crate) fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        source_for(remote, &self.sources).or_else(|| shared_source(remote, &self.listening))
    }

    /// This node's part of handshakes.
    pub(crate) fn local(&self) -> Local {
        let manifest = &self.manifest;
        Local {
            hashes: manifest.swarm_hashes(),
            peer_id: self.peer_id,
            hybrid: manifest.hash_v1().is_some() && manifest.hash_v2().is_some(),
            private: manifest.private(),
            listen_port: self.listen_port,
            metadata_size: u32::try_from(manifest.info_bytes().len()).ok(),
            pieces: Some(manifest.piece_count()),
            upload_only: self.seed_only,
            gathers: self.group != Group::None,
            draft: self.roots.is_some(),
        }
    }
}
