//! One port for many swarms and for visitors of the daemon.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use common::{assert_same, finish, options, publish, soon};
use parking_lot::RwLock;
use tidecast_identity::{NodeId, NodeKey, Tls, placeholder_name};
use tidecast_metainfo::{Manifest, Version};
use tidecast_net::{Known, Security, SharedPort, Swarm, SwarmOptions};
use tidecast_store::{DownloadOptions, SeedOptions, Store};
use tidecast_tls::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PROTOCOL: &[u8] = b"tidecast-test/1";

type Admitted = Arc<RwLock<BTreeSet<NodeId>>>;

fn node() -> Tls {
    Tls::new(&NodeKey::generate().unwrap()).unwrap()
}

fn known(tls: &Tls, admitted: &Admitted) -> Security {
    let admitted = admitted.clone();
    let admits = Box::new(move |node| admitted.read().contains(&node));
    Security::Known(Known { tls: tls.clone(), admits, named: Box::new(|_| {}) })
}

fn seed(manifest: &Arc<Manifest>, path: &Path, security: Security, shared_port: &Arc<SharedPort>) -> Swarm {
    let opened = Store::seed(manifest.clone(), path, &SeedOptions::default()).unwrap();
    let swarm =
        SwarmOptions { listen: vec![], shared_port: Some(shared_port.clone()), ..options(opened, security) };
    Swarm::start(SwarmOptions { seed_only: true, ..swarm }).unwrap()
}

fn get(manifest: &Arc<Manifest>, to: &Path, security: Security) -> Swarm {
    let opened = Store::download(manifest.clone(), to, &DownloadOptions::default()).unwrap();
    Swarm::start(SwarmOptions { listen: vec![], ..options(opened, security) }).unwrap()
}

/// The published data, its manifest, and the admitted nodes.
struct Served {
    dir: tempfile::TempDir,
    manifest: Arc<Manifest>,
    admitted: Admitted,
    _swarm: Swarm,
}

impl Served {
    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }
}

fn serve(tls: &Tls, shared_port: &Arc<SharedPort>, byte: u8) -> Served {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("data"), vec![byte; 3_000_000]).unwrap();
    let manifest = publish(&dir.path().join("data"), Version::V2);
    let admitted = Admitted::default();
    let swarm = seed(&manifest, &dir.path().join("data"), known(tls, &admitted), shared_port);
    Served { dir, manifest, admitted, _swarm: swarm }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_port_serves_every_swarm_to_those_who_are_admitted_and_lets_visitors_speak() {
    common::log();
    let (server, client) = (node(), node());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let shared_port = Arc::new(SharedPort::new(&server, at.port(), PROTOCOL));
    let served = [serve(&server, &shared_port, 1), serve(&server, &shared_port, 2)];
    let echo = |mut visitor: tidecast_net::Visitor| async move {
        let mut word = [0; 5];
        visitor.stream.read_exact(&mut word).await.unwrap();
        visitor.stream.write_all(&[&word[..], &visitor.node.0].concat()).await.unwrap();
        visitor.stream.flush().await.unwrap();
    };
    tokio::spawn(shared_port.clone().run(listener, echo));

    // A visitor is known by its key.
    let config = client.client_speaking(PROTOCOL, Some(server.id())).unwrap();
    let stream = TcpStream::connect(at).await.unwrap();
    let mut stream = Stream::connect(config, placeholder_name(), stream).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let mut answer = [0; 37];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer[..], [&b"hello"[..], &client.id().0].concat());

    // A peer gets the swarm that it is admitted to, by the same port.
    let servers: Admitted = Arc::new(RwLock::new([server.id()].into()));
    for swarm in &served {
        swarm.admitted.write().insert(client.id());
        let to = tempfile::tempdir().unwrap();
        let getter = get(&swarm.manifest, to.path(), known(&client, &servers));
        getter.add_peer(vec![at], true).await;
        finish(getter).await;
        assert_same(&to.path().join("data"), &swarm.path());
    }

    // A peer that is not admitted gets nothing, nor does one take anything from a node that it does not admit.
    served[1].admitted.write().clear();
    let nobody = Admitted::default();
    for (manifest, servers) in [(&served[1].manifest, &servers), (&served[0].manifest, &nobody)] {
        let to = tempfile::tempdir().unwrap();
        let getter = get(manifest, to.path(), known(&client, servers));
        getter.add_peer(vec![at], true).await;
        let mut progress = getter.progress();
        let _ =
            tokio::time::timeout(std::time::Duration::from_secs(2), progress.wait_for(|p| p.peers > 0)).await;
        let summary = soon(getter.stop()).await.unwrap();
        assert_eq!((summary.progress.received_bytes, summary.peers.len()), (0, 0));
        assert!(!to.path().join("data").exists());
    }
}
