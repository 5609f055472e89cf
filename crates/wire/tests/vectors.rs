//! Exact bytes: those that the BEPs print, and those that their layouts and `docs/wire-extension.md` give.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use bytes::{Bytes, BytesMut};
use common::{decode_one, encoded, session, stock};
use tidecast_wire::ext::{self, Availability, AvailabilityBits, Caps, Mode, Offer, Reason};
use tidecast_wire::{
    BlockHeader, BlockRange, Codec, EncodeError, Error, ExtHandshake, ExtIds, Extension, Frame, Handshake,
    HashRange, Hashes, Message, Metadata, Pex, PexPeer, Reserved,
};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|d| (d[0] * 16 + d[1]) as u8).collect()
}

/// Both ways.
fn same(message: Message, bytes: &[u8]) {
    assert_eq!(encoded(&message), bytes, "{message:?}");
    assert_eq!(decode_one(&mut session(), bytes).unwrap(), Frame::Message(message));
}

#[test]
fn handshake() {
    let shake =
        Handshake { reserved: Reserved::ours(true).with_dht(), info_hash: [0xAA; 20], peer_id: [b'p'; 20] };
    let bytes =
        [b"\x13BitTorrent protocol\0\0\0\0\0\x10\0\x15".as_slice(), &[0xAA; 20], &[b'p'; 20]].concat();
    assert_eq!(shake.to_bytes(), *bytes);
    assert_eq!(Handshake::decode(&bytes), Ok(Some(shake)));
    let bits = shake.reserved;
    assert!(bits.fast() && bits.extensions() && bits.v2() && bits.dht());
    let both = bits.both(Reserved([0, 0, 0, 0, 0, 0xFF, 0, 0x04]));
    assert_eq!(both, Reserved([0, 0, 0, 0, 0, 0x10, 0, 0x04]));
}

/// Another protocol is told at its first byte that differs: a TLS hello, HTTP, encrypted BitTorrent.
#[test]
fn not_a_handshake() {
    assert_eq!(Handshake::decode(b""), Ok(None));
    assert_eq!(Handshake::decode(b"\x16\x03\x01"), Err(Error::Protocol { at: 0, found: 0x16 }));
    assert_eq!(Handshake::decode(b"\x13BitTorrent prot\0col"), Err(Error::Protocol { at: 16, found: 0 }));
}

#[test]
fn core() {
    let range = BlockRange { piece: 1, begin: 0x4000, len: 0x4000 };
    same(Message::KeepAlive, &hex("00000000"));
    same(Message::Choke, &hex("00000001 00"));
    same(Message::Unchoke, &hex("00000001 01"));
    same(Message::Interested, &hex("00000001 02"));
    same(Message::NotInterested, &hex("00000001 03"));
    same(Message::Have(0x01020304), &hex("00000005 04 01020304"));
    same(Message::Bitfield(Bytes::from_static(&[0xFF, 0x80])), &hex("00000003 05 ff80"));
    same(Message::Request(range), &hex("0000000d 06 00000001 00004000 00004000"));
    same(Message::Cancel(range), &hex("0000000d 08 00000001 00004000 00004000"));
    same(Message::Port(6881), &hex("00000003 09 1ae1"));
}

#[test]
fn fast() {
    let range = BlockRange { piece: 1, begin: 0x4000, len: 0x4000 };
    same(Message::Suggest(9), &hex("00000005 0D 00000009"));
    same(Message::HaveAll, &hex("00000001 0E"));
    same(Message::HaveNone, &hex("00000001 0F"));
    same(Message::Reject(range), &hex("0000000D 10 00000001 00004000 00004000"));
    same(Message::AllowedFast(9), &hex("00000005 11 00000009"));
}

#[test]
fn piece_header() {
    let block = BlockHeader { channel: 0, piece: 7, begin: 0x8000, len: 0x4000, pushed: false };
    let bytes = hex("00004009 07 00000007 00008000");
    assert_eq!(block.to_piece(), *bytes);
    assert_eq!(decode_one(&mut stock(), &bytes), Ok(Frame::Block(block)));
}

#[test]
fn hashes() {
    let range = HashRange { pieces_root: [0xAB; 32], base_layer: 4, index: 512, length: 2, proof_layers: 3 };
    let fields = [vec![0xAB; 32], hex("00000004 00000200 00000002 00000003")].concat();
    same(Message::HashRequest(range), &[hex("00000031 15"), fields.clone()].concat());
    same(Message::HashReject(range), &[hex("00000031 17"), fields.clone()].concat());
    let hashes = vec![[1; 32], [2; 32], [3; 32]];
    let bytes = [hex("00000091 16"), fields, hashes.as_flattened().to_vec()].concat();
    same(Message::Hashes(Hashes { range, hashes }), &bytes);
}

