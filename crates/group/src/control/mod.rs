//! The control channel: each worker dials the coordinator, proves that it was started by it, and stays connected.
//!
//! ```text
//! worker                                coordinator
//!   ── TCP, TLS; the key in the ticket ──▶   only the coordinator has it
//!   ── magic, version ──▶ ◀── the same ──    another build is told so, not misunderstood
//!   ── token (32 bytes) ──▶                  compared in constant time
//!   ── Hello ──▶                             who, where, how fast its links are
//!   ◀── Launch ── ── LaunchEnded ──▶         other hosts to start, if there are many
//!   ◀── Meet ── ── Met ──▶                   short transfers among workers, by which places are found
//!   ◀── Start ──                             what to get, from whom, to where
//!   ── Progress, once a second ──▶ ◀── Alive, Members ──
//!   ── Done or Failed ──▶
//!   ◀── Finish ──                            everyone is done: leave
//! ```
//!
//! A message is its length (4 bytes, big-endian) and its postcard encoding. The channel is always TLS, also where
//! the data is not: it carries credentials and little else.

pub(crate) mod client;
pub(crate) mod frame;
pub(crate) mod message;
pub(crate) mod server;
pub(crate) mod ticket;

/// First bytes in both directions.
pub(crate) const MAGIC: [u8; 16] = *b"tidecast group\r\n";
/// Version of the messages; both ends must have the same.
pub(crate) const VERSION: u16 = 2;
/// Everything until the worker is known must be over within this.
pub(crate) const HANDSHAKE: std::time::Duration = std::time::Duration::from_secs(10);
/// How often either end says something, and after how long a silence the other is taken for lost.
pub(crate) const BEAT: std::time::Duration = std::time::Duration::from_secs(1);
/// See [`BEAT`].
pub(crate) const SILENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// What went wrong on a control connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    #[error("the connection ended")]
    Closed,
    #[error("{0}")]
    Io(std::io::Error),
    #[error("a message of {0} bytes is too long")]
    TooLong(usize),
    #[error("a message does not parse")]
    Garbage,
    #[error("the other end is not Tidecast's")]
    Stranger,
    #[error(
        "the other end speaks version {theirs} of the control channel, this program {VERSION}: install the same Tidecast everywhere"
    )]
    Version { theirs: u16 },
    #[error("it does not hold this broadcast's ticket")]
    Token,
    #[error("it took longer than {} s", .0.as_secs())]
    Late(std::time::Duration),
    #[error("nothing heard for {} s", SILENCE.as_secs())]
    Silent,
}

impl From<std::io::Error> for ControlError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Io(error),
        }
    }
}
