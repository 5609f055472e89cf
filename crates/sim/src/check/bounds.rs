//! Bounds on the state and the messages of one engine.
//!
//! They come from its `Limits`, plus data in flight: a bound is checked after a whole event, and requests
//! that were within it when they were sent may bring their bytes later.

use tidecast_swarm::{Engine, Limits};

use super::{Finding, Rule};

/// Actions per event: a base, and for each connection the length of a stock client's queue (rejects when it
/// is choked, requests when it unchokes) twice.
const ACTIONS: (u64, u64) = (4_096, 16_384);
/// Events of one engine between two looks at its numbers.
const NUMBERS: u64 = 32;
/// A look at everything costs about this many pieces x peers for each event before it.
const EVERYTHING: u64 = 16;
/// Largest block, bytes.
const BLOCK: u64 = 1 << 20;
/// Pieces asked of one that has everything beyond its window, and the longest of them (`requests`).
const RESERVED: (u64, u64) = (16, 4 << 20);
/// Bytes in one cell of a piece, the unit of bookkeeping.
const CELL: u64 = 16 << 10;
/// Remembered addresses and departed peers, for any swarm.
const REMEMBERED: usize = 16 << 10;

/// Connections that may have brought payload without a verdict yet: a verdict may well outlast its
/// connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Connections {
    open: u64,
    /// The most at once since unsettled payload was last seen within its limit. Beyond it nothing is
    /// requested, so any further payload was requested from these.
    most: u64,
}

impl Connections {
    /// A connection begins.
    pub(super) fn opened(&mut self) {
        self.open += 1;
        self.most = self.most.max(self.open);
    }

    /// A connection has ended.
    pub(super) fn closed(&mut self) {
        self.open = self.open.saturating_sub(1);
    }
}

/// Actions since the last event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ActionCount(u64);

/// Counts one more action about the event.
pub(super) fn count_action(burst: &mut ActionCount, engine: &Engine) -> Result<(), Finding> {
    burst.0 += 1;
    if burst.0 < ACTIONS.0 || !burst.0.is_multiple_of(ACTIONS.0) {
        return Ok(());
    }
    let peers = engine.stats().peers as u64;
    match burst.0 <= ACTIONS.0 + peers * ACTIONS.1 {
        true => Ok(()),
        false => Err((Rule::Unbounded, format!("{} actions about one event with {peers} peers", burst.0))),
    }
}

/// The schedule of checks for one engine.
#[derive(Clone, Debug, Default)]
pub(super) struct CheckSchedule {
    events: u64,
    everything_at: u64,
}

/// The checks that are due now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) numbers: bool,
    pub(super) everything: bool,
}

impl CheckSchedule {
    pub(super) fn next(&mut self) -> Due {
        self.events += 1;
        let everything = self.events >= self.everything_at;
        Due { numbers: self.events.is_multiple_of(NUMBERS), everything }
    }

    /// A look at everything has cost this much.
    pub(super) fn spent(&mut self, cost: u64) {
        self.everything_at = self.events + 64 + cost / EVERYTHING;
    }
}

/// The engine's numbers are within their bounds. O(peers).
pub(super) fn numbers(
    engine: &Engine,
    limits: &Limits,
    (known, connections): (usize, &mut Connections),
    (longest, pushed): (u64, u64),
) -> Result<(), Finding> {
    let (stats, peers) = (engine.stats(), engine.peer_stats());
    let count = peers.len() as u64;
    // For each connection its window, one block that was larger, the extra requests to complete peers so that
    // they may choose, and the data that parents in a plan push.
    let window = u64::from(limits.window.1);
    let of_one = window + BLOCK + RESERVED.0 * longest.min(RESERVED.1) + pushed;
    if stats.unsettled < limits.unsettled {
        connections.most = connections.open;
    }
    let bounds = [
        ("bytes requested", stats.outstanding, count * of_one),
        ("bytes unsettled", stats.unsettled, limits.unsettled + connections.most * of_one),
        ("bytes being served", stats.serving, limits.serving_total + BLOCK),
        ("connections", count, limits.peers as u64),
        ("addresses", stats.candidates as u64, known as u64),
        (
            "requests queued",
            peers.iter().map(|p| p.queued as u64).max().unwrap_or(0),
            limits.queued_requests as u64,
        ),
    ];
    for (what, is, most) in bounds {
        if is > most {
            return Err((Rule::Unbounded, format!("{is} {what}, {most} at most")));
        }
    }
    let cells = stats.wanted_left_bytes / CELL + u64::from(stats.pieces);
    let entries = REMEMBERED as u64 + 4 * cells + (count + 1) * (2 * limits.queued_requests as u64 + 4_096);
    match engine.footprint() as u64 {
        held if held > entries => Err((Rule::Unbounded, format!("{held} entries held, {entries} at most"))),
        _ => Ok(()),
    }
}

/// The engine's own invariants hold. O(pieces x peers).
pub(super) fn invariants(engine: &Engine) -> Result<(), Finding> {
    engine.check().map_err(|wrong| (Rule::Invariant, wrong))
}
