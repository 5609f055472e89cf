//! A scripted peer: sends exactly the messages of a test, and returns the received ones.

use std::net::SocketAddr;

use bytes::{Buf, BytesMut};
use tidecast_metainfo::Manifest;
use tidecast_wire::ext::{self, Caps, Offer};
use tidecast_wire::{BlockHeader, Codec, Decoded, ExtHandshake, ExtIds, Frame, Handshake, Message, Reserved};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A message that a fake peer receives: of the extension, or a block with its payload.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    Message(ext::Message),
    Block(BlockHeader, Vec<u8>),
}

pub struct Fake {
    stream: TcpStream,
    codec: Codec,
    buf: BytesMut,
}

impl Fake {
    /// Dials a node.
    pub async fn dial(node: SocketAddr, manifest: &Manifest, id: [u8; 20]) -> Fake {
        let mut stream = TcpStream::connect(node).await.unwrap();
        stream.write_all(&shake(manifest, id).to_bytes()).await.unwrap();
        Fake::meet(stream, manifest, Caps::default(), None).await
    }

    /// Dials a node from an address of its own.
    pub async fn dial_from(from: SocketAddr, node: SocketAddr, manifest: &Manifest, id: [u8; 20]) -> Fake {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(from).unwrap();
        let mut stream = socket.connect(node).await.unwrap();
        stream.write_all(&shake(manifest, id).to_bytes()).await.unwrap();
        Fake::meet(stream, manifest, Caps::default(), None).await
    }

    /// Is dialled by a node.
    pub async fn accept(listener: &TcpListener, manifest: &Manifest, id: [u8; 20]) -> Fake {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(&shake(manifest, id).to_bytes()).await.unwrap();
        Fake::meet(stream, manifest, Caps::default(), None).await
    }

    /// Dials a node as a member of its group that has these capabilities, too, and can be dialled.
    pub async fn join(node: SocketAddr, manifest: &Manifest, id: [u8; 20], caps: Caps) -> Fake {
        let mut stream = TcpStream::connect(node).await.unwrap();
        stream.write_all(&shake(manifest, id).to_bytes()).await.unwrap();
        let mut fake = Fake::meet(stream, manifest, caps.with(Caps::GATHER), Some(1)).await;
        fake.say(ext::Message::Gather { channel: 0, bytes: b"\"Join\""[..].into() }).await;
        fake
    }

    async fn meet(mut stream: TcpStream, manifest: &Manifest, more: Caps, port: Option<u16>) -> Fake {
        stream.set_nodelay(true).unwrap();
        let mut theirs = [0; Handshake::LEN];
        stream.read_exact(&mut theirs).await.unwrap();
        let theirs = Handshake::decode(&theirs).unwrap().unwrap();
        let agreed = Reserved::ours(false).both(theirs.reserved);
        let usual = Offer::default();
        let roots = if manifest.is_draft() { Caps::ROOTS } else { Caps::default() };
        let caps = usual.caps.with(roots).with(more);
        let codec = Codec::new(agreed, ExtIds::LOCAL, Offer { caps, ..usual });
        let mut fake = Fake { stream, codec, buf: BytesMut::new() };
        let hello = Message::ExtHandshake(Box::new(ExtHandshake { port, ..fake.codec.ext_handshake() }));
        let mut out = BytesMut::new();
        hello.encode(ExtIds::LOCAL, &mut out).unwrap();
        fake.stream.write_all(&out).await.unwrap();
        while fake.codec.session().is_none() {
            fake.frame().await.unwrap();
        }
        fake
    }

    pub async fn say(&mut self, message: ext::Message) {
        let mut out = BytesMut::new();
        Message::Tidecast(message).encode(self.codec.peer_ids(), &mut out).unwrap();
        self.stream.write_all(&out).await.unwrap();
    }

    pub async fn send(&mut self, piece: u32, begin: u32, payload: &[u8]) {
        let header = BlockHeader { channel: 0, piece, begin, len: payload.len() as u32, pushed: false };
        let header = ext::block_header(self.codec.peer_ids(), &header).unwrap();
        self.stream.write_all(&[&header, payload].concat()).await.unwrap();
    }

    /// The next message of the extension or block, others are passed over; None at the end.
    pub async fn hear(&mut self) -> Option<Heard> {
        loop {
            match self.frame().await? {
                Frame::Message(Message::Tidecast(message)) => return Some(Heard::Message(message)),
                Frame::Message(_) => {}
                Frame::Block(header) => {
                    let mut payload = vec![0; header.len as usize];
                    let here = self.buf.len().min(payload.len());
                    payload[..here].copy_from_slice(&self.buf.split_to(here));
                    self.stream.read_exact(&mut payload[here..]).await.ok()?;
                    return Some(Heard::Block(header, payload));
                }
            }
        }
    }

    async fn frame(&mut self) -> Option<Frame> {
        loop {
            match self.codec.decode(&self.buf).unwrap() {
                Decoded::Frame { frame, consumed } => {
                    self.buf.advance(consumed);
                    return Some(frame);
                }
                Decoded::Need(_) => {
                    if self.stream.read_buf(&mut self.buf).await.ok()? == 0 {
                        return None;
                    }
                }
            }
        }
    }
}

fn shake(manifest: &Manifest, peer_id: [u8; 20]) -> Handshake {
    Handshake { reserved: Reserved::ours(false), info_hash: manifest.swarm_hashes()[0], peer_id }
}
