//! The network between the daemons of a test, and the transfer of bytes over it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tidecast_identity::NodeId;
use tidecast_store::Select;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::links::peers::Links;
use crate::links::wire::{Handshake, Taking, Wire, Wired, unreachable};
use crate::model::api_error::ErrorKind;
use crate::model::files::missing;
use crate::model::message::Want;
use crate::model::types::{Method, ReceivedBytes};
use crate::storage::store::{Store, open_view};
use crate::transfer::fetch_state::{Failed, FetchState};
use crate::transfer::grant::Grant;
use crate::transfer::mover::{Bring, Mover, Moving, Serving};

/// One way, for each piece of a message.
const DELAY: Duration = Duration::from_millis(2);
/// Nothing comes from a source that is cut off: after so long it has failed.
const LOST: Duration = Duration::from_secs(10);

/// A daemon, as others reach it.
struct End {
    node: NodeId,
    name: String,
    links: Weak<Links>,
    store: Weak<Store>,
}

#[derive(Default)]
struct State {
    ends: BTreeMap<SocketAddr, End>,
    /// Hosts that are apart from the others, by which part they are in.
    parts: BTreeMap<SocketAddr, u32>,
}

/// All of it.
pub(super) struct Net {
    state: Mutex<State>,
    cuts: watch::Sender<u64>,
}

impl Net {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), cuts: watch::channel(0).0 })
    }

    pub(super) fn add(
        &self,
        addr: SocketAddr,
        node: NodeId,
        name: &str,
        links: &Arc<Links>,
        store: &Arc<Store>,
    ) {
        let (links, store) = (Arc::downgrade(links), Arc::downgrade(store));
        self.state.lock().ends.insert(addr, End { node, name: name.into(), links, store });
    }

    /// Moves these hosts to another partition: messages between partitions wait, as in TCP.
    pub(super) fn part(&self, addrs: &[SocketAddr], part: u32) {
        let mut state = self.state.lock();
        state.parts.extend(addrs.iter().map(|addr| (*addr, part)));
        drop(state);
        self.cuts.send_modify(|n| *n += 1);
    }

    /// Removes a failed host: nothing answers at its address.
    pub(super) fn remove(&self, addr: SocketAddr) {
        self.state.lock().ends.remove(&addr);
    }

    fn passes(&self, a: SocketAddr, b: SocketAddr) -> bool {
        let state = self.state.lock();
        let part = |addr| state.parts.get(addr).copied().unwrap_or(0);
        part(&a) == part(&b)
    }

    async fn wait_for(&self, a: SocketAddr, b: SocketAddr) {
        let mut cuts = self.cuts.subscribe();
        while !self.passes(a, b) {
            if cuts.changed().await.is_err() {
                return;
            }
        }
    }

    fn at(&self, addr: SocketAddr) -> Option<(NodeId, Arc<Links>)> {
        let state = self.state.lock();
        let end = state.ends.get(&addr)?;
        Some((end.node, end.links.upgrade()?))
    }

    fn of(&self, node: NodeId) -> Option<(SocketAddr, String, Arc<Store>)> {
        let state = self.state.lock();
        let (addr, end) = state.ends.iter().find(|(_, end)| end.node == node)?;
        Some((*addr, end.name.clone(), end.store.upgrade()?))
    }
}

/// A stream between two hosts.
fn stream(net: &Arc<Net>, a: SocketAddr, b: SocketAddr) -> (Wired, Wired) {
    let ((near, from_near), (far, from_far)) = (duplex(1 << 16), duplex(1 << 16));
    let ((read_near, write_near), (read_far, write_far)) = (split(from_near), split(from_far));
    tokio::spawn(pump(net.clone(), (a, b), read_near, write_far));
    tokio::spawn(pump(net.clone(), (b, a), read_far, write_near));
    (Box::pin(near), Box::pin(far))
}

async fn pump(
    net: Arc<Net>,
    (from, to): (SocketAddr, SocketAddr),
    mut read: ReadHalf<DuplexStream>,
    mut write: WriteHalf<DuplexStream>,
) {
    let mut buffer = vec![0; 1 << 14];
    while let Ok(len @ 1..) = read.read(&mut buffer).await {
        sleep(DELAY).await;
        net.wait_for(from, to).await;
        if write.write_all(&buffer[..len]).await.is_err() {
            return;
        }
    }
    let _ = write.shutdown().await;
}

