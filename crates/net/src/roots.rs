//! The roots of a draft: data that is sent while its source is still being hashed.
//!
//! The origin hashes in order and signs the roots, batch by batch; every node keeps the owner's messages, in their
//! order, and passes them on. A root counts here only if the owner's key has signed it; the last message is the
//! seal: the info-hash of the manifest that the draft has become. `docs/wire-extension.md` 4.8 specifies the
//! protocol.
//!
//! Promises: known roots never change; a piece is announced or sent only to peers that were sent its root before; a
//! batch is no larger than a 256th of the data before it, or 4 MiB, so that its delay is short.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tidecast_hash::Digest;
use tidecast_identity::{NodeId, NodeKey};
use tidecast_metainfo::Manifest;
use tidecast_wire::ext::{MAX_ROOTS, Message};

/// A batch is signed when it covers this many bytes at least, and this part of all before it.
const BATCH_BYTES: u64 = 4 << 20;
const BATCH_PART: u64 = 256;
/// Signed data begins with one of these, then the draft's info-hash.
const ROOTS: &[u8] = b"tidecast roots 1\0";
const SEAL: &[u8] = b"tidecast seal 1\0";

/// Where the roots of a draft come from.
#[derive(Clone, Debug)]
pub enum RootsKey {
    /// This node has the data, hashes it, and signs.
    Own(NodeKey),
    /// The key of the origin.
    Of(NodeId),
}

/// The error in a message about roots: its sender has violated the protocol.
pub(crate) type Wrong = &'static str;

/// The known roots of a draft.
pub(crate) struct Roots {
    manifest: Arc<Manifest>,
    draft: Digest,
    owner: NodeId,
    /// The owner's messages by their numbers.
    said: RwLock<Vec<Arc<Message>>>,
    /// How many there are, and how many pieces they cover: readable without the lock.
    count: AtomicU32,
    covered: AtomicU32,
    seal: OnceLock<Digest>,
    making: Option<Mutex<Making>>,
    began: Instant,
    took: OnceLock<Duration>,
}

/// The origin's side.
struct Making {
    key: NodeKey,
    /// Pieces hashed before their predecessors.
    early: BTreeMap<u32, Digest>,
    /// The roots behind all that is signed.
    batch: Vec<Digest>,
    /// Bytes of pieces in it, and before it.
    bytes: u64,
    before: u64,
}

impl Roots {
    /// None if the manifest is not a draft.
    pub(crate) fn new(manifest: &Arc<Manifest>, key: &RootsKey) -> Option<Roots> {
        let draft = manifest.hash_v2().filter(|_| manifest.is_draft())?;
        let making = match key {
            RootsKey::Own(key) => {
                let (early, batch) = (BTreeMap::new(), Vec::new());
                Some(Mutex::new(Making { key: key.clone(), early, batch, bytes: 0, before: 0 }))
            }
            RootsKey::Of(_) => None,
        };
        let owner = match key {
            RootsKey::Own(key) => key.id(),
            RootsKey::Of(owner) => *owner,
        };
        Some(Roots {
            manifest: manifest.clone(),
            draft,
            owner,
            said: RwLock::default(),
            count: AtomicU32::new(0),
            covered: AtomicU32::new(0),
            seal: OnceLock::new(),
            making,
            began: Instant::now(),
            took: OnceLock::new(),
        })
    }

    /// Whether this node finds the roots.
    pub(crate) fn is_maker(&self) -> bool {
        self.making.is_some()
    }

    /// How many messages of the owner's are known.
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Pieces below it have known roots.
    pub(crate) fn covered(&self) -> u32 {
        self.covered.load(Ordering::Acquire)
    }

    /// A message by its number, to be passed on.
    pub(crate) fn get(&self, number: u32) -> Option<Arc<Message>> {
        self.said.read().get(number as usize).cloned()
    }

    /// The info-hash of the sealed manifest, as signed by the owner.
    pub(crate) fn seal(&self) -> Option<Digest> {
        self.seal.get().copied()
    }

    /// How long the origin took to hash all of it.
    pub(crate) fn took(&self) -> Option<Duration> {
        self.took.get().copied()
    }

