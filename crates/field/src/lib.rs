//! The field: time steps of a 3-D field over UDP at a set rate, into shared memory (section 4 of the 100 Gbps paper).
//!
//! The formats are in `docs/field-format.md`; these modules are the part that both ends share, without I/O:
//! [`geometry`] locates values, [`packet`] and [`control`] read and write datagrams, [`key`] authenticates
//! them, [`parity`] recovers lost ones. [`send`] is the sending half, [`recv`] the receiving one, which
//! writes the shared memory ([`shm`], by [`layout`]).

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod control;
pub mod geometry;
pub mod key;
pub mod layout;
pub mod packet;
pub mod parity;
pub mod recv;
pub mod send;
pub mod shm;
mod update;

pub use update::Update;
