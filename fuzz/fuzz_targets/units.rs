//! Any text as a size, a rate, a duration and a list of hosts. What must hold: no panic, a bounded list, and sizes that are
//! no rates.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidecast_text::{hostlist, units};

fuzz_target!(|text: &str| {
    let (size, rate, _) = (units::size(text), units::rate(text), units::duration(text));
    if let (Ok(bytes), Ok(bits)) = (size, rate) {
        assert_eq!(bytes, bits, "only `Kb` is both: case says nothing of sizes");
    }
    if let Ok(names) = hostlist::names(text, 1000) {
        assert!(names.len() <= 1000);
        let folded = hostlist::fold(names.iter().map(String::as_str));
        assert!(folded.len() <= names.iter().map(|name| name.len() + 3).sum::<usize>());
    }
});
