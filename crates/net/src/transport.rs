//! One connection's byte stream, plain or TLS, split into a reading and a writing half, with the
//! CPU time of socket calls and of TLS booked apart.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use rustix::net::SendFlags;
use tidecast_admission::Allowance;
use tidecast_mse::{Cipher, Rc4};
use tidecast_tls::Stream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::time::timeout;

use crate::cpu::{Cpu, Stage};
use crate::error::ConnError;
use crate::intake::{Intake, Missing};
use crate::last_payload::LastPayload;

/// The other end takes nothing for this long: it never will. That it takes something, however little, is
/// enough: the kernel asks for more only when a good part of its buffer has gone.
const STUCK: Duration = Duration::from_secs(60);

/// Bytes that are enciphered at once.
const CHUNK: usize = 64 << 10;

/// A TLS stream over a booked socket.
pub(crate) type Secure = Stream<Intake<Booked<TcpStream>>>;

/// An established byte stream, before any BitTorrent handshake.
pub(crate) enum Transport {
    /// With the bytes that may be read of it.
    Plain(TcpStream, Allowance),
    Tls(Box<Secure>),
}

/// The reading half.
pub(crate) struct Reader {
    stream: Box<dyn AsyncRead + Send + Unpin>,
    missing: Missing,
}

/// The writing half.
pub(crate) struct Writer {
    stream: Sink,
    last_payload: LastPayload,
}

/// Kept apart by kind, because a plain socket can be fed by the kernel.
enum Sink {
    Plain(Booked<OwnedWriteHalf>),
    Tls(Booked<tokio::io::WriteHalf<Secure>>),
    /// Behind the opening of MSE, if its payload is enciphered.
    Rc4(Box<Enciphering>),
}

impl Transport {
    /// Splits into halves whose CPU time is added to `cpu`.
    pub(crate) fn split(self, cpu: &Arc<Cpu>) -> (Reader, Writer) {
        match self {
            Transport::Plain(stream, allowance) => {
                let (reader, writer) = stream.into_split();
                let reader = Intake::plain(Booked::socket(reader, cpu), allowance);
                let missing = reader.missing();
                (Reader::new(reader, missing), Writer::new(Sink::Plain(Booked::socket(writer, cpu))))
            }
            Transport::Tls(stream) => {
                let missing = stream.get_ref().missing();
                let (reader, writer) = tokio::io::split(*stream);
                let writer = Writer::new(Sink::Tls(Booked::tls(writer, cpu)));
                (Reader::new(Booked::tls(reader, cpu), missing), writer)
            }
        }
    }
}

impl Reader {
    pub(crate) fn new(stream: impl AsyncRead + Send + Unpin + 'static, missing: Missing) -> Reader {
        Reader { stream: Box::new(stream), missing }
    }

    /// Deciphers all that comes from now on.
    fn deciphering(self, cipher: Rc4, cpu: &Arc<Cpu>) -> Reader {
        let Reader { stream, missing } = self;
        Reader::new(Deciphering { stream, cipher, cpu: cpu.clone() }, missing)
    }

    /// Whether the peer has proved nothing yet.
    pub(crate) fn is_limited(&self) -> bool {
        self.missing.is_limited()
    }

    /// Whether there was nothing to read at any time since this was asked last.
    pub(crate) fn has_waited(&self) -> bool {
        self.missing.has_waited()
    }

    /// Reads some data into `out`. `whole`: the caller needs much of it at once.
    pub(crate) async fn read(&mut self, out: &mut [u8], whole: bool) -> io::Result<usize> {
        self.missing.set(if whole { out.len() } else { 1 });
        self.stream.read(out).await
    }

    /// Reads some bytes onto the end of `out`, as soon as there are any.
    pub(crate) async fn read_buf(&mut self, out: &mut BytesMut) -> io::Result<usize> {
        self.missing.set(1);
        self.stream.read_buf(out).await
    }
}

impl Writer {
    fn new(stream: Sink) -> Writer {
        Writer { stream, last_payload: LastPayload::default() }
    }

    /// When something was sent last, and whether the kernel takes more.
    pub(crate) fn last_payload(&self) -> &LastPayload {
        &self.last_payload
    }

    /// Writes all of `bytes`, to an end that keeps taking some.
    pub(crate) async fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), ConnError> {
        while !bytes.is_empty() {
            let written = match &mut self.stream {
                Sink::Plain(w) => taken(w.write(bytes), &self.last_payload).await?,
                Sink::Tls(w) => taken(w.write(bytes), &self.last_payload).await?,
                Sink::Rc4(w) => return w.write_all(bytes, &self.last_payload).await,
            };
            if written == 0 {
                return Err(ConnError::Closed);
            }
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Writes all of `first` and then of `second`; a TLS layer fills its records across the two.
    pub(crate) async fn write_both(&mut self, first: &[u8], second: &[u8]) -> Result<(), ConnError> {
        let Sink::Tls(w) = &mut self.stream else {
            self.write_all(first).await?;
            return self.write_all(second).await;
        };
        let mut pieces = [IoSlice::new(first), IoSlice::new(second)];
        let mut rest = &mut pieces[..];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match taken(w.write_vectored(rest), &self.last_payload).await? {
                0 => return Err(ConnError::Closed),
                written => IoSlice::advance_slices(&mut rest, written),
            }
        }
        Ok(())
    }

    /// Flushes data that a TLS layer may hold back.
    pub(crate) async fn flush(&mut self) -> Result<(), ConnError> {
        match &mut self.stream {
            Sink::Plain(_) | Sink::Rc4(_) => Ok(()),
            Sink::Tls(w) => taken(w.flush(), &self.last_payload).await,
        }
    }

    /// Ends the stream in good order.
    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Sink::Plain(w) => w.shutdown().await,
            Sink::Tls(w) => w.shutdown().await,
            Sink::Rc4(w) => w.socket.shutdown().await,
        }
    }

    /// The plain socket, if it is one: its kernel can send from files.
    pub(crate) fn plain(&self) -> Option<&TcpStream> {
        match &self.stream {
            Sink::Plain(w) => Some(w.inner.as_ref()),
            Sink::Tls(_) | Sink::Rc4(_) => None,
        }
    }
}

