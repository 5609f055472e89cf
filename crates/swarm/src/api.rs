//! The engine's inputs and outputs: the whole interface between decisions and I/O.
//!
//! The driver (tokio in `net`, the model in `sim`) feeds [`Event`]s with the time, then drains
//! [`Action`]s. No payload passes here: a [`Block`] names bytes, the driver moves them.
//!
//! Life of a block that we download:
//! `Action::Request*` → bytes come off the socket → `Event::Received` → hash and disk →
//! exactly one of `Event::Stored`, `Event::BlockBad`, `Event::Duplicate`. When every block of a
//! piece is stored, the driver settles the piece: exactly one of `Event::PieceVerified` or
//! `Event::PieceFailed`. Only `PieceVerified` makes a piece ours.
//!
//! Life of a block that we upload: `Event::Requested*` → `Action::Serve` → `Event::Sent`.

use std::ops::Range;
use std::sync::Arc;

use crate::plan::Role;

pub use crate::plan::Complaint;
pub use crate::time::Time;

/// One live connection, named by the driver. A number is never used again in one engine's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// An address the driver knows and the engine may ask to dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Candidate(pub u32);

/// Bytes `begin..begin + len` of a piece. `begin` is a multiple of 16 KiB; `len` too, except at
/// the piece's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// Index of the piece.
    pub piece: u32,
    /// First byte within the piece.
    pub begin: u32,
    /// Number of bytes.
    pub len: u32,
}

/// Which protocol the other end speaks; it decides the unit of requests and of announcements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Another Tidecast: ranges of pieces in one request, blocks up to `max_block` bytes,
    /// availability as watermark and ranges, no choking.
    Tidecast {
        /// Largest block that both ends accept, bytes; a power of two of at least 16 KiB.
        max_block: u32,
    },
    /// Any BitTorrent client: 16 KiB requests, `have` messages, choking.
    Stock {
        /// Both ends speak BEP 6 (fast extension): rejects, have-all, have-none.
        fast: bool,
    },
    /// A web seed (BEP 19): an HTTP server with certain pieces, which is asked for runs of pieces. Nodes that
    /// know each other fetch different parts of it.
    Web {
        /// Largest block that is asked for at once, bytes; as of a Tidecast peer.
        max_block: u32,
        /// Ranges are ignored: requests must be in order.
        in_order: bool,
        /// The number by which this node's peers know it ([`Event::Key`]); 0: it does not share it with them,
        /// e.g. when it fetches on demand.
        key: u64,
    },
}

/// How a swarm starts.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Length of each piece in bytes; none is zero.
    pub lengths: Arc<[u32]>,
    /// Pieces already verified, as sorted, disjoint, non-touching ranges.
    pub have: Vec<Range<u32>>,
    /// Pieces to fetch at the start, likewise; more come with [`Event::Priority`].
    pub want: Vec<Range<u32>>,
    /// Mechanisms that are on.
    pub policy: Policy,
    /// Bounds on queues and windows.
    pub limits: Limits,
    /// Seed of every random choice: the same seed and events give the same actions.
    pub seed: u64,
}

/// BitTorrent's mechanisms, each its own switch. The default is Tidecast's own policy: none of
/// them between Tidecast peers. [`Policy::CLASSIC`] is the textbook client of BitLib section V.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Tit-for-tat choking with optimistic unchoke (30 s) and anti-snub (60 s), towards all peers. Off: all
    /// peers are unchoked.
    pub choking: bool,
    /// Super-seeding-like distribution (after BEP 16): a seeder gives each piece to one peer, and to
    /// the next only when it has seen it at the first.
    pub distribution: bool,
    /// Textbook endgame: the last blocks are asked of every peer. Off: a block is asked of a second
    /// peer only when its first is overdue.
    pub endgame: bool,
    /// Pieces are taken in order rather than rarest first.
    pub sequential: bool,
    /// A plan delivers the pieces that any member wants, to all of them, and no others.
    pub on_demand: bool,
    /// Complete members continue to serve when they have left the plan: its source delays requests for them
    /// as for present members.
    pub stays: bool,
}