    /// Takes a message from a peer; answers which pieces it tells of, if that is news.
    pub(crate) fn hear(&self, message: Message) -> Result<Option<Range<u32>>, Wrong> {
        let Some(number) = number_of(&message) else { return Err("not a message about roots") };
        if number > self.count() {
            return Err("roots out of order");
        }
        if let Some(known) = self.get(number) {
            return repeats(&known, &message);
        }
        if !self.is_signed(&message) {
            return Err("roots without a valid signature of the owner");
        }
        self.keep(message)
    }

    /// Applies a message that the owner has signed.
    fn keep(&self, message: Message) -> Result<Option<Range<u32>>, Wrong> {
        let mut said = self.said.write();
        let number = number_of(&message).unwrap_or(u32::MAX);
        if let Some(known) = said.get(number as usize) {
            // It came over two connections at once.
            return repeats(known, &message);
        }
        let (from, all) = (self.covered(), self.manifest.piece_count());
        let news = match &message {
            _ if self.seal.get().is_some() || number as usize != said.len() => {
                return Err("roots out of order");
            }
            Message::Roots { first, roots, .. } => {
                let end = from.saturating_add(u32::try_from(roots.len()).unwrap_or(u32::MAX));
                if *first != from || end > all {
                    return Err("roots of pieces out of order");
                }
                let learnt =
                    (from..end).zip(roots).all(|(piece, root)| self.manifest.learn_root(piece, *root));
                if !learnt {
                    return Err("roots that contradict earlier roots");
                }
                from..end
            }
            Message::Seal { info_hash, .. } if from == all => {
                let _ = self.seal.set(*info_hash);
                all..all
            }
            _ => return Err("seal before the last root"),
        };
        said.push(Arc::new(message));
        self.covered.store(news.end, Ordering::Release);
        self.count.store(number.saturating_add(1), Ordering::Release);
        Ok(Some(news))
    }

    /// The origin has hashed a piece; the pieces whose roots are now signed, in order.
    pub(crate) fn made(&self, piece: u32, root: Digest) -> Range<u32> {
        let from = self.covered();
        let Some(making) = &self.making else { return from..from };
        let mut making = making.lock();
        let from = self.covered();
        making.early.insert(piece, root);
        loop {
            let signed = self.covered();
            let next = signed.saturating_add(making.batch.len() as u32);
            let Some(root) = making.early.remove(&next) else { break };
            making.batch.push(root);
            making.bytes += u64::from(self.manifest.piece_len(next));
            let enough = BATCH_BYTES.max(making.before / BATCH_PART);
            let last = next.saturating_add(1) == self.manifest.piece_count();
            if last || making.bytes >= enough || making.batch.len() >= MAX_ROOTS {
                self.sign_batch(&mut making, signed);
            }
        }
        from..self.covered()
    }

    fn sign_batch(&self, making: &mut Making, first: u32) {
        making.before += std::mem::take(&mut making.bytes);
        let roots = std::mem::take(&mut making.batch);
        self.sign(making, |number, signature| Message::Roots { channel: 0, number, first, signature, roots });
    }

    /// The origin has hashed everything, and the source has not changed: seals the draft.
    pub(crate) fn close(&self) {
        let Some(making) = self.making.as_ref().map(Mutex::lock) else { return };
        let _ = self.took.set(self.began.elapsed());
        if let Some(info_hash) = self.manifest.sealed_hash() {
            self.sign(&making, |number, signature| Message::Seal {
                channel: 0,
                number,
                signature,
                info_hash,
            });
        }
    }

    fn sign(&self, making: &Making, message: impl FnOnce(u32, [u8; 64]) -> Message) {
        let mut message = message(self.count(), [0; 64]);
        let signed = self.signed_bytes(&message);
        if let Message::Roots { signature, .. } | Message::Seal { signature, .. } = &mut message {
            *signature = making.key.sign(&signed);
        }
        let kept = self.keep(message);
        debug_assert!(kept.is_ok(), "{kept:?}");
    }