/// Both halves of a plain connection, encrypted by MSE from now on.
pub(crate) fn enciphered(reader: Reader, writer: Writer, cipher: Cipher, cpu: &Arc<Cpu>) -> (Reader, Writer) {
    let Cipher { incoming, outgoing } = cipher;
    let Writer { stream, last_payload } = writer;
    let stream = match stream {
        Sink::Plain(socket) => {
            Sink::Rc4(Box::new(Enciphering { socket, cipher: outgoing, chunk: Vec::new(), cpu: cpu.clone() }))
        }
        // MSE is used on plain sockets only.
        other => other,
    };
    let writer = Writer { stream, last_payload };
    (reader.deciphering(incoming, cpu), writer)
}

/// Decrypts received data in the reader's own buffer.
struct Deciphering {
    stream: Box<dyn AsyncRead + Send + Unpin>,
    cipher: Rc4,
    cpu: Arc<Cpu>,
}

impl AsyncRead for Deciphering {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let Deciphering { stream, cipher, cpu } = &mut *self;
        ready!(Pin::new(stream).poll_read(cx, buf))?;
        cpu.measure(Stage::Tls, || cipher.apply(buf.filled_mut().get_mut(before..).unwrap_or_default()));
        Poll::Ready(Ok(()))
    }
}

/// Encrypts sent data, chunk by chunk.
struct Enciphering {
    socket: Booked<OwnedWriteHalf>,
    cipher: Rc4,
    chunk: Vec<u8>,
    cpu: Arc<Cpu>,
}

impl Enciphering {
    /// A call that is dropped leaves the two ends' ciphers apart: its connection must end with it.
    async fn write_all(&mut self, bytes: &[u8], last_payload: &LastPayload) -> Result<(), ConnError> {
        for bytes in bytes.chunks(CHUNK) {
            self.chunk.clear();
            self.chunk.extend_from_slice(bytes);
            self.cpu.measure(Stage::Tls, || self.cipher.apply(&mut self.chunk));
            let mut rest = self.chunk.as_slice();
            while !rest.is_empty() {
                match taken(self.socket.write(rest), last_payload).await? {
                    0 => return Err(ConnError::Closed),
                    written => rest = &rest[written..],
                }
            }
        }
        Ok(())
    }
}

/// One step of sending, which comes to something within [`STUCK`].
async fn taken<T>(
    step: impl Future<Output = io::Result<T>>,
    last_payload: &LastPayload,
) -> Result<T, ConnError> {
    let late = |_| ConnError::Late { what: "receive data", seconds: STUCK.as_secs() };
    last_payload.offer();
    let step = timeout(STUCK, step).await.map_err(late)??;
    last_payload.went();
    Ok(step)
}

/// Sends `len` bytes of `file` from `offset` without copying them through this process. Fails with
/// `UnexpectedEof` if the file has become shorter.
pub(crate) async fn send_file(
    socket: &TcpStream,
    file: &std::fs::File,
    mut offset: u64,
    mut len: usize,
    (cpu, last_payload): (&Cpu, &LastPayload),
) -> Result<(), ConnError> {
    while len > 0 {
        taken(socket.writable(), last_payload).await?;
        let send = || Ok(rustix::fs::sendfile(socket, file, Some(&mut offset), len)?);
        match socket.try_io(Interest::WRITABLE, || cpu.measure(Stage::Socket, send)) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(sent) => len -= sent,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Gives the kernel bytes that more will follow at once (MSG_MORE), as many as it takes now.
pub(crate) fn send_more(socket: &TcpStream, bytes: &[u8]) -> usize {
    let send = || Ok(rustix::net::send(socket, bytes, SendFlags::MORE | SendFlags::NOSIGNAL)?);
    socket.try_io(Interest::WRITABLE, send).unwrap_or(0)
}

/// A stream whose calls are counted for a stage: a socket, or a TLS layer above one.
pub(crate) struct Booked<S> {
    inner: S,
    cpu: Arc<Cpu>,
    stage: Stage,
}

impl<S> Booked<S> {
    /// A socket, or half of one.
    pub(crate) fn socket(inner: S, cpu: &Arc<Cpu>) -> Booked<S> {
        Booked { inner, cpu: cpu.clone(), stage: Stage::Socket }
    }

    /// Half of a TLS stream.
    fn tls(inner: S, cpu: &Arc<Cpu>) -> Booked<S> {
        Booked { inner, cpu: cpu.clone(), stage: Stage::Tls }
    }

    fn book<T>(&mut self, call: impl FnOnce(&mut S) -> Poll<T>) -> Poll<T> {
        let Booked { inner, cpu, stage } = self;
        cpu.measure(*stage, || call(inner))
    }
}

impl<S: AsRef<TcpStream>> AsRef<TcpStream> for Booked<S> {
    fn as_ref(&self) -> &TcpStream {
        self.inner.as_ref()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Booked<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.book(|s| Pin::new(s).poll_read(cx, buf))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Booked<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.book(|s| Pin::new(s).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.book(|s| Pin::new(s).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.book(|s| Pin::new(s).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