impl Policy {
    /// Tidecast's own: nothing that hurts a cluster.
    pub const TIDECAST: Policy = Policy {
        choking: false,
        distribution: false,
        endgame: false,
        sequential: false,
        on_demand: false,
        stays: false,
    };

    /// All of BitTorrent's mechanisms with their textbook timers (`--policy classic`).
    pub const CLASSIC: Policy = Policy {
        choking: true,
        distribution: true,
        endgame: true,
        sequential: false,
        on_demand: false,
        stays: false,
    };
}

impl Default for Policy {
    fn default() -> Self {
        Policy::TIDECAST
    }
}

/// Bounds. Every queue in the engine has one; the defaults suit a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections in all.
    pub peers: usize,
    /// Random peers that the engine dials beyond those named.
    pub random_neighbours: usize,
    /// Bytes requested from one peer and not yet received: at least, at most. Between them the
    /// window follows measured bandwidth x delay. A peer that would take more than an eighth of a
    /// second over the least has less.
    pub window: (u32, u32),
    /// Bytes handed to one peer's connection by `Serve` and not yet `Sent`.
    pub serving: u32,
    /// Bytes handed to all connections together by `Serve` and not yet `Sent`: beyond it, peers take
    /// turns.
    pub serving_total: u64,
    /// Where `Policy::choking` is on, peers unchoked for their uploads; one more is unchoked at random.
    pub upload_slots: usize,
    /// Requests queued by one peer before further ones are refused (rejected, or dropped as abusive).
    pub queued_requests: usize,
    /// Bytes received and not yet stored, over all peers; above it no new request goes out.
    pub unsettled: u64,
    /// Copies of the data, in percent, that the source of a plan sends before members must help one another;
    /// 0: as many as they ask for.
    pub origin_copies: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            peers: 512,
            random_neighbours: 16,
            window: (1 << 20, 64 << 20),
            serving: 4 << 20,
            serving_total: 128 << 20,
            upload_slots: 3,
            queued_requests: 4096,
            unsettled: 256 << 20,
            origin_copies: 150,
        }
    }
}

/// The inputs of the engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the fields are their types; each variant is documented")]
pub enum Event {
    /// Time has passed: a wake-up that was asked for is due.
    Tick,

    /// An address to try. `told`: named by the user, a ticket or a plan; kept beside the random ones.
    Candidate { candidate: Candidate, told: bool },
    /// A dial asked for by [`Action::Dial`] came to nothing.
    DialFailed { candidate: Candidate },
    /// The dial reached a peer that refuses us, that is connected already, or that is this node itself: nothing changes
    /// that soon.
    DialRefused { candidate: Candidate },
    /// Earlier results of dials no longer count: the peer asks for us, or has been told to admit us.
    Retry { candidate: Candidate },
    /// This node has a new certificate or ticket: peers that refused it before are tried again.
    Admitted,
    /// A connection is ready: handshakes are done, availability not yet exchanged.
    PeerUp { peer: PeerId, protocol: Protocol, candidate: Option<Candidate> },
    /// A connection has ended, for whatever reason; nothing more will come from it except results of blocks
    /// that it had delivered.
    PeerDown { peer: PeerId },

    /// The number by which this peer is known, to itself and to others that fetch from the same web seeds.
    Key { peer: PeerId, key: u64 },

