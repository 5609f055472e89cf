//! The engine: events come in, mechanisms act, actions go out.
//!
//! Every mechanism has a file of its own and adds its part to `Engine`; this one holds the state they
//! share, the ways in and out, and the bookkeeping that keeps their indexes true: `with_piece` is the
//! only way to change a piece, `retire` the only way to let a peer go.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::announce::Announcer;
use crate::api::{Action, Candidate, Event, Limits, PeerId, Policy, Protocol, Reason, Setup, Time};
use crate::availability::{Availability, level};
use crate::blame::Blame;
use crate::budget::Spared;
use crate::choker::Choker;
use crate::course::Course;
use crate::neighbours::{End, Neighbours};
use crate::peer::{Counts, Peer};
use crate::peers::Peers;
use crate::picker::Picker;
use crate::pieces::{Pieces, State};
use crate::rng::Rng;
use crate::superseed::Given;
use crate::upload::Turns;
use crate::web::Webs;
use crate::window::Meter;

/// While something may have to be taken from the slow.
const UPKEEP_BUSY: Duration = Duration::from_millis(50);
/// While requests are out.
const UPKEEP: Duration = Duration::from_millis(250);
/// A Tidecast peer that has had nothing for us for so long is told that we want nothing of it: who passes on
/// what it gets has something new all the time.
const BORED: Duration = Duration::from_secs(1);
/// Two that need nothing of each other part after this long.
const USELESS: Duration = Duration::from_secs(2);
/// With a plan, members beside our parents are dialled after this long, or up to twice that.
const SPARE: Duration = Duration::from_secs(1);
/// Others than those told are dialled within this time.
const MINGLE: Duration = Duration::from_millis(25);

