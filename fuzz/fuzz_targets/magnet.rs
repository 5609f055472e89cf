//! Any text as a magnet link. What must hold: no panic, bounded lists, and what was read is
//! written and read back as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidecast_metainfo::Magnet;

fuzz_target!(|link: &str| {
    match link.parse::<Magnet>() {
        Ok(magnet) => {
            assert!(
                magnet.trackers.len() <= 200 && magnet.peers.len() <= 200 && magnet.web_seeds.len() <= 200
            );
            assert!(magnet.select.len() <= 10_000);
            // Escaping can lengthen a link threefold, past the limit.
            if link.len() < 20_000 {
                assert_eq!(magnet.to_string().parse(), Ok(magnet));
            }
        }
        Err(e) => assert!(e.to_string().len() < 1000),
    }
});
