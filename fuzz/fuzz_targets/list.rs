//! Any bytes as a prefetch list. What must hold: no panic, and what is read is written so that it is read the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

// The parser alone: its crate would bring the whole network stack along.
#[path = "../../crates/mount/src/list.rs"]
#[allow(dead_code)]
mod list;

use list::List;

fuzz_target!(|bytes: &[u8]| {
    let Ok(list) = List::parse(bytes) else { return };
    assert_eq!(List::parse(&list.to_bytes()).as_ref(), Ok(&list));
    let files = [(0, &b"bin/tool"[..], 10), (1, b"lib/a.so", 20)];
    if let Ok(resolved) = list.resolve(files.into_iter()) {
        assert!(resolved.ranges.iter().all(|(_, range)| !range.is_empty() && range.end <= 20));
    }
});