/// Why an engine cannot be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SetupError {
    /// A piece without bytes.
    #[error("piece {0} has length 0; every piece needs at least one byte")]
    EmptyPiece(u32),
    /// More pieces than can be numbered.
    #[error("{0} pieces are more than {max}; use larger pieces", max = MOST_PIECES)]
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
    pub(crate) now: Time,
    pub(crate) policy: Policy,
    pub(crate) limits: Limits,
    pub(crate) rng: Rng,
    pub(crate) pieces: Pieces,
    pub(crate) availability: Availability,
    pub(crate) picker: Picker,
    pub(crate) deadlines: BTreeMap<u32, Time>,
    pub(crate) peers: Peers,
    pub(crate) turns: Turns,
    pub(crate) announcer: Announcer,
    /// Pieces below it are here or not; others may turn out to be.
    pub(crate) judged: u32,
    pub(crate) blame: Blame,
    pub(crate) choker: Choker,
    pub(crate) given: Given,
    pub(crate) neighbours: Neighbours,
    pub(crate) course: Option<Course>,
    pub(crate) webs: Webs,
    /// Bytes that we send as the source of a plan before others must help.
    pub(crate) budget: u64,
    pub(crate) spared: Spared,
    /// Members that have left with everything.
    pub(crate) finished: u32,
    /// Nothing is asked for before this time: a plan may come.
    pub(crate) expects: Option<Time>,
    /// The members of the plan that are connected.
    pub(crate) members: BTreeMap<u32, PeerId>,
    pub(crate) out: VecDeque<Action>,
    pub(crate) totals: Counts,
    /// Bytes requested over all peers, and received without a verdict.
    pub(crate) outstanding: u64,
    pub(crate) unsettled: u64,
    /// All payload that comes in.
    pub(crate) intake: Meter,
    /// Requests wait for the disk.
    pub(crate) paused: bool,
    /// Peers that may have room; asked at the end of the event.
    pub(crate) hungry: Vec<PeerId>,
    /// Counts the times that more could be asked for than before.
    pub(crate) epoch: u64,
    /// Those who had nothing to be asked are looked at again.
    pub(crate) stirred: bool,
    /// Upkeep has something to do though nothing is requested.
    pub(crate) restless: bool,
    pub(crate) complete: bool,
    upkeep_at: Option<Time>,
    /// When a neighbour last made room for another, or was looked for.
    pub(crate) rotated: Time,
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
        let mut engine = Engine {
            now,
            policy: setup.policy,
            limits: setup.limits,
            budget: budget(&setup),
            rng: Rng::new(setup.seed),
            pieces: Pieces::new(setup.lengths),
            availability: Availability::new(count),
            picker: Picker::new(count, setup.policy.sequential),
            deadlines: BTreeMap::new(),
            peers: Peers::default(),
            turns: Turns::new(setup.limits.serving_total, count, longest),
            announcer: Announcer::default(),
            judged: u32::MAX,
            blame: Blame::default(),
            choker: Choker::default(),
            given: Given::default(),
            neighbours: Neighbours::new(setup.limits.random_neighbours),
            course: None,
            webs: Webs::default(),
            spared: Spared::default(),
            finished: 0,
            expects: None,
            members: BTreeMap::new(),
            out: VecDeque::new(),
            totals: Counts::default(),
            outstanding: 0,
            unsettled: 0,
            intake: Meter::default(),
            paused: false,
            hungry: Vec::new(),
            epoch: 1,
            stirred: false,
            restless: false,
            complete: false,
            upkeep_at: None,
            rotated: now,
        };
        for piece in setup.have.into_iter().flatten() {
            engine.pieces.verify(piece);
        }
        for piece in setup.want.into_iter().flatten() {
            engine.with_piece(piece, |p| p.set_priority(piece, 1));
        }
        engine.check_complete();
        Ok(engine)
    }

    /// Something has happened at `now`.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.now = self.now.max(now);
        self.dispatch(event);
        self.announce_due();
        self.rechoke_due();
        self.held_due();
        self.upkeep_due();
        self.rotate_due();
        self.give_out();
        self.send_wishes();
        self.spared_due();
        self.serve();
        self.refill();
        self.dial();
        self.plan_upkeep();
    }

    /// The next thing to do, until there is none.
    pub fn poll(&mut self) -> Option<Action> {
        self.out.pop_front()
    }

    /// When to send `Event::Tick` if nothing else happens before.
    #[must_use]
    pub fn wakeup(&self) -> Option<Time> {
        let room = self.limits.peers > self.peers.len() + self.neighbours.dialing();
        let dial = self.neighbours.wakeup().filter(|_| room);
        let own =
            [self.announce_at(), self.choker.due(), self.given.due(), self.turns.due(), self.spared.due()];
        let timers = own.into_iter().chain([self.upkeep_at, self.rotate_at(), dial, self.expects]);
        timers.flatten().min().map(|at| at.max(self.now))
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Tick => {}
            Event::Candidate { candidate, told } => self.on_candidate(candidate, told),
            Event::DialFailed { candidate } => {
                self.neighbours.failed(self.now, candidate, false, &mut self.rng);
            }
            Event::DialRefused { candidate } => {
                self.neighbours.failed(self.now, candidate, true, &mut self.rng);
            }
            Event::Retry { candidate } => self.neighbours.retry(self.now, candidate),
            Event::Admitted => self.neighbours.admitted(self.now),
            Event::PeerUp { peer, protocol, candidate } => self.on_peer_up(peer, protocol, candidate),
            Event::PeerDown { peer } => self.on_peer_down(peer),
            Event::Stored { peer, block, proven } => self.on_stored(peer, block, proven),
            Event::BlockBad { peer, block } => self.on_block_bad(peer, block),
            Event::Duplicate { peer, block } => self.on_duplicate(peer, block),
            Event::Received { peer, block } => self.on_received(peer, block),
            Event::PieceVerified { piece } => self.on_piece_verified(piece),
            Event::PieceFailed { piece } => self.on_piece_failed(piece),
            Event::PieceDropped { piece } => self.on_piece_dropped(piece),
            Event::PieceLost { piece } => self.on_piece_lost(piece),
            Event::Judged { below } => self.on_judged(below),
            Event::Priority { pieces, priority } => self.on_priority(pieces, priority),
            Event::Deadline { pieces, at } => self.on_deadline(pieces, at),
            Event::PlanExpected { until } => self.expects = Some(until).filter(|_| self.course.is_none()),
            Event::Plan(role) => self.on_plan(role),
            other => self.dispatch_peer(other),
        }
    }

    /// Events of one live peer; those of a peer that we have closed mean nothing any more.
    fn dispatch_peer(&mut self, event: Event) {
        let Some(id) = peer_of(&event) else { return };
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&id).filter(|p| !p.closing) else { return };
        // What the driver says of a peer is no word of its own.
        if !matches!(
            event,
            Event::Sent { .. } | Event::Member { .. } | Event::Key { .. } | Event::QueueLimit { .. }
        ) {
            peer.hear(now);
        }
        match event {
            Event::Key { peer, key } => self.on_key(peer, key),
            Event::HasAll { peer } => self.on_has_all(peer),
            Event::HasNone { peer } => {
                self.has_none(peer);
                self.introduced(peer);
            }
            Event::HasExactly { peer, pieces } => self.on_has_exactly(peer, pieces),
            Event::Has { peer, pieces } => self.on_has(peer, &[pieces]),
            Event::HasMore { peer, pieces } => self.on_has(peer, &pieces),
            Event::HasNot { peer, piece } => self.on_has_not(peer, piece),
            Event::Choked { peer } => self.on_choked(peer),
            Event::Unchoked { peer } => self.on_unchoked(peer),
            Event::Interested { peer } => self.on_interested(peer, true),
            Event::NotInterested { peer } => self.on_interested(peer, false),
            Event::UploadOnly { peer } => self.on_upload_only(peer),
            Event::Requested { peer, block } => self.on_requested(peer, block),
            Event::RequestedPieces { peer, pieces } => self.on_requested_pieces(peer, pieces),
            Event::Canceled { peer, block } => self.on_canceled(peer, block),
            Event::Rejected { peer, block } => self.on_rejected(peer, block),
            Event::AllowedFast { peer, piece } => self.on_allowed_fast(peer, piece),
            Event::Sent { peer, block } => self.on_sent(peer, block),
            Event::Member { peer, member, .. } => self.on_member(peer, member),
            Event::Offered { peer, piece, stripe } => self.on_offered(peer, piece, stripe),
            Event::OfferBelow { peer, below } => self.on_offer_below(peer, below),
            Event::Wished { peer, pieces, stripe, urgent } => self.on_wished(peer, pieces, stripe, urgent),
            Event::Coming { peer } => self.on_coming(peer),
            Event::QueueLimit { peer, requests } => {
                if let Some(peer) = self.peers.get_mut(&peer) {
                    peer.limit_queue(requests);
                }
            }
            _ => {}
        }
    }

    /// Changes a piece and keeps true what depends on its state: the picker, what peers have that we
    /// lack, and who may have something new to be asked.
    pub(crate) fn with_piece<T>(&mut self, piece: u32, change: impl FnOnce(&mut Pieces) -> T) -> T {
        let lacked = self.pieces.lacks(piece);
        let open = self.pieces.open().contains(&piece);
        let out = self.with_place(piece, |e| change(&mut e.pieces));
        if !open && self.picker.count() == 0 && self.pieces.open().contains(&piece) {
            // Earlier it is not worth looking at everyone: upkeep will.
            self.changed();
        }
        let lacks = self.pieces.lacks(piece);
        if lacked != lacks {
            self.lack_changed(piece, lacks);
        }
        out
    }

    /// Changes what decides where the picker keeps a piece.
    pub(crate) fn with_place<T>(&mut self, piece: u32, change: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.place(piece);
        let out = change(self);
        let after = self.place(piece);
        if before != after {
            if let Some((priority, level, due)) = before {
                self.picker.remove(piece, priority, level, due);
            }
            if let Some((priority, level, due)) = after {
                self.picker.insert(piece, priority, level, due);
                self.changed();
            }
        }
        out
    }

    /// Where the picker keeps a piece: priority, level, deadline.
    pub(crate) fn place(&self, piece: u32) -> Option<(u8, u8, Option<Time>)> {
        let pick = self.pieces.state(piece) == State::Missing
            && !self.blame.is_solo(piece)
            && !self.is_awaited(piece);
        pick.then(|| {
            let level = level(self.availability.copies(piece));
            (self.pieces.priority(piece), level, self.deadlines.get(&piece).copied())
        })
    }

    /// More can be asked for than before.
    pub(crate) fn changed(&mut self) {
        self.epoch += 1;
        self.stirred = true;
    }

    fn lack_changed(&mut self, piece: u32, lacks: bool) {
        let mut news = Vec::new();
        for peer in self.peers.values_mut().filter(|p| p.have.has(piece) && !p.closing) {
            if !peer.have.is_all() {
                peer.lacking = if lacks { peer.lacking + 1 } else { peer.lacking - 1 };
            }
            if lacks && !peer.we_want {
                news.push(peer.id);
            }
            self.restless |= !lacks && !peer.have.is_all() && peer.lacking == 0;
        }
        for id in news {
            self.mind_interest(id);
        }
    }

    fn on_priority(&mut self, pieces: std::ops::Range<u32>, priority: u8) {
        for piece in pieces.start..pieces.end.min(self.pieces.count()) {
            let idle = self.pieces.partial(piece).is_some_and(|p| !p.has_data());
            self.with_piece(piece, |p| p.set_priority(piece, priority));
            if priority == 0 && idle {
                self.forget_piece(piece);
            }
            self.touch(piece, priority > 1, None);
        }
        self.wanting_again();
    }

    fn on_deadline(&mut self, pieces: std::ops::Range<u32>, at: Time) {
        for piece in pieces.start..pieces.end.min(self.pieces.count()) {
            if !self.pieces.verified(piece) {
                self.with_place(piece, |e| e.deadlines.insert(piece, at));
            }
            self.touch(piece, true, None);
        }
    }

    fn on_peer_up(&mut self, id: PeerId, protocol: Protocol, candidate: Option<Candidate>) {
        if self.peers.contains_key(&id) {
            debug_assert!(false, "peer {id:?} is up twice");
            return;
        }
        let mut peer = Peer::new(id, protocol, candidate, &self.limits, self.now);
        peer.told = candidate.is_some_and(|c| self.neighbours.told(c));
        if let Some(candidate) = candidate {
            self.neighbours.up(candidate, id);
        }
        let told = peer.told;
        self.peers.insert(id, peer);
        self.web_up(id);
        if self.peers.len() > self.limits.peers && !self.make_room(id, told) {
            return self.disconnect(id, Reason::TooMany);
        }
        self.announce_all(id);
        self.choke_new(id);
        self.restless = true;
    }

    fn on_peer_down(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get(&id) else { return };
        // Whichever of the two lets go first, neither calls the other again.
        let end = if self.is_useless(peer) { End::Useless } else { peer.end };
        self.finished += u32::from(peer.member.is_some() && peer.have.is_all());
        self.retire(id);
        self.web_down(id);
        if let Some(peer) = self.peers.remove(&id) {
            self.blame.departed(id, peer.candidate);
            if let Some(candidate) = peer.candidate {
                self.neighbours.down(self.now, candidate, id, (peer.since, end), &mut self.rng);
            }
        }
        self.given_to_departed(id);
        self.fill_slots();
    }

    /// Neither side will have anything more for the other.
    fn is_useless(&self, peer: &Peer) -> bool {
        let sated = peer.have.is_all() || peer.upload_only && !peer.wants_ours;
        self.complete && sated && peer.end == End::Lost && !self.on_demand()
    }

    /// Closes a connection.
    pub(crate) fn disconnect(&mut self, id: PeerId, reason: Reason) {
        let Some(peer) = self.peers.get_mut(&id).filter(|p| !p.closing) else { return };
        if reason == Reason::Useless {
            peer.end = End::Useless;
        }
        self.retire(id);
        self.out.push_back(Action::Disconnect { peer: id, reason });
    }

    /// Frees all that a peer holds and is asked for. It stays in the table until `PeerDown`.
    pub(crate) fn retire(&mut self, id: PeerId) {
        self.left_plan(id);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.closing = true;
        self.turns.forget(id, &mut peer.queue);
        self.spared.forget(id);
        for piece in peer.asked_pieces() {
            self.take_back(id, piece, 0..u32::MAX, false);
        }
        self.has_none(id);
        if let Some(peer) = self.peers.get_mut(&id) {
            debug_assert_eq!((peer.outstanding, peer.asked.len()), (0, 0));
            peer.wants_ours = false;
            peer.allowed_fast.clear();
        }
    }

    /// All may hear of the same others, in the same order and at the same instant. If each dialled at once those that it
    /// hears of first, all would dial the same few, and these alone would pass everything on: chance says who comes first.
    ///
    /// In a plan everybody begins with the parents that it names. The others are for when it does not hold: a
    /// handshake with each would be in the way of the data, or longer than it, and one that calls us saves us the call.
    fn on_candidate(&mut self, candidate: Candidate, told: bool) {
        let wait = match (told, self.course.is_some()) {
            (true, _) => Duration::ZERO,
            (false, true) => SPARE + SPARE * self.rng.below(256) / 256,
            (false, false) => MINGLE * self.rng.below(256) / 256,
        };
        self.neighbours.add(self.now.after(wait), candidate, told);
    }

    fn dial(&mut self) {
        let room = self.limits.peers.saturating_sub(self.peers.len());
        for candidate in self.neighbours.dial(self.now, room, &mut self.rng) {
            self.out.push_back(Action::Dial { candidate });
        }
    }

    fn upkeep_due(&mut self) {
        if self.upkeep_at.is_none_or(|at| at > self.now) {
            return;
        }
        self.upkeep_at = None;
        self.restless = false;
        self.look_for_slow();
        self.mind_parents();
        self.mind_webs();
        let (now, complete) = (self.now, self.complete);
        let (mut bored, mut useless) = (Vec::new(), Vec::new());
        for peer in self.peers.values().filter(|p| !p.closing) {
            let lacking = self.lacking(peer);
            if lacking == 0 && peer.we_want {
                // A stock client may hold a slot for us.
                if complete || peer.is_stock() || now.since(peer.useful) >= BORED {
                    bored.push(peer.id);
                } else {
                    // Looked at again, though nothing may be requested.
                    self.restless |= self.outstanding == 0;
                }
            } else if self.is_useless(peer) && peer.queue.len() == 0 {
                if now.since(peer.since) >= USELESS && now.since(peer.patience.last()) >= USELESS {
                    useless.push(peer.id);
                } else {
                    self.restless = true;
                }
            }
            self.restless |= peer.patience.resting(now);
        }
        let left = self.pieces.left();
        for peer in self.peers.values_mut().filter(|p| !p.closing && p.room(now) > 0) {
            let lacking = if peer.have.is_all() { left } else { peer.lacking };
            if lacking > 0 {
                // Whatever was overlooked when it was found dry is found now.
                peer.dry = None;
                self.hungry.push(peer.id);
                self.restless = true;
            }
        }
        for id in bored {
            self.say_interested(id, false);
            self.restless = true;
        }
        for id in useless {
            self.flush_announcements();
            self.disconnect(id, Reason::Useless);
        }
    }

    /// Sets the time of the next upkeep, if there is anything to keep up.
    fn plan_upkeep(&mut self) {
        let pause = match (self.outstanding > 0, self.restless) {
            (true, true) => UPKEEP_BUSY,
            (true, false) | (false, true) => UPKEEP,
            (false, false) => return,
        };
        let at = self.now.after(pause);
        self.upkeep_at = Some(self.upkeep_at.map_or(at, |old| old.min(at)));
    }
}

