//! Messages of a hostile peer: each gets the error of the rule that it breaks, before its bytes are buffered.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{decode_one, encoded, offer, session, stock};
use tidecast_wire::ext::{self, Caps, Offer};
use tidecast_wire::{
    Codec, Decoded, EncodeError, Error, ExtIds, Extension, Frame, MAX_BITFIELD, MAX_PEX, Message, Reserved,
};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|d| (d[0] * 16 + d[1]) as u8).collect()
}

/// A codec in a session, of a swarm of 12 pieces.
fn twelve() -> Codec {
    let mut codec = session();
    codec.set_pieces(12);
    codec
}

/// These are refused with no more bytes than the table shows.
#[test]
fn lengths_are_judged_before_the_rest_comes() {
    let table = [
        ("00000002 00", "choke", "BEP 3"),
        ("00000004 04", "have", "BEP 3"),
        ("ffffffff 04", "have", "BEP 3"),
        ("00000002 05", "bitfield", "BEP 3: one bit a piece"),
        ("00000004 05", "bitfield", "BEP 3: one bit a piece"),
        ("0000000c 06", "request", "BEP 3"),
        ("00000009 07", "piece", "BEP 3"),
        ("0000400a 07", "piece", "BEP 3"),
        ("ffffffff 07", "piece", "BEP 3"),
        ("0000000e 08", "cancel", "BEP 3"),
        ("00000002 09", "port", "BEP 5"),
        ("00000001 0d", "suggest", "BEP 6"),
        ("00000002 0e", "have all", "BEP 6"),
        ("00000002 0f", "have none", "BEP 6"),
        ("0000000e 10", "reject", "BEP 6"),
        ("00000001 11", "allowed fast", "BEP 6"),
        ("00000030 15", "hash request", "BEP 52"),
        ("00000031 16", "hashes", "BEP 52"),
        ("00005000 16", "hashes", "BEP 52"),
        ("00000032 17", "hash reject", "BEP 52"),
        ("00010002 63", "unknown", "64 KiB"),
        ("00000001 14", "extended", "BEP 10"),
        ("00008003 14 00", "extension handshake", "BEP 10"),
        ("00000003 14 00", "extension handshake", "BEP 10"),
        ("00004403 14 02", "ut_metadata", "BEP 9"),
        ("00008003 14 01", "ut_pex", "BEP 11"),
        ("00000007 14 07", "lt_donthave", "BEP 54"),
        ("00010003 14 c8", "unknown extended", "64 KiB"),
        ("00000002 14 14", "tidecast", "Tidecast"),
        ("0000000e 14 14 01", "Block", "Tidecast"),
        ("0010000f 14 14 01", "Block", "Tidecast"),
        ("ffffffff 14 14 01", "Block", "Tidecast"),
        ("00000010 14 14 02", "RequestBlock", "Tidecast"),
        ("0000800b 14 14 08", "Availability", "Tidecast"),
        ("0000000a 14 14 09", "AvailabilityBits", "Tidecast"),
        ("0001000b 14 14 09", "AvailabilityBits", "Tidecast"),
        ("0000000a 14 14 0b", "Offer", "Tidecast"),
        ("0000000c 14 14 0b", "Offer", "Tidecast"),
        ("0000000d 14 14 10", "Leaves", "Tidecast"),
        ("0001000e 14 14 10", "Leaves", "Tidecast"),
        ("0000006c 14 14 13", "Roots", "Tidecast"),
        ("0000804e 14 14 13", "Roots", "Tidecast"),
        ("00000068 14 14 14", "Seal", "Tidecast"),
        ("0000006a 14 14 14", "Seal", "Tidecast"),
        ("00000018 14 14 16", "Fingerprints", "Tidecast"),
        ("00010019 14 14 16", "Fingerprints", "Tidecast"),
        ("0004000e 14 14 19", "ManifestData", "Tidecast"),
        ("00001006 14 14 28", "Enrol", "Tidecast"),
        ("00000208 14 14 2a", "Denied", "Tidecast"),
        ("00028006 14 14 2b", "Revoked", "Tidecast"),
        ("00000986 14 14 30", "Peers", "Tidecast"),
        ("00010004 14 14 fe", "unknown tidecast", "Tidecast"),
    ];
    for (bytes, name, source) in table {
        match twelve().decode(&hex(bytes)) {
            Err(Error::Length { message, rule, .. }) => {
                assert_eq!(message, name, "{bytes}");
                assert!(rule.contains(source), "{bytes}: {rule}");
            }
            other => panic!("{bytes}: {other:?}"),
        }
    }
}

