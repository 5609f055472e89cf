//! A connection between a rank and the hub: TLS between fresh keys, a proof of the group's secret over both keys,
//! then messages.
//!
//! ```text
//! rank                                     hub (at rank 0)
//!   ── TCP, TLS ──▶                          both keys are proven, neither is known
//!   ── magic, HMAC(secret, "rank", keys) ──▶ only who has the secret; nobody between, or the keys would differ
//!   ◀── magic, HMAC(secret, "hub", keys) ──
//!   ── Hello ──▶ ...
//! ```
//!
//! A frame is the length of the message, that of the payload (4 bytes each, big-endian), and both.

use std::time::Duration;

use bytes::Bytes;
use ring::hmac;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidecast_identity::{NodeId, NodeKey, Tls, peer_node_id, placeholder_name};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// First bytes in both directions; the digit changes with the messages.
const MAGIC: [u8; 16] = *b"tidecast ranks 1";
/// Longest message and payload, bytes.
const MAX_MESSAGE: usize = 4 << 20;
pub(crate) const MAX_PAYLOAD: usize = 1 << 20;
/// Everything until a rank is known must be over within this.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often either end says something, and after how long a silence the other is taken for lost.
pub(crate) const BEAT: Duration = Duration::from_secs(1);
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

const WRONG: &str = "the other end has another secret";

/// Dials the hub.
pub(crate) async fn dial(
    stream: TcpStream,
    key: &NodeKey,
    secret: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    let other = std::io::Error::other;
    stream.set_nodelay(true)?;
    let config = Tls::new(key).and_then(|tls| tls.client(None)).map_err(other)?;
    let mut stream = TlsConnector::from(config).connect(placeholder_name(), stream).await?;
    let hub = peer_node_id(stream.get_ref().1.peer_certificates()).map_err(other)?;
    let keys = (key.id(), hub);
    say(&mut stream, secret, "rank", keys).await?;
    match hear(&mut stream, secret, "hub", keys).await {
        // A hub that is not convinced says nothing more.
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Err(refused(WRONG)),
        other => other.map(|()| stream.into()),
    }
}

/// Takes a rank's connection.
pub(crate) async fn accept(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    own: NodeId,
    secret: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    stream.set_nodelay(true)?;
    let mut stream = acceptor.accept(stream).await?;
    let rank = peer_node_id(stream.get_ref().1.peer_certificates()).map_err(std::io::Error::other)?;
    let keys = (rank, own);
    hear(&mut stream, secret, "rank", keys).await?;
    say(&mut stream, secret, "hub", keys).await?;
    Ok(stream.into())
}

/// What one side proves its knowledge of the secret with: good for this pair of keys only.
fn proven(side: &str, keys: (NodeId, NodeId)) -> Vec<u8> {
    [&MAGIC[..], side.as_bytes(), &keys.0.0, &keys.1.0].concat()
}

async fn say(
    to: &mut (impl AsyncWrite + Unpin),
    secret: &[u8],
    side: &str,
    keys: (NodeId, NodeId),
) -> std::io::Result<()> {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), &proven(side, keys));
    to.write_all(&[&MAGIC[..], tag.as_ref()].concat()).await?;
    to.flush().await
}

async fn hear(
    from: &mut (impl AsyncRead + Unpin),
    secret: &[u8],
    side: &str,
    keys: (NodeId, NodeId),
) -> std::io::Result<()> {
    let (mut magic, mut tag) = ([0; MAGIC.len()], [0; 32]);
    from.read_exact(&mut magic).await?;
    if magic != MAGIC {
        return Err(refused("the other end is another version of Tidecast, or something else"));
    }
    from.read_exact(&mut tag).await?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    hmac::verify(&key, &proven(side, keys), &tag).map_err(|_| refused(WRONG))
}

fn refused(why: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::PermissionDenied, why.to_owned())
}

/// Whether trying again is of no use.
pub(crate) fn is_final(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::PermissionDenied
}

/// Writes one message and its payload.
pub(crate) async fn write<T: Serialize>(
    to: &mut (impl AsyncWrite + Unpin),
    message: &T,
    payload: &[u8],
) -> std::io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(std::io::Error::other)?;
    if body.len() > MAX_MESSAGE || payload.len() > MAX_PAYLOAD {
        return Err(std::io::Error::other("a message is too long"));
    }
    let mut frame = Vec::with_capacity(8 + body.len() + payload.len());
    frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
    frame.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    frame.extend_from_slice(&body);
    frame.extend_from_slice(payload);
    to.write_all(&frame).await?;
    to.flush().await
}

/// Reads one message and its payload.
pub(crate) async fn read<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
) -> std::io::Result<(T, Bytes)> {
    let wrong = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_owned());
    let (body, payload) = (from.read_u32().await? as usize, from.read_u32().await? as usize);
    if body > MAX_MESSAGE || payload > MAX_PAYLOAD {
        return Err(wrong("a message is too long"));
    }
    let mut bytes = vec![0; body];
    from.read_exact(&mut bytes).await?;
    let message = match postcard::take_from_bytes(&bytes) {
        Ok((message, [])) => message,
        _ => return Err(wrong("a message does not parse")),
    };
    let mut bytes = vec![0; payload];
    from.read_exact(&mut bytes).await?;
    Ok((message, bytes.into()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::message::{Down, Up};

    #[tokio::test]
    async fn messages_and_payloads_come_as_they_went() {
        let (mut a, mut b) = tokio::io::duplex(1 << 22);
        for payload in [vec![], vec![7; MAX_PAYLOAD]] {
            let said = Up::Ready { call: 1, bytes: 2 };
            write(&mut a, &said, &payload).await.unwrap();
            assert_eq!(read::<Up>(&mut b).await.unwrap(), (said, payload.into()));
        }
        assert!(write(&mut a, &Up::Bye, &vec![0; MAX_PAYLOAD + 1]).await.is_err());
        for bad in [&[255; 8][..], &[0, 0, 0, 1, 0, 0, 0, 0, 99], &[0, 0, 0, 3, 0, 0, 0, 0, 9, 9, 9]] {
            assert!(read::<Down>(&mut &bad[..]).await.is_err());
        }
    }

    /// What each side says of the other when they meet with these secrets.
    async fn meet(ranks: &'static [u8], hubs: &'static [u8]) -> (std::io::Result<()>, std::io::Result<()>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let hub = tokio::spawn(async move {
            let key = NodeKey::generate().unwrap();
            let acceptor = TlsAcceptor::from(Tls::new(&key).unwrap().server().unwrap());
            let (stream, _) = listener.accept().await.unwrap();
            accept(stream, &acceptor, key.id(), hubs).await.map(drop)
        });
        let stream = TcpStream::connect(at).await.unwrap();
        let rank = dial(stream, &NodeKey::generate().unwrap(), ranks).await.map(drop);
        (rank, hub.await.unwrap())
    }

    #[tokio::test]
    async fn only_who_has_the_secret_is_let_in() {
        let (rank, hub) = meet(b"one", b"one").await;
        assert!(rank.is_ok() && hub.is_ok());
        let (rank, hub) = meet(b"one", b"two").await;
        assert!(is_final(&rank.unwrap_err()) && is_final(&hub.unwrap_err()));
    }

    #[test]
    fn a_proof_is_good_for_one_side_and_one_pair_of_keys() {
        let (a, b) = (NodeId([1; 32]), NodeId([2; 32]));
        assert_ne!(proven("rank", (a, b)), proven("hub", (a, b)));
        assert_ne!(proven("rank", (a, b)), proven("rank", (b, a)));
    }
}
