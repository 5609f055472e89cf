//! Any bytes as an order or report of `tidecast doctor --peers`, as the request of a probe, and as a datagram. What must hold:
//! no panic, no memory for what a length only promises, what was read is written and read back as the same, and no datagram
//! without the key of the run is accepted.
#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

// The types alone: their crate would bring the whole network stack along.
#[path = "../../crates/doctor/src/peers/message.rs"]
#[allow(dead_code)]
mod message;
#[path = "../../crates/doctor/src/peers/wire.rs"]
#[allow(dead_code)]
mod wire;

fn read<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    // As the channel reads: bytes that are left over make it no message.
    let Ok((message, [])) = postcard::take_from_bytes::<T>(bytes) else { return };
    let Ok(once) = postcard::to_stdvec(&message) else {
        panic!("{message:?} was read and cannot be written")
    };
    assert_eq!(postcard::from_bytes(&once), Ok(message));
}

fuzz_target!(|bytes: &[u8]| {
    read::<message::Order>(bytes);
    read::<message::Report>(bytes);
    if let Some(request) = bytes.first_chunk().and_then(wire::Request::decode) {
        assert_eq!(bytes.get(..wire::REQUEST), Some(&request.encode()[..]));
    }
    assert_eq!(wire::Datagram::decode(bytes, &wire::Key::new(&[7; 32])), None);
});
