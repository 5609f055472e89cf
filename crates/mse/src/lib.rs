//! Message Stream Encryption (MSE, also called Protocol Encryption): the obfuscated opening that some BitTorrent clients
//! demand of every connection.
//!
//! Two state machines, [`Initiator`] and [`Responder`]: bytes in, bytes to send out, and in the end a
//! [`Session`]. They do no I/O, read no clock and draw no random numbers ([`Random`] is passed in). The
//! memory that a hostile peer can make them hold is bounded by [`MAX_HELD`] and the bytes of the last call; a
//! wrong byte is an [`Error`], which means: close the connection.
//!
//! **This is obfuscation, not security.** Peers are not authenticated, anyone who knows the info-hash can
//! join or sit in the middle, RC4 is broken, and the prime has 768 bits. It only hides the protocol from
//! traffic shapers.
//!
//! ```text
//! initiator                                   responder
//!   Ya, PadA                              -->
//!                                         <-- Yb, PadB
//!   SHA1("req1", S)
//!   SHA1("req2", SKEY) ^ SHA1("req3", S)
//!   RC4(VC, provide, len PadC, PadC,
//!       len IA), RC4(IA)                  -->
//!                                         <-- RC4(VC, select, len PadD, PadD)
//!   payload as selected                   <-> payload as selected
//! ```
//!
//! S is the Diffie-Hellman secret, SKEY the info-hash, VC eight zero bytes, IA the initiator's first payload,
//! which is encrypted whichever method is selected.

mod dh;
mod error;
mod initiator;
mod rc4;
mod responder;
mod scan;
mod session;

pub use dh::{KEY, SECRET};
pub use error::Error;
pub use initiator::Initiator;
pub use rc4::Rc4;
pub use responder::{Responder, Swarms};
pub use session::{Cipher, Offer, Random, Session};

/// The longest pad.
pub const MAX_PAD: usize = 512;
/// The longest first payload (IA) taken: stock clients send their handshake of 68 bytes.
pub const MAX_FIRST: usize = 4096;
/// Most bytes that a machine holds between two calls.
pub const MAX_HELD: usize = KEY + MAX_PAD + 2 * HASH + HEAD + MAX_PAD + 2 + MAX_FIRST;

/// Bytes of SHA-1.
const HASH: usize = 20;
/// Eight zero bytes, by which the stream of a cipher is recognised.
const VC: [u8; 8] = [0; 8];
/// VC, the offered or selected methods, length of the pad.
const HEAD: usize = 14;

/// Payload that is not enciphered.
const PLAIN: u32 = 1;
/// Payload enciphered with RC4.
const RC4: u32 = 2;
