//! From a byte stream to a peer: the BitTorrent handshake (BEP 3), with another Tidecast the
//! extension handshake (BEP 10), and in a private swarm the proof of membership. All of it within
//! one time limit, and in a private swarm nothing is answered before the proof.

mod mse;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tidecast_identity::NodeId;
use tidecast_mse::Swarms;
use tidecast_swarm::Protocol;
use tidecast_wire::ext::{self, Caps, Offer, Reason};
use tidecast_wire::{Codec, ExtIds, Extension, Handshake, Message, Reserved};

use crate::cpu::Cpu;
use crate::error::ConnError;
use crate::framed::Input;
use crate::security::{Introduction, Membership, Security};
use crate::transport::{Reader, Transport, Writer};

/// All handshakes together.
pub(crate) const LIMIT: Duration = tidecast_admission::DEADLINE;
/// Tidecast's prefix of peer ids (BEP 20). Only a hint whether to wait for the extension handshake, which decides.
const ID_PREFIX: &[u8; 4] = b"-TC0";
/// A node that is not on the list of admitted nodes may be added within this time.
const EXPECTED: Duration = Duration::from_secs(1);
/// Requests that we queue (BEP 10 `reqq`).
const REQUEST_QUEUE: u32 = 2000;
/// Bytes asked of the stream at once where blocks bypass the buffer, and where they do not.
const CHUNK_TIDECAST: usize = 16 << 10;
const CHUNK_STOCK: usize = 256 << 10;

/// This node's part of the handshakes.
pub(crate) struct Local {
    /// The swarm's ids: v1 hash, truncated v2 hash.
    pub(crate) hashes: Vec<[u8; 20]>,
    pub(crate) peer_id: [u8; 20],
    /// Has a v1 and a v2 id.
    pub(crate) hybrid: bool,
    /// BEP 27: no peer exchange with stock clients.
    pub(crate) private: bool,
    pub(crate) listen_port: Option<u16>,
    pub(crate) metadata_size: Option<u32>,
    pub(crate) pieces: Option<u32>,
    /// Nothing more to download (BEP 21).
    pub(crate) upload_only: bool,
    /// It makes plans for groups, or joins them.
    pub(crate) gathers: bool,
    /// The manifest is a draft: only peers that support roots can join.
    pub(crate) draft: bool,
}

impl Local {
    /// A caller that has nothing, and does not know the manifest.
    pub(crate) fn asking(hashes: Vec<[u8; 20]>) -> Local {
        Local {
            hybrid: hashes.len() > 1,
            hashes,
            peer_id: new_peer_id(),
            private: false,
            listen_port: None,
            metadata_size: None,
            pieces: None,
            upload_only: false,
            gathers: false,
            draft: false,
        }
    }
}

/// A connection on which both sides are authenticated.
pub(crate) struct Established {
    pub(crate) input: Input,
    pub(crate) writer: Writer,
    pub(crate) protocol: Protocol,
    pub(crate) remote_id: [u8; 20],
    pub(crate) outgoing: bool,
    /// The swarm is hybrid to both ends, so v2 hashes may be asked for though the connection began with the v1 id (BEP 52).
    pub(crate) upgraded: bool,
    /// It accepts pieces without a request, by a plan.
    pub(crate) takes_offers: bool,
    /// It makes plans for groups, or joins them.
    pub(crate) gathers: bool,
    /// It reads keys and peer ids in a part of a plan as hexadecimal digits.
    pub(crate) reads_hex: bool,
    /// It has given this node its credential.
    pub(crate) enrolled: bool,
    pub(crate) node: Option<NodeId>,
    pub(crate) client: String,
    /// The port on which it listens, if it sent one.
    pub(crate) port: Option<u16>,
    /// Our extension handshake, if it is still to be sent.
    pub(crate) greeting: Option<Message>,
}

/// A fresh peer id (BEP 20).
pub(crate) fn new_peer_id() -> [u8; 20] {
    let mut id: [u8; 20] = rand::random();
    id[..8].copy_from_slice(b"-TC0100-");
    id
}

