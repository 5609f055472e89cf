//! Any bytes as the stream of a peer, after its handshake and in every state of agreement. What must hold: no
//! panic, no wish for more bytes than the stated bound, progress with each frame, the same frames however the
//! stream is cut, and every message that was taken can be sent on and is read back as the same.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use tidecast_wire::ext::Offer;
use tidecast_wire::{Codec, Decoded, Error, ExtIds, Extension, Frame, Handshake, Message, Reserved};

/// A codec in the state that two bytes choose.
fn codec(state: u8, pieces: u8) -> Codec {
    let agreed = if state & 1 == 0 { Reserved::ours(true) } else { Reserved([0; 8]) };
    let local = if state & 2 == 0 { ExtIds::LOCAL } else { ExtIds::LOCAL.with(Extension::Pex, 0) };
    let mut codec = Codec::new(agreed, local, Offer::default());
    if state & 4 == 0 {
        let shake = encoded(&Message::ExtHandshake(Box::new(codec.ext_handshake())));
        codec.decode(&shake).expect("our own extension handshake is good");
    }
    if state & 8 == 0 {
        codec.set_pieces(u32::from(pieces) + 1);
    }
    codec
}

fn encoded(message: &Message) -> BytesMut {
    let mut out = BytesMut::new();
    message.encode(ExtIds::LOCAL, &mut out).expect("what was taken can be sent");
    out
}

/// All frames of a stream that becomes visible `step` bytes at a time, and how it ends.
fn frames(mut codec: Codec, stream: &[u8], step: usize) -> (Vec<Frame>, Option<Error>) {
    let (mut at, mut seen, mut frames) = (0, 0, Vec::new());
    loop {
        match codec.decode(&stream[at..seen.max(at)]) {
            Err(error) => return (frames, Some(error)),
            Ok(Decoded::Need(n)) => {
                assert!(n > seen.saturating_sub(at) && n <= codec.max_buffer());
                if seen >= stream.len() || at + n > stream.len() {
                    return (frames, None);
                }
                seen = (at + n).max(seen + step).min(stream.len());
            }
            Ok(Decoded::Frame { frame, consumed }) => {
                assert!(consumed > 0 && consumed <= seen - at);
                at += consumed;
                if let Frame::Block(block) = frame {
                    at = (at + block.len as usize).min(stream.len());
                }
                frames.push(frame);
            }
        }
    }
}

/// Read back in a session, which takes every message.
fn sent_on(message: &Message) {
    if matches!(message, Message::Unknown { .. }) {
        return;
    }
    let bytes = encoded(message);
    let Ok(Decoded::Frame { frame: Frame::Message(again), consumed }) = codec(8, 0).decode(&bytes) else {
        panic!("not read back: {message:?}");
    };
    assert_eq!((&again, consumed), (message, bytes.len()));
}

fuzz_target!(|data: &[u8]| {
    let [state, pieces, step, stream @ ..] = data else { return };
    if let Ok(Some(shake)) = Handshake::decode(stream) {
        assert_eq!(shake.to_bytes(), stream[..Handshake::LEN]);
    }
    let whole = frames(codec(*state, *pieces), stream, stream.len());
    assert_eq!(whole, frames(codec(*state, *pieces), stream, usize::from(*step)));
    for frame in &whole.0 {
        if let Frame::Message(message) = frame {
            sent_on(message);
        }
    }
});
