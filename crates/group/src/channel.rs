//! A channel between two processes that share a secret: of workers to their coordinator, of ranks to their hub.
//!
//! ```text
//! caller                                    callee
//!   ── TCP, TLS ──▶                          authenticates both keys
//!   ── magic, version ──▶ ◀── the same ──    detects another version
//!   ── HMAC(secret, "caller", keys) ──▶      proves the secret; the keys exclude a man in the middle
//!   ◀── HMAC(secret, "callee", keys) ──
//!   ── first message ──▶ ...
//! ```
//!
//! Frames are those of `tidecast-control`; messages are encoded by postcard.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ring::hmac;
use rustls::{ClientConfig, ServerConfig};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidecast_admission::{Admitted, DEADLINE, Gate, HandshakeAborted, Limited, Progress, accept};
use tidecast_control::{Bounds, ConnectAttempts, FrameError};
use tidecast_identity::{NodeId, Tls, peer_node_id, placeholder_name};
use tidecast_tls::{Accepting, Stream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};

/// Version of the messages; both ends must have the same.
const VERSION: u16 = 7;
/// Longest payload, bytes.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// Longest message and payload.
const BOUNDS: Bounds = Bounds { message: 16 << 20, payload: MAX_PAYLOAD };
/// The maximum time until both ends are authenticated.
const HANDSHAKE: Duration = DEADLINE;
/// How often either end sends a message.
pub const HEARTBEAT: Duration = Duration::from_secs(1);
/// The maximum time to deliver the last messages.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// The time without a message after which the other end counts as lost.
pub const RECEIVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Errors of a channel.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other end has closed it.
    #[error("the connection ended")]
    Closed,
    /// A system error.
    #[error("{0}")]
    Io(std::io::Error),
    /// A message or payload beyond the limits.
    #[error("a message of {0} bytes is too long")]
    TooLong(usize),
    /// A malformed message.
    #[error("received a malformed message")]
    Malformed,
    /// The other end is another program.
    #[error("the other end is not a Tidecast process")]
    OtherProgram,
    /// Another version of Tidecast.
    #[error(
        "the other end has version {theirs} of this channel, this program {VERSION}; install the same Tidecast on all hosts"
    )]
    Version {
        /// The other end's version.
        theirs: u16,
    },
    /// The other end has a different secret.
    #[error("the other end has another secret")]
    Secret,
    /// The handshake took too long.
    #[error("no connection within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The connection was closed before the caller was authenticated.
    #[error(transparent)]
    Cut(#[from] HandshakeAborted),
    /// No message was received.
    #[error("no message for {} s", RECEIVE_TIMEOUT.as_secs())]
    ReceiveTimeout,
}

impl ChannelError {
    /// Whether a retry is useless.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::OtherProgram | Self::Version { .. } | Self::Secret)
    }
}

impl ChannelError {
    /// Whether the other end accepted the connection and then closed it.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        match self {
            Self::Closed => true,
            Self::Io(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
            _ => false,
        }
    }
}

impl From<std::io::Error> for ChannelError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// The caller's end of a connection.
pub type Called = Stream<TcpStream>;
/// The callee's end of a connection.
pub type Accepted = Stream<Limited<TcpStream>>;

impl From<FrameError> for ChannelError {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Io(error) => error.into(),
            FrameError::TooLong(bytes) => Self::TooLong(bytes),
        }
    }
}

/// The magic and the secret that both ends share.
#[derive(Clone)]
pub struct Channel {
    magic: [u8; 16],
    secret: hmac::Key,
}

impl Channel {
    /// A channel of the kind `magic`, authenticated by `secret`.
    #[must_use]
    pub fn new(magic: [u8; 16], secret: &[u8]) -> Self {
        Self { magic, secret: hmac::Key::new(hmac::HMAC_SHA256, secret) }
    }

    /// Connects to these addresses, each started shortly after the one before, until one is the other end.
    ///
    /// # Errors
    /// The last failure, with its address; a final one takes precedence.
    pub async fn connect(
        &self,
        addresses: Vec<SocketAddr>,
        own: NodeId,
        config: &Arc<ClientConfig>,
    ) -> Result<Called, (Option<SocketAddr>, ChannelError)> {
        let mut attempts = ConnectAttempts::new(addresses, |address| {
            let (channel, config) = (self.clone(), config.clone());
            async move {
                let call =
                    async { channel.connect_to(TcpStream::connect(address).await?, own, config).await };
                timeout(HANDSHAKE, call).await.unwrap_or(Err(ChannelError::Timeout(HANDSHAKE)))
            }
        });
        let mut last = (None, ChannelError::Closed);
        while let Some((address, called)) = attempts.next_delayed().await {
            match called {
                Ok(stream) => return Ok(stream),
                Err(failed) if !last.1.is_final() => last = (Some(address), failed),
                Err(_) => {}
            }
        }
        Err(last)
    }

