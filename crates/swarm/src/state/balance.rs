//! How evenly a source gives pieces to its stripes.
//!
//! Promise: no stripe gets far ahead of another while the connection to the other's first member can catch
//! up. These connections share the source's uplink, and TCP shares it unevenly for many seconds. Each stripe
//! has relays of its own with no uplink to spare: those of the stripe that gets more fall behind, those of
//! the others are idle, and the capacity that they had meanwhile is lost.
//!
//! A stripe that is too far ahead waits until half of its lead is used up. If that takes longer than a
//! connection that has the uplink to itself needs, the stripe behind is slow for another reason, and the
//! others no longer wait for it until it has caught up. After members are lost, first members may be slow one
//! after another: waits in which the uplink may have been idle are a 64th of the time at most.

use std::time::Duration;

use crate::api::Time;
use crate::state::meter::Meter;

/// The rate is measured over this long.
const SAMPLE: Duration = Duration::from_millis(500);
/// The excessive lead: this share of the data given in a second, and at least this many pieces.
const LEAD: u64 = 8;
const LEAD_PIECES: u64 = 2;
/// Data that the kernels may hold of all connections together. It is sent before a waiting stripe leaves the
/// uplink to others.
const BUFFERED: u64 = 1 << 20;
/// After a wait in which the uplink may have been idle, no stripe waits for this many times as long.
const REST: u32 = 64;

/// A stripe and its given data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Given {
    pub(crate) bytes: u64,
    pub(crate) stripe: u16,
}

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    meter: Meter,
    /// Stripes for which the others do not wait.
    late: Vec<u16>,
    /// The stripe that is waited for.
    hold: Option<Hold>,
    /// No stripe waits before this time.
    rests: Time,
}

/// Others wait for a stripe.
#[derive(Clone, Copy, Debug)]
struct Hold {
    stripe: u16,
    since: Time,
    until: Time,
}

impl Balance {
    /// A piece of `len` bytes is given to a stripe.
    pub(crate) fn give(&mut self, now: Time, len: u32) {
        self.meter.add(now, len, SAMPLE);
    }

    /// There is nothing to give, or no receiver.
    pub(crate) fn rest(&mut self, now: Time) {
        let Some(hold) = self.hold.take() else { return };
        let busy = self.meter.time_for(BUFFERED).unwrap_or_default();
        let idle = now.since(hold.since).saturating_sub(busy);
        if !idle.is_zero() {
            self.rests = now.after(idle * REST);
        }
    }

    /// The time at which waiting stripes continue at the latest.
    pub(crate) fn due(&self) -> Option<Time> {
        self.hold.map(|hold| hold.until)
    }

    /// Whether the stripe `next`, which has least of those that take something now, gets the next piece. `all`: the stripes
    /// whose first members are connected; `piece`: its length.
    pub(crate) fn allows(&mut self, now: Time, next: Given, all: &[Given], piece: u64) -> bool {
        let lead = (self.meter.rate() / LEAD).max(LEAD_PIECES * piece);
        self.resume_caught_up(all, lead / 2);
        loop {
            let waited_for = all.iter().filter(|given| !self.late.contains(&given.stripe)).min();
            let ahead = waited_for.map_or(0, |least| next.bytes.saturating_sub(least.bytes));
            let (Some(least), Some(time)) = (waited_for, self.meter.time_for(lead + BUFFERED)) else {
                return true;
            };
            let same = self.hold.filter(|hold| hold.stripe == least.stripe);
            let most = if same.is_some() { lead / 2 } else { lead };
            if next.stripe == least.stripe || self.hold.is_none() && now < self.rests {
                return true;
            }
            if ahead <= most {
                self.rest(now);
                return true;
            }
            let until = same.map_or(now.after(time), |hold| hold.until);
            if now < until {
                let since = self.hold.map_or(now, |hold| hold.since);
                self.hold = Some(Hold { stripe: least.stripe, since, until });
                return false;
            }
            self.rest(now);
            self.late.push(least.stripe);
        }
    }

    /// Stripes that have caught up are waited for again.
    fn resume_caught_up(&mut self, all: &[Given], behind: u64) {
        let others = all.iter().filter(|given| !self.late.contains(&given.stripe)).map(|given| given.bytes);
        let Some(least) = others.min() else { return self.late.clear() };
        let caught_up = |stripe| all.iter().any(|g| g.stripe == stripe && g.bytes + behind >= least);
        self.late.retain(|&stripe| !caught_up(stripe));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PIECE: u32 = 1 << 16;
    const MS: u64 = 1_000_000;

    /// Bytes that each of three stripes has got, and the idle milliseconds, where the first members'
    /// connections take `rates` bytes of each millisecond, by the number that take something in it.
    fn given(millis: u64, rates: impl Fn(u64, usize) -> [u64; 3]) -> ([u64; 3], u64) {
        let mut balance = Balance::default();
        let (mut bytes, mut queued, mut idle) = ([0u64; 3], [0u64; 3], 0);
        for at in 0..millis {
            let taking = queued.iter().filter(|q| **q > 0).count();
            let rates = rates(at, taking);
            for (queued, rate) in queued.iter_mut().zip(rates) {
                *queued = queued.saturating_sub(rate);
            }
            loop {
                let all: Vec<Given> =
                    (0..).zip(bytes).map(|(stripe, bytes)| Given { bytes, stripe }).collect();
                let room = |g: &&Given| queued[usize::from(g.stripe)] < u64::from(PIECE);
                let Some(&next) = all.iter().filter(room).min() else { break balance.rest(Time(at * MS)) };
                if !balance.allows(Time(at * MS), next, &all, u64::from(PIECE)) {
                    idle += 1;
                    break;
                }
                balance.give(Time(at * MS), PIECE);
                bytes[usize::from(next.stripe)] += u64::from(PIECE);
                queued[usize::from(next.stripe)] += u64::from(PIECE);
            }
        }
        (bytes, idle)
    }

    #[test]
    fn a_connection_that_tcp_favours_gets_no_more() {
        // For three seconds one gets six times as much as another, then the reverse. A single one gets all.
        let (bytes, _) = given(30_000, |at, taking| match (taking, at / 3000 % 2) {
            (3, 0) => [600, 300, 100],
            (3, _) => [100, 300, 600],
            _ => [1000 / taking.max(1) as u64; 3],
        });
        let (most, least) = (bytes.iter().max().unwrap(), bytes.iter().min().unwrap());
        assert!(most - least <= 4 * u64::from(PIECE), "{bytes:?}");
        assert!(bytes.iter().sum::<u64>() >= 29_000_000, "{bytes:?}");
    }

    #[test]
    fn a_slow_first_member_holds_up_the_others_once() {
        let (bytes, idle) = given(20_000, |_, _| [40, 500, 500]);
        assert!(bytes[1] > 8_000_000 && bytes[2] > 8_000_000, "{bytes:?}");
        assert!(idle < 1500, "{idle} ms");
        // One that stops, too.
        let (bytes, idle) = given(20_000, |at, _| [if at > 5000 { 0 } else { 300 }, 300, 300]);
        assert!(bytes[1] > 5_200_000 && bytes[2] > 5_200_000, "{bytes:?}");
        assert!(idle < 1500, "{idle} ms");
    }
}
