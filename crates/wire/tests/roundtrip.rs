//! An encoded message decodes to the same, however the stream is split.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use bytes::BytesMut;
use common::{block_header, decode_one, encoded, message, plain_message, session};
use proptest::collection::vec;
use proptest::prelude::*;
use tidecast_wire::{BlockHeader, Decoded, ExtIds, Frame, Handshake, Message, Reserved, ext};

#[derive(Debug, Clone)]
enum Sent {
    Message(Message),
    Block(bool, BlockHeader),
}

fn sent() -> impl Strategy<Value = Sent> {
    prop_oneof![
        3 => plain_message().prop_map(Sent::Message),
        1 => block_header().prop_map(|(tidecast, block)| Sent::Block(tidecast, block)),
    ]
}

/// The stream of all that is sent, payload of blocks included.
fn stream(sent: &[Sent]) -> BytesMut {
    let mut out = BytesMut::new();
    for item in sent {
        match item {
            Sent::Message(message) => message.encode(ExtIds::LOCAL, &mut out).unwrap(),
            Sent::Block(tidecast, block) => {
                if *tidecast {
                    out.extend_from_slice(&ext::block_header(ExtIds::LOCAL, block).unwrap());
                } else {
                    out.extend_from_slice(&block.to_piece());
                }
                out.resize(out.len() + block.len as usize, 0xEE);
            }
        }
    }
    out
}

proptest! {
    #[test]
    fn a_stream_cut_anywhere(sent in vec(sent(), 1..20), cuts in vec(1..5000_usize, 1..50)) {
        let mut stream = stream(&sent);
        let mut codec = session();
        let mut cuts = cuts.into_iter().cycle();
        let mut buffer = BytesMut::new();
        let mut payload = 0;
        let mut got = Vec::new();
        loop {
            let skipped = buffer.len().min(payload);
            drop(buffer.split_to(skipped));
            payload -= skipped;
            let decoded = if payload > 0 { Decoded::Need(1) } else { codec.decode(&buffer).unwrap() };
            match decoded {
                Decoded::Need(n) => {
                    prop_assert!(n > buffer.len() && n <= codec.max_buffer(), "{n} of {}", buffer.len());
                    if stream.is_empty() {
                        break;
                    }
                    let cut = cuts.next().unwrap().min(stream.len());
                    buffer.unsplit(stream.split_to(cut));
                }
                Decoded::Frame { frame, consumed } => {
                    drop(buffer.split_to(consumed));
                    if let Frame::Block(block) = &frame {
                        payload = block.len as usize;
                    }
                    got.push(frame);
                }
            }
        }
        prop_assert!(buffer.is_empty() && payload == 0);
        let want = sent.into_iter().map(|item| match item {
            Sent::Message(message) => Frame::Message(message),
            Sent::Block(_, block) => Frame::Block(block),
        });
        prop_assert_eq!(got, want.collect::<Vec<_>>());
    }

    /// Every beginning of a message asks for more, never for more than the message has.
    #[test]
    fn a_truncated_message(message in message()) {
        let whole = encoded(&message);
        let mut codec = session();
        for len in (0..whole.len()).filter(|len| *len < 100 || len % 61 == 0) {
            match codec.decode(&whole[..len]) {
                Ok(Decoded::Need(n)) => prop_assert!(n > len && n <= whole.len()),
                other => prop_assert!(false, "{len} of {} bytes: {other:?}", whole.len()),
            }
        }
        prop_assert_eq!(decode_one(&mut codec, &whole).unwrap(), Frame::Message(message));
    }

    /// Noise, with the beginnings of real messages: errors, but never a panic, and never a wish beyond the
    /// bound.
    #[test]
    fn noise(head in prop_oneof![
        Just(vec![]),
        (any::<u16>(), 0..25_u8).prop_map(|(len, id)| vec![0, 0, (len >> 8) as u8, len as u8, id]),
        (0..4000_u16, 0..21_u8, 0..50_u8).prop_map(|(len, id, kind)| vec![0, 0, (len >> 8) as u8, len as u8, 20, id, kind]),
    ], tail in vec(any::<u8>(), 0..4000)) {
        let bytes = [head, tail].concat();
        let mut codec = session();
        let mut rest = &bytes[..];
        while let Ok(Decoded::Frame { frame, consumed }) = codec.decode(rest) {
            prop_assert!(consumed > 0 && consumed <= rest.len());
            rest = &rest[consumed..];
            // A received message can be sent on, and is the same.
            if let Frame::Message(message) = frame
                && !matches!(message, Message::Unknown { .. })
            {
                let again = encoded(&message);
                prop_assert_eq!(decode_one(&mut session(), &again).unwrap(), Frame::Message(message));
            }
        }
        if let Ok(Decoded::Need(n)) = codec.decode(rest) {
            prop_assert!(n > rest.len() && n <= codec.max_buffer());
        }
    }

    #[test]
    fn handshake(reserved: [u8; 8], info_hash: [u8; 20], peer_id: [u8; 20], cut in 0..68_usize) {
        let shake = Handshake { reserved: Reserved(reserved), info_hash, peer_id };
        let bytes = shake.to_bytes();
        prop_assert_eq!(Handshake::decode(&bytes), Ok(Some(shake)));
        prop_assert_eq!(Handshake::decode(&bytes[..cut]), Ok(None));
    }
}
