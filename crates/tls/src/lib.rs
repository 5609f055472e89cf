//! TLS connections, by one driver for the whole project.
//!
//! rustls has the protocol: handshake, keys, records, alerts. Its buffered interface takes 4 KiB from the kernel at a time and
//! moves each byte once more than it must. This crate drives the unbuffered one: many records come with one system call,
//! and are decrypted into the reader's buffer; many go with one, all of full size (16 KiB) but the last.
//!
//! | file | what it is |
//! |---|---|
//! | `session.rs` | a connection as a state machine: received bytes in, plaintext out, and the other way round. No I/O |
//! | `hello.rs` | the ClientHello, by which a server chooses its certificate. No I/O |
//! | `exporter.rs` | what binds a proof to one session. No I/O |
//! | `outgoing.rs` | what is encrypted and not sent yet |
//! | `stream.rs` | both over a tokio stream (feature `tokio`) |
//!
//! Threads that block drive a [`Session`] themselves, as `mover` does.

mod error;
mod exporter;
mod hello;
mod outgoing;
mod session;
#[cfg(feature = "tokio")]
mod stream;

pub use error::Error;
pub use hello::{PartialHello, ReceivedHello, Rejected};
pub use session::{Read, Session};
#[cfg(feature = "tokio")]
pub use stream::{Accepting, Stream};

/// Most plaintext of a record, bytes (RFC 8446, 5.1).
pub const RECORD: usize = 16 << 10;
/// Most plaintext that [`Session::write`] takes at once, bytes: whole records.
pub const WRITE: usize = 64 << 10;
/// Bytes that a busy connection can receive at once.
pub const INCOMING: usize = 128 << 10;
/// Bytes that it can receive at once in the beginning. Doubled when that much has been received, up to
/// [`INCOMING`].
pub const FIRST: usize = 4 << 10;
