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
use tidecast_admission::{MAX_HELD, MAX_READ};

use super::limit::Limit;

/// Bytes that are taken from the kernel at once: some records.
const INCOMING: usize = 128 << 10;
/// Plaintext that is encrypted and sent at once: whole records.
const OUTGOING: usize = 64 << 10;
/// Most plaintext of a record (RFC 8446, 5.1).
const RECORD: usize = 16 << 10;
/// What the records of [`OUTGOING`], or a flight of the handshake, may need beyond it.
const OVERHEAD: usize = 4 << 10;
// All buffers of a peer that has proved nothing, with what of it waits decrypted, are within the limit.
const _: () = assert!(MAX_READ + RECORD + OVERHEAD + MAX_READ <= MAX_HELD);

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
    /// What the peer may cost before it has proved who it is.
    limit: Option<Limit>,
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
    pub(crate) fn open(session: S, tcp: TcpStream, limit: Option<Limit>) -> io::Result<Self> {
        let (incoming, outgoing) = if limit.is_some() { (MAX_READ, RECORD) } else { (INCOMING, OUTGOING) };
        let mut stream = Self {
            session,
            tcp,
            incoming: vec![0; incoming].into(),
            from: 0,
            to: 0,
            rest: Vec::new(),
            taken: 0,
            outgoing: vec![0; outgoing + OVERHEAD].into(),
            ready: 0,
            is_closed: false,
            limit,
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

    /// The peer has proved who it is: from now on nothing of it is limited.
    pub(crate) fn prove(&mut self) {
        if self.limit.take().is_none() {
            return;
        }
        let mut incoming = vec![0; INCOMING];
        let waits = &self.incoming[self.from..self.to];
        incoming[..waits.len()].copy_from_slice(waits);
        (self.from, self.to) = (0, waits.len());
        self.incoming = incoming.into();
        let mut outgoing = vec![0; OUTGOING + OVERHEAD];
        outgoing[..self.ready].copy_from_slice(&self.outgoing[..self.ready]);
        self.outgoing = outgoing.into();
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
    fn advance(&mut self, room: &mut [u8], say: Say<'_>) -> io::Result<Came> {
        loop {
            let UnbufferedStatus { discard, state } =
                self.session.process(&mut self.incoming[self.from..self.to]);
            self.from += discard;
            match state {
                Ok(ConnectionState::ReadTraffic(traffic)) => {
                    return decrypted(traffic, room, &mut self.rest).map(Came::Plain);
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    self.ready += data.encode(&mut self.outgoing[self.ready..]).map_err(io::Error::other)?;
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    self.tcp.write_all(&self.outgoing[..std::mem::take(&mut self.ready)])?;
                    data.done();
                }
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let ready = match say {
                        Say::Nothing => Ok(0),
                        Say::Data(data) => traffic.encrypt(data, &mut self.outgoing),
                        Say::Goodbye => traffic.queue_close_notify(&mut self.outgoing),
                    };
                    self.tcp.write_all(&self.outgoing[..ready.map_err(io::Error::other)?])?;
                    return Ok(Came::Ready);
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.is_closed = true;
                    return Ok(Came::Closed);
                }
                // Both have said goodbye: nothing can come of anything any more.
                Ok(ConnectionState::Closed) => return Err(io::ErrorKind::NotConnected.into()),
                Ok(_) => return Ok(Came::Blocked),
                Err(e) => {
                    self.complain();
                    return Err(invalid(e));
                }
            }
        }
    }

    /// Sends the alert that the session may have for the peer. Asked once more, it would look again at what it could not bear.
    fn complain(&mut self) {
        let state = self.session.process(&mut self.incoming[self.from..self.to]).state;
        if let Ok(ConnectionState::EncodeTlsData(mut alert)) = state
            && let Ok(len) = alert.encode(&mut self.outgoing[self.ready..])
        {
            // That it was no use is not what went wrong.
            let _ = self.tcp.write_all(&self.outgoing[..self.ready + len]);
        }
    }

    /// Takes from the kernel what there is, or waits for it.
    fn receive(&mut self) -> io::Result<()> {
        self.incoming.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        loop {
            let room = &mut self.incoming[self.to..];
            let read = match &mut self.limit {
                Some(limit) => limit.read(&self.tcp, room),
                None => self.tcp.read(room),
            };
            match read {
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
        let now = &buf[..buf.len().min(self.outgoing.len() - OVERHEAD)];
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use tidecast_identity::{NodeKey, Tls, placeholder_name};

    use super::*;

    type Client = Stream<UnbufferedClientConnection>;
    type Server = Stream<UnbufferedServerConnection>;

    fn ways() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap().0)
    }

    fn accept(tcp: TcpStream) -> io::Result<Server> {
        let tls = Tls::new(&NodeKey::generate().unwrap()).unwrap();
        Stream::open(UnbufferedServerConnection::new(tls.server()).unwrap(), tcp, None)
    }

    fn pair() -> (Client, Server) {
        let (near, far) = ways();
        let far = thread::spawn(|| accept(far));
        let tls = Tls::new(&NodeKey::generate().unwrap()).unwrap();
        let session = UnbufferedClientConnection::new(tls.client(), placeholder_name()).unwrap();
        (Stream::open(session, near, None).unwrap(), far.join().unwrap().unwrap())
    }

    #[test]
    fn all_comes_in_order_and_an_end_is_told_from_a_break() {
        for says_goodbye in [true, false] {
            let (mut near, mut far) = pair();
            assert!(near.certificates().is_some() && far.certificates().is_some());
            let data: Vec<u8> = (0..3_000_000_usize).map(|i| (i * 7 / 3) as u8).collect();
            let expected = data.clone();
            let sender = thread::spawn(move || {
                let (head, mut rest) = data.split_at(100);
                // What is short goes with what follows, and nothing is lost between them.
                let mut sent = near
                    .write_vectored(&[IoSlice::new(&[]), IoSlice::new(head), IoSlice::new(rest)])
                    .unwrap();
                assert_eq!(sent, RECORD);
                rest = &data[sent..];
                for len in [1, 3, OUTGOING - 1, OUTGOING + 1].into_iter().cycle() {
                    if rest.is_empty() {
                        break;
                    }
                    sent = near.write(&rest[..len.min(rest.len())]).unwrap();
                    rest = &rest[sent..];
                }
                if says_goodbye {
                    near.close().unwrap();
                }
            });
            let (mut got, mut room) = (Vec::new(), vec![0; 200_000]);
            let end = loop {
                let len = [1, 24, 5000, 200_000][got.len() % 4];
                match far.read(&mut room[..len]) {
                    Ok(0) => break None,
                    Ok(n) => got.extend_from_slice(&room[..n]),
                    Err(e) => break Some(e.kind()),
                }
            };
            sender.join().unwrap();
            assert!(got == expected);
            assert_eq!(end, (!says_goodbye).then_some(io::ErrorKind::UnexpectedEof));
            if says_goodbye {
                // The other may still speak, until it has said goodbye too.
                far.write_all(b"more").unwrap_or_default();
                far.close().unwrap_or_default();
                assert!(far.write(b"more").is_err());
            }
        }
    }

    #[test]
    fn who_speaks_something_else_hears_an_alert() {
        for words in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            &[22, 3, 1, 0, 4, 1, 0, 0, 0],
            &[21, 3, 3, 0, 2, 2, 40],
            &[0; 300],
        ] {
            let (mut near, far) = ways();
            let far = thread::spawn(|| accept(far).map(drop));
            near.write_all(words).unwrap();
            near.shutdown(std::net::Shutdown::Write).unwrap();
            let error = far.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{words:?}: {error}");
            let mut heard = Vec::new();
            let _ = near.read_to_end(&mut heard);
            assert!(heard.first().is_none_or(|kind| *kind == 21), "{heard:?}");
        }
    }
}