    async fn connect_to(
        &self,
        stream: TcpStream,
        own: NodeId,
        config: Arc<ClientConfig>,
    ) -> Result<Called, ChannelError> {
        stream.set_nodelay(true)?;
        let mut stream = Stream::connect(config, placeholder_name(), stream).await?;
        let callee = peer_node_id(stream.session().agreed().peer_certificates())
            .map_err(|_| ChannelError::OtherProgram)?;
        let keys = (own, callee);
        self.exchange_magic(&mut stream).await?;
        self.prove(&mut stream, "caller", keys).await?;
        self.check(&mut stream, "callee", keys).await?;
        Ok(stream)
    }

    /// Accepts connections until the task is ended: `serve` is called with each, and its number, after the caller was
    /// authenticated and has sent its first message.
    pub async fn answer<M, F>(
        self,
        listener: TcpListener,
        tls: Tls,
        serve: impl Fn(u64, Accepted, NodeId, M) -> F + Clone + Send + 'static,
    ) where
        M: DeserializeOwned + Send,
        F: Future<Output = ()> + Send,
    {
        let (config, own, gate) = (tls.server(), tls.id(), Gate::default());
        for number in 0.. {
            let (stream, from, mut admitted) = accept(&listener, &gate).await;
            let (channel, config, serve) = (self.clone(), config.clone(), serve.clone());
            tokio::spawn(async move {
                let progress = admitted.progress();
                let stream = admitted.limited(stream);
                let accept_caller = channel.accept_caller(stream, own, (config, &progress));
                let accepted = admitted.run(accept_caller).await.unwrap_or_else(|cut| Err(cut.into()));
                let first = match accepted {
                    Ok((stream, caller)) => first(stream, caller, admitted).await,
                    Err(error) => Err(error),
                };
                match first {
                    Ok((stream, caller, first)) => serve(number, stream, caller, first).await,
                    Err(error @ (ChannelError::Cut(_) | ChannelError::Closed)) => {
                        tracing::debug!(%from, %error, "rejected a connection");
                    }
                    Err(error) => tracing::warn!(%from, %error, "rejected a connection"),
                }
            });
        }
    }

    async fn accept_caller(
        &self,
        stream: Limited<TcpStream>,
        own: NodeId,
        (config, progress): (Arc<ServerConfig>, &Progress),
    ) -> Result<(Accepted, NodeId), ChannelError> {
        stream.get_ref().set_nodelay(true)?;
        // No keys are generated before a whole ClientHello was received.
        let hello = Accepting::read(stream).await?;
        progress.advance();
        let mut stream = hello.answer(config).await?;
        let caller = peer_node_id(stream.session().agreed().peer_certificates())
            .map_err(|_| ChannelError::OtherProgram)?;
        let keys = (caller, own);
        self.exchange_magic(&mut stream).await?;
        if let Err(error) = self.check(&mut stream, "caller", keys).await {
            // A cleanly closed TLS session means rejection; a broken one only that the connection was lost.
            let _ = stream.shutdown().await;
            return Err(error);
        }
        self.prove(&mut stream, "callee", keys).await?;
        Ok((stream, caller))
    }