    /// The peer has all pieces.
    HasAll { peer: PeerId },
    /// The peer has no pieces (the state before any of these).
    HasNone { peer: PeerId },
    /// The peer has exactly these (a bitfield, or a full availability message).
    HasExactly { peer: PeerId, pieces: Vec<Range<u32>> },
    /// The peer has these too.
    Has { peer: PeerId, pieces: Range<u32> },
    /// The peer has all of these too: one announcement. Requests are chosen when all are known.
    HasMore { peer: PeerId, pieces: Vec<Range<u32>> },
    /// The peer has lost one (BEP 54).
    HasNot { peer: PeerId, piece: u32 },
    /// The peer chokes us.
    Choked { peer: PeerId },
    /// The peer serves us.
    Unchoked { peer: PeerId },
    /// The peer wants something of ours.
    Interested { peer: PeerId },
    /// The peer wants nothing of ours.
    NotInterested { peer: PeerId },
    /// The peer will not download any more (BEP 21), whether or not it has all.
    UploadOnly { peer: PeerId },
    /// The peer asks for a block.
    Requested { peer: PeerId, block: Block },
    /// The peer asks for whole pieces, in order (Tidecast).
    RequestedPieces { peer: PeerId, pieces: Range<u32> },
    /// The peer has cancelled its requests within this block.
    Canceled { peer: PeerId, block: Block },
    /// The peer rejects our request within this block.
    Rejected { peer: PeerId, block: Block },
    /// We may ask for this piece though choked (BEP 6).
    AllowedFast { peer: PeerId, piece: u32 },

    /// The peer queues at most this many requests (`reqq` of its extension handshake); 250 until it announces
    /// it.
    QueueLimit { peer: PeerId, requests: u32 },

    /// Payload has come off the socket; its verdict follows.
    Received { peer: PeerId, block: Block },
    /// It is on disk. `proven`: leaf hashes were known and each leaf matched, so that it may be passed on
    /// before the whole piece is verified.
    Stored { peer: PeerId, block: Block, proven: bool },
    /// It does not match its hashes and was dropped: proof against this peer.
    BlockBad { peer: PeerId, block: Block },
    /// It was there already and was dropped.
    Duplicate { peer: PeerId, block: Block },
    /// All blocks of the piece are on disk and match.
    PieceVerified { piece: u32 },
    /// All blocks were there and the piece does not match; its blocks are dropped.
    PieceFailed { piece: u32 },
    /// Blocks of an unverified piece could not be kept on our disk: no peer is at fault, and all of it is
    /// fetched again if it is wanted.
    PieceDropped { piece: u32 },
    /// Verified data turned out to be lost or changed on our disk.
    PieceLost { piece: u32 },
    /// Data that an earlier run may have left of the pieces below this one is verified: `PieceVerified` has
    /// named the valid ones. Others may turn out to be here, and need not be offered yet. Without this event,
    /// all are verified.
    Judged { below: u32 },
    /// A block that we were told to serve has left for the socket (or the peer has disconnected).
    Sent { peer: PeerId, block: Block },

    /// Priority of pieces: 0 unwanted, 1 normal, more is sooner. From files selected or opened.
    Priority { pieces: Range<u32>, priority: u8 },
    /// These pieces are wanted by `at`: they go before everything without a deadline.
    Deadline { pieces: Range<u32>, at: Time },

    /// A plan is on its way: nothing is asked for before it is here, or until this time.
    PlanExpected { until: Time },
    /// Our part in a new epoch of the plan; the one before it is over.
    Plan(Arc<Role>),
    /// The peer is this member of the plan. `distance`: 0 at our own place in the topology, more beyond each
    /// cut. Once per connection, after `PeerUp`.
    Member { peer: PeerId, member: u32, distance: u8 },
    /// The peer sends this piece of its own accord, block by block, as the plan has it for this stripe.
    Offered { peer: PeerId, piece: u32, stripe: u16 },
    /// The peer accepts offers of pieces below this one: it may have others. Until this event it accepts all.
    OfferBelow { peer: PeerId, below: u32 },
    /// The peer, or a member below it in the tree of this stripe, lacks these pieces and wants them by the
    /// plan, which is on demand. `urgent`: a reader waits for them.
    Wished { peer: PeerId, pieces: Range<u32>, stripe: u16, urgent: bool },

