//! A long-distance link between two network namespaces, for kernels without netem.
//!
//! Two TUN (or TAP) devices, and between them, in each direction, a [`line::Line`]: one way delay, a rate with
//! a tail-drop queue, and the chance of each packet to be lost, sent twice, or held back. Chances are drawn per
//! packet of the MTU: a unit that offloading made of many segments is taken apart ([`packet`]) exactly where one of
//! them has another fate. The model is pure and seeded: times and packets go in, departures come out.
//!
//! Promises: memory is bounded by rate x delay plus the queue, and by [`pump::MAX_HELD`] however they are set;
//! the same seed and the same arrivals give the same fates.

pub mod line;
pub mod packet;
pub mod pump;
pub mod tun;
