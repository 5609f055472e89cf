//! Reuses data of an older version at any offset, before the swarm transfers the rest: a peer sends fingerprints of
//! the leaves, these are searched in the old files, and the peer sends the missing leaves of pieces that were found
//! in part ([`Patch`]). Files are matched by their paths.
//!
//! The peer's answers need not be true: every piece is hashed before it counts. Any failure or timeout only makes
//! the swarm transfer more; and so does a peer without fingerprints.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tidecast_hash::{Fingerprint, LEAF};
use tidecast_metainfo::{Manifest, merkle};
use tidecast_store::{Base, Patch};
use tidecast_wire::ext::{self, BlockRange, Caps, FINGERPRINT, MAX_FINGERPRINTS, MAX_PIECES, PieceRange};
use tidecast_wire::{BlockHeader, Frame, Message};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout, timeout_at};

use crate::cpu::Cpu;
use crate::dial::dial;
use crate::error::ConnError;
use crate::framed::Ready;
use crate::handshake::{Established, Local};
use crate::handshake_kinds::HandshakeKinds;
use crate::iface::{LocalAddress, source_for};
use crate::last_payload::LastPayload;
use crate::security::Security;
use crate::throttle::Throttle;

const LEN: u64 = LEAF as u64;
/// Files shorter than this come whole.
const LEAST: u64 = 4 * LEN;
/// Longer files are compared at the same offsets only: an index of their leaves would take too much memory.
const MOST: u64 = 16 << 30;
/// A file of which less than one leaf in this many is found comes whole.
const WORTH: usize = 8;
/// Files that are compared, the largest that differ.
const FILES: usize = 256;
/// Missing bytes that are asked of the peer, which are held in memory; the swarm brings more.
const ASKED: u64 = 64 << 20;
/// The comparison stops after this time: the remaining files are transferred whole.
const PATIENCE: Duration = Duration::from_secs(60);
/// A peer has to answer within this time.
const ANSWER: Duration = Duration::from_secs(10);
/// Peers that are called.
const PEERS: usize = 8;
/// Leaves that are asked for and have not come.
const AHEAD: usize = 256;
/// Messages of other matters that are passed over between two answers.
const OTHERS: usize = 10_000;

/// The peers to compare with, and options.
pub struct Compare {
    /// The manifest of the new version.
    pub manifest: Arc<Manifest>,
    /// Files of it that are wanted, by number.
    pub files: Vec<u32>,
    /// How connections are protected.
    pub security: Arc<Security>,
    /// Local addresses to dial from; empty for any.
    pub sources: Vec<LocalAddress>,
    /// Whether the peer is asked for leaves that are missing in pieces of which something is here. Where many fetch the same
    /// at once, they get them from each other.
    pub fill: bool,
    /// Limits of this node on its host.
    pub throttle: Option<Arc<Throttle>>,
}

/// The result.
#[derive(Debug)]
pub struct Compared {
    /// The older versions, with the data that was found in them.
    pub bases: Vec<Base>,
    /// Bytes that the peer sent for it.
    pub received: u64,
}

/// Compares older versions, the best first, with a peer's fingerprints of the new one. `peers`: peers that may have
/// it; they are contacted only if something differs.
pub async fn compare(
    what: Compare,
    bases: Vec<Base>,
    peers: impl Future<Output = Vec<SocketAddr>>,
) -> Compared {
    let received = 0;
    if bases.is_empty() || !what.manifest.layout().is_aligned() {
        return Compared { bases, received };
    }
    let until = Instant::now() + PATIENCE;
    let differing = differing(&what, &bases, until).await;
    if differing.is_empty() {
        return Compared { bases, received };
    }
    let Some(peer) = call(&what, peers.await).await else { return Compared { bases, received } };
    let mut talk = Talk { peer, what: &what, received, over: false };
    let mut found: HashMap<usize, HashMap<u32, Patch>> = HashMap::new();
    for (file, base) in differing {
        match timeout_at(until, talk.patch(file, &bases, base)).await {
            Ok(Ok(Some(patch))) => drop(found.entry(base).or_default().insert(file, patch)),
            Ok(Ok(None)) => {}
            Ok(Err(why)) => {
                tracing::info!(%why, "comparison with the peer stopped");
                break;
            }
            Err(_) => break,
        }
        if talk.over {
            break;
        }
    }
    let received = talk.received;
    let bases = (0..).zip(bases).map(|(at, base)| match found.remove(&at) {
        Some(patches) => base.patched(patches),
        None => base,
    });
    Compared { bases: bases.collect(), received }
}

