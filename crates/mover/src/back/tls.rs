//! TLS over TCP for bulk. rustls's own stream takes 4 KiB from the kernel at a time and moves what is decrypted once more; here many
//! records come with one system call, and go with one.
//!
//! The session itself is rustls's, by its unbuffered interface: the buffers are ours, the states are not.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, ReadTraffic, UnbufferedStatus};

/// Bytes that are taken from the kernel at once: some records.
const INCOMING: usize = 128 << 10;
/// Plaintext that is encrypted and sent at once: whole records.
const OUTGOING: usize = 64 << 10;
/// Most plaintext of a record (RFC 8446, 5.1).
const RECORD: usize = 16 << 10;
/// What the records of [`OUTGOING`], or a flight of the handshake, may need beyond it.
const OVERHEAD: usize = 4 << 10;

/// The side of a session.
pub(crate) trait Session {
    type Data;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    fn certificates(&self) -> Option<&[CertificateDer<'static>]>;
}

impl Session for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.peer_certificates()
    }
}

impl Session for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.peer_certificates()
    }
}

/// What is to be sent when the session lets us.
#[derive(Clone, Copy)]
enum Say<'d> {
    Nothing,
    Data(&'d [u8]),
    Goodbye,
}

/// What a session came to.
enum Came {
    /// So many bytes of plaintext; what had no room is in `Stream::rest`.
    Plain(usize),
    /// It wants to hear more before it says anything.
    Blocked,
    /// It may speak, and has said what was to be said.
    Ready,
    /// The peer has said goodbye.
    Closed,
}

/// A session and its connection.
pub(crate) struct Stream<S> {
    session: S,
    pub(crate) tcp: TcpStream,
    /// What has come and is not decrypted is in `from..to`.
    incoming: Box<[u8]>,
    from: usize,
    to: usize,
    /// What is decrypted, of which `taken` bytes were read.
    rest: Vec<u8>,
    taken: usize,
    /// What is encrypted and not sent.
    outgoing: Box<[u8]>,
    ready: usize,
    is_closed: bool,
}

impl<S> fmt::Debug for Stream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("tcp", &self.tcp).finish_non_exhaustive()
    }
}