/// The example of BEP 10 (its encoded form names `ut_pex` wrongly), and handshakes that change the ids.
#[test]
fn extension_handshake() {
    let text = b"d1:md11:LT_metadatai1e6:ut_pexi2ee1:pi6881e1:v13:\xc2\xb5Torrent 1.2e";
    let bytes = [&(text.len() as u32 + 2).to_be_bytes(), &[20, 0][..], text].concat();
    let mut codec = stock();
    let Ok(Frame::Message(Message::ExtHandshake(shake))) = decode_one(&mut codec, &bytes) else { panic!() };
    let m = vec![(Extension::Pex, 2)];
    assert_eq!(
        *shake,
        ExtHandshake { m, client: Some("µTorrent 1.2".into()), port: Some(6881), ..Default::default() }
    );
    assert_eq!(codec.peer_ids().get(Extension::Pex), Some(2));
    assert_eq!(codec.session(), None);
    // Additive: another extension comes, the known one stays; 0 takes it away.
    decode_one(&mut codec, b"\0\0\0\x1a\x14\0d1:md11:ut_metadatai9eee").unwrap();
    assert_eq!(codec.peer_ids().get(Extension::Metadata), Some(9));
    assert_eq!(codec.peer_ids().get(Extension::Pex), Some(2));
    decode_one(&mut codec, b"\0\0\0\x14\x14\0d1:md6:ut_pexi0eee").unwrap();
    assert_eq!(codec.peer_ids().get(Extension::Pex), None);
    assert_eq!(codec.peer_ids().get(Extension::Metadata), Some(9));
}

/// The examples of BEP 9 (its `reject` prints type 1 where it means 2).
#[test]
fn metadata() {
    let id = ExtIds::LOCAL.get(Extension::Metadata).unwrap();
    let with = |text: &[u8]| [&(text.len() as u32 + 2).to_be_bytes(), &[20, id][..], text].concat();
    same(Message::Metadata(Metadata::Request { piece: 0 }), &with(b"d8:msg_typei0e5:piecei0ee"));
    same(Message::Metadata(Metadata::Reject { piece: 0 }), &with(b"d8:msg_typei2e5:piecei0ee"));
    let data = Metadata::Data { piece: 2, total: 34256, bytes: vec![b'x'; 34256 - 2 * 16384].into() };
    let head = b"d8:msg_typei1e5:piecei2e10:total_sizei34256ee".to_vec();
    same(Message::Metadata(data), &with(&[head, vec![b'x'; 34256 - 2 * 16384]].concat()));
    // A type that is unknown is ignored.
    let unknown = with(b"d8:msg_typei3ee");
    assert!(matches!(decode_one(&mut stock(), &unknown), Ok(Frame::Message(Message::Unknown { .. }))));
}

#[test]
fn peer_exchange() {
    let added = vec![
        PexPeer { addr: "10.0.0.1:6881".parse().unwrap(), flags: 0x12 },
        PexPeer { addr: "[fd00::1]:6882".parse().unwrap(), flags: 0 },
    ];
    let dropped = vec!["10.0.0.2:80".parse().unwrap()];
    let text = [
        b"d5:added6:\x0a\0\0\x01\x1a\xe1",
        &b"7:added.f1:\x126:added618:\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x1a\xe2"[..],
        b"8:added6.f1:\x007:dropped6:\x0a\0\0\x02\0\x508:dropped60:e",
    ]
    .concat();
    let bytes = [&(text.len() as u32 + 2).to_be_bytes(), &[20, 1][..], &text].concat();
    same(Message::Pex(Pex { added, dropped }), &bytes);
    // No flags, no peer to connect to, and the fields that the sender leaves out.
    let odd = b"d5:added12:\x0a\0\0\x01\x1a\xe1\x0a\0\0\x01\0\0e";
    let bytes = [&(odd.len() as u32 + 2).to_be_bytes(), &[20, 1][..], odd].concat();
    let Ok(Frame::Message(Message::Pex(pex))) = decode_one(&mut stock(), &bytes) else { panic!() };
    assert_eq!(pex.added, vec![PexPeer { addr: "10.0.0.1:6881".parse().unwrap(), flags: 0 }]);
}

/// BEP 54: `<len=0x0006><op=20><subop=xx><index>`.
#[test]
fn dont_have() {
    same(Message::DontHave(258), &hex("00000006 14 07 00000102"));
}

