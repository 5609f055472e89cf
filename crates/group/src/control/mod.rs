//! The control channel: each worker connects to the coordinator, proves that it was started by it, and stays connected.
//!
//! ```text
//! worker                                coordinator
//!   ── channel; the key in the ticket ──▶    authenticates the coordinator
//!   ◀── channel; the token in the ticket ──  authenticates workers that it started
//!   ── Hello ──▶                             identity, addresses, rates of its links
//!   ◀── Launch ── ── LaunchEnded ──▶         other hosts to start, if there are many
//!   ◀── Meet ── ── Met ──▶                   short transfers among workers, to measure places
//!   ◀── Start ──                             data, members, destination
//!   ── Progress, once a second ──▶ ◀── Alive, Members ──
//!   ── Done or Failed ──▶
//!   ◀── Finish ──                            all hosts are done: leave
//! ```
//!
//! The [`channel`](crate::channel) always uses TLS, even if the data does not: it carries credentials and little else.

pub(crate) mod client;
pub(crate) mod message;
pub(crate) mod server;
pub(crate) mod ticket;

use crate::channel::Channel;

/// First bytes in both directions.
const MAGIC: [u8; 16] = *b"tidecast group\r\n";

/// The control channel, authenticated by the token.
fn channel(token: &ticket::Token) -> Channel {
    Channel::new(MAGIC, token.bytes())
}