/// Wanted files that differ in the first base with such a path, the largest first, and that base.
async fn differing(what: &Compare, bases: &[Base], until: Instant) -> Vec<(u32, usize)> {
    let (manifest, bases, mut files) = (what.manifest.clone(), bases.to_vec(), what.files.clone());
    let looking = spawn_blocking(move || {
        let size = |file: &u32| manifest.file(*file).map_or(0, |file| file.len());
        files.retain(|file| (LEAST..=MOST).contains(&size(file)));
        files.sort_by_key(|file| std::cmp::Reverse(size(file)));
        let old = |file: u32| {
            let mut opened =
                (0..).zip(&bases).filter_map(|(at, base)| Some((at, base.file(&manifest, file)?)));
            opened.next().filter(|(_, open)| !is_same(&manifest, file, open)).map(|(at, _)| (file, at))
        };
        let mut left = files.into_iter().take_while(|_| Instant::now() < until).filter_map(old);
        left.by_ref().take(FILES).collect()
    });
    looking.await.unwrap_or_default()
}

/// Whether an old file is the new one: it has the same root.
fn is_same(manifest: &Manifest, file: u32, old: &std::fs::File) -> bool {
    use std::os::unix::fs::FileExt;
    let Some(file) = manifest.file(file) else { return false };
    // In a draft no root is known.
    let Some(root) = file.pieces_root().filter(|_| !manifest.is_draft()) else { return false };
    if old.metadata().map_or(0, |meta| meta.len()) != file.len() {
        return false;
    }
    let (mut leaves, mut buffer) = (Vec::new(), vec![0; 64 * LEAF]);
    while (leaves.len() as u64) * LEN < file.len() {
        let at = leaves.len() as u64 * LEN;
        let part = buffer.get_mut(..(file.len() - at).min(64 * LEN) as usize).unwrap_or_default();
        if old.read_exact_at(part, at).is_err() {
            return false;
        }
        leaves.extend(tidecast_hash::leaf_digests(part));
    }
    merkle::file(&leaves, manifest.piece_length()).is_some_and(|(is, _)| is == root)
}

/// The first peer that answers and supports fingerprints.
async fn call(what: &Compare, peers: Vec<SocketAddr>) -> Option<Established> {
    let mut calling = JoinSet::new();
    for addr in peers.into_iter().take(PEERS) {
        let mut local = Local::asking(what.manifest.swarm_hashes());
        local.draft = what.manifest.is_draft();
        local.pieces = Some(what.manifest.piece_count());
        let (security, source) = (what.security.clone(), source_for(addr.ip(), &what.sources));
        calling.spawn(async move {
            let cpu = Arc::new(Cpu::default());
            dial((&local, &security), (addr, source), &HandshakeKinds::default(), &cpu, &drop).await
        });
    }
    let knows = async {
        while let Some(called) = calling.join_next().await {
            if let Ok(Ok(peer)) = called
                && peer.peer_has(Caps::FINGERPRINTS)
            {
                return Some(peer);
            }
        }
        None
    };
    timeout(ANSWER, knows).await.ok().flatten()
}

/// Where the leaves of a block begin.
fn leaves(begin: u32, len: u32) -> impl Iterator<Item = u32> {
    (begin..begin.saturating_add(len)).step_by(LEAF)
}

/// A conversation with the peer.
struct Talk<'a> {
    peer: Established,
    what: &'a Compare,
    received: u64,
    /// Nothing more can be asked.
    over: bool,
}

/// The relevant messages of the peer.
enum Reply {
    Fingerprints(u32, bytes::Bytes),
    Block(BlockHeader),
    No,
}

