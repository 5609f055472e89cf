//! Any bytes as a program: an ELF file or a script. What must hold: no panic, and no more names than the file has room for.
#![no_main]

use libfuzzer_sys::fuzz_target;

// The two parsers alone: their crate would bring the whole network stack along.
#[path = "../../crates/mount/src/elf.rs"]
#[allow(dead_code)]
mod elf;
#[path = "../../crates/mount/src/script.rs"]
mod script;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(needs)) = elf::Needs::parse(bytes) {
        assert!(bytes.starts_with(b"\x7fELF"));
        assert!(needs.needed.iter().all(|name| name.len() < bytes.len() && !name.contains(&0)));
    }
    assert!(script::interpreters(bytes).len() <= 3);
});