/// Bytes of as many copies as the source of a plan sends.
fn budget(setup: &Setup) -> u64 {
    let size: u64 = setup.lengths.iter().map(|&len| u64::from(len)).sum();
    match setup.limits.origin_copies {
        0 => u64::MAX,
        percent => (size / 100).saturating_mul(u64::from(percent)),
    }
}

/// The peer that an event is about.
fn peer_of(event: &Event) -> Option<PeerId> {
    match event {
        Event::HasAll { peer }
        | Event::Key { peer, .. }
        | Event::HasNone { peer }
        | Event::HasExactly { peer, .. }
        | Event::Has { peer, .. }
        | Event::HasMore { peer, .. }
        | Event::HasNot { peer, .. }
        | Event::Choked { peer }
        | Event::Unchoked { peer }
        | Event::Interested { peer }
        | Event::NotInterested { peer }
        | Event::UploadOnly { peer }
        | Event::Requested { peer, .. }
        | Event::RequestedPieces { peer, .. }
        | Event::Canceled { peer, .. }
        | Event::Rejected { peer, .. }
        | Event::AllowedFast { peer, .. }
        | Event::QueueLimit { peer, .. }
        | Event::Member { peer, .. }
        | Event::Offered { peer, .. }
        | Event::OfferBelow { peer, .. }
        | Event::Wished { peer, .. }
        | Event::Coming { peer }
        | Event::Sent { peer, .. } => Some(*peer),
        _ => None,
    }
}
