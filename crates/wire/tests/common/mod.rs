//! Messages of all kinds at random, and a codec in a session with itself, for the tests of this crate.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, unreachable_pub)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tidecast_wire::ext::{self, Caps, Mode, Offer, Reason};
use tidecast_wire::{
    BlockHeader, BlockRange, Codec, Decoded, ExtHandshake, ExtIds, Extension, Frame, HashRange, Hashes,
    Message, Metadata, Pex, PexPeer, Reserved,
};

/// An offer of everything.
pub fn offer() -> Offer {
    Offer { block: ext::MAX_BLOCK, caps: Caps(u32::MAX), ..Offer::default() }
}

/// A codec whose peer is another of its kind.
pub fn session() -> Codec {
    let mut codec = Codec::new(Reserved::ours(true), ExtIds::LOCAL, offer());
    let shake = encoded(&Message::ExtHandshake(Box::new(codec.ext_handshake())));
    decode_one(&mut codec, &shake).unwrap();
    assert_eq!(codec.session().unwrap().max_block, ext::MAX_BLOCK);
    codec
}

/// A codec that expects a stock peer.
pub fn stock() -> Codec {
    Codec::new(Reserved::ours(true), ExtIds::LOCAL, offer())
}

pub fn encoded(message: &Message) -> Vec<u8> {
    let mut out = BytesMut::new();
    message.encode(ExtIds::LOCAL, &mut out).unwrap();
    out.to_vec()
}

/// The one frame of `bytes`.
pub fn decode_one(codec: &mut Codec, bytes: &[u8]) -> Result<Frame, tidecast_wire::Error> {
    match codec.decode(bytes)? {
        Decoded::Frame { frame, consumed } => {
            assert_eq!(consumed, bytes.len(), "{frame:?}");
            Ok(frame)
        }
        Decoded::Need(n) => panic!("wants {n} bytes of {}", bytes.len()),
    }
}

pub fn bytes(len: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), len).prop_map(Bytes::from)
}

fn digests(len: Range<usize>) -> impl Strategy<Value = Vec<[u8; 32]>> {
    vec(any::<[u8; 32]>(), len)
}

/// A start and a length that stay within 32 bits.
fn place(max: u32) -> impl Strategy<Value = (u32, u32)> {
    (any::<u32>(), 1..=max).prop_map(|(at, len)| (at.min(u32::MAX - len), len))
}

fn block() -> impl Strategy<Value = BlockRange> {
    (any::<u32>(), place(128 * 1024)).prop_map(|(piece, (begin, len))| BlockRange { piece, begin, len })
}

fn hash_range() -> impl Strategy<Value = HashRange> {
    let length = prop_oneof![(0..10_u32).prop_map(|e| 1 << e), 1..=512_u32];
    (any::<[u8; 32]>(), 0..=64_u32, 0..1000_u32, length, 0..=64_u32).prop_map(
        |(pieces_root, base_layer, index, length, proof_layers)| HashRange {
            pieces_root,
            base_layer,
            index: index * length,
            length,
            proof_layers,
        },
    )
}

fn hashes() -> impl Strategy<Value = Hashes> {
    let most = |range: HashRange| (range.length + range.proof_layers) as usize;
    hash_range().prop_flat_map(move |range| {
        digests(1..most(range) + 1).prop_map(move |hashes| Hashes { range, hashes })
    })
}

fn addr() -> impl Strategy<Value = SocketAddr> {
    let v4 = any::<u32>().prop_map(|ip| IpAddr::from(Ipv4Addr::from(ip)));
    let v6 = any::<u128>().prop_map(|ip| IpAddr::from(Ipv6Addr::from(ip)));
    let good = |ip: &IpAddr| !ip.is_unspecified() && !ip.is_multicast();
    (prop_oneof![v4, v6].prop_filter("connectable", good), 1..=u16::MAX).prop_map(SocketAddr::from)
}

fn pex() -> impl Strategy<Value = Pex> {
    let peer = (addr(), any::<u8>()).prop_map(|(addr, flags)| PexPeer { addr, flags });
    (vec(peer, 0..20), vec(addr(), 0..20)).prop_map(|(mut added, mut dropped)| {
        added.sort_by_key(|p| p.addr.is_ipv6());
        dropped.sort_by_key(SocketAddr::is_ipv6);
        Pex { added, dropped }
    })
}

fn metadata() -> impl Strategy<Value = Metadata> {
    let data =
        (0..200_u32, 1..=16_384_u32, any::<bool>(), any::<u8>()).prop_map(|(piece, last, more, fill)| {
            let len = if more { 16_384 } else { last };
            let total = piece * 16_384 + len + if more { last } else { 0 };
            Metadata::Data { piece, total, bytes: vec![fill; len as usize].into() }
        });
    prop_oneof![
        any::<u32>().prop_map(|piece| Metadata::Request { piece }),
        data,
        any::<u32>().prop_map(|piece| Metadata::Reject { piece }),
    ]
}