    /// Exchanges magic and version with the other end.
    async fn exchange_magic(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Result<(), ChannelError> {
        stream.write_all(&self.magic).await?;
        stream.write_all(&VERSION.to_be_bytes()).await?;
        stream.flush().await?;
        let mut magic = [0; 16];
        stream.read_exact(&mut magic).await?;
        match stream.read_u16().await? {
            _ if magic != self.magic => Err(ChannelError::OtherProgram),
            VERSION => Ok(()),
            theirs => Err(ChannelError::Version { theirs }),
        }
    }

    /// The proof that one side knows the secret, valid for this pair of keys only.
    fn proof(&self, side: &str, keys: (NodeId, NodeId)) -> Vec<u8> {
        [&self.magic[..], side.as_bytes(), &keys.0.0, &keys.1.0].concat()
    }

    async fn prove(
        &self,
        to: &mut (impl AsyncWrite + Unpin),
        side: &str,
        keys: (NodeId, NodeId),
    ) -> Result<(), ChannelError> {
        to.write_all(hmac::sign(&self.secret, &self.proof(side, keys)).as_ref()).await?;
        Ok(to.flush().await?)
    }

    async fn check(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        side: &str,
        keys: (NodeId, NodeId),
    ) -> Result<(), ChannelError> {
        let (mut tag, mut read) = ([0; 32], 0);
        while let Some(rest @ [_, ..]) = tag.get_mut(read..) {
            match from.read(rest).await? {
                // A clean end, unlike a broken connection, means that the other end rejected our proof.
                0 => return Err(ChannelError::Secret),
                some => read += some,
            }
        }
        hmac::verify(&self.secret, &self.proof(side, keys), &tag).map_err(|_| ChannelError::Secret)
    }
}

/// The first message of an authenticated caller.
async fn first<M: DeserializeOwned>(
    mut stream: Accepted,
    caller: NodeId,
    admitted: Admitted,
) -> Result<(Accepted, NodeId, M), ChannelError> {
    admitted.prove();
    let first = timeout(HANDSHAKE, read(&mut stream)).await;
    let (first, _) = first.unwrap_or(Err(ChannelError::Timeout(HANDSHAKE)))?;
    Ok((stream, caller, first))
}

/// Carries messages both ways until the connection ends, `handle` returns false, or `queue` ends; sends `alive`, if
/// given, as a keep-alive. Messages that the other end has already sent are still received, for [`FLUSH_TIMEOUT`]
/// at most: they
/// count, and closing the socket while data arrives would reset the connection and lose our own last messages.
///
/// # Errors
/// Why the connection ended, if not by this end.
pub async fn carry<I, O, Q, F>(
    stream: impl AsyncRead + AsyncWrite,
    mut handle: impl FnMut(I, Bytes) -> F,
    mut queue: mpsc::Receiver<Q>,
    alive: Option<O>,
) -> Result<(), ChannelError>
where
    I: DeserializeOwned,
    O: Serialize,
    Q: Into<(O, Bytes)>,
    F: Future<Output = bool>,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let receiving = async {
        loop {
            let (message, payload) = read(&mut reader).await?;
            if !handle(message, payload).await {
                return Ok(());
            }
        }
    };
    let sending = async {
        let mut beat = interval(HEARTBEAT);
        loop {
            tokio::select! {
                next = queue.recv() => match next {
                    Some(next) => {
                        let (message, payload) = next.into();
                        write(&mut writer, &message, &payload).await?;
                    }
                    None => break,
                },
                _ = beat.tick() => if let Some(alive) = &alive {
                    write(&mut writer, alive, &[]).await?;
                },
            }
        }
        // The other end reads up to this point and closes.
        timeout(FLUSH_TIMEOUT, writer.shutdown()).await.unwrap_or(Ok(()))?;
        Ok(())
    };
    let mut receiving = std::pin::pin!(receiving);
    tokio::select! {
        ended = &mut receiving => ended,
        sent = sending => match (sent, timeout(FLUSH_TIMEOUT, receiving).await.unwrap_or(Ok(()))) {
            // The normal end after our last message.
            (Ok(()), Err(ChannelError::Closed)) => Ok(()),
            (sent, Ok(())) => sent,
            (_, received) => received,
        },
    }
}

/// Writes one message and its payload, within [`RECEIVE_TIMEOUT`].
///
/// # Errors
/// The channel is broken, or the message is too long.
pub async fn write<T: Serialize>(
    to: &mut (impl AsyncWrite + Unpin),
    message: &T,
    payload: &[u8],
) -> Result<(), ChannelError> {
    let body = postcard::to_stdvec(message).map_err(|_| ChannelError::Malformed)?;
    let written = tidecast_control::write(to, &body, payload, BOUNDS);
    Ok(timeout(RECEIVE_TIMEOUT, written).await.map_err(|_| ChannelError::Timeout(RECEIVE_TIMEOUT))??)
}

/// Reads one message and its payload, within [`RECEIVE_TIMEOUT`].
///
/// # Errors
/// The channel is broken or silent, or the message is malformed.
pub async fn read<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
) -> Result<(T, Bytes), ChannelError> {
    timeout(RECEIVE_TIMEOUT, read_frame(from)).await.unwrap_or(Err(ChannelError::ReceiveTimeout))
}

