//! Checks in a draft: data on disk is hashed before its correct hash is known.
//!
//! At the origin this finds the roots: a piece counts, and is announced, once its root is signed. On other nodes
//! the data of an earlier run or version is hashed and the hash kept; the verdict comes with the root.

use std::ops::Range;

use tidecast_hash::Digest;
use tidecast_swarm::Event;

use super::Shared;
use crate::cpu::Stage;
use crate::input::Input;
use crate::roots::Roots;

impl Shared {
    /// Hashes a piece that is, or may be, on disk.
    pub(super) fn check_draft(&self, roots: &Roots, piece: u32) {
        let hashed = self.cpu.measure(Stage::Hash, || self.store.hash_piece(piece));
        let root = match hashed {
            Ok(root) => root,
            Err(error) => {
                self.fail(error);
                None
            }
        };
        if roots.is_maker() {
            return self.make(roots, piece, root);
        }
        for input in self.found(piece, root) {
            let _ = self.inbox.blocking_send(input);
        }
    }

    /// The origin has the root of a piece: newly signed pieces count.
    fn make(&self, roots: &Roots, piece: u32, root: Option<Digest>) {
        // A piece that cannot be read ends the broadcast, with an error for the user; so does a file that
        // became shorter.
        let Some(root) = root else {
            return self.store.sources_unchanged().err().into_iter().for_each(|error| self.fail(error));
        };
        let signed = roots.made(piece, root);
        if !signed.is_empty() && signed.end == self.manifest.piece_count() {
            match self.store.sources_unchanged() {
                Ok(()) => roots.close(),
                Err(error) => return self.fail(error),
            }
        }
        let any = !signed.is_empty();
        for piece in signed {
            match self.store.piece_done(piece) {
                Ok(()) => {
                    self.table.verified(piece, &[]);
                    self.say(Event::PieceVerified { piece });
                }
                Err(error) => self.fail(error),
            }
            let _ = self.inbox.blocking_send(Input::Checked { piece, read: true });
        }
        if any {
            let _ = self.inbox.blocking_send(Input::Roots);
        }
    }

    /// A piece on disk has this hash: the inputs for the engine, if its root is known.
    fn found(&self, piece: u32, root: Option<Digest>) -> Vec<Input> {
        let mut found = self.found.lock();
        if self.manifest.expected(piece).v2.is_none() {
            found.pieces.insert(piece, root);
            return Vec::new();
        }
        drop(found);
        self.verdict(piece, root)
    }

    /// The roots of these pieces have become known: the inputs for the engine about those found on disk.
    pub(super) fn weigh(&self, pieces: Range<u32>) -> Vec<Input> {
        // Roots become known before the lock is taken, so that a piece that is found now is either here or sees them.
        let mut found = self.found.lock();
        let mut due = found.pieces.split_off(&pieces.start);
        found.pieces.append(&mut due.split_off(&pieces.end));
        drop(found);
        due.into_iter().flat_map(|(piece, root)| self.verdict(piece, root)).collect()
    }

    fn verdict(&self, piece: u32, root: Option<Digest>) -> Vec<Input> {
        let right = root.is_some() && root == self.manifest.expected(piece).v2;
        let mut inputs = Vec::new();
        if right && !self.table.is_verified(piece) {
            match self.store.piece_done(piece) {
                Ok(()) => {
                    self.table.verified(piece, &[]);
                    inputs.push(Input::Event(Event::PieceVerified { piece }));
                }
                Err(error) => inputs.push(Input::StoreFailed(error)),
            }
        }
        inputs.push(Input::Checked { piece, read: true });
        if !right && let Err(error) = self.store.differs(piece) {
            inputs.push(Input::StoreFailed(error));
        }
        inputs
    }

    /// Pieces that were hashed before this run's threads began.
    pub(super) fn keep_found(&self, hashed: Vec<(u32, Digest)>) {
        let mut found = self.found.lock();
        found.pieces.extend(hashed.into_iter().map(|(piece, root)| (piece, Some(root))));
    }
}
