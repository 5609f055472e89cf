//! Any bytes as a frame between members. What must hold: no panic, what was read is written the same, and nobody
//! becomes a member by it.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use tidecast_identity::{NodeId, NodeKey};
use tidecast_members::{Describe, Limits, Members};

thread_local! {
    static MEMBER: RefCell<Option<Members<NodeKey>>> = RefCell::new(NodeKey::generate().ok().map(|key| {
        let describe = Describe { incarnation: 1, card: [0; 32], addresses: Vec::new() };
        Members::new(key, describe, Limits::default(), 1, 1)
    }));
}

fuzz_target!(|bytes: &[u8]| {
    assert_ne!(tidecast_members::reads_and_writes(bytes), Some(false));
    MEMBER.with_borrow_mut(|member| {
        let Some(member) = member else { return };
        member.receive(NodeId([1; 32]), bytes, 2);
        member.take_messages();
        member.take_events();
        assert_eq!(member.alive().count(), 1);
    });
});