/// The wire of one host.
pub(super) struct FakeWire {
    pub(super) net: Arc<Net>,
    pub(super) node: NodeId,
    pub(super) addr: SocketAddr,
}

impl Wire for FakeWire {
    fn connect(self: Arc<Self>, addr: SocketAddr) -> Taking<Handshake> {
        Box::pin(async move {
            sleep(DELAY).await;
            if !self.net.passes(self.addr, addr) {
                sleep(Duration::from_secs(3)).await;
                return Err(unreachable(addr, "no answer within 3 s"));
            }
            let (node, links) = self.net.at(addr).ok_or_else(|| unreachable(addr, "connection refused"))?;
            let handshake: Handshake = Box::pin(async move {
                let (near, far) = stream(&self.net, self.addr, addr);
                let (caller, from) = (self.node, self.addr);
                tokio::spawn(async move {
                    if let Ok((_, run)) = links.meet(far, caller, (from, false)).await {
                        drop(links);
                        run.await;
                    }
                });
                Ok((near, node))
            });
            Ok(handshake)
        })
    }
}

/// Copies files from the depot of the host that granted them.
pub(super) struct Copier {
    pub(super) net: Arc<Net>,
    pub(super) addr: SocketAddr,
    pub(super) seen: Arc<Seen>,
}

/// Received content by source, and sources that fail.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) sources: Mutex<Vec<String>>,
    pub(super) broken: Mutex<BTreeSet<String>>,
    came: Mutex<BTreeMap<[u8; 32], (String, u64)>>,
    /// How the mover of the next cache serves it.
    pub(super) serving: Mutex<Option<Serving>>,
}

impl Mover for Copier {
    fn bring<'a>(
        &'a self,
        grant: &'a Grant,
        bring: Bring,
        _: &'a Want,
        _: Method,
        _: &'a watch::Sender<FetchState>,
    ) -> Moving<'a, Result<(), Failed>> {
        Box::pin(async move {
            let failed = |why: &str| Failed::new(ErrorKind::Unreachable, why);
            let source = self.net.of(grant.link.peer.node);
            let (addr, name, store) = source.ok_or_else(|| failed("the cache was removed"))?;
            self.seen.sources.lock().push(name.clone());
            sleep(DELAY).await;
            let comes = timeout(LOST, self.net.wait_for(self.addr, addr)).await;
            comes.map_err(|_| failed("no data"))?;
            if self.seen.broken.lock().contains(&name) {
                return Err(failed("no data"));
            }
            let content = grant.about.content.unwrap();
            let copied = tokio::task::spawn_blocking(move || copy(&store, content, &bring)).await.unwrap();
            self.seen.came.lock().insert(content, (name, copied));
            Ok(())
        })
    }

    fn end<'a>(&'a self, content: &'a [u8; 32], origin: &'a str) -> Moving<'a, ReceivedBytes> {
        let came = self.seen.came.lock().remove(content);
        let mut all = ReceivedBytes::default();
        if let Some((name, bytes)) = came {
            *(if name == origin { &mut all.origin } else { &mut all.peers }) += bytes;
        }
        Box::pin(async move { all })
    }

    fn serve_on<'a>(
        &'a self,
        content: &'a [u8; 32],
        origin: &'a str,
    ) -> Moving<'a, (ReceivedBytes, Option<Serving>)> {
        let serving = self.seen.serving.lock().take();
        Box::pin(async move { (self.end(content, origin).await, serving) })
    }
}

fn copy(store: &Store, content: [u8; 32], bring: &Bring) -> u64 {
    let record = store.depot.with_content(&content).into_iter().find(|r| r.is_committed()).unwrap();
    let (root, home) = open_view(&store.depot, record.id, &bring.manifest).unwrap();
    let files = match &bring.missing {
        None => Vec::new(),
        Some(Select::Files(files)) => files.clone(),
        Some(_) => missing(&bring.manifest, &[]),
    };
    let mut bytes = 0;
    for file in files.into_iter().filter_map(|index| bring.manifest.file(index)) {
        let to = file.path().below(&bring.dir.join(Path::new(bring.manifest.name().as_ref())));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        let mut from = root.open_file(file.path().below(&home)).unwrap();
        bytes += std::io::copy(&mut from, &mut std::fs::File::create(to).unwrap()).unwrap();
    }
    bytes
}
