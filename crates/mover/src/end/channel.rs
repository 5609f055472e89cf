//! A channel of messages to an end that is elsewhere.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::back::connection::{Connection, Handle, OPENING};
use crate::back::frame::{MAX_MESSAGE, expect_message_within, write_message};
use crate::error::Error;

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

/// What a program reads and writes.
#[derive(Debug)]
pub struct Pipes {
    /// What comes.
    pub incoming: File,
    /// What goes.
    pub outgoing: File,
}

impl Channel {
    pub(crate) fn net(connection: Connection) -> Self {
        Self::Connection(Box::new(Net(connection)))
    }

    /// Says something.
    ///
    /// # Errors
    /// When nobody can hear it.
    pub(crate) fn say(&mut self, message: &impl Serialize) -> Result<(), Error> {
        let to: &mut dyn Write = match self {
            Self::Connection(net) => &mut net.0,
            Self::Pipes(pipes) => &mut pipes.outgoing,
        };
        let lost = |error| Error::Network { doing: "the other end has gone".into(), error };
        write_message(&mut &mut *to, message).map_err(lost)
    }

    /// Waits for an answer.
    ///
    /// # Errors
    /// When there is none, or it is not understood.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        self.hear_within(MAX_MESSAGE)
    }

    /// The peer has proved that it may ask.
    ///
    /// # Errors
    /// When the connection is gone.
    pub(crate) fn prove(&mut self) -> Result<(), Error> {
        let Self::Connection(net) = self else { return Ok(()) };
        net.0.prove().map_err(|error| Error::Network { doing: "a channel".into(), error })
    }

    /// The same as [`Channel::hear`], of at most so many bytes.
    ///
    /// # Errors
    /// As [`Channel::hear`].
    pub(crate) fn hear_within<T: DeserializeOwned>(&mut self, most: usize) -> Result<T, Error> {
        let from: &mut dyn Read = match self {
            Self::Connection(net) => &mut net.0,
            Self::Pipes(pipes) => &mut pipes.incoming,
        };
        expect_message_within(&mut &mut *from, most).map_err(|e| match e {
            Error::Network { error, .. } if error.kind() == ErrorKind::UnexpectedEof => {
                let error = std::io::Error::other("it has ended, or closed the connection");
                Error::Network { doing: "the other end has gone".into(), error }
            }
            other => other,
        })
    }

    /// From now on nothing but its breaking ends it: others see to it that the copy itself does not stand still.
    pub(crate) fn patient(&self) -> Result<(), Error> {
        let Self::Connection(net) = self else { return Ok(()) };
        net.0.untimed().map_err(|error| Error::Network { doing: "a channel".into(), error })
    }

    /// Ends it so that what was said last is heard: a connection that is closed before all that came is read takes that along.
    pub(crate) fn leave(self) {
        let Self::Connection(mut net) = self else { return };
        let (until, mut unread) = (Instant::now() + OPENING, [0; 4096]);
        let _ = net.0.tcp().map(|tcp| tcp.shutdown(Shutdown::Write));
        while Instant::now() < until && matches!(net.0.read(&mut unread), Ok(1..)) {}
    }

    /// Ends the wait of another thread on it, if that can be done.
    pub(crate) fn breaker(&self) -> Option<Breaker> {
        match self {
            Self::Connection(net) => net.0.handle().map(Breaker),
            Self::Pipes(_) => None,
        }
    }
}

/// Breaks a channel.
#[derive(Debug)]
pub struct Breaker(Handle);

impl Breaker {
    /// Whoever waits on it waits no more.
    pub fn cut(&self) {
        self.0.cut();
    }
}