#[test]
fn values_out_of_bounds() {
    let root = "ab".repeat(32);
    let core = [
        ("00000005 04 0000000c".to_owned(), "piece"),
        ("00000003 05 fff8".to_owned(), "last byte"),
        ("0000000d 06 0000000c 00000000 00004000".to_owned(), "piece"),
        ("0000000d 06 00000000 00000000 00000000".to_owned(), "length"),
        ("0000000d 06 00000000 00000000 00020001".to_owned(), "length"),
        ("0000000d 06 00000000 ffffc001 00004000".to_owned(), "begin"),
        ("0000000a 07 0000000c 00000000".to_owned(), "piece"),
        ("0000000a 07 00000000 ffffffff".to_owned(), "begin"),
        (format!("00000031 15 {root} 00000000 00000000 00000000 00000000"), "length"),
        (format!("00000031 15 {root} 00000000 00000000 00002001 00000000"), "length"),
        (format!("00000031 15 {root} 00000000 00000001 00000002 00000000"), "index"),
        (format!("00000031 15 {root} 00000041 00000000 00000002 00000000"), "layer"),
        (format!("00000031 15 {root} 00000000 00000000 00000002 ffffffff"), "layer"),
        (format!("00000091 16 {root} 00000000 00000000 00000002 00000000 {}", "00".repeat(96)), "hashes"),
        ("00000006 14 07 0000000c".to_owned(), "piece"),
        ("0000000f 14 14 01 0000 00 00000000 ffffffff".to_owned(), "begin"),
    ];
    let tidecast = [
        ("02 0000 00000000 00000000 00000000", "length", "len"),
        ("02 0000 00000000 00000000 00100001", "length", "len"),
        ("02 0000 00000000 fffffff0 00000020", "beyond", "first"),
        ("04 0000 00000000 00000000 00000000", "no bytes", "len"),
        ("06 0000 00000000 fffffff0 00000020", "beyond", "first"),
        ("03 0000 00000000 00000000", "no pieces", "count"),
        ("03 0000 00000000 00001001", "too many pieces", "count"),
        ("03 0000 ffffffff 00000002", "beyond", "first"),
        ("08 0000 03 00000000", "mode", "mode"),
        ("08 0000 00 00000000 00000001 00000000", "empty range", "count"),
        ("08 0000 00 00000000 00000005 00000001 00000003 00000001", "descending", "first"),
        ("08 0000 00 00000000 00000001 00000002 00000002 00000002", "overlapping", "first"),
        ("08 0000 00 00000000 00000001 00000002 00000003 00000002", "touching", "first"),
        ("08 0000 00 00000004 00000003 00000002", "across the watermark", "first"),
        ("08 0000 00 00000000 ffffffff 00000001 00000000 00000001", "beyond", "first"),
        ("09 0000 00 00000004 80", "first bit", "first"),
        ("09 0000 00 fffffff8 80", "beyond", "first"),
        ("0b 0000 0040 00000000", "no such stripe", "stripe"),
        ("11 0000 00000000 00000000 00000801", "too many leaves", "count"),
        ("15 0000 00000000 00001001", "too many pieces", "count"),
        ("18 0000 00000000 00040001", "too much manifest", "len"),
        ("19 0000 00000000 20000001 00", "giant manifest", "total"),
        ("19 0000 00000002 00000002 00", "past the end", "offset"),
        ("20 0000", "channel 0", "channel"),
        ("21 0000", "channel 0", "channel"),
        ("30 0000 05", "address family", "family"),
    ];
    let tidecast = tidecast.map(|(body, why, field)| {
        let padding = if body.starts_with("20") { "00".repeat(32) } else { String::new() };
        let body = hex(&format!("{body}{padding}"));
        let bytes = [&(body.len() as u32 + 2).to_be_bytes(), &[20, 20][..], &body].concat();
        (bytes, why, field)
    });
    let core = core.map(|(bytes, field)| (hex(&bytes), "core", field));
    for (bytes, why, name) in core.into_iter().chain(tidecast) {
        match twelve().decode(&bytes) {
            Err(Error::Value { field, .. }) => assert_eq!(field, name, "{why} {bytes:02x?}"),
            other => panic!("{why} {bytes:02x?}: {other:?}"),
        }
    }
}

