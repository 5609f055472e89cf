//! Hash and disk: takes received blocks, verifies them, writes them, settles pieces. One thread a core, fed by the
//! connections, beside the engine. The task that has read a block settles it too where the threads are at work, since a core
//! still has the block in its cache, and a small one where the network is slower than this node: to wake a thread costs more.
//!
//! Promises: a block that contradicts a known leaf hash is never written; a verified piece is never
//! written to again; of two copies of a block one is written and the other reported as duplicate;
//! every block that came in is answered by exactly one of `Stored`, `BlockBad` and `Duplicate`; a block
//! stored as proven may be passed on at once, though its piece is not whole ([`Settler::held`]).

mod draft;
mod supply;
mod table;
#[cfg(test)]
mod tests;
mod unverified;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use tidecast_hash::{Digest, LEAF};
use tidecast_metainfo::Manifest;
use tidecast_store::Store;
use tidecast_swarm::{Block, Event, PeerId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::cpu::{Cpu, Stage};
use crate::input::Input;
use crate::pool::Buffer;
use crate::roots::Roots;
use parking_lot::Mutex;
pub(crate) use table::Held;
use table::{Admitted, Settled, Table};
use unverified::UnverifiedPieces;

/// Work for a settling thread.
enum Job {
    /// A block came in.
    Block { peer: PeerId, block: Block, data: Buffer, _slot: Slot },
    /// A piece may be on disk from an earlier run: hash it.
    Check { piece: u32 },
}

/// Buffers for settling; kept from block to block.
#[derive(Default)]
pub(crate) struct Desk {
    digests: Vec<Digest>,
    /// Inputs for the engine: to be sent in order, then [`Settler::said`] is due.
    pub(crate) heard: Vec<Input>,
    /// The piece that may be settled once they are sent.
    unsaid: Option<u32>,
}

impl Desk {
    fn say(&mut self, event: Event) {
        self.heard.push(Input::Event(event));
    }

    /// The verdict on a piece; in one message with that on its last block, so that the engine's thread is woken once.
    fn conclude(&mut self, verdict: Event) {
        let input = match self.heard.pop() {
            Some(Input::Event(last)) => Input::Settled(last, verdict),
            other => {
                self.heard.extend(other);
                Input::Event(verdict)
            }
        };
        self.heard.push(input);
    }
}

/// The right to have one block in the queue or in work.
pub(crate) struct Slot(#[expect(dead_code, reason = "held, not read")] OwnedSemaphorePermit);

/// Hands work to the settling threads; cheap to clone. The threads end when the last handle goes.
#[derive(Clone)]
pub(crate) struct Settler {
    jobs: Sender<Job>,
    checks: Sender<Job>,
    /// Blocks that may be queued or in work. Few: a block is hashed while the cache still holds it,
    /// and the sockets wait when the disk is slow.
    slots: Arc<Semaphore>,
    shared: Arc<Shared>,
}

struct Shared {
    manifest: Arc<Manifest>,
    store: Arc<Store>,
    /// Of a draft.
    roots: Option<Arc<Roots>>,
    found: Mutex<UnverifiedPieces>,
    table: Table,
    inbox: mpsc::Sender<Input>,
    cpu: Arc<Cpu>,
    stopped: AtomicBool,
    began: Instant,
    /// The disk has let a connection wait: until then, nanoseconds after `began`, blocks are for the threads.
    slow_until: AtomicU64,
}

/// How often data is read again when the host lacks resources, and the pause between.
const LOOKS: u32 = 60;
const SHORTAGE: std::time::Duration = std::time::Duration::from_secs(1);
/// The largest block, bytes, that a reader settles although a thread is free; and the time that the disk may take for one
/// that a reader settles, before blocks are left to the threads: for ten times that time.
const SMALL: u32 = 64 << 10;
const SLOW: Duration = Duration::from_millis(20);
/// Work waiting for the threads; blocks are bounded tighter by their slots.
const QUEUE: usize = 1024;
/// One in work and some that wait, so that neither sockets nor threads wait for each other.
const SLOTS_PER_THREAD: usize = 6;

impl Settler {
    /// Starts `threads` settling threads.
    pub(crate) fn start(
        manifest: Arc<Manifest>,
        store: Arc<Store>,
        roots: Option<Arc<Roots>>,
        inbox: mpsc::Sender<Input>,
        cpu: Arc<Cpu>,
        threads: usize,
    ) -> std::io::Result<Settler> {
        let (jobs, queue) = bounded(QUEUE);
        let (checks, check_queue) = bounded(QUEUE);
        let table = Table::new(manifest.piece_count());
        let stopped = AtomicBool::new(false);
        let found = Mutex::default();
        let (began, slow_until) = (Instant::now(), AtomicU64::new(0));
        let shared = Shared { manifest, store, roots, found, table, inbox, cpu, stopped, began, slow_until };
        let shared = Arc::new(shared);
        for n in 0..threads {
            let (shared, queue, checks) = (shared.clone(), queue.clone(), check_queue.clone());
            let name = format!("settle-{n}");
            std::thread::Builder::new().name(name).spawn(move || run(&shared, &queue, &checks))?;
        }
        let slots = Arc::new(Semaphore::new(SLOTS_PER_THREAD * threads));
        Ok(Settler { jobs, checks, slots, shared })
    }

    /// Marks pieces that were verified before this run.
    pub(crate) fn mark_verified(&self, pieces: std::ops::Range<u32>) {
        pieces.for_each(|p| self.shared.table.mark_verified(p));
    }

    /// In a draft: of `waiting` pieces that may be on disk, these are, and were hashed before this run.
    pub(crate) fn keep_found(&self, hashed: Vec<(u32, Digest)>) {
        self.shared.keep_found(hashed);
    }

    /// The roots of these pieces of a draft have become known: the inputs for the driver about those on disk.
    pub(crate) fn weigh(&self, pieces: std::ops::Range<u32>) -> Vec<Input> {
        self.shared.weigh(pieces)
    }

    /// Whether the piece is verified, as the settling threads see it.
    pub(crate) fn is_verified(&self, piece: u32) -> bool {
        self.shared.table.is_verified(piece)
    }

    /// A place in the queue for one block, as soon as there is one. None when the swarm is stopping.
    pub(crate) async fn slot(&self) -> Option<Slot> {
        self.slots.clone().acquire_owned().await.ok().map(Slot)
    }

    /// Hands over a received block. It does not wait, so that no connection can end between the
    /// engine hearing of a block and the block being here.
    pub(crate) fn block(&self, slot: Slot, peer: PeerId, block: Block, data: Buffer) {
        // A closed queue means that the swarm is stopping; the block is of no use then.
        let _ = self.jobs.send(Job::Block { peer, block, data, _slot: slot });
    }

    /// Whether the reader of this block is to settle it. `waited`: it had to wait for the network.
    pub(crate) fn is_for_reader(&self, block: Block, waited: bool) -> bool {
        let since = u64::try_from(self.shared.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let wanted = (waited && block.len <= SMALL) || !self.jobs.is_empty();
        wanted && since >= self.shared.slow_until.load(Ordering::Relaxed)
    }

    /// Settles a block here and now; the inputs for the engine are in the desk, empty until then.
    pub(crate) fn settle(&self, peer: PeerId, block: Block, data: &Buffer, desk: &mut Desk) {
        let shared = &self.shared;
        let began = Instant::now();
        shared.settle(peer, block, data, desk);
        let took = began.elapsed();
        if took > SLOW {
            let until = shared.began.elapsed() + 10 * took;
            let until = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
            shared.slow_until.store(until, Ordering::Relaxed);
        }
    }

    /// All that was heard is sent to the engine. False if nothing is left to do; else there is more to send.
    pub(crate) fn said(&self, desk: &mut Desk) -> bool {
        self.shared.said(desk)
    }

    /// Takes the leaf hashes of a whole piece that came ahead of its data, at once, so that all that
    /// follows on the connection is compared with them. False if they do not hash to the piece's root:
    /// proof of a lie.
    pub(crate) fn learn(&self, piece: u32, leaves: Vec<Digest>) -> bool {
        let shared = &self.shared;
        if shared.manifest.expected(piece).v2.is_none() || !shared.table.lacks_leaves(piece) {
            return true;
        }
        let true_ones = shared.matches(piece, &leaves);
        if true_ones {
            shared.table.know(piece, leaves);
        }
        true_ones
    }

    /// Leaf hashes to send ahead of a piece's data: proven ones only. None for v1, which proves none.
    pub(crate) fn leaves(&self, piece: u32) -> Option<Vec<Digest>> {
        let shared = &self.shared;
        shared.manifest.expected(piece).v2?;
        // In this order: a piece has left the table only when the store has it.
        let known = shared.table.known(piece);
        known.or_else(|| shared.cpu.measure(Stage::Disk, || shared.store.leaves(piece)).ok().flatten())
    }

    /// Whether a block may be sent to other peers.
    pub(crate) fn held(&self, block: Block) -> Held {
        self.shared.table.held(block)
    }

    /// Has a piece hashed that may be on disk; blocks while many are waiting.
    pub(crate) fn check(&self, piece: u32) {
        let _ = self.checks.send(Job::Check { piece });
    }

    /// Ends the threads once their queues are empty; later work is dropped.
    pub(crate) fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
    }
}

/// The loop of one thread: blocks first, checks when there are none.
fn run(shared: &Shared, jobs: &Receiver<Job>, checks: &Receiver<Job>) {
    let mut desk = Desk::default();
    loop {
        let job = match jobs.try_recv() {
            Ok(job) => job,
            Err(_) => crossbeam_channel::select! {
                recv(jobs) -> job => match job { Ok(job) => job, Err(_) => return },
                recv(checks) -> job => match job { Ok(job) => job, Err(_) => return },
                default(std::time::Duration::from_millis(500)) => {
                    if shared.stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    continue;
                }
            },
        };
        match job {
            Job::Block { peer, block, data, _slot } => {
                shared.settle(peer, block, &data, &mut desk);
                shared.deliver(&mut desk);
            }
            Job::Check { piece } => shared.check(piece),
        }
    }
}

impl Shared {
    /// Verifies one block and writes its new leaves.
    fn settle(&self, peer: PeerId, block: Block, data: &Buffer, desk: &mut Desk) {
        let bytes = &data[..block.len as usize];
        let digests = &mut desk.digests;
        digests.clear();
        if self.manifest.expected(block.piece).v2.is_some() {
            digests.resize(bytes.len().div_ceil(LEAF), [0; 32]);
            self.cpu.measure(Stage::Hash, || tidecast_hash::leaves(bytes, digests));
        }
        let piece_len = self.manifest.piece_len(block.piece);
        // The hash of a piece of one leaf is in the manifest: no leaves are sent for it.
        let alone = piece_len as usize <= LEAF && !digests.is_empty();
        if alone && !self.matches(block.piece, digests) {
            return desk.say(Event::BlockBad { peer, block });
        }
        match self.table.admit(peer, block, piece_len, digests) {
            Admitted::Write { proven } => self.write(peer, block, bytes, proven || alone, desk),
            Admitted::Duplicate => desk.say(Event::Duplicate { peer, block }),
            Admitted::Bad => return desk.say(Event::BlockBad { peer, block }),
            Admitted::Partly { parts, proven } => {
                for (part, fresh) in parts {
                    let from = (part.begin - block.begin) as usize;
                    match fresh {
                        true => {
                            let bytes = &bytes[from..from + part.len as usize];
                            self.write(peer, part, bytes, proven, desk);
                        }
                        false => desk.say(Event::Duplicate { peer, block: part }),
                    }
                }
            }
        }
        match self.table.last(block.piece) {
            Some(settled) => self.settle_piece(block.piece, settled, desk),
            None => desk.unsaid = Some(block.piece),
        }
    }

    /// Writes the admitted leaves.
    fn write(&self, peer: PeerId, block: Block, bytes: &[u8], proven: bool, desk: &mut Desk) {
        let written = self.cpu.measure(Stage::Disk, || self.store.write(block.piece, block.begin, bytes));
        if let Err(error) = written {
            // The verdict keeps the counts balanced. The store's failure is sent first, so that the requester can
            // withdraw its requests before more are made.
            self.table.forget(block);
            desk.say(Event::Duplicate { peer, block });
            desk.heard.push(Input::StoreFailed(error));
            return desk.say(Event::PieceDropped { piece: block.piece });
        }
        self.table.stored(block, proven);
        desk.say(Event::Stored { peer, block, proven });
    }

    /// Sends the inputs in the desk to the engine, and what follows from that; blocks while the engine is behind.
    fn deliver(&self, desk: &mut Desk) {
        loop {
            for input in desk.heard.drain(..) {
                // If the receiver is gone, the swarm has ended.
                let _ = self.inbox.blocking_send(input);
            }
            if !self.said(desk) {
                return;
            }
        }
    }

    /// The inputs in the desk are sent: settles the piece if it waited for these only. True if there are more to send.
    fn said(&self, desk: &mut Desk) -> bool {
        debug_assert!(desk.heard.is_empty());
        if let Some(piece) = desk.unsaid.take()
            && let Some(settled) = self.table.said(piece)
        {
            self.settle_piece(piece, settled, desk);
        }
        !desk.heard.is_empty() || desk.unsaid.is_some()
    }

    /// All blocks of a piece are on disk: compares it with the manifest.
    fn settle_piece(&self, piece: u32, settled: Settled, desk: &mut Desk) {
        let good = match self.manifest.expected(piece).v2 {
            Some(_) => Ok(self.matches(piece, &settled.digests)),
            None => self.cpu.measure(Stage::Hash, || self.store.check(piece)),
        };
        let kept = good.and_then(|good| {
            if good {
                self.keep(piece, &settled.digests)?;
            }
            Ok(good)
        });
        let ended = match kept {
            Ok(true) => {
                let digests = &self.with_digests_if_suspected(piece, settled).digests;
                // First, so that the verdicts on the last block and on the piece go in one message.
                let liars = self.table.verified(piece, digests).into_iter();
                let liars = liars.map(|(peer, block)| Input::Event(Event::BlockBad { peer, block }));
                drop(desk.heard.splice(..0, liars));
                Some(Event::PieceVerified { piece })
            }
            Ok(false) => {
                let failed = self.table.failed(piece, self.with_digests(piece, settled));
                failed.then_some(Event::PieceFailed { piece })
            }
            Err(error) => {
                // A failure of this host is not the fault of the peers that sent the piece.
                let dropped = self.table.dropped(piece, settled);
                desk.heard.insert(0, Input::StoreFailed(error));
                dropped.then_some(Event::PieceDropped { piece })
            }
        };
        match ended {
            Some(verdict) => desk.conclude(verdict),
            None => desk.unsaid = Some(piece),
        }
    }

    /// Records a verified piece in the store.
    fn keep(&self, piece: u32, digests: &[Digest]) -> Result<(), tidecast_store::Error> {
        if !digests.is_empty() {
            self.store.set_leaves(piece, digests)?;
        }
        self.store.piece_done(piece)
    }

    /// v1 pieces have no leaf digests; they are computed from the disk, as blame needs them.
    fn with_digests(&self, piece: u32, mut settled: Settled) -> Settled {
        if settled.digests.is_empty() {
            let len = self.manifest.piece_len(piece) as usize;
            let mut bytes = vec![0; len];
            if self.store.read_unverified(piece, 0, &mut bytes).is_ok() {
                settled.digests = vec![[0; 32]; len.div_ceil(LEAF)];
                tidecast_hash::leaves(&bytes, &mut settled.digests);
            }
        }
        settled
    }

    fn with_digests_if_suspected(&self, piece: u32, settled: Settled) -> Settled {
        if self.table.has_suspects(piece) { self.with_digests(piece, settled) } else { settled }
    }

    /// Hashes the data on disk of `piece` and counts it if it matches.
    fn check(&self, piece: u32) {
        if let Some(roots) = &self.roots {
            return self.check_draft(roots, piece);
        }
        let checked = self.check_piece(piece);
        let read = checked.is_ok();
        match checked {
            Ok(true) => {
                self.table.verified(piece, &[]);
                self.say(Event::PieceVerified { piece });
            }
            Ok(false) => {}
            Err(error) => self.fail(error),
        }
        let _ = self.inbox.blocking_send(Input::Checked { piece, read });
    }

    fn check_piece(&self, piece: u32) -> Result<bool, tidecast_store::Error> {
        if self.table.is_verified(piece) {
            return Ok(false);
        }
        let good = self.patiently(|| self.cpu.measure(Stage::Hash, || self.store.check(piece)))?;
        if good {
            self.store.piece_done(piece)?;
        }
        Ok(good)
    }

    /// Tries again while this host lacks descriptors or memory: that is no fault of the data.
    fn patiently(
        &self,
        look: impl Fn() -> Result<bool, tidecast_store::Error>,
    ) -> Result<bool, tidecast_store::Error> {
        for _ in 0..LOOKS {
            match look() {
                Err(error) if error.is_exhausted() && !self.inbox.is_closed() => {
                    tracing::warn!(%error, "cannot check data; trying again later");
                    std::thread::sleep(SHORTAGE);
                }
                looked => return looked,
            }
        }
        look()
    }

    fn matches(&self, piece: u32, leaves: &[Digest]) -> bool {
        self.cpu.measure(Stage::Hash, || self.manifest.check_leaves(piece, leaves)) == Some(true)
    }

    fn say(&self, event: Event) {
        let _ = self.inbox.blocking_send(Input::Event(event));
    }

    fn fail(&self, error: tidecast_store::Error) {
        let _ = self.inbox.blocking_send(Input::StoreFailed(error));
    }
}