prop_compose! {
    fn any_offer()(min in 1..9_u32, more in 0..9_u32, block in 14..=20_u32, caps in any::<u32>()) -> Offer {
        Offer { min_version: min, max_version: min + more, block: 1 << block, caps: Caps(caps) }
    }
}

fn ext_handshake() -> impl Strategy<Value = ExtHandshake> {
    let m = vec(option::of(any::<u8>()), 4).prop_map(|ids| {
        Extension::ALL.into_iter().zip(ids).filter_map(|(e, id)| Some((e, id?))).collect::<Vec<_>>()
    });
    let text = vec(any::<char>(), 0..64)
        .prop_map(|text| text.into_iter().filter(|c| !c.is_control()).collect::<String>());
    let said =
        (option::of(text), option::of(1..=u16::MAX), option::of(any::<u32>()), option::of(1..=u32::MAX));
    let ips = (option::of(any::<IpAddr>()), option::of(any::<Ipv4Addr>()), option::of(any::<Ipv6Addr>()));
    (m, said, ips, any::<bool>(), option::of(any_offer())).prop_map(
        |(m, (client, port, reqq, metadata_size), (your_ip, ipv4, ipv6), upload_only, tidecast)| {
            ExtHandshake { m, client, port, reqq, metadata_size, your_ip, ipv4, ipv6, upload_only, tidecast }
        },
    )
}

/// Ascending ranges apart from each other.
pub fn ranges(most: usize) -> impl Strategy<Value = Vec<Range<u32>>> {
    vec((1..50_u32, 1..50_u32), 0..most).prop_map(|steps| {
        let mut at = 0;
        let mut next = |(gap, len): (u32, u32)| {
            let start = at + gap - u32::from(at == 0);
            at = start + len;
            start..at
        };
        steps.into_iter().map(&mut next).collect()
    })
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Reset), Just(Mode::Add), Just(Mode::Remove)]
}

fn availability() -> impl Strategy<Value = ext::Availability> {
    (any::<u16>(), mode(), ranges(40), any::<prop::sample::Index>()).prop_map(
        |(channel, mode, exceptions, at)| {
            // Any start or end of an exception is a possible watermark, and so is any piece between two.
            let edges: Vec<u32> = exceptions.iter().flat_map(|r| [r.start, r.end]).chain([0]).collect();
            ext::Availability { channel, mode, watermark: *at.get(&edges), exceptions }
        },
    )
}

fn tidecast_data() -> impl Strategy<Value = ext::Message> {
    use ext::Message as M;
    let block = || {
        (any::<u16>(), any::<u32>(), place(ext::MAX_BLOCK))
            .prop_map(|(channel, piece, (begin, len))| ext::BlockRange { channel, piece, begin, len })
    };
    let pieces = || {
        (any::<u16>(), place(ext::MAX_PIECES)).prop_map(|(channel, (first, count))| ext::PieceRange {
            channel,
            first,
            count,
        })
    };
    let leaves = || {
        (any::<u16>(), any::<u32>(), place(ext::MAX_LEAVES as u32))
            .prop_map(|(channel, piece, (first, count))| ext::LeafRange { channel, piece, first, count })
    };
    prop_oneof![
        block().prop_map(M::RequestBlock),
        pieces().prop_map(M::RequestPieces),
        block().prop_map(M::CancelBlock),
        pieces().prop_map(M::CancelPieces),
        block().prop_map(M::RejectBlock),
        pieces().prop_map(M::RejectPieces),
        availability().prop_map(M::Availability),
        (any::<u16>(), mode(), 0..9999_u32, bytes(1..200)).prop_map(|(channel, mode, first, bits)| {
            M::AvailabilityBits(ext::AvailabilityBits { channel, mode, first: first * 8, bits })
        }),
        (any::<u16>(), any::<u32>()).prop_map(|(channel, bytes)| M::Credit { channel, bytes }),
        (any::<u16>(), any::<u32>()).prop_map(|(channel, below)| M::OfferBelow { channel, below }),
        (any::<u16>(), prop::collection::vec(any::<u8>(), 1..300))
            .prop_map(|(channel, bytes)| M::Gather { channel, bytes: bytes.into() }),
        (0..ext::MAX_STRIPES, any::<bool>(), pieces()).prop_map(|(stripe, urgent, pieces)| M::Wish {
            stripe,
            urgent,
            pieces
        }),
        (any::<u16>(), 0..ext::MAX_STRIPES, any::<u32>()).prop_map(|(channel, stripe, piece)| M::Offer {
            channel,
            stripe,
            piece
        }),
        (any::<u16>(), any::<u32>(), any::<u32>(), digests(1..40))
            .prop_map(|(channel, piece, first, hashes)| M::Leaves { channel, piece, first, hashes }),
        (any::<u16>(), any::<u32>(), 0..1_000_000_u32, any::<[u8; 32]>(), digests(1..40)).prop_map(
            |(channel, number, first, half, roots)| {
                let mut signature = [7; 64];
                signature[..32].copy_from_slice(&half);
                M::Roots { channel, number, first, signature, roots }
            }
        ),
        (any::<u16>(), any::<u32>(), any::<[u8; 32]>()).prop_map(|(channel, number, info_hash)| M::Seal {
            channel,
            number,
            signature: [9; 64],
            info_hash
        }),
        leaves().prop_map(M::LeavesRequest),
        leaves().prop_map(M::LeavesReject),
        pieces().prop_map(M::FingerprintsRequest),
        pieces().prop_map(M::FingerprintsReject),
        (any::<u16>(), any::<u32>(), prop::collection::vec(any::<[u8; ext::FINGERPRINT]>(), 1..40))
            .prop_map(|(channel, first, all)| M::Fingerprints { channel, first, bytes: all.concat().into() }),
    ]
}

