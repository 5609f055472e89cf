//! Any bytes as the body of a request to a daemon, and as a frame of the channel between daemons. What must hold: no panic,
//! and what was read as a request is written and read back as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

// The readers alone: their crate would bring the whole network stack along.
#[path = "."]
#[allow(dead_code, missing_docs, unreachable_pub)]
mod model {
    #[path = "../../crates/daemon/src/model/types.rs"]
    pub mod types;
}
#[path = "../../crates/daemon/src/links/frame.rs"]
#[allow(dead_code)]
mod frame;
#[path = "../../crates/daemon/src/model/message.rs"]
#[allow(dead_code)]
mod message;

use model::types::{CacheInfo, CommandResult, Create, Extend, Get, Got, Limits, Replicate, Status};
use serde::Serialize;
use serde::de::DeserializeOwned;

fn body<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let Ok(read) = serde_json::from_slice::<T>(bytes) else { return };
    let Ok(once) = serde_json::to_value(&read) else { return };
    let again = serde_json::from_value::<T>(once.clone()).and_then(serde_json::to_value);
    assert_eq!(again.ok(), Some(once));
}

fuzz_target!(|bytes: &[u8]| {
    body::<Create>(bytes);
    body::<Get>(bytes);
    body::<Extend>(bytes);
    body::<Replicate>(bytes);
    body::<Got>(bytes);
    body::<CacheInfo>(bytes);
    body::<Status>(bytes);
    body::<Limits>(bytes);
    body::<CommandResult>(bytes);
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else { return };
    runtime.block_on(async {
        let mut from = bytes;
        while let Ok(Some((_, payload))) = frame::read::<message::Head>(&mut from).await {
            assert!(payload.len() <= frame::BOUNDS.payload);
        }
    });
});