    fn is_signed(&self, message: &Message) -> bool {
        let (Message::Roots { signature, .. } | Message::Seal { signature, .. }) = message else {
            return false;
        };
        self.owner.verify(&self.signed_bytes(message), signature)
    }

    /// The bytes that the owner signs.
    fn signed_bytes(&self, message: &Message) -> Vec<u8> {
        match message {
            Message::Roots { number, first, roots, .. } => {
                let numbers = [number.to_be_bytes(), first.to_be_bytes()];
                [ROOTS, &self.draft, numbers.as_flattened(), roots.as_flattened()].concat()
            }
            Message::Seal { number, info_hash, .. } => {
                [SEAL, &self.draft, &number.to_be_bytes(), info_hash].concat()
            }
            _ => Vec::new(),
        }
    }
}

fn number_of(message: &Message) -> Option<u32> {
    match message {
        Message::Roots { number, .. } | Message::Seal { number, .. } => Some(*number),
        _ => None,
    }
}

/// A repeated message must be the same.
fn repeats(known: &Message, message: &Message) -> Result<Option<Range<u32>>, Wrong> {
    let same = match (known, message) {
        (Message::Roots { first, roots, .. }, Message::Roots { first: f, roots: r, .. }) => {
            (first, roots) == (f, r)
        }
        (Message::Seal { info_hash, .. }, Message::Seal { info_hash: h, .. }) => info_hash == h,
        _ => false,
    };
    if same { Ok(None) } else { Err("roots that contradict earlier roots") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tidecast_metainfo::{Builder, Content, Entry, Version};

    use super::*;

    const PIECES: u32 = 700;
    const PIECE: u32 = 16 << 10;

    fn draft() -> Arc<Manifest> {
        let content = Content::File {
            len: u64::from(PIECE) * u64::from(PIECES) - 5,
            executable: false,
            holes: Vec::new(),
            hard_link: None,
        };
        let entry = Entry { path: Vec::new(), content, mode: None, mtime: None, xattrs: Vec::new() };
        Arc::new(Builder::new(b"f", Version::V2, PIECE, vec![entry]).unwrap().draft().unwrap())
    }

    fn root(piece: u32) -> Digest {
        tidecast_hash::sha256(&piece.to_be_bytes())
    }

    /// All messages of an origin about a draft.
    fn origin(key: &NodeKey) -> (Arc<Manifest>, Vec<Message>) {
        let manifest = draft();
        let roots = Roots::new(&manifest, &RootsKey::Own(key.clone())).unwrap();
        for piece in 0..PIECES {
            roots.made(piece, root(piece));
        }
        roots.close();
        let said = (0..roots.count()).map(|n| (*roots.get(n).unwrap()).clone()).collect();
        (manifest, said)
    }

    fn receiver(owner: NodeId) -> (Arc<Manifest>, Roots) {
        let manifest = draft();
        let roots = Roots::new(&manifest, &RootsKey::Of(owner)).unwrap();
        (manifest, roots)
    }

    #[test]
    fn what_is_hashed_out_of_order_is_signed_in_order() {
        let key = NodeKey::generate().unwrap();
        let manifest = draft();
        let roots = Roots::new(&manifest, &RootsKey::Own(key)).unwrap();
        assert_eq!(roots.made(PIECES - 1, root(PIECES - 1)), 0..0);
        let mut signed = 0;
        for piece in (0..PIECES).map(|p| p ^ 1).filter(|p| *p < PIECES - 1) {
            let range = roots.made(piece, root(piece));
            assert_eq!(range.start, signed);
            signed = range.end;
            assert_eq!(roots.covered(), signed);
            assert!((0..signed).all(|p| manifest.expected(p).v2 == Some(root(p))));
            assert!(signed == PIECES || manifest.expected(signed).v2.is_none(), "not signed yet");
        }
        assert_eq!((signed, roots.seal()), (PIECES, None));
        roots.close();
        assert_eq!(roots.seal(), manifest.sealed_hash());
        assert!(roots.seal().is_some() && roots.took().is_some());
        assert!((2..20).contains(&roots.count()), "{}", roots.count());
    }

    #[test]
    fn a_receiver_ends_with_the_same_manifest() {
        let key = NodeKey::generate().unwrap();
        let (sent, said) = origin(&key);
        let (manifest, roots) = receiver(key.id());
        let mut covered = 0;
        for message in &said {
            let news = roots.hear(message.clone()).unwrap().unwrap();
            assert_eq!(news.start, covered);
            covered = news.end;
            assert_eq!(roots.hear(message.clone()), Ok(None), "from another neighbour");
        }
        assert_eq!(covered, PIECES);
        assert_eq!(roots.seal(), manifest.sealed_hash());
        assert_eq!(manifest.seal().unwrap().to_bytes(), sent.seal().unwrap().to_bytes());
    }

    #[test]
    fn nobody_but_the_owner_can_say_a_root() {
        let (key, liar) = (NodeKey::generate().unwrap(), NodeKey::generate().unwrap());
        let (_, said) = origin(&key);
        let (_, lies) = origin(&liar);
        let (manifest, roots) = receiver(key.id());
        assert!(roots.hear(lies[0].clone()).is_err(), "signed by another");
        for byte in 0..32 {
            let mut bent = said[0].clone();
            let Message::Roots { roots: list, .. } = &mut bent else { unreachable!() };
            list[byte % 7][byte] ^= 1;
            assert!(roots.hear(bent).is_err(), "a bit of a root");
        }
        let mut moved = said[0].clone();
        if let Message::Roots { first, .. } = &mut moved {
            *first = 1;
        }
        assert!(roots.hear(moved).is_err(), "of other pieces");
        assert!(roots.hear(said[1].clone()).is_err(), "before its turn");
        assert!(roots.hear(said.last().unwrap().clone()).is_err(), "a seal before its turn");
        assert_eq!((roots.count(), roots.covered()), (0, 0));
        assert!((0..PIECES).all(|p| manifest.expected(p).v2.is_none()), "nothing was learnt");

        roots.hear(said[0].clone()).unwrap();
        let mut other = said[0].clone();
        if let Message::Roots { roots: list, .. } = &mut other {
            list[3] = [9; 32];
        }
        assert!(roots.hear(other).is_err(), "it contradicts");
        let mut renumbered = said[0].clone();
        if let Message::Roots { number, .. } = &mut renumbered {
            *number = 1;
        }
        assert!(roots.hear(renumbered).is_err(), "the number is signed too");
        let mut seal = said.last().unwrap().clone();
        if let Message::Seal { number, .. } = &mut seal {
            *number = 1;
        }
        assert!(roots.hear(seal).is_err());
        for message in &said[1..] {
            roots.hear(message.clone()).unwrap();
        }
        assert!(roots.seal().is_some());
    }

    #[test]
    fn an_owner_that_breaks_its_own_rules_is_not_believed() {
        let key = NodeKey::generate().unwrap();
        let (_, roots) = receiver(key.id());
        let sign = |message: Message| {
            let signed = roots.signed_bytes(&message);
            let mut message = message;
            if let Message::Roots { signature, .. } | Message::Seal { signature, .. } = &mut message {
                *signature = key.sign(&signed);
            }
            message
        };
        let batch = |number, first, count: u32| {
            let roots = (first..first + count).map(root).collect();
            sign(Message::Roots { channel: 0, number, first, signature: [0; 64], roots })
        };
        let seal =
            |number| sign(Message::Seal { channel: 0, number, signature: [0; 64], info_hash: [3; 32] });
        assert!(roots.hear(seal(0)).is_err(), "before the last root");
        assert!(roots.hear(batch(0, 5, 10)).is_err(), "a gap");
        assert!(roots.hear(batch(0, 0, PIECES + 1)).is_err(), "too many");
        assert_eq!(roots.hear(batch(0, 0, PIECES)), Ok(Some(0..PIECES)));
        assert_eq!(roots.hear(seal(1)), Ok(Some(PIECES..PIECES)));
        assert!(roots.hear(seal(2)).is_err(), "a second seal");
        assert!(roots.hear(batch(2, 0, 1)).is_err(), "more");
    }
}