/// Truncated fields, and incomplete hashes: lengths that only the inside of a message shows.
#[test]
fn lengths_within() {
    for (bytes, name) in [
        ("0000000b 14 14 08 0000 00 00000000 00".to_owned(), "Availability"),
        ("00000015 14 14 30 0000 04 0a000001 0102 06 0000 0000 0000 0000".to_owned(), "Peers"),
        (format!("0000002e 14 14 10 0000 00000000 00000000 {}", "01".repeat(33)), "Leaves"),
        (format!("0000001a 14 14 16 0000 00000000 {}", "01".repeat(17)), "Fingerprints"),
        (
            format!(
                "00000052 16 {} 00000000 00000000 00000002 00000000 {}",
                "ab".repeat(32),
                "01".repeat(33)
            ),
            "hashes",
        ),
    ] {
        let bytes = hex(&bytes);
        let want = u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
        assert_eq!(bytes.len(), 4 + want, "{name}: the test itself is wrong");
        match twelve().decode(&bytes) {
            Err(Error::Length { message, .. }) => assert_eq!(message, name),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn dictionaries() {
    let extended =
        |id: u8, text: &[u8]| [&(text.len() as u32 + 2).to_be_bytes(), &[20, id][..], text].concat();
    let deep = [b"d1:a".as_slice(), &[b'l'; 9], &[b'e'; 10]].concat();
    let many = [b"d1:al".as_slice(), &b"0:".repeat(2000), b"ee"].concat();
    for (id, text) in [
        (0, b"d1:m".as_slice()),
        (0, b"d99999999999:"),
        (0, b"di1ei2ee"),
        (0, b"d1:ai1e"),
        (0, b"d1:ae"),
        (0, b"d1:ai--1ee"),
        (0, &deep),
        (0, &many),
        (1, b"d5:added"),
        (2, b"xx"),
    ] {
        let error = decode_one(&mut session(), &extended(id, text)).unwrap_err();
        assert!(matches!(error, Error::Bencode { .. }), "{text:?}: {error}");
    }
    let list = decode_one(&mut session(), &extended(0, b"le"));
    assert_eq!(list, Err(Error::NotDict { message: "extension handshake" }));
    for (text, field) in [
        (b"d8:msg_typei0ee".as_slice(), "piece"),
        (b"d8:msg_typei0e5:piecei-1ee", "piece"),
        (b"d8:msg_typei1e5:piecei0ee", "total_size"),
        (b"d8:msg_typei1e5:piecei0e10:total_sizei4294967296ee", "total_size"),
    ] {
        let error = decode_one(&mut session(), &extended(2, text)).unwrap_err();
        assert!(matches!(error, Error::Missing { field: f, .. } if f == field), "{field}: {error}");
    }
    // Data of the wrong length, and of a piece after the end.
    for text in [
        b"d8:msg_typei1e5:piecei0e10:total_sizei5eexxxx".as_slice(),
        b"d8:msg_typei1e5:piecei0e10:total_sizei5eexxxxxx",
    ] {
        let error = decode_one(&mut session(), &extended(2, text)).unwrap_err();
        assert!(matches!(error, Error::Length { message: "ut_metadata", .. }), "{error}");
    }
    let after = decode_one(&mut session(), &extended(2, b"d8:msg_typei1e5:piecei1e10:total_sizei5eex"));
    assert!(matches!(after, Err(Error::Value { field: "piece", .. })), "{after:?}");
    let odd = decode_one(&mut session(), &extended(1, b"d5:added7:xxxxxxxe"));
    assert!(matches!(odd, Err(Error::Length { message: "ut_pex", .. })), "{odd:?}");
}

/// Values without sense in an extension handshake count as absent; its text cannot play with a terminal.
#[test]
fn handshake_values() {
    let text = b"d4:ipv43:abc1:md6:ut_pexi256e11:ut_metadatai-1ee13:metadata_sizei-5e1:pi70000e4:reqqi-1e1:v8:\x1b[31mred6:yourip5:abcdee";
    let bytes = [&(text.len() as u32 + 2).to_be_bytes(), &[20, 0][..], text].concat();
    let mut codec = stock();
    let Ok(tidecast_wire::Frame::Message(Message::ExtHandshake(shake))) = decode_one(&mut codec, &bytes)
    else {
        panic!()
    };
    let want = tidecast_wire::ExtHandshake { client: Some("[31mred".into()), ..Default::default() };
    assert_eq!(*shake, want);
}

/// Stored lists and texts have a bound of their own: bytes that are not UTF-8 grow when they are made
/// readable.
#[test]
fn texts_and_lists_are_cut() {
    let goodbye = [vec![0x31, 0, 0, 0, 1], vec![0xFF; ext::MAX_TEXT]].concat();
    let bytes = [&(goodbye.len() as u32 + 2).to_be_bytes(), &[20, 20][..], &goodbye].concat();
    let Ok(Frame::Message(Message::Tidecast(message))) = decode_one(&mut session(), &bytes) else { panic!() };
    let ext::Message::Goodbye { ref text, .. } = message else { panic!() };
    assert!(text.len() <= ext::MAX_TEXT && text.starts_with('\u{FFFD}'));
    encoded(&Message::Tidecast(message));

    let addrs = [10, 0, 0, 1, 1, 1].repeat(MAX_PEX + 50);
    let dict = [b"d5:added1500:", &addrs[..], b"7:dropped1500:", &addrs, b"e"].concat();
    let bytes = [&(dict.len() as u32 + 2).to_be_bytes(), &[20, 1][..], &dict].concat();
    let Ok(Frame::Message(Message::Pex(pex))) = decode_one(&mut session(), &bytes) else { panic!() };
    assert_eq!((pex.added.len(), pex.dropped.len()), (MAX_PEX, MAX_PEX));

    let peers = [vec![0x30, 0, 0], [4, 10, 0, 0, 1, 1, 1].repeat(ext::MAX_PEERS + 1)].concat();
    let bytes = [&(peers.len() as u32 + 2).to_be_bytes(), &[20, 20][..], &peers].concat();
    let error = decode_one(&mut session(), &bytes).unwrap_err();
    assert!(matches!(error, Error::Value { field: "addresses", .. }), "{error}");
}

/// Messages that were not agreed on.
#[test]
fn without_agreement() {
    let mut plain = Codec::new(Reserved([0; 8]), ExtIds::LOCAL, Offer::default());
    for id in 13..=17 {
        let error = plain.decode(&[0, 0, 0, 1, id]).unwrap_err();
        assert!(matches!(error, Error::NotAgreed { rule, .. } if rule.contains("BEP 6")), "{error}");
    }
    // The extension before the peer's offer.
    let attach = encoded(&Message::Tidecast(ext::Message::AttachOk { channel: 1 }));
    assert!(matches!(stock().decode(&attach), Err(Error::NotAgreed { message: "tidecast", .. })));
    // A push to a peer that accepts none.
    let mut codec = Codec::new(Reserved::ours(true), ExtIds::LOCAL, Offer { caps: Caps(0), ..offer() });
    let shake = encoded(&Message::ExtHandshake(Box::new(codec.ext_handshake())));
    decode_one(&mut codec, &shake).unwrap();
    let push = hex("0000000f 14 14 01 0000 01 00000000 00000000");
    assert!(matches!(codec.decode(&push), Err(Error::NotAgreed { message: "pushed Block", .. })));
    // An offer to a peer that accepts none.
    let offer = encoded(&Message::Tidecast(ext::Message::Offer { channel: 0, stripe: 0, piece: 0 }));
    assert!(matches!(codec.decode(&offer), Err(Error::NotAgreed { message: "Offer", .. })));
    // Roots to a peer that has a whole manifest.
    let seal = ext::Message::Seal { channel: 0, number: 0, signature: [0; 64], info_hash: [0; 32] };
    let seal = encoded(&Message::Tidecast(seal));
    assert!(matches!(codec.decode(&seal), Err(Error::NotAgreed { message: "Seal", .. })));
}

/// The bound on buffering holds for the longest of all messages, and no length prefix gets above it.
#[test]
fn buffers_are_bounded() {
    let longest = ext::Message::ManifestData {
        channel: 0,
        offset: 0,
        total: 1 << 20,
        bytes: vec![0; ext::MAX_CHUNK].into(),
    };
    let longest = encoded(&Message::Tidecast(longest));
    let mut codec = session();
    codec.set_pieces(12);
    assert_eq!(codec.max_buffer(), longest.len());
    let mut most = 0;
    for len in [1, 2, 3, 9, 13, 49, 1 << 10, 1 << 15, 0x4_000D, 0x4_000E, 1 << 19, (1 << 19) + 1, u32::MAX] {
        for (id, ext, kind) in (0..=255).flat_map(|id| [(id, 0, 0), (20, id, 0), (20, 20, id)]) {
            let bytes = [&u32::to_be_bytes(len)[..], &[id, ext, kind]].concat();
            if let Ok(Decoded::Need(n)) = codec.decode(&bytes) {
                assert!(n <= codec.max_buffer(), "{n} for {bytes:?}");
                most = most.max(n);
            }
        }
    }
    assert_eq!(most, codec.max_buffer());
    assert_eq!(session().max_buffer(), 5 + MAX_BITFIELD as usize);
}

/// The encoder refuses messages that the other side refuses, and then writes nothing.
#[test]
fn too_large_to_send() {
    use ext::Message as M;
    let (channel, big) = (0, bytes::Bytes::from(vec![b'x'; 1 << 20]));
    let text = "x".repeat(1000);
    let reason = ext::Reason::DONE;
    let ranges = (0..5000).map(|i| 2 * i + 1..2 * i + 2).collect();
    let mode = ext::Mode::Add;
    for message in [
        M::RequestBlock(ext::BlockRange { channel, piece: 0, begin: 0, len: ext::MAX_BLOCK + 1 }),
        M::CancelPieces(ext::PieceRange { channel, first: 0, count: ext::MAX_PIECES + 1 }),
        M::LeavesRequest(ext::LeafRange { channel, piece: 0, first: 0, count: 2049 }),
        M::ManifestReject(ext::ManifestRange { channel, offset: 0, len: 1 << 20 }),
        M::Availability(ext::Availability { channel, mode, watermark: 0, exceptions: ranges }),
        M::AvailabilityBits(ext::AvailabilityBits { channel, mode, first: 0, bits: big.clone() }),
        M::Leaves { channel, piece: 0, first: 0, hashes: vec![[0; 32]; 2049] },
        M::Roots { channel, number: 0, first: 0, signature: [0; 64], roots: vec![[0; 32]; 1025] },
        M::ManifestData { channel, offset: 0, total: 1 << 20, bytes: big.clone() },
        M::Offer { channel, stripe: ext::MAX_STRIPES, piece: 0 },
        M::Enrol { channel, request: big.clone() },
        M::Credential { channel, credential: big.clone() },
        M::Denied { channel, reason, text: text.clone() },
        M::Revoked { channel, list: big },
        M::Peers { channel, addrs: vec!["10.0.0.1:1".parse().unwrap(); 129] },
        M::Goodbye { reason, text },
    ] {
        let mut out = bytes::BytesMut::from(&b"before"[..]);
        let error = Message::Tidecast(message).encode(ExtIds::LOCAL, &mut out).unwrap_err();
        assert!(matches!(error, EncodeError::TooLarge { .. }), "{error}");
        assert_eq!(out, &b"before"[..]);
    }
    let silent = ExtIds::LOCAL.with(Extension::Pex, 0);
    let pex = Message::Pex(tidecast_wire::Pex::default());
    let error = pex.encode(silent, &mut bytes::BytesMut::new());
    assert_eq!(error, Err(EncodeError::NotSpoken("ut_pex")));
}
