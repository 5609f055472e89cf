//! Membership of daemons, and records of the caches they hold, without a server.
//!
//! **Membership** is SWIM (Das, Gupta and Motivala, 2002) with suspicion and incarnations, by the crate foca: every
//! second each member probes another, asks three more to probe a member that does not answer, and gossips changes. The cost
//! per member is constant, whatever their number, and a death is known everywhere after seconds. Chosen over chitchat
//! (Scylla's anti-entropy with an accrual failure detector) because foca, like the engine, is a pure state machine: a test
//! can run thousands of instances. `gossip.rs` has the parts that foca leaves to its user.
//!
//! **Records** ([`Record`]) list the holders of a cache and the meaning of a name. They are signed, have a sequence number
//! and expire, so a member that keeps or passes them on can neither forge nor revive them. At worst it hides some, and
//! so several members are asked. Each record is kept by the `copies` members that rendezvous hashing selects
//! (`rank.rs`); there is no ring to repair, and the copies are not concentrated in one rack. The signer announces a
//! record in batches until it is confirmed, again before it expires, and to newly selected members. So keepers hand
//! nothing over to each other, and a record that is no longer announced expires. Records that must outlive their origin
//! (names) are *carried* by the holders of the cache. Of two records the one with the higher sequence wins, also when a
//! partition heals. A withdrawal is a record too, and lasts as long as the record that it cancels could have. In a
//! partitioned site each part keeps and finds the records of its own members.
//!
//! **Hostile members**: keys cost nothing, but a daemon passes on frames of nodes with a valid card only. Such a node can
//! call others suspect or dead, which these refute (each description is signed by its member, so it cannot speak for
//! them). It can hide records that it was selected to keep. And it can fill its own share, which is bounded in total, per
//! key and per second, and is evicted first when all space is used. The card of a name's signer states for which host or
//! user it acts: the daemon compares that with the origin, and asks only holders that are members.
//!
//! Invariants: no socket, no clock, no thread, no unseeded randomness: bytes and the time go in; bytes, events and the
//! time of the next tick come out. Memory is bounded by [`Limits`]; every decoder is bounded and canonical.

mod clock;
mod codec;
mod frame;
mod gossip;
mod keys;
mod limits;
mod liveness;
mod lookup;
mod members;
mod peer;
mod publish;
mod rank;
mod record;
mod record_store;
mod rng;
#[cfg(test)]
mod tests;

pub use frame::MAX_FRAME;
pub use gossip::Change;
pub use keys::Keys;
pub use limits::Limits;
pub use lookup::Found;
pub use members::{Describe, Event, Members};
pub use peer::{MAX_ADDRESSES, Peer};
pub use record::{Claim, Key, MAX_AD, MAX_NAME, MAX_RECORD, Record, Slot};
pub(crate) use rng::Rng;

/// For fuzzing: decodes a frame, encodes it, and decodes it again. True if both are equal; `None` if it is malformed.
#[doc(hidden)]
#[must_use]
pub fn reads_and_writes(bytes: &[u8]) -> Option<bool> {
    frame::Frame::decode(bytes).map(|frame| frame::Frame::decode(&frame.encode()) == Some(frame))
}