/// How a call begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeKind {
    /// With the handshake.
    Direct,
    /// With the opening of MSE, for peers that demand it.
    Mse,
}

/// A byte stream on which the other end has named its swarm.
pub(crate) struct Opening {
    reader: Reader,
    writer: Writer,
    buf: BytesMut,
    theirs: Handshake,
    outgoing: bool,
    kind: HandshakeKind,
}

impl Opening {
    /// The client's side: it sends first.
    pub(crate) async fn call(
        local: &Local,
        transport: Transport,
        kind: HandshakeKind,
        cpu: &Arc<Cpu>,
    ) -> Result<Opening, ConnError> {
        let (reader, mut writer) = transport.split(cpu);
        let first = *local.hashes.first().ok_or(ConnError::Stopping)?;
        let meeting = async {
            let (mut reader, writer, mut buf) = match kind {
                HandshakeKind::Direct => {
                    say(local, first, &mut writer).await?;
                    (reader, writer, BytesMut::with_capacity(4096))
                }
                HandshakeKind::Mse => {
                    let ours = handshake(local, first).to_bytes();
                    mse::call(reader, writer, (first, &ours), cpu).await?
                }
            };
            let theirs = hear(&mut reader, &mut buf).await?;
            Ok(Opening { reader, writer, buf, theirs, outgoing: true, kind })
        };
        in_time(meeting).await
    }

    /// The server's side: receives, and sends nothing yet. The caller limits its time. `swarms`: the swarms in
    /// which the other end may use encryption.
    pub(crate) async fn answer(
        transport: Transport,
        swarms: &Swarms,
        cpu: &Arc<Cpu>,
    ) -> Result<Opening, ConnError> {
        let (mut reader, writer) = transport.split(cpu);
        let mut buf = BytesMut::with_capacity(4096);
        let theirs = match hear(&mut reader, &mut buf).await {
            Err(ConnError::Wire(tidecast_wire::Error::Protocol { .. })) if !swarms.is_empty() => {
                let (mut reader, writer, mut buf) = mse::answer(reader, writer, (buf, swarms), cpu).await?;
                let theirs = hear(&mut reader, &mut buf).await?;
                return Ok(Opening {
                    reader,
                    writer,
                    buf,
                    theirs,
                    outgoing: false,
                    kind: HandshakeKind::Mse,
                });
            }
            heard => heard?,
        };
        Ok(Opening { reader, writer, buf, theirs, outgoing: false, kind: HandshakeKind::Direct })
    }

    /// The swarm that the other end named.
    pub(crate) fn swarm(&self) -> [u8; 20] {
        self.theirs.info_hash
    }
}

/// Handshakes that take longer than [`LIMIT`] are given up.
async fn in_time<T>(work: impl Future<Output = Result<T, ConnError>>) -> Result<T, ConnError> {
    let late = ConnError::Late { what: "finish the handshakes", seconds: LIMIT.as_secs() };
    tokio::time::timeout(LIMIT, work).await.map_err(|_| late)?
}

/// Our 68 bytes (BEP 3).
fn handshake(local: &Local, info_hash: [u8; 20]) -> Handshake {
    Handshake { reserved: Reserved::ours(local.hybrid), info_hash, peer_id: local.peer_id }
}

async fn say(local: &Local, info_hash: [u8; 20], writer: &mut Writer) -> Result<(), ConnError> {
    writer.write_all(&handshake(local, info_hash).to_bytes()).await?;
    writer.flush().await
}

/// The other end's.
async fn hear(reader: &mut Reader, buf: &mut BytesMut) -> Result<Handshake, ConnError> {
    let theirs = loop {
        if let Some(handshake) = Handshake::decode(buf)? {
            break handshake;
        }
        if reader.read_buf(buf).await? == 0 {
            return Err(ConnError::Closed);
        }
    };
    let _ = buf.split_to(Handshake::LEN);
    Ok(theirs)
}

/// Completes the handshakes on a stream. `node`: the key that TLS has proven.
pub(crate) async fn establish(
    local: &Local,
    security: &Security,
    opening: Opening,
    node: Option<NodeId>,
) -> Result<Established, ConnError> {
    in_time(shake_hands(local, security, opening, node)).await
}