    /// Part of a block has come off the socket, and the rest is awaited. Sent about once a second while a
    /// block takes longer than that, so that a slow link is not taken for silence.
    Coming { peer: PeerId },
}

/// The outputs of the engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the fields are their types; each variant is documented")]
pub enum Action {
    /// Connect to this address; answered by `PeerUp`, `DialFailed` or `DialRefused`.
    Dial { candidate: Candidate },
    /// Close the connection; answered by `PeerDown`.
    Disconnect { peer: PeerId, reason: Reason },
    /// Close it and refuse this peer from now on.
    Ban { peer: PeerId, reason: Reason },

    /// Tell the peer all that we have, in the form its protocol has (first message to a peer).
    AnnounceAll { peer: PeerId, have: Vec<Range<u32>> },
    /// Tell the peer that we have these too.
    Announce { peer: PeerId, pieces: Vec<Range<u32>> },
    /// Tell the peer that we no longer have this one, where its protocol has words for it.
    AnnounceLost { peer: PeerId, piece: u32 },
    /// Report interest in the peer, or the loss of it.
    Interested { peer: PeerId, interested: bool },
    /// Choke or unchoke the peer.
    Choke { peer: PeerId, choke: bool },
    /// Ask for a block.
    Request { peer: PeerId, block: Block },
    /// Ask for whole pieces (Tidecast).
    RequestPieces { peer: PeerId, pieces: Range<u32> },
    /// Cancel our requests within this block.
    Cancel { peer: PeerId, block: Block },
    /// Send this block.
    Serve { peer: PeerId, block: Block },
    /// Tell the peer that this will not be served.
    Reject { peer: PeerId, block: Block },
    /// Tell the peer that all blocks of this piece follow, unasked (Tidecast); its leaf hashes go ahead.
    /// `Serve` follows for each block as it gets here. The peer declines by cancelling the whole piece.
    Offer { peer: PeerId, piece: u32, stripe: u16 },
    /// Tell the peer to offer us pieces below this one only (Tidecast).
    OfferBelow { peer: PeerId, below: u32 },
    /// Tell the planner that our parent in this stripe is gone, silent or slow.
    Complain { member: u32, stripe: u16, why: Complaint },

    /// Every wanted piece is verified. Sent once each time it becomes true.
    Complete,

    /// Tell our parent in the tree of this stripe which pieces we or members below us want by the plan, which
    /// is on demand (Tidecast). It forwards the wish.
    Wish { peer: PeerId, pieces: Range<u32>, stripe: u16, urgent: bool },
}

impl Action {
    /// The connection that it is about; none for `Dial`, `Complain` and `Complete`.
    #[must_use]
    pub fn peer(&self) -> Option<PeerId> {
        match *self {
            Action::Dial { .. } | Action::Complain { .. } | Action::Complete => None,
            Action::Disconnect { peer, .. }
            | Action::Ban { peer, .. }
            | Action::AnnounceAll { peer, .. }
            | Action::Announce { peer, .. }
            | Action::AnnounceLost { peer, .. }
            | Action::Interested { peer, .. }
            | Action::Choke { peer, .. }
            | Action::Request { peer, .. }
            | Action::RequestPieces { peer, .. }
            | Action::Cancel { peer, .. }
            | Action::Serve { peer, .. }
            | Action::Reject { peer, .. }
            | Action::Offer { peer, .. }
            | Action::OfferBelow { peer, .. }
            | Action::Wish { peer, .. } => Some(peer),
        }
    }
}

/// Why a peer was let go or banned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Sent bytes that do not match their hashes.
    CorruptData,
    /// A message that the protocol forbids.
    Protocol(&'static str),
    /// More requests than the queue holds.
    Flooding,
    /// Claims pieces and does not deliver them.
    Withholding,
    /// Neither side has anything for the other.
    Useless,
    /// A better peer takes its place, or the limit is reached.
    TooMany,
}
