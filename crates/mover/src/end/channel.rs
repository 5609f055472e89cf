//! A channel of messages to an end that is elsewhere.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidecast_text::escaped_bytes;

use crate::error::Error;
use crate::transfer::Pipes;
use crate::transfer::connection::{Connection, Handle, OPENING};
use crate::transfer::frame::{MAX_MESSAGE, expect_message_within, write_message};

/// Both ways of a channel.
#[derive(Debug)]
pub enum Channel {
    /// To a server.
    #[doc(hidden)]
    Connection(Box<Net>),
    /// To a program that was started.
    Pipes(Pipes),
}

/// A connection on which both sides speak in turns.
#[derive(Debug)]
pub struct Net(pub(crate) Connection);

/// Longest first answer of a program: its offer, and where it listens.
const MAX_FIRST: usize = 1 << 20;
/// How a message begins.
const MESSAGE: [u8; 4] = [2, 0, 0, 0];
/// Most bytes that are shown of an invalid message, and how long the rest of it is awaited.
const SHOWN: usize = 160;
const REST: Duration = Duration::from_millis(300);

impl Channel {
    pub(crate) fn net(connection: Connection) -> Self {
        Self::Connection(Box::new(Net(connection)))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The other end cannot be reached.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> Result<(), Error> {
        let to: &mut dyn Write = match self {
            Self::Connection(net) => &mut net.0,
            Self::Pipes(pipes) => &mut pipes.outgoing,
        };
        let lost = |error| Error::Network { doing: "the other end has disconnected".into(), error };
        write_message(&mut &mut *to, message).map_err(lost)
    }

    /// Waits for an answer.
    ///
    /// # Errors
    /// There is no answer, or it cannot be parsed.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        self.receive_within(MAX_MESSAGE)
    }

    /// The peer has proved that it may ask.
    ///
    /// # Errors
    /// The connection has ended.
    pub(crate) fn prove(&mut self) -> Result<(), Error> {
        let Self::Connection(net) = self else { return Ok(()) };
        net.0.prove().map_err(|error| Error::Network {
            doing: "cannot set the timeouts of a connection".into(),
            error,
        })
    }

    /// The same as [`Channel::receive`], of at most this many bytes.
    ///
    /// # Errors
    /// As [`Channel::receive`].
    pub(crate) fn receive_within<T: DeserializeOwned>(&mut self, most: usize) -> Result<T, Error> {
        let from: &mut dyn Read = match self {
            Self::Connection(net) => &mut net.0,
            Self::Pipes(pipes) => &mut pipes.incoming,
        };
        expect_message_within(&mut &mut *from, most).map_err(as_other_end)
    }

    /// The first answer. A program's may follow output of the shell that has started it.
    ///
    /// # Errors
    /// As [`Channel::receive`]; [`Error::UnexpectedOutput`].
    pub(crate) fn receive_first<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        let Self::Pipes(pipes) = self else { return self.receive() };
        let mut seen = Seen { from: &mut pipes.incoming, bytes: Vec::new() };
        let message = expect_message_within::<serde_json::Value>(&mut seen, MAX_FIRST);
        let (mut bytes, noisy) = (seen.bytes, matches!(message, Err(Error::Damaged(_))));
        if let Err(error) = message {
            let begun = bytes.get(..MESSAGE.len()).unwrap_or(&bytes);
            if !noisy && MESSAGE.starts_with(begun) {
                return Err(as_other_end(error));
            }
            pipes.incoming.patience = Some(REST);
            let mut byte = [0];
            while bytes.len() < SHOWN
                && first_line(&bytes).is_none()
                && matches!(pipes.incoming.read(&mut byte), Ok(1))
            {
                bytes.push(byte[0]);
            }
            let line = first_line(&bytes).unwrap_or(&bytes);
            return Err(Error::UnexpectedOutput(escaped_bytes(line).to_string()));
        }
        let message = message.unwrap_or_default();
        serde_json::from_value(message).map_err(|e| Error::Damaged(format!("cannot parse a message: {e}")))
    }

    /// How long it may be silent; None: others see to it that the copy itself does not stand still.
    pub(crate) fn set_patience(&mut self, patience: Option<Duration>) -> Result<(), Error> {
        match self {
            Self::Pipes(pipes) => pipes.set_patience(patience),
            Self::Connection(net) => net.0.set_patience(patience).map_err(|error| Error::Network {
                doing: "cannot set the timeouts of a connection".into(),
                error,
            })?,
        }
        Ok(())
    }

    /// Ends it so that the last message is received: closing a connection before all incoming data is read
    /// discards sent data.
    pub(crate) fn leave(self) {
        let Self::Connection(mut net) = self else { return };
        let (until, mut unread) = (Instant::now() + OPENING, [0; 4096]);
        let _ = net.0.tcp().map(|tcp| tcp.shutdown(Shutdown::Write));
        while Instant::now() < until && matches!(net.0.read(&mut unread), Ok(1..)) {}
    }

    /// Ends the wait of another thread on it.
    pub(crate) fn breaker(&self) -> Breaker {
        Breaker(match self {
            Self::Connection(net) => net.0.handle().into_iter().collect(),
            Self::Pipes(Pipes { incoming, outgoing }) => {
                [incoming, outgoing].map(|pipe| Handle::Pipe(pipe.cutter())).into()
            }
        })
    }
}

/// Breaks a channel.
#[derive(Debug)]
pub struct Breaker(Vec<Handle>);

impl Breaker {
    /// Every wait on it ends.
    pub fn cut(&self) {
        self.0.iter().for_each(Handle::cut);
    }
}

/// The first non-empty line, if it is complete.
fn first_line(bytes: &[u8]) -> Option<&[u8]> {
    let line = bytes.split_inclusive(|b| *b == b'\n').find(|line| !line.trim_ascii().is_empty())?;
    line.ends_with(b"\n").then(|| line.trim_ascii())
}

/// The error of a channel in terms of the other end.
fn as_other_end(error: Error) -> Error {
    match error {
        Error::Network { error, .. } if error.kind() == ErrorKind::UnexpectedEof => {
            let error = io::Error::other("its program ended or closed the connection");
            Error::Network { doing: "the other end has disconnected".into(), error }
        }
        Error::Network { error, .. }
            if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) =>
        {
            Error::Timeout("the other end does not answer; run the same command again to resume".into())
        }
        other => other,
    }
}

/// Reads, and keeps the first of it.
struct Seen<'r, R> {
    from: &'r mut R,
    bytes: Vec<u8>,
}

impl<R: Read> Read for Seen<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buf)?;
        let room = SHOWN.saturating_sub(self.bytes.len()).min(read);
        self.bytes.extend_from_slice(&buf[..room]);
        Ok(read)
    }
}
