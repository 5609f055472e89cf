//! Any bytes as a datagram of a field. What must hold: no panic; what was read is written and read back as the same; what a hello
//! promises can be: every slab, every packet of every block.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidecast_field::control::{Hello, Message};
use tidecast_field::packet::{Datagram, Packing, quads, values};
use tidecast_field::parity::Layout;

/// A hello that was read holds together.
fn hello(hello: &Hello) {
    let slab = hello.slab().expect("was checked");
    assert!(slab.values() > 0 && slab.begin < slab.end);
    assert!(hello.packing != Packing::Xyz || hello.values <= 4093 && !hello.encrypted);
    let Some(rate) = hello.parity else { return };
    let layout = Layout::new(hello.shape, hello.streams, hello.first, hello.here, hello.values, rate)
        .expect("was checked");
    for block in [0, layout.blocks() - 1] {
        for shard in [0, layout.data(block) - 1] {
            let packet = layout.packet(block, shard).expect("is within");
            assert_eq!(layout.shard(packet), Some((block, shard)));
        }
    }
}

fuzz_target!(|input: &[u8]| {
    match Datagram::read(input) {
        Ok(Datagram::Values { word, body, .. }) => {
            if let Ok(quads) = quads(word, body) {
                assert_eq!(quads.count(), word as usize);
            }
            assert!(values(body).is_err() || body.len() % 4 == 0);
        }
        Ok(Datagram::Control { .. }) => {
            if let Ok(message) = Message::read(input, None) {
                assert_eq!(Message::read(&message.write(None), None), Ok(message.clone()));
                if let Message::Hello(said) = &message {
                    hello(said);
                }
            }
        }
        _ => {}
    }
});