impl<S: Session> Stream<S> {
    /// Shakes hands.
    ///
    /// # Errors
    /// What the connection says; or what rustls does, within an [`io::Error`].
    pub(crate) fn open(session: S, tcp: TcpStream) -> io::Result<Self> {
        let mut stream = Self {
            session,
            tcp,
            incoming: vec![0; INCOMING].into(),
            from: 0,
            to: 0,
            rest: Vec::new(),
            taken: 0,
            outgoing: vec![0; OUTGOING + OVERHEAD].into(),
            ready: 0,
            is_closed: false,
        };
        loop {
            match stream.advance(&mut [], Say::Nothing)? {
                // The peer may have data for us already.
                Came::Ready | Came::Plain(_) => return Ok(stream),
                Came::Blocked => stream.receive()?,
                Came::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// What the peer has shown of itself.
    pub(crate) fn certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.session.certificates()
    }

    /// Says goodbye.
    ///
    /// # Errors
    /// What the connection says.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        self.say(Say::Goodbye)
    }

    /// Lets the session do what it can with what has come, until there is something to tell.
    fn advance(&mut self, room: &mut [u8], mut say: Say<'_>) -> io::Result<Came> {
        let mut failed = None;
        loop {
            let UnbufferedStatus { discard, state } =
                self.session.process(&mut self.incoming[self.from..self.to]);
            let came = match state {
                Ok(ConnectionState::ReadTraffic(traffic)) => {
                    Some(Came::Plain(decrypted(traffic, room, &mut self.rest)?))
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    self.ready += data.encode(&mut self.outgoing[self.ready..]).map_err(io::Error::other)?;
                    None
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    let sent = self.tcp.write_all(&self.outgoing[..std::mem::take(&mut self.ready)]);
                    data.done();
                    // That it was no use to complain is not what went wrong.
                    if failed.is_none() { sent.map(|()| None)? } else { None }
                }
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let ready = match say {
                        Say::Nothing => Ok(0),
                        Say::Data(data) => traffic.encrypt(data, &mut self.outgoing),
                        Say::Goodbye => traffic.queue_close_notify(&mut self.outgoing),
                    };
                    self.tcp.write_all(&self.outgoing[..ready.map_err(io::Error::other)?])?;
                    Some(Came::Ready)
                }
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    self.is_closed = true;
                    Some(Came::Closed)
                }
                Ok(_) => Some(Came::Blocked),
                // The session may have an alert for the peer; it must see again what it has not done with.
                Err(e) if failed.is_none() => {
                    (failed, say) = (Some(invalid(e)), Say::Nothing);
                    None
                }
                Err(_) => {
                    let _ = self.tcp.write_all(&self.outgoing[..std::mem::take(&mut self.ready)]);
                    Some(Came::Closed)
                }
            };
            self.from += discard;
            match (came, failed.take()) {
                (None, still) => failed = still,
                (Some(came), None) => return Ok(came),
                (Some(_), Some(e)) => return Err(e),
            }
        }
    }

    /// Takes from the kernel what there is, or waits for it.
    fn receive(&mut self) -> io::Result<()> {
        self.incoming.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        loop {
            match self.tcp.read(&mut self.incoming[self.to..]) {
                // The end of a connection without a goodbye is a break.
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    self.to += n;
                    return Ok(());
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn say(&mut self, what: Say<'_>) -> io::Result<()> {
        loop {
            match self.advance(&mut [], what)? {
                Came::Ready => return Ok(()),
                Came::Plain(_) => {}
                Came::Blocked => return Err(io::ErrorKind::NotConnected.into()),
                // One may speak after the other's goodbye.
                Came::Closed => {}
            }
        }
    }
}

/// Puts what is decrypted into `room`, and what has none there to the end of `rest`: nothing goes past what waits already.
fn decrypted<D>(
    mut traffic: ReadTraffic<'_, '_, D>,
    room: &mut [u8],
    rest: &mut Vec<u8>,
) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(record) = traffic.next_record() {
        let payload = record.map_err(invalid)?.payload;
        let fits = if rest.is_empty() { room.len() - filled } else { 0 };
        let (now, later) = payload.split_at(payload.len().min(fits));
        room[filled..filled + now.len()].copy_from_slice(now);
        rest.extend_from_slice(later);
        filled += now.len();
    }
    Ok(filled)
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl<S: Session> Read for Stream<S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.taken < self.rest.len() {
            let n = (&self.rest[self.taken..]).read(buf)?;
            self.taken += n;
            return Ok(n);
        }
        self.rest.clear();
        self.taken = 0;
        let mut filled = 0;
        while filled < buf.len() && self.rest.is_empty() && !self.is_closed {
            match self.advance(&mut buf[filled..], Say::Nothing)? {
                Came::Plain(n) => filled += n,
                Came::Closed => {}
                Came::Blocked | Came::Ready if filled == 0 => self.receive()?,
                Came::Blocked | Came::Ready => break,
            }
        }
        Ok(filled)
    }
}

impl<S: Session> Write for Stream<S> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let now = &buf[..buf.len().min(OUTGOING)];
        self.say(Say::Data(now))?;
        Ok(now.len())
    }

    /// What is short goes together with what follows.
    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let first = bufs.iter().position(|buf| !buf.is_empty()).unwrap_or(bufs.len());
        match &bufs[first..] {
            [] => Ok(0),
            [long, ..] if long.len() >= RECORD => self.write(long),
            bufs => {
                let (mut record, mut len) = ([0; RECORD], 0);
                for buf in bufs {
                    len += (&buf[..]).read(&mut record[len..])?;
                }
                self.write(&record[..len])
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
