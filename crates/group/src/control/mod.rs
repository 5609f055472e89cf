//! The control channel: each worker dials the coordinator, proves that it was started by it, and stays connected.
//!
//! ```text
//! worker                                coordinator
//!   ── channel; the key in the ticket ──▶    only the coordinator has it
//!   ◀── channel; the token in the ticket ──  only who was started by it has it
//!   ── Hello ──▶                             who, where, how fast its links are
//!   ◀── Launch ── ── LaunchEnded ──▶         other hosts to start, if there are many
//!   ◀── Meet ── ── Met ──▶                   short transfers among workers, by which places are found
//!   ◀── Start ──                             what to get, from whom, to where
//!   ── Progress, once a second ──▶ ◀── Alive, Members ──
//!   ── Done or Failed ──▶
//!   ◀── Finish ──                            everyone is done: leave
//! ```
//!
//! The [`channel`](crate::channel) is always TLS, also where the data is not: it carries credentials and little else.

pub(crate) mod client;
pub(crate) mod message;
pub(crate) mod server;
pub(crate) mod ticket;

use crate::channel::Channel;

/// First bytes in both directions.
const MAGIC: [u8; 16] = *b"tidecast group\r\n";

/// Who holds the token may use it.
fn channel(token: &ticket::Token) -> Channel {
    Channel::new(MAGIC, token.bytes())
}