async fn read_frame<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
) -> Result<(T, Bytes), ChannelError> {
    let (body, payload) = tidecast_control::read(from, BOUNDS).await?;
    match postcard::take_from_bytes(&body) {
        Ok((message, [])) => Ok((message, payload)),
        _ => Err(ChannelError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tidecast_identity::NodeKey;

    use super::*;

    const MAGIC: [u8; 16] = *b"tidecast testing";

    #[tokio::test]
    async fn messages_and_payloads_come_as_they_went() {
        let (mut a, mut b) = tokio::io::duplex(1 << 22);
        for (message, payload) in [(vec![], vec![]), (vec![7u8; 200_000], vec![7; MAX_PAYLOAD])] {
            write(&mut a, &message, &payload).await.unwrap();
            assert_eq!(read::<Vec<u8>>(&mut b).await.unwrap(), (message, payload.into()));
        }
    }

    #[tokio::test]
    async fn last_words_are_heard_of_one_who_listens_no_more() {
        let mut bytes = Vec::new();
        for word in 0..3u8 {
            write(&mut bytes, &word, &[]).await.unwrap();
        }
        let (unread, gone) = tokio::io::duplex(1);
        drop(gone);
        let (received, mut inbox) = mpsc::channel(1);
        let handle = move |word: u8, _| {
            let received = received.clone();
            async move { received.send(word).await.is_ok() }
        };
        let (_said, queue) = mpsc::channel::<(u8, Bytes)>(1);
        let carried = carry(tokio::io::join(&bytes[..], unread), handle, queue, Some(0u8));
        let listen = async {
            // The inbox is full until after the first word that is not taken.
            tokio::time::sleep(Duration::from_millis(20)).await;
            [inbox.recv().await, inbox.recv().await, inbox.recv().await]
        };
        let (carried, received) = tokio::join!(carried, listen);
        assert_eq!(received, [Some(0), Some(1), Some(2)]);
        assert!(matches!(carried, Err(ChannelError::Closed)), "{carried:?}");
    }

    #[tokio::test]
    async fn what_is_too_long_garbled_or_cut_is_refused() {
        let refused = async |bytes: &[u8]| read::<Vec<u8>>(&mut &bytes[..]).await.unwrap_err();
        assert!(matches!(refused(&[255; 8]).await, ChannelError::TooLong(_)));
        assert!(
            matches!(refused(&[0, 0, 0, 3, 0, 0, 0, 0, 1, 9, 9]).await, ChannelError::Malformed),
            "a byte over"
        );
        assert!(
            matches!(refused(&[0, 0, 0, 2, 0, 0, 0, 0, 5, 9]).await, ChannelError::Malformed),
            "five promised"
        );
        assert!(matches!(refused(&[0, 255, 0, 0, 0, 0, 0, 0, 1]).await, ChannelError::Closed));
        assert!(matches!(refused(&[]).await, ChannelError::Closed));
        let mut sink = Vec::new();
        let long = vec![0u8; BOUNDS.message + 1];
        assert!(matches!(write(&mut sink, &long, &[]).await, Err(ChannelError::TooLong(_))));
        assert!(matches!(
            write(&mut sink, &0u8, &vec![0; MAX_PAYLOAD + 1]).await,
            Err(ChannelError::TooLong(_))
        ));
        assert!(sink.is_empty());
    }

    #[tokio::test]
    async fn another_version_is_told() {
        let channel = Channel::new(MAGIC, b"");
        let received = async |bytes: &[u8]| {
            let (mut a, mut b) = tokio::io::duplex(100);
            a.write_all(bytes).await.unwrap();
            channel.exchange_magic(&mut b).await
        };
        let other = [&MAGIC[..], &9u16.to_be_bytes()].concat();
        assert!(matches!(received(&other).await, Err(ChannelError::Version { theirs: 9 })));
        assert!(matches!(received(b"GET / HTTP/1.1\r\n\r\n").await, Err(ChannelError::OtherProgram)));
    }

    /// Whether a caller with one secret gets its word to a callee with another.
    async fn meet(callers: &[u8], callees: &[u8]) -> Result<u8, ChannelError> {
        let tls = || Tls::new(&NodeKey::generate().unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (received, mut inbox) = mpsc::channel(1);
        let serve = move |_, _, _, first: u8| {
            let received = received.clone();
            async move { received.send(first).await.unwrap() }
        };
        let answering = tokio::spawn(Channel::new(MAGIC, callees).answer(listener, tls(), serve));
        let caller = tls();
        let found = Channel::new(MAGIC, callers).connect(vec![at], caller.id(), &caller.client()).await;
        let sent = async {
            write(&mut found.map_err(|(_, e)| e)?, &7u8, &[]).await?;
            Ok(inbox.recv().await.unwrap())
        };
        let sent = sent.await;
        answering.abort();
        sent
    }

    #[tokio::test]
    async fn only_who_has_the_secret_is_let_in() {
        assert_eq!(meet(b"one", b"one").await.unwrap(), 7);
        let error = meet(b"one", b"two").await.unwrap_err();
        assert!(matches!(error, ChannelError::Secret) && error.is_final());
    }

    #[test]
    fn a_proof_is_good_for_one_side_and_one_pair_of_keys() {
        let (a, b, channel) = (NodeId([1; 32]), NodeId([2; 32]), Channel::new(MAGIC, b"x"));
        assert_ne!(channel.proof("caller", (a, b)), channel.proof("callee", (a, b)));
        assert_ne!(channel.proof("caller", (a, b)), channel.proof("caller", (b, a)));
    }
}
