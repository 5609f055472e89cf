//! Any text as one host and as a command line. What must hold: no panic, a host is read again from what it prints, and neither
//! it nor a quoted word can be taken by a program or a shell for something else.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidecast_text::{Host, percent_decode, percent_encode, quote, split};

fuzz_target!(|text: &str| {
    if let Ok(host) = text.parse::<Host>() {
        assert_eq!(host.to_string().parse::<Host>().as_ref(), Ok(&host));
        let word = host.ssh();
        assert!(!word.starts_with('-') && !host.name().starts_with(['-', '.']));
        assert!(word.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-+@%=:\\".contains(&b)));
        assert_eq!(split(&quote(&word)).as_deref(), Ok(&[word.clone()][..]));
    }
    assert_eq!(split(&quote(text)).as_deref(), Ok(&[text.to_owned()][..]));
    let _ = split(text);
    let encoded = percent_encode(text.as_bytes(), "/");
    assert_eq!(percent_decode(&encoded).as_deref(), Some(text.as_bytes()));
    assert!(percent_decode(text).is_none_or(|bytes| bytes.len() <= text.len()));
});
