//! Who is there and who holds what, without a server.
//!
//! **Membership** is SWIM (Das, Gupta and Motivala, 2002) with suspicion and incarnations, by the crate foca: every
//! second each member probes another, asks three more to probe what does not answer, and gossips what changed. The cost
//! for each is constant, whatever their number, and a death is known everywhere after seconds. Chosen over chitchat
//! (Scylla's anti-entropy with an accrual failure detector) because foca, like the engine, is a pure state machine: this
//! crate can be run by the thousand in a test. What it leaves to its user is in `gossip.rs`.
//!
//! **Records** ([`Record`]) say who holds a cache and what a name means. They are signed, numbered and end, so whoever
//! keeps or passes them on can neither forge nor revive them: at worst it hides some, and so several are asked. Each
//! lies on the `copies` members that rendezvous hashing names (`rank.rs`); there is no ring to repair and no
//! neighbourhood that one rack could be. Who has said a thing announces it, in batches until confirmed, again
//! before it ends, and to whoever is newly named; so nothing is handed over between keepers, and what nobody says any
//! more ends by itself. What must outlive its origin (names) is *carried* by those who hold the cache. Of two records
//! the higher sequence holds, also when a partition heals; a withdrawal is a record too, and lasts as long as what it
//! cancels could have. Two halves of a site that do not see each other each keep and find what their own say.
//!
//! **What a hostile member can do**: keys cost nothing, but a daemon passes frames of nodes with a good card only. Such
//! a one can call others suspect or dead, which these refute (each description is signed by whom it describes, so it
//! cannot speak for them); hide records that it was named to keep; and fill its own share, which is bounded in all, for
//! each key and each second, and gives way first when all is full. For whom the signer of a name acts, its card says: the
//! daemon compares that with the origin, and asks only holders that are members.
//!
//! Promises: no socket, no clock, no thread, no unseeded randomness: bytes and the time go in, bytes, events and the
//! time of the next tick come out. Memory is bounded by [`Limits`]; every decoder is bounded and canonical.

mod clock;
mod codec;
mod dice;
mod frame;
mod gossip;
mod keep;
mod keys;
mod limits;
mod lookup;
mod members;
mod peer;
mod publish;
mod rank;
mod record;
#[cfg(test)]
mod tests;
mod watch;

pub(crate) use dice::Dice;
pub use frame::MAX_FRAME;
pub use gossip::Change;
pub use keys::Keys;
pub use limits::Limits;
pub use lookup::Found;
pub use members::{Describe, Event, Members};
pub use peer::{MAX_ADDRESSES, Peer};
pub use record::{Claim, Key, MAX_AD, MAX_NAME, MAX_RECORD, Record, Slot};

/// Reads a frame, writes it, and reads it again: for fuzzing. True if it was one, and came out the same.
#[doc(hidden)]
#[must_use]
pub fn reads_and_writes(bytes: &[u8]) -> Option<bool> {
    frame::Frame::decode(bytes).map(|frame| frame::Frame::decode(&frame.encode()) == Some(frame))
}
