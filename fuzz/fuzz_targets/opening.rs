//! Any bytes as what a stranger says to a copy-server first. What must hold: no panic, and no memory for what a header only promises.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    assert!(tidecast_mover::end::read_opening(bytes) <= 3);
});
