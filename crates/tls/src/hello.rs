//! The ClientHello, before it is answered: a server with several certificates chooses by its contents.
//!
//! rustls reads it in its own buffers; the bytes are kept in addition, and are the first that the session
//! receives.

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{Accepted, Acceptor, ClientHello};

use crate::error::Error;
use crate::session::Session;

/// A ClientHello, received in part. No keys are made for it.
#[derive(Default)]
pub struct PartialHello {
    acceptor: Acceptor,
    received: Vec<u8>,
}

impl fmt::Debug for PartialHello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hello").field("received", &self.received.len()).finish_non_exhaustive()
    }
}

/// A complete ClientHello, and the bytes after it.
pub struct ReceivedHello {
    accepted: Accepted,
    received: Vec<u8>,
}

impl fmt::Debug for ReceivedHello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Greeting").field("received", &self.received.len()).finish_non_exhaustive()
    }
}

/// The received bytes are not a ClientHello.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Rejected {
    /// Why.
    pub error: Error,
    /// To be sent to the peer; may be empty.
    pub alert: Vec<u8>,
}

impl PartialHello {
    /// Takes received bytes. None: more are needed.
    ///
    /// # Errors
    /// It is not the beginning of a ClientHello; further bytes are of no use.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Option<ReceivedHello>, Rejected> {
        self.received.extend_from_slice(bytes);
        let mut unread = bytes;
        loop {
            // rustls takes a part of it at a time.
            let before = unread.len();
            let read = self.acceptor.read_tls(&mut unread);
            match self.acceptor.accept() {
                Ok(Some(accepted)) => {
                    return Ok(Some(ReceivedHello {
                        accepted,
                        received: std::mem::take(&mut self.received),
                    }));
                }
                Ok(None) if read.is_err() || unread.len() == before => {
                    return match unread {
                        [] => Ok(None),
                        _ => Err(Rejected { error: Error::TooLong, alert: Vec::new() }),
                    };
                }
                Ok(None) => {}
                Err((error, mut alert)) => {
                    let mut bytes = Vec::new();
                    // Writing to a Vec cannot fail.
                    let _ = alert.write_all(&mut bytes);
                    return Err(Rejected { error: error.into(), alert: bytes });
                }
            }
        }
    }
}

impl ReceivedHello {
    /// The client's message.
    #[must_use]
    pub fn client_hello(&self) -> ClientHello<'_> {
        self.accepted.client_hello()
    }

    /// The session that answers it, with all bytes received so far.
    ///
    /// # Errors
    /// The configuration is not valid.
    pub fn answer(self, config: Arc<ServerConfig>) -> Result<Session, Error> {
        let mut session = Session::server(config)?;
        let mut received = self.received.as_slice();
        while !received.is_empty() {
            let room = session.room()?;
            let (now, later) = received.split_at(received.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            session.received(now.len());
            received = later;
        }
        Ok(session)
    }
}
