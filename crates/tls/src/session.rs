//! One connection as a state machine: received bytes in, plaintext out, plaintext in, bytes to be sent out.
//!
//! The state machines are rustls's, the buffers are ours. Reading never encrypts and writing never decrypts,
//! so neither direction holds the buffers of the other.

use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, CommonState, ServerConfig};

use crate::error::Error;
use crate::exporter::Exporter;
use crate::outgoing::Outgoing;
use crate::{FIRST, INCOMING, RECORD, WRITE};

/// More than a record adds to its plaintext.
const OVERHEAD: usize = 64;
/// Most handshake flights and alerts fit into this; larger ones allocate.
const FLIGHT: usize = 2 << 10;

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// This many bytes of plaintext.
    Plain(usize),
    /// Nothing until more is received.
    Wanting,
    /// The peer has closed the connection in good order.
    End,
}

enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// Data to send when the session allows it.
#[derive(Clone, Copy)]
enum Outbound<'d> {
    Nothing,
    Data(&'d [u8]),
    Close,
}

/// The result of one step of the session.
enum Step {
    /// Nothing to report: it continues.
    Further,
    Plain,
    /// It needs more of the peer before it can send anything.
    Blocked,
    /// It may send, and has encrypted the given data.
    Ready,
    Closed,
}

/// A TLS connection without its socket.
///
/// The caller moves the bytes: it receives into [`Session::room`] and reports the number by
/// [`Session::received`]; it sends from [`Session::waiting`] and reports the number by [`Session::sent`].
pub struct Session {
    side: Box<Side>,
    exporter: Option<Arc<Exporter>>,
    /// Received data that is not decrypted is in `from..to`.
    incoming: Vec<u8>,
    from: usize,
    to: usize,
    /// This much of it, from its front, has been looked at and is the beginning of something.
    seen: usize,
    /// The last that was received left no room.
    was_full: bool,
    /// Decrypted data, of which `taken` bytes were read.
    rest: Vec<u8>,
    taken: usize,
    outgoing: Outgoing,
    is_over: bool,
    is_closed: bool,
    failed: Option<Error>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("failed", &self.failed).finish_non_exhaustive()
    }
}

impl Session {
    /// The calling end, which expects `name`.
    ///
    /// # Errors
    /// The configuration is not valid.
    pub fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, Error> {
        Ok(Self::new(Side::Client(UnbufferedClientConnection::new(config, name)?)))
    }

    /// The answering end.
    ///
    /// # Errors
    /// The configuration is not valid.
    pub fn server(config: Arc<ServerConfig>) -> Result<Self, Error> {
        Ok(Self::new(Side::Server(UnbufferedServerConnection::new(config)?)))
    }

