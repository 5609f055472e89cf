//! The order of missing pieces: how many peers have each, its deadline, and the picker, which keeps the
//! pieces in that order.
//!
//! Promise: a piece that is in the picker lies at the level of its copies and at its deadline. Whether it is
//! in the picker depends on its priority and on the state of other mechanisms (`Engine::place`): every change
//! of those goes through `Engine::with_place`.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::api::Time;
use crate::rng::Rng;
use crate::state::availability::{Availability, Holding, level};
use crate::state::picker::Picker;

/// Where the picker keeps a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    priority: u8,
    level: u8,
    due: Option<Time>,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Selection {
    availability: Availability,
    picker: Picker,
    deadlines: BTreeMap<u32, Time>,
}

impl Selection {
    /// No peer has any piece, and nothing is to be picked.
    pub(crate) fn new(pieces: u32, sequential: bool) -> Self {
        Selection {
            availability: Availability::new(pieces),
            picker: Picker::new(pieces, sequential),
            deadlines: BTreeMap::new(),
        }
    }

    /// Copies at peers that lack something.
    pub(crate) fn copies(&self, piece: u32) -> u16 {
        self.availability.copies(piece)
    }

    /// Peers that have the piece, in all.
    pub(crate) fn holders(&self, piece: u32) -> u32 {
        self.availability.holders(piece)
    }

    /// Peers that have everything.
    pub(crate) fn seeds(&self) -> u32 {
        self.availability.seeds()
    }

    pub(crate) fn add_seed(&mut self) {
        self.availability.add_seed();
    }

    pub(crate) fn remove_seed(&mut self) {
        self.availability.remove_seed();
    }

    /// One more peer that lacks something has the piece, which is wanted with this priority.
    pub(crate) fn add_copy(&mut self, piece: u32, priority: u8) {
        let (from, to) = self.availability.add(piece);
        self.picker.relevel(piece, priority, from, to);
    }

    /// One less has it.
    pub(crate) fn remove_copy(&mut self, piece: u32, priority: u8) {
        let (from, to) = self.availability.remove(piece);
        self.picker.relevel(piece, priority, from, to);
    }

    /// Pieces that can be picked.
    pub(crate) fn count(&self) -> u32 {
        self.picker.count()
    }

    /// The best run of pieces to ask of a peer (`Picker::pick`).
    pub(crate) fn pick(
        &self,
        have: &Holding,
        cursor: Option<u32>,
        most: u32,
        rng: &mut Rng,
    ) -> Option<Range<u32>> {
        self.picker.pick(have, cursor, most, rng)
    }

    /// Where the picker keeps a piece of this priority, if it keeps it.
    pub(crate) fn place(&self, piece: u32, priority: u8) -> Place {
        let level = level(self.copies(piece));
        Place { priority, level, due: self.deadlines.get(&piece).copied() }
    }

    /// Moves a piece in the picker, into it or out of it; true when it can be picked now where it could not before.
    pub(crate) fn moved(&mut self, piece: u32, before: Option<Place>, after: Option<Place>) -> bool {
        if before == after {
            return false;
        }
        if let Some(Place { priority, level, due }) = before {
            self.picker.remove(piece, priority, level, due);
        }
        if let Some(Place { priority, level, due }) = after {
            self.picker.insert(piece, priority, level, due);
        }
        after.is_some()
    }

    /// A reader waits for the piece from this time on.
    pub(crate) fn set_deadline(&mut self, piece: u32, at: Time) {
        self.deadlines.insert(piece, at);
    }

    /// No reader waits for the piece any longer: it is here, and so no longer in the picker.
    pub(crate) fn clear_deadline(&mut self, piece: u32) {
        self.deadlines.remove(&piece);
    }

    /// A reader waits for the piece.
    pub(crate) fn has_deadline(&self, piece: u32) -> bool {
        self.deadlines.contains_key(&piece)
    }

    /// Pieces with a deadline that can be picked.
    pub(crate) fn due(&self) -> usize {
        self.picker.due()
    }

    /// Pieces for which a reader waits.
    pub(crate) fn deadlines(&self) -> usize {
        self.deadlines.len()
    }

    /// Whether the picker keeps the piece at `place`, and else not at all; the violation.
    pub(crate) fn check(&self, piece: u32, priority: u8, place: Option<Place>) -> Result<(), String> {
        let level = level(self.copies(piece));
        let there = self.picker.contains(piece, priority, level);
        let due = self.picker.is_due(piece, self.deadlines.get(&piece).copied());
        match place {
            Some(at) if !there || due != at.due.is_some() => {
                Err(format!("piece {piece}: missing, but in the picker {there}, and for its deadline {due}"))
            }
            None if there || due => Err(format!("piece {piece}: not missing, but in the picker")),
            _ => Ok(()),
        }
    }
}
