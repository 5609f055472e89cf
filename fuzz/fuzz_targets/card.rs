//! Any bytes as a node's card. What must hold: no panic, what was read is written the same, and nobody is believed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidecast_identity::{Card, MAX_CARD, Trust};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(card) = Card::decode(bytes) {
        assert!(bytes.len() <= MAX_CARD);
        assert_eq!(card.encode(), bytes);
        assert!(Trust::default().verify(&card, card.node, card.not_before).is_err());
    }
});