fn tidecast_control() -> impl Strategy<Value = ext::Message> {
    use ext::Message as M;
    let manifest =
        || {
            (any::<u16>(), place(ext::MAX_CHUNK as u32))
                .prop_map(|(channel, (offset, len))| ext::ManifestRange { channel, offset, len })
        };
    let reason = || any::<u16>().prop_map(Reason);
    let text = || "[ -~]{0,80}";
    prop_oneof![
        manifest().prop_map(M::ManifestRequest),
        (any::<u16>(), 0..100_000_u32, bytes(1..2000), 0..1000_u32).prop_map(
            |(channel, offset, bytes, more)| {
                M::ManifestData { channel, offset, total: offset + bytes.len() as u32 + more, bytes }
            }
        ),
        manifest().prop_map(M::ManifestReject),
        (1..=u16::MAX, any::<[u8; 32]>()).prop_map(|(channel, swarm)| M::Attach { channel, swarm }),
        (1..=u16::MAX).prop_map(|channel| M::AttachOk { channel }),
        (any::<u16>(), reason()).prop_map(|(channel, reason)| M::Detach { channel, reason }),
        (any::<u16>(), bytes(0..300)).prop_map(|(channel, request)| M::Enrol { channel, request }),
        (any::<u16>(), bytes(0..300)).prop_map(|(channel, credential)| M::Credential { channel, credential }),
        (any::<u16>(), reason(), text()).prop_map(|(channel, reason, text)| M::Denied {
            channel,
            reason,
            text
        }),
        (any::<u16>(), bytes(0..300)).prop_map(|(channel, list)| M::Revoked { channel, list }),
        (any::<u16>(), vec(addr(), 0..=ext::MAX_PEERS))
            .prop_map(|(channel, addrs)| M::Peers { channel, addrs }),
        (reason(), text()).prop_map(|(reason, text)| M::Goodbye { reason, text }),
    ]
}

/// Any message but an extension handshake, which would change the ids in mid-stream.
pub fn plain_message() -> impl Strategy<Value = Message> {
    let core = prop_oneof![
        Just(Message::KeepAlive),
        Just(Message::Choke),
        Just(Message::Unchoke),
        Just(Message::Interested),
        Just(Message::NotInterested),
        any::<u32>().prop_map(Message::Have),
        bytes(0..300).prop_map(Message::Bitfield),
        block().prop_map(Message::Request),
        block().prop_map(Message::Cancel),
        any::<u16>().prop_map(Message::Port),
        any::<u32>().prop_map(Message::Suggest),
        Just(Message::HaveAll),
        Just(Message::HaveNone),
        block().prop_map(Message::Reject),
        any::<u32>().prop_map(Message::AllowedFast),
    ];
    prop_oneof![
        4 => core,
        1 => hash_range().prop_map(Message::HashRequest),
        1 => hashes().prop_map(Message::Hashes),
        1 => hash_range().prop_map(Message::HashReject),
        1 => metadata().prop_map(Message::Metadata),
        1 => pex().prop_map(Message::Pex),
        1 => any::<u32>().prop_map(Message::DontHave),
        5 => tidecast_data().prop_map(Message::Tidecast),
        5 => tidecast_control().prop_map(Message::Tidecast),
    ]
}

/// Any message.
pub fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        9 => plain_message(),
        1 => ext_handshake().prop_map(|shake| Message::ExtHandshake(Box::new(shake))),
    ]
}

/// A block, of a stock peer or of Tidecast (`true`), short enough for a test to hold its payload.
pub fn block_header() -> impl Strategy<Value = (bool, BlockHeader)> {
    (any::<bool>(), any::<u16>(), any::<u32>(), place(3000), any::<bool>()).prop_map(
        |(tidecast, channel, piece, (begin, len), pushed)| {
            let channel = if tidecast { channel } else { 0 };
            (tidecast, BlockHeader { channel, piece, begin, len, pushed: tidecast && pushed })
        },
    )
}