/// The offer as `docs/wire-extension.md` prints it, and the session of two offers.
#[test]
fn offers() {
    let text = b"d1:md11:lt_donthavei7e8:tidecasti20e11:ut_metadatai2e6:ut_pexi1ee8:tidecastd5:blocki262144e4:capsi55e3:maxi1e3:mini1eee";
    let mut ours = Codec::new(Reserved::ours(true), ExtIds::LOCAL, Offer::default());
    let bytes = encoded(&Message::ExtHandshake(Box::new(ours.ext_handshake())));
    assert_eq!(&bytes[6..], text);
    decode_one(&mut ours, &bytes).unwrap();
    let session = ours.session().unwrap();
    assert_eq!((session.version, session.max_block), (1, 256 * 1024));
    assert!(
        session.peer.has(Caps::PUSH) && session.peer.has(Caps::PLAN) && !session.peer.has(Caps::AUTHORITY)
    );

    let offer = |min_version, max_version, block| Offer { min_version, max_version, block, caps: Caps(0) };
    let agreed = offer(1, 3, 1 << 20).agree(&offer(2, 5, 1 << 18)).unwrap();
    assert_eq!((agreed.version, agreed.max_block), (3, 1 << 18));
    assert_eq!(offer(1, 1, 1 << 18).agree(&offer(2, 5, 1 << 18)), None);
    assert_eq!(offer(4, 5, 1 << 18).agree(&offer(1, 3, 1 << 18)), None);
}

/// Of offers the first counts: blocks under way keep their bound.
#[test]
fn a_second_offer_changes_nothing() {
    let mut codec = session();
    let before = codec.session();
    let smaller = Offer { block: 1 << 14, ..Offer::default() };
    let shake = ExtHandshake { tidecast: Some(smaller), ..ExtHandshake::default() };
    decode_one(&mut codec, &encoded(&Message::ExtHandshake(Box::new(shake)))).unwrap();
    assert_eq!(codec.session(), before);
}

/// Without a session a peer is a stock peer, whatever it names.
#[test]
fn fallback() {
    let mut out = BytesMut::new();
    let message = Message::Tidecast(ext::Message::AttachOk { channel: 1 });
    let offers = [
        ("no version of ours", Some(Offer { min_version: 2, max_version: 3, ..Offer::default() })),
        ("no offer", None),
        ("blocks of no size", Some(Offer { block: 12345, ..Offer::default() })),
    ];
    for (why, tidecast) in offers {
        let mut codec = stock();
        let shake = ExtHandshake { m: ExtIds::LOCAL.to_m(), tidecast, ..ExtHandshake::default() };
        decode_one(&mut codec, &encoded(&Message::ExtHandshake(Box::new(shake)))).unwrap();
        assert_eq!(codec.session(), None, "{why}");
        assert_eq!(
            message.encode(codec.peer_ids(), &mut out),
            Err(EncodeError::NotSpoken("tidecast")),
            "{why}"
        );
        assert!(codec.peer_ids().get(Extension::Pex).is_some());
    }
    assert!(out.is_empty(), "a refused message left {out:?}");
}

#[test]
fn tidecast_block_header() {
    let block = BlockHeader { channel: 3, piece: 7, begin: 0x40000, len: 0x40000, pushed: true };
    let bytes = hex("0004000e 14 14 01 0003 01 00000007 00040000");
    assert_eq!(ext::block_header(ExtIds::LOCAL, &block).unwrap(), *bytes);
    assert_eq!(decode_one(&mut session(), &bytes), Ok(Frame::Block(block)));
}