async fn shake_hands(
    local: &Local,
    security: &Security,
    opening: Opening,
    node: Option<NodeId>,
) -> Result<Established, ConnError> {
    let Opening { reader, mut writer, buf, theirs, outgoing, kind } = opening;
    if !local.hashes.contains(&theirs.info_hash) {
        return Err(ConnError::OtherSwarm);
    }
    if matches!(security, Security::Known(_))
        && !admitted_soon(security, node, local.gathers && !outgoing).await
    {
        return Err(ConnError::NotMember("it is not on the list of admitted nodes".into()));
    }
    if !outgoing {
        say(local, theirs.info_hash, &mut writer).await?;
    }
    // With MSE libtorrent decides by our id, v1 or v2, whatever the reserved bits are.
    let by_id = outgoing && kind == HandshakeKind::Mse;
    let agreed = Reserved::ours(local.hybrid && !by_id).both(theirs.reserved);
    let ids = if local.private { ExtIds::LOCAL.with(Extension::Pex, 0) } else { ExtIds::LOCAL };
    let codec = Codec::new(agreed, ids, offer(local, security));
    let mut input = Input::new(reader, buf, codec, CHUNK_STOCK);
    if let Some(pieces) = local.pieces {
        input.codec.set_pieces(pieces);
    }
    let mut greeting = agreed.extensions().then(|| greeting(local, &input.codec));
    let mut peer = Established {
        input,
        writer,
        protocol: Protocol::Stock { fast: agreed.fast() },
        remote_id: theirs.peer_id,
        outgoing,
        upgraded: agreed.v2(),
        takes_offers: false,
        gathers: false,
        reads_hex: false,
        enrolled: false,
        node,
        client: client_of(&theirs.peer_id),
        port: None,
        greeting: None,
    };
    if theirs.peer_id.starts_with(ID_PREFIX)
        && let Some(hello) = greeting.take()
    {
        peer.send(&hello).await?;
        peer.meet().await?;
    }
    if local.draft && !peer.takes_roots() {
        return Err(ConnError::Protocol("it does not support drafts"));
    }
    peer.greeting = greeting;
    if let Security::Private(membership) = security {
        peer.prove(membership).await?;
    }
    Ok(peer)
}

/// Whether a node is admitted. The maker of a plan informs both ends of a connection, and the dialling end may be
/// informed first: its node is `expected` for a moment.
async fn admitted_soon(security: &Security, node: Option<NodeId>, expected: bool) -> bool {
    let until = Instant::now() + if expected { EXPECTED } else { Duration::ZERO };
    while !security.still_admits(node) {
        if Instant::now() >= until {
            return false;
        }
        tokio::time::sleep(EXPECTED / 20).await;
    }
    true
}

fn offer(local: &Local, security: &Security) -> Offer {
    // A connection is of one swarm yet, so no further channel is opened, and no credit is given.
    let caps = Caps::LEAVES.with(Caps::MANIFEST).with(Caps::PLAN).with(Caps::FINGERPRINTS);
    let mut offer = Offer { caps, ..Offer::default() };
    if local.gathers {
        offer.caps = offer.caps.with(Caps::GATHER).with(Caps::GATHER_HEX);
    }
    if local.draft {
        offer.caps = offer.caps.with(Caps::ROOTS);
    }
    if security.is_owner() {
        offer.caps = offer.caps.with(Caps::AUTHORITY);
    }
    offer
}

fn greeting(local: &Local, codec: &Codec) -> Message {
    let mut hello = codec.ext_handshake();
    hello.client = Some(concat!("Tidecast ", env!("CARGO_PKG_VERSION")).to_owned());
    hello.port = local.listen_port;
    hello.reqq = Some(REQUEST_QUEUE);
    hello.metadata_size = local.metadata_size;
    hello.upload_only = local.upload_only;
    Message::ExtHandshake(Box::new(hello))
}

/// The client's name, from its peer id alone.
fn client_of(id: &[u8; 20]) -> String {
    id[..8].iter().map(|b| if b.is_ascii_graphic() { char::from(*b) } else { '.' }).collect()
}

