//! Any text as a file of /proc or /sys, and a name to look for in it. Parsers must not panic, and lists must stay bounded.
#![no_main]

use libfuzzer_sys::fuzz_target;

// The parsers alone: their crate would bring netlink along.
#[path = "../../crates/doctor/src/facts/parse.rs"]
#[allow(dead_code)]
mod parse;

fuzz_target!(|text: &str| {
    let (name, text) = text.split_once('\n').unwrap_or(("", text));
    parse::everything(text, name);
    let numbers = parse::list(text).unwrap_or_default().len() + parse::mask(text).unwrap_or_default().len();
    assert!(numbers <= 3 << 14);
});