    /// [`Session::client`] whose [`Session::binding`] can be had.
    ///
    /// # Errors
    /// As there.
    pub fn bound_client(mut config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, Error> {
        let exporter = Exporter::new();
        Arc::make_mut(&mut config).key_log = exporter.clone();
        Ok(Self { exporter: Some(exporter), ..Self::client(config, name)? })
    }

    /// [`Session::server`] whose [`Session::binding`] can be had.
    ///
    /// # Errors
    /// As there.
    pub fn bound_server(mut config: Arc<ServerConfig>) -> Result<Self, Error> {
        let exporter = Exporter::new();
        Arc::make_mut(&mut config).key_log = exporter.clone();
        Ok(Self { exporter: Some(exporter), ..Self::server(config)? })
    }

    /// A value that the two ends of this session share and no other session has: it is derived from the
    /// exporter secret (RFC 8446, 7.5). A proof bound to it is valid for this session only. None before the
    /// end of the handshake, and for sessions that are not bound.
    #[must_use]
    pub fn binding(&self) -> Option<[u8; 32]> {
        let exporter = self.exporter.as_ref().filter(|_| !self.agreed().is_handshaking())?;
        exporter.binding()
    }

    fn new(side: Side) -> Self {
        Self {
            side: Box::new(side),
            exporter: None,
            incoming: Vec::new(),
            from: 0,
            to: 0,
            seen: 0,
            was_full: false,
            rest: Vec::new(),
            taken: 0,
            outgoing: Outgoing::default(),
            is_over: false,
            is_closed: false,
            failed: None,
        }
    }

    /// The negotiated parameters: certificates, protocol (ALPN) and others.
    #[must_use]
    pub fn agreed(&self) -> &CommonState {
        match &*self.side {
            Side::Client(connection) => connection,
            Side::Server(connection) => connection,
        }
    }

    /// The buffer for received bytes; never empty. Small in the beginning, larger for a peer that fills it.
    ///
    /// # Errors
    /// [`Error::TooLong`]; the session has failed before.
    pub fn room(&mut self) -> Result<&mut [u8], Error> {
        self.check()?;
        // A record that is not whole is moved to the front when there is need for the room before it, not each time.
        if self.from == self.to || self.incoming.len() - self.to < self.incoming.len() / 2 {
            self.incoming.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        if self.was_full || self.incoming.len() == self.to {
            let size = (2 * self.incoming.len()).clamp(FIRST, INCOMING);
            self.incoming.resize(size, 0);
            self.was_full = false;
        }
        if self.to == self.incoming.len() {
            return Err(self.fail(Error::TooLong));
        }
        Ok(&mut self.incoming[self.to..])
    }

    /// This many bytes were received into the room.
    pub fn received(&mut self, bytes: usize) {
        self.to = (self.to + bytes).min(self.incoming.len());
        self.was_full = self.to == self.incoming.len();
    }

    /// The bytes to send, in this order.
    #[must_use]
    pub fn waiting(&self) -> &[u8] {
        self.outgoing.waiting()
    }

    /// This many of the waiting bytes are sent.
    pub fn sent(&mut self, bytes: usize) {
        self.outgoing.sent(bytes);
    }

    /// Continues the handshake; true when it is done. Until then: send the waiting bytes, receive more, and
    /// call again.
    ///
    /// # Errors
    /// The handshake failed; an alert for the peer may wait to be sent.
    pub fn shake_hands(&mut self) -> Result<bool, Error> {
        let mut rest = std::mem::take(&mut self.rest);
        let step = self.advance(Outbound::Nothing, &mut |plain| rest.extend_from_slice(plain));
        self.rest = rest;
        match step? {
            Step::Blocked | Step::Further => Ok(false),
            // The peer may have sent data already, or the end of it.
            Step::Ready | Step::Plain | Step::Closed => Ok(true),
        }
    }

    /// Gives up to `room` bytes of plaintext to `put`, in order, in one or several slices.
    ///
    /// # Errors
    /// Received data was not sent by the peer, or is an alert. An alert for the peer may wait to be sent.
    pub fn read(&mut self, room: usize, mut put: impl FnMut(&[u8])) -> Result<Read, Error> {
        if room == 0 {
            return Ok(Read::Plain(0));
        }
        if self.taken < self.rest.len() {
            let now = &self.rest[self.taken..];
            let now = &now[..now.len().min(room)];
            put(now);
            self.taken += now.len();
            return Ok(Read::Plain(now.len()));
        }
        let mut rest = std::mem::take(&mut self.rest);
        rest.clear();
        self.taken = 0;
        let (mut filled, mut step) = (0, Ok(Step::Further));
        while filled < room && !self.is_over && matches!(step, Ok(Step::Further | Step::Plain)) {
            step = self.advance(Outbound::Nothing, &mut |plain| {
                let (now, later) = plain.split_at(plain.len().min(room - filled));
                put(now);
                filled += now.len();
                rest.extend_from_slice(later);
            });
        }
        self.rest = rest;
        match step {
            // An error after valid bytes is reported when they have been read.
            _ if filled > 0 => Ok(Read::Plain(filled)),
            Err(error) => Err(error),
            Ok(_) if self.is_over => Ok(Read::End),
            Ok(_) => Ok(Read::Wanting),
        }
    }

    /// Encrypts some of `data`, [`WRITE`] bytes at most, after the waiting bytes; returns how much it took.
    ///
    /// # Errors
    /// [`Error::NotConnected`], or the session has failed.
    pub fn write(&mut self, data: &[u8]) -> Result<usize, Error> {
        let now = &data[..data.len().min(WRITE)];
        if !now.is_empty() {
            self.say(Outbound::Data(now))?;
        }
        Ok(now.len())
    }

    /// [`Session::write`] of the data after the first `skip` bytes of `pieces`: short ones share records with
    /// the following ones.
    ///
    /// # Errors
    /// As there.
    pub fn write_vectored(&mut self, pieces: &[IoSlice<'_>], skip: usize) -> Result<usize, Error> {
        let mut written = 0;
        while written < WRITE {
            let mut left = behind(pieces, skip + written);
            let Some(first) = left.next() else { break };
            let first = &first[..first.len().min(WRITE - written)];
            if left.next().is_none() {
                written += self.write(first)?;
            } else if first.len() >= RECORD {
                written += self.write(&first[..first.len() / RECORD * RECORD])?;
            } else {
                let (mut record, mut len) = ([0; RECORD], 0);
                for piece in behind(pieces, skip + written) {
                    let now = piece.len().min(RECORD - len);
                    record[len..len + now].copy_from_slice(&piece[..now]);
                    len += now;
                }
                written += self.write(&record[..len])?;
            }
        }
        Ok(written)
    }

    /// Tells the peer that nothing follows, so that it can tell an end from a break. To be sent as all else.
    ///
    /// # Errors
    /// [`Error::NotConnected`], or the session has failed.
    pub fn close(&mut self) -> Result<(), Error> {
        if !self.is_closed {
            self.say(Outbound::Close)?;
            self.is_closed = true;
        }
        Ok(())
    }

    fn say(&mut self, what: Outbound<'_>) -> Result<(), Error> {
        loop {
            if self.is_closed {
                return Err(Error::NotConnected);
            }
            match self.advance(what, &mut |_| {})? {
                Step::Ready => return Ok(()),
                Step::Blocked => return Err(Error::NotConnected),
                // One may send after the other's end.
                Step::Further | Step::Plain | Step::Closed => {}
            }
        }
    }

    /// Runs the session until there is something to report. If it is to send, it does not decrypt further
    /// received data, which would have to be buffered.
    fn advance(&mut self, say: Outbound<'_>, put: &mut impl FnMut(&[u8])) -> Result<Step, Error> {
        self.check()?;
        loop {
            let end = if matches!(say, Outbound::Nothing) { self.to } else { self.from + self.seen };
            let input = &mut self.incoming[self.from..end];
            let (discard, step) = match &mut *self.side {
                Side::Client(client) => {
                    step(client.process_tls_records(input), &mut self.outgoing, say, &mut *put)
                }
                Side::Server(server) => {
                    step(server.process_tls_records(input), &mut self.outgoing, say, &mut *put)
                }
            };
            self.from += discard;
            match step {
                Ok(Step::Further) => {}
                Ok(Step::Closed) => {
                    (self.from, self.to, self.seen, self.is_over) = (0, 0, 0, true);
                    return Ok(Step::Closed);
                }
                Ok(Step::Plain) => {
                    self.seen = 0;
                    return Ok(Step::Plain);
                }
                Ok(step) => {
                    self.seen = end - self.from;
                    return Ok(step);
                }
                Err(error) => {
                    self.complain();
                    return Err(self.fail(error));
                }
            }
        }
    }

    /// Encrypts the alert that rustls may have for the peer. Nothing is looked at again.
    fn complain(&mut self) {
        let input = &mut self.incoming[self.from..self.to];
        // A failure to encrypt the alert is not the error to report.
        let _ = match &mut *self.side {
            Side::Client(client) => alert(client.process_tls_records(input), &mut self.outgoing),
            Side::Server(server) => alert(server.process_tls_records(input), &mut self.outgoing),
        };
    }

    fn check(&self) -> Result<(), Error> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn fail(&mut self, error: Error) -> Error {
        self.failed.get_or_insert(error).clone()
    }
}

/// The non-empty rest of the pieces after their first `skip` bytes.
fn behind<'p>(pieces: &'p [IoSlice<'_>], mut skip: usize) -> impl Iterator<Item = &'p [u8]> {
    pieces.iter().filter_map(move |piece| {
        let before = skip.min(piece.len());
        skip -= before;
        let rest = &piece[before..];
        (!rest.is_empty()).then_some(rest)
    })
}

/// Handles rustls's state. Returns how much of the input was used, and the result.
fn step<D>(
    status: UnbufferedStatus<'_, '_, D>,
    outgoing: &mut Outgoing,
    say: Outbound<'_>,
    put: &mut impl FnMut(&[u8]),
) -> (usize, Result<Step, Error>) {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state {
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    put(record.payload);
                }
                Some(Err(error)) => break Err(error.into()),
                None => break Ok(Step::Plain),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            encode(outgoing, |room| data.encode(room)).map(|()| Step::Further)
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            // Waiting data is sent in the order in which it was encrypted, whatever follows.
            data.done();
            Ok(Step::Further)
        }
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            let said = match say {
                Outbound::Nothing => Ok(()),
                Outbound::Data(data) => {
                    let size = data.len() + (data.len() / RECORD + 1) * OVERHEAD;
                    encrypt(outgoing, size, |room| traffic.encrypt(data, room))
                }
                Outbound::Close => encrypt(outgoing, OVERHEAD, |room| traffic.queue_close_notify(room)),
            };
            said.map(|()| Step::Ready)
        }
        Ok(ConnectionState::PeerClosed) => Ok(Step::Closed),
        Ok(ConnectionState::Closed) => Err(Error::NotConnected),
        Ok(_) => Ok(Step::Blocked),
        Err(error) => Err(error.into()),
    };
    (discard, step)
}

fn alert<D>(status: UnbufferedStatus<'_, '_, D>, outgoing: &mut Outgoing) -> Result<(), Error> {
    match status.state {
        Ok(ConnectionState::EncodeTlsData(mut data)) => encode(outgoing, |room| data.encode(room)),
        _ => Ok(()),
    }
}

/// Appends a flight to the waiting bytes.
fn encode(
    outgoing: &mut Outgoing,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> Result<(), Error> {
    let mut size = FLIGHT;
    loop {
        match encode(outgoing.room(size)) {
            Ok(bytes) => {
                outgoing.wrote(bytes);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(more)) if more.required_size > size => {
                size = more.required_size;
            }
            Err(_) => return Err(Error::NotConnected),
        }
    }
}

/// Appends encrypted data to the waiting bytes.
fn encrypt(
    outgoing: &mut Outgoing,
    mut size: usize,
    mut encrypt: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), Error> {
    loop {
        match encrypt(outgoing.room(size)) {
            Ok(bytes) => {
                outgoing.wrote(bytes);
                return Ok(());
            }
            Err(EncryptError::InsufficientSize(more)) if more.required_size > size => {
                size = more.required_size;
            }
            Err(_) => return Err(Error::Exhausted),
        }
    }
}