impl Established {
    async fn send(&mut self, message: &Message) -> Result<(), ConnError> {
        let mut out = BytesMut::new();
        message.encode(self.input.codec.peer_ids(), &mut out)?;
        self.writer.write_all(&out).await?;
        self.writer.flush().await
    }

    /// Receives a Tidecast peer's extension handshake, and applies the agreed options.
    async fn meet(&mut self) -> Result<(), ConnError> {
        let Message::ExtHandshake(hello) = self.input.message().await? else {
            return Err(ConnError::Protocol("first message is not an extension handshake"));
        };
        self.client = hello.client.unwrap_or_default();
        self.port = hello.port;
        if let Some(session) = self.input.codec.session() {
            self.protocol = Protocol::Tidecast { max_block: session.max_block };
            self.takes_offers = session.peer.has(Caps::PLAN);
            self.gathers = session.peer.has(Caps::GATHER);
            self.reads_hex = session.peer.has(Caps::GATHER_HEX);
            self.input.set_chunk(CHUNK_TIDECAST);
        }
        Ok(())
    }

    fn takes_roots(&self) -> bool {
        self.peer_has(Caps::ROOTS)
    }

    /// Whether the peer has announced these capabilities.
    pub(crate) fn peer_has(&self, caps: Caps) -> bool {
        self.input.codec.session().is_some_and(|session| session.peer.has(caps))
    }

    /// Each side proves its right to be in the swarm, and waits for the other's proof.
    async fn prove(&mut self, membership: &Membership) -> Result<(), ConnError> {
        let (Some(node), Protocol::Tidecast { .. }) = (self.node, self.protocol) else {
            return Err(ConnError::Protocol("a private swarm requires Tidecast's TLS"));
        };
        let introduction = membership.introduction(node).map_err(|e| ConnError::NotMember(e.to_string()))?;
        let enrolling = matches!(introduction, Introduction::Enrol(_));
        let shown = match introduction {
            Introduction::None => None,
            Introduction::Credential(c) => {
                Some(ext::Message::Credential { channel: 0, credential: c.into() })
            }
            Introduction::Enrol(request) => Some(ext::Message::Enrol { channel: 0, request: request.into() }),
        };
        if let Some(message) = shown {
            self.send(&Message::Tidecast(message)).await?;
        }
        let mut peer_proven = membership.check(node, None).is_ok();
        let mut self_proven = !enrolling;
        while !(peer_proven && self_proven) {
            match self.input.message().await? {
                Message::KeepAlive => {}
                Message::Tidecast(ext::Message::Credential { credential, .. }) if enrolling => {
                    membership.accept(&credential).map_err(ConnError::Denied)?;
                    (self_proven, self.enrolled) = (true, true);
                }
                Message::Tidecast(ext::Message::Credential { credential, .. }) => {
                    self.judge(membership.check(node, Some(&credential))).await?;
                    peer_proven = true;
                }
                Message::Tidecast(ext::Message::Enrol { request, .. }) => {
                    let credential = self.judge(membership.redeem(&request, node)).await?;
                    let credential = credential.to_bytes().into();
                    let grant = ext::Message::Credential { channel: 0, credential };
                    self.send(&Message::Tidecast(grant)).await?;
                    peer_proven = true;
                }
                Message::Tidecast(ext::Message::Denied { text, .. }) => return Err(ConnError::Denied(text)),
                _ => return Err(ConnError::Protocol("message before proof of membership")),
            }
        }
        Ok(())
    }

    /// Tells the peer if it is refused, so that its user learns why.
    async fn judge<T>(&mut self, verdict: Result<T, String>) -> Result<T, ConnError> {
        match verdict {
            Ok(value) => Ok(value),
            Err(why) => {
                let text = why.chars().take(ext::MAX_TEXT / 4).collect();
                let denied = ext::Message::Denied { channel: 0, reason: Reason::UNAUTHORISED, text };
                self.send(&Message::Tidecast(denied)).await?;
                let _ = self.writer.shutdown().await;
                Err(ConnError::NotMember(why))
            }
        }
    }
}