/// Every kind, as `docs/wire-extension.md` lays it out: after length, 14 and the id of the extension, here
/// 14.
#[test]
fn tidecast() {
    use ext::Message as M;
    let (channel, piece) = (1, 7);
    let block = ext::BlockRange { channel, piece, begin: 0x40000, len: 0x20000 };
    let pieces = ext::PieceRange { channel, first: 2, count: 3 };
    let leaves = ext::LeafRange { channel, piece, first: 16, count: 8 };
    let manifest = ext::ManifestRange { channel, offset: 0x100, len: 0x10 };
    let bytes = Bytes::from_static(b"ab");
    let availability =
        Availability { channel, mode: Mode::Reset, watermark: 9, exceptions: vec![3..5, 9..10, 20..22] };
    let bits = AvailabilityBits { channel, mode: Mode::Add, first: 16, bits: Bytes::from_static(&[0x81]) };
    let addrs = vec!["10.0.0.1:258".parse().unwrap(), "[fd00::1]:258".parse().unwrap()];
    let table = [
        (M::RequestBlock(block), "02 0001 00000007 00040000 00020000"),
        (M::RequestPieces(pieces), "03 0001 00000002 00000003"),
        (M::CancelBlock(block), "04 0001 00000007 00040000 00020000"),
        (
            M::RejectBlock(ext::BlockRange { begin: 0, len: 1 << 24, ..block }),
            "06 0001 00000007 00000000 01000000",
        ),
        (M::CancelPieces(pieces), "05 0001 00000002 00000003"),
        (M::RejectBlock(block), "06 0001 00000007 00040000 00020000"),
        (M::RejectPieces(pieces), "07 0001 00000002 00000003"),
        (
            M::Availability(availability),
            "08 0001 00 00000009 00000003 00000002 00000009 00000001 00000014 00000002",
        ),
        (M::AvailabilityBits(bits), "09 0001 01 00000010 81"),
        (M::Credit { channel, bytes: 0x100000 }, "0a 0001 00100000"),
        (M::Offer { channel, stripe: 5, piece }, "0b 0001 0005 00000007"),
        (M::OfferBelow { channel, below: 7 }, "0c 0001 00000007"),
        (M::Wish { stripe: 5, urgent: true, pieces }, "0d 0001 01 0005 00000002 00000003"),
        (M::Gather { channel, bytes: vec![1, 2, 3].into() }, "0e 0001 010203"),
        (
            M::Leaves { channel, piece, first: 16, hashes: vec![[0xCD; 32]] },
            &format!("10 0001 00000007 00000010 {}", "cd".repeat(32)),
        ),
        (M::LeavesRequest(leaves), "11 0001 00000007 00000010 00000008"),
        (M::LeavesReject(leaves), "12 0001 00000007 00000010 00000008"),
        (M::FingerprintsRequest(pieces), "15 0001 00000002 00000003"),
        (
            M::Fingerprints { channel, first: 2, bytes: vec![0xEF; 32].into() },
            &format!("16 0001 00000002 {}", "ef".repeat(32)),
        ),
        (M::FingerprintsReject(pieces), "17 0001 00000002 00000003"),
        (
            M::Roots {
                channel,
                number: 2,
                first: 7,
                signature: [0x51; 64],
                roots: vec![[0xAB; 32], [0xCD; 32]],
            },
            &format!("13 0001 00000002 00000007 {} {} {}", "51".repeat(64), "ab".repeat(32), "cd".repeat(32)),
        ),
        (
            M::Seal { channel, number: 3, signature: [0x51; 64], info_hash: [0xEF; 32] },
            &format!("14 0001 00000003 {} {}", "51".repeat(64), "ef".repeat(32)),
        ),
        (M::ManifestRequest(manifest), "18 0001 00000100 00000010"),
        (
            M::ManifestData { channel, offset: 0x100, total: 0x102, bytes: bytes.clone() },
            "19 0001 00000100 00000102 6162",
        ),
        (M::ManifestReject(manifest), "1a 0001 00000100 00000010"),
        (M::Attach { channel, swarm: [0xEF; 32] }, &format!("20 0001 {}", "ef".repeat(32))),
        (M::AttachOk { channel }, "21 0001"),
        (M::Detach { channel, reason: Reason::BUSY }, "22 0001 0005"),
        (M::Enrol { channel, request: bytes.clone() }, "28 0001 6162"),
        (M::Credential { channel, credential: bytes.clone() }, "29 0001 6162"),
        (M::Denied { channel, reason: Reason::UNAUTHORISED, text: "no".into() }, "2a 0001 0002 6e6f"),
        (M::Revoked { channel, list: bytes }, "2b 0001 6162"),
        (M::Peers { channel, addrs }, "30 0001 04 0a000001 0102 06 fd000000000000000000000000000001 0102"),
        (M::Goodbye { reason: Reason::SHUTDOWN, text: "bye".into() }, "31 0000 0007 627965"),
    ];
    for (message, body) in table {
        let body = hex(body);
        let bytes = [&(body.len() as u32 + 2).to_be_bytes(), &[20, 20][..], &body].concat();
        same(Message::Tidecast(message), &bytes);
    }
}

/// Later versions may add kinds, ids and extensions: all are skipped by their length.
#[test]
fn unknown() {
    let unknown = |bytes: &str| decode_one(&mut session(), &hex(bytes));
    assert_eq!(unknown("00000003 63 aabb"), Ok(Frame::Message(Message::Unknown { id: 0x63, len: 3 })));
    assert_eq!(unknown("00000003 14 c8 aa"), Ok(Frame::Message(Message::Unknown { id: 0xC8, len: 3 })));
    assert_eq!(unknown("00000004 14 14 fe aa"), Ok(Frame::Message(Message::Unknown { id: 0xFE, len: 4 })));
    // Extension messages without BEP 10, and peer exchange that was not announced (BEP 27).
    let mut plain = Codec::new(Reserved([0; 8]), ExtIds::LOCAL, Offer::default());
    let shake = decode_one(&mut plain, b"\0\0\0\x04\x14\0de");
    assert_eq!(shake, Ok(Frame::Message(Message::Unknown { id: 20, len: 4 })));
    let private = ExtIds::LOCAL.with(Extension::Pex, 0);
    let mut private = Codec::new(Reserved::ours(true), private, Offer::default());
    let pex = decode_one(&mut private, b"\0\0\0\x04\x14\x01de");
    assert_eq!(pex, Ok(Frame::Message(Message::Unknown { id: 1, len: 4 })));
}
