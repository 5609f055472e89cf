//! Any bytes as the head of a .npy file. What must hold: no panic; the head lies within the bytes, and its numbers have a size.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidecast_field::send::source::{MAX_NPY_HEADER, parse_npy};

fuzz_target!(|input: &[u8]| {
    if let Ok(header) = parse_npy(input) {
        assert!(header.offset <= input.len().min(MAX_NPY_HEADER + 12));
        assert!(matches!(header.kind.size(), 1 | 2 | 4 | 8));
        assert!(header.shape.len() <= 32);
    }
});