impl Talk<'_> {
    /// The parts of a file in the base, if they are enough; with the parts that the peer sent.
    async fn patch(&mut self, file: u32, bases: &[Base], base: usize) -> Result<Option<Patch>, ConnError> {
        let old = bases.get(base).and_then(|base| base.file(&self.what.manifest, file));
        let (Some(old), Some(new)) = (old, self.what.manifest.file(file)) else { return Ok(None) };
        let (len, pieces) = (new.len(), new.pieces());
        let leaves = Arc::new(self.fingerprints(pieces.clone(), len).await?);
        let (total, known) = (leaves.len(), leaves);
        let found = spawn_blocking(move || Patch::find(&known, &old, len)).await;
        let Ok(Ok(mut patch)) = found else { return Ok(None) };
        if patch.found() * WORTH < total {
            return Ok(None);
        }
        if self.what.fill {
            let piece_length = u64::from(self.what.manifest.piece_length());
            let filled = self.fill(&mut patch, pieces.start, piece_length).await;
            self.over =
                filled.inspect_err(|why| tracing::info!(%why, "the peer stopped sending blocks")).is_err();
        }
        Ok(Some(patch))
    }

    /// Fingerprints of all leaves of a file in these pieces.
    async fn fingerprints(&mut self, pieces: Range<u32>, len: u64) -> Result<Vec<Fingerprint>, ConnError> {
        let strange = || ConnError::Protocol("unrequested fingerprints");
        let total = usize::try_from(len.div_ceil(LEN)).map_err(|_| strange())?;
        let leaves = (self.what.manifest.piece_length() as usize / LEAF).max(1);
        let at_once = u32::try_from(MAX_FINGERPRINTS / leaves).unwrap_or(1).clamp(1, MAX_PIECES);
        let mut all: Vec<Fingerprint> = Vec::new();
        for first in pieces.clone().step_by(at_once as usize) {
            let count = at_once.min(pieces.end - first);
            let range = PieceRange { channel: 0, first, count };
            self.say(ext::Message::FingerprintsRequest(range)).await?;
            let Reply::Fingerprints(of, bytes) = self.next().await? else {
                return Err(ConnError::Protocol("no fingerprints in the reply"));
            };
            let (told, _) = bytes.as_chunks::<FINGERPRINT>();
            let expected = (total - all.len()).min(count as usize * leaves);
            if of != first || told.len() != expected {
                return Err(strange());
            }
            self.count(bytes.len()).await;
            all.extend(told.iter().map(|bytes| Fingerprint::from_bytes(*bytes)));
        }
        if all.len() == total { Ok(all) } else { Err(strange()) }
    }

    /// Asks for the leaves that are missing in pieces of which something was found.
    async fn fill(&mut self, patch: &mut Patch, first: u32, piece_length: u64) -> Result<(), ConnError> {
        let mut wanted: VecDeque<BlockRange> = VecDeque::new();
        let (mut room, most) = (ASKED.saturating_sub(self.received), self.longest());
        for mut range in patch.missing(piece_length) {
            while range.start < range.end && room > 0 {
                let (piece, begin) = (range.start / piece_length, range.start % piece_length);
                let len = (range.end - range.start).min(piece_length - begin).min(most).min(room);
                let len = if len < range.end - range.start { len - len % LEN } else { len };
                let (Ok(piece), Ok(begin), Ok(size)) =
                    (u32::try_from(piece), u32::try_from(begin), u32::try_from(len))
                else {
                    return Ok(());
                };
                if len == 0 {
                    return Ok(());
                }
                wanted.push_back(BlockRange { channel: 0, piece: first + piece, begin, len: size });
                (range.start, room) = (range.start + len, room - len);
            }
        }
        // By leaves: the peer may split a block, or join two.
        let mut under_way: BTreeSet<(u32, u32)> = BTreeSet::new();
        loop {
            while under_way.len() < AHEAD
                && let Some(block) = wanted.pop_front()
            {
                self.say(ext::Message::RequestBlock(block)).await?;
                under_way.extend(leaves(block.begin, block.len).map(|leaf| (block.piece, leaf)));
            }
            if under_way.is_empty() {
                return Ok(());
            }
            let Reply::Block(BlockHeader { piece, begin, len, .. }) = self.next().await? else {
                return Ok(());
            };
            let strange = u64::from(len) > most || u64::from(begin) % LEN != 0;
            if strange || !leaves(begin, len).all(|leaf| under_way.remove(&(piece, leaf))) {
                return Err(ConnError::Protocol("unrequested block"));
            }
            let mut data = vec![0; len as usize];
            self.peer.input.payload(&mut data, || {}, &LastPayload::default()).await?;
            self.count(data.len()).await;
            patch.give(u64::from(piece - first) * piece_length + u64::from(begin), data);
        }
    }

    fn longest(&self) -> u64 {
        self.peer.input.codec.session().map_or(LEN, |session| session.max_block.into())
    }

    async fn say(&mut self, message: ext::Message) -> Result<(), ConnError> {
        let mut out = BytesMut::new();
        Message::Tidecast(message).encode(self.peer.input.codec.peer_ids(), &mut out)?;
        self.peer.writer.write_all(&out).await?;
        self.peer.writer.flush().await
    }

    /// The next answer; other messages are passed over, but not without end.
    async fn next(&mut self) -> Result<Reply, ConnError> {
        let until = Instant::now() + ANSWER;
        for _ in 0..OTHERS {
            let message = match self.peer.input.ready()? {
                Ready::Frame(Frame::Message(message)) => message,
                Ready::Frame(Frame::Block(header)) => return Ok(Reply::Block(header)),
                Ready::Need(bytes) => {
                    let late = ConnError::Late { what: "answer", seconds: ANSWER.as_secs() };
                    timeout_at(until, self.peer.input.more(bytes)).await.map_err(|_| late)??;
                    continue;
                }
            };
            use ext::Message as M;
            match message {
                Message::Tidecast(M::Fingerprints { first, bytes, .. }) => {
                    return Ok(Reply::Fingerprints(first, bytes));
                }
                Message::Tidecast(M::FingerprintsReject(_) | M::RejectBlock(_) | M::RejectPieces(_)) => {
                    return Ok(Reply::No);
                }
                Message::Tidecast(M::Denied { text, .. }) => return Err(ConnError::Denied(text)),
                Message::Tidecast(M::Goodbye { .. }) => return Err(ConnError::Closed),
                _ => {}
            }
        }
        Err(ConnError::Protocol("no reply to the request among its messages"))
    }

    async fn count(&mut self, bytes: usize) {
        self.received += bytes as u64;
        if let Some(throttle) = &self.what.throttle {
            throttle.receive(bytes as u64).await;
        }
    }
}
