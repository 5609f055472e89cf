//! The engine: the state of its mechanisms, and the invariants that several of them share.
//!
//! Each mechanism has its state in a file of `state`, private there, and its decisions in a file of its own
//! beside this one, as methods of `Engine`: it may read everything, and changes the state of others by their
//! methods only. Invariants across states are kept here: `with_piece` is the only way to change a piece,
//! `with_place` the only way to change the inputs of the picker's order.

use crate::api::{Setup, Time};
use crate::rng::Rng;
use crate::state::addresses::Addresses;
use crate::state::announcer::Announcer;
use crate::state::blame::Blame;
use crate::state::budget::Budget;
use crate::state::choker::Choker;
use crate::state::counts::Counts;
use crate::state::downloads::Downloads;
use crate::state::env::Env;
use crate::state::membership::Membership;
use crate::state::outbox::Outbox;
use crate::state::peers::Peers;
use crate::state::pieces::{Pieces, State};
use crate::state::request_checks::RequestChecks;
use crate::state::selection::{Place, Selection};
use crate::state::superseed_pieces::SuperseedPieces;
use crate::state::upkeep::Upkeep;
use crate::state::upload::Turns;
use crate::state::web_seeds::WebSeeds;

/// Why an engine cannot be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SetupError {
    /// A piece without bytes.
    #[error("piece {0} has length 0; every piece needs at least one byte")]
    EmptyPiece(u32),
    /// More pieces than can be numbered.
    #[error("{0} pieces, more than the limit of {max}; use larger pieces", max = MOST_PIECES)]
    TooManyPieces(usize),
    /// A range that is empty, out of order, or beyond the last piece.
    #[error("pieces {0}..{1} are not a sorted, non-empty range of existing pieces")]
    BadRange(u32, u32),
}

/// Pieces in one swarm.
const MOST_PIECES: usize = 1 << 24;

/// One swarm's decisions; see the head of the crate.
#[derive(Debug)]
pub struct Engine {
    /// The time, the policy, the limits; and the only source of chance.
    pub(crate) env: Env,
    pub(crate) rng: Rng,
    /// The driver's actions.
    pub(crate) outbox: Outbox,

    /// Where each piece stands, and which missing one is next.
    pub(crate) pieces: Pieces,
    pub(crate) selection: Selection,
    /// The connections, with the requests in both directions.
    pub(crate) peers: Peers,
    /// Addresses.
    pub(crate) addresses: Addresses,

    /// Pending checks for requests, and data in flight.
    pub(crate) request_checks: RequestChecks,
    pub(crate) downloads: Downloads,
    pub(crate) upkeep: Upkeep,
    pub(crate) blame: Blame,
    pub(crate) web_seeds: WebSeeds,

    /// Served peers, and announcements of our pieces.
    pub(crate) turns: Turns,
    pub(crate) announcer: Announcer,
    pub(crate) choker: Choker,
    pub(crate) superseed_pieces: SuperseedPieces,

    /// The plan, and the budget of its source.
    pub(crate) plan: Membership,
    pub(crate) budget: Budget,

    /// Bytes moved over all peers.
    pub(crate) totals: Counts,
}

impl Engine {
    /// An engine for one swarm.
    ///
    /// # Errors
    /// When a piece is empty, there are too many, or a range is not one.
    pub fn new(setup: Setup, now: Time) -> Result<Self, SetupError> {
        let count = setup.lengths.len();
        if count > MOST_PIECES {
            return Err(SetupError::TooManyPieces(count));
        }
        if let Some(empty) = setup.lengths.iter().position(|&len| len == 0) {
            return Err(SetupError::EmptyPiece(empty as u32));
        }
        let count = count as u32;
        let longest = setup.lengths.iter().copied().max().unwrap_or(0);
        for ranges in [&setup.have, &setup.want] {
            let mut from = 0;
            for r in ranges {
                if r.start < from || r.is_empty() || r.end > count {
                    return Err(SetupError::BadRange(r.start, r.end));
                }
                from = r.end;
            }
        }
        let size = setup.lengths.iter().map(|&len| u64::from(len)).sum();
        let mut engine = Engine {
            env: Env::new(now, setup.policy, setup.limits),
            rng: Rng::new(setup.seed),
            outbox: Outbox::default(),
            pieces: Pieces::new(setup.lengths),
            selection: Selection::new(count, setup.policy.sequential),
            peers: Peers::default(),
            addresses: Addresses::new(setup.limits.random_neighbours),
            request_checks: RequestChecks::new(),
            downloads: Downloads::default(),
            upkeep: Upkeep::default(),
            blame: Blame::default(),
            web_seeds: WebSeeds::default(),
            turns: Turns::new(setup.limits.serving_total, count, longest),
            announcer: Announcer::new(),
            choker: Choker::default(),
            superseed_pieces: SuperseedPieces::default(),
            plan: Membership::default(),
            budget: Budget::new(size, setup.limits.origin_copies),
            totals: Counts::default(),
        };
        engine.addresses.rotate(now);
        for piece in setup.have.into_iter().flatten() {
            engine.pieces.verify(piece);
        }
        for piece in setup.want.into_iter().flatten() {
            engine.with_piece(piece, |p| p.set_priority(piece, 1));
        }
        engine.check_complete();
        Ok(engine)
    }

    /// Changes a piece and updates the state that depends on it: the picker, the count of pieces that peers
    /// have and we lack, and the peers that may have a new request.
    pub(crate) fn with_piece<T>(&mut self, piece: u32, change: impl FnOnce(&mut Pieces) -> T) -> T {
        let lacked = self.pieces.lacks(piece);
        let open = self.pieces.open().contains(&piece);
        let out = self.with_place(piece, |e| change(&mut e.pieces));
        if !open && self.selection.count() == 0 && self.pieces.open().contains(&piece) {
            // Before, checking all peers is not worth it: upkeep will.
            self.request_checks.changed();
        }
        let lacks = self.pieces.lacks(piece);
        if lacked != lacks {
            self.lack_changed(piece, lacks);
        }
        out
    }

    /// Changes an input of the picker's order of a piece.
    pub(crate) fn with_place<T>(&mut self, piece: u32, change: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.place(piece);
        let out = change(self);
        let after = self.place(piece);
        if self.selection.moved(piece, before, after) {
            self.request_checks.changed();
        }
        out
    }

    /// Where the picker keeps a piece, if it does.
    pub(crate) fn place(&self, piece: u32) -> Option<Place> {
        let pick = self.pieces.state(piece) == State::Missing
            && !self.blame.is_solo(piece)
            && !self.is_awaited(piece);
        pick.then(|| self.selection.place(piece, self.pieces.priority(piece)))
    }

    fn lack_changed(&mut self, piece: u32, lacks: bool) {
        let mut news = Vec::new();
        for peer in self.peers.values_mut().filter(|p| p.have.has(piece) && !p.is_closing()) {
            let nothing = peer.have.lack(lacks);
            if lacks && !peer.interest.we_want() {
                news.push(peer.id);
            }
            self.upkeep.arm_if(!lacks && nothing);
        }
        for id in news {
            self.update_interest(id);
        }
    }
}
