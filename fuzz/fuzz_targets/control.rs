//! Any bytes as a message between the coordinator of a broadcast and a worker. What must hold: no panic, no memory for what a
//! length only promises, and what was read is written and read back as the same.
#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

// The types alone: their crate would bring the whole network stack along.
#[path = "../../crates/group/src/control/message.rs"]
#[allow(dead_code)]
mod message;

fn read<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    // As the channel reads: bytes that are left over make it no message.
    let Ok((message, [])) = postcard::take_from_bytes::<T>(bytes) else { return };
    let Ok(once) = postcard::to_stdvec(&message) else {
        panic!("{message:?} was read and cannot be written")
    };
    assert_eq!(postcard::from_bytes(&once), Ok(message));
}

fuzz_target!(|bytes: &[u8]| {
    read::<message::ToWorker>(bytes);
    read::<message::ToCoordinator>(bytes);
});
