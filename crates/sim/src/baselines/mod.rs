//! Other broadcast algorithms, as published, on the same modelled network, for comparison with Tidecast.
//!
//! An algorithm is a [`Schedule`]: a few dozen lines that say which node sends which parts to which, and
//! when. One runner ([`run`]) moves the bytes for all of them and writes the
//! [`Outcome`](crate::outcome::Outcome). BitTorrent and Tidecast are not schedules: the world runs the engine
//! itself.

mod binomial;
mod extend;
mod name;
mod run;
mod sbcast;
mod scatter;
mod tree;

use std::ops::Range;

pub use extend::extend;
pub use name::{Algorithm, Baseline, Method, UnknownAlgorithm};
pub use run::{BaselineError, Broadcast, Mpi, run};

/// One message of data: parts `parts` from one rank to another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hop {
    from: u32,
    to: u32,
    parts: Range<u32>,
}

/// The actions that a schedule requests now.
#[derive(Default)]
struct Sends {
    data: Vec<Hop>,
    notes: Vec<(u32, u32)>,
}

impl Sends {
    /// Sends these parts: after those that the same pair has in progress, concurrently with all others.
    fn send(&mut self, from: u32, to: u32, parts: Range<u32>) {
        self.data.push(Hop { from, to, parts });
    }

    /// Sends a message without data, such as an acknowledgement.
    fn note(&mut self, from: u32, to: u32) {
        self.notes.push((from, to));
    }
}

/// The sender, receiver and parts of each message. Ranks count from 0, the origin, which has everything at
/// the start; the schedule does not know which node has a rank. Every rank acts on its own observations, so
/// that the schedule could run distributed; it lives in one place only to be short.
trait Schedule {
    /// The broadcast starts.
    fn start(&mut self, out: &mut Sends);
    /// All of a message has arrived.
    fn arrived(&mut self, hop: &Hop, out: &mut Sends);
    /// The last byte of a message has left its sender.
    fn sent(&mut self, hop: &Hop, out: &mut Sends);
    /// A note has arrived.
    fn noted(&mut self, _from: u32, _to: u32, _out: &mut Sends) {}
}
