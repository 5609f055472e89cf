//! Any text as the URL of a web seed, and as what its server says of a range. What must hold: no panic; a URL that is kept is printable, short,
//! one of HTTP, and kept as it is when it is read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidecast_metainfo::{ContentRange, clean_web_seed};

fuzz_target!(|input: &[u8]| {
    if let Some(url) = clean_web_seed(input) {
        assert!(url.len() <= 2048 && url.bytes().all(|b| b.is_ascii_graphic()) && !url.contains('#'));
        assert!(url.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http")));
        assert_eq!(clean_web_seed(url.as_bytes()), Some(url));
    }
    if let Some(range) = std::str::from_utf8(input).ok().and_then(|text| text.parse::<ContentRange>().ok()) {
        assert!(range.first <= range.last && range.total.is_none_or(|total| range.last < total));
    }
});
