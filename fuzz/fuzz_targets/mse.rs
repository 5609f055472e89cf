//! Any bytes as what a stranger answers, or opens a connection with, in MSE; the first byte says how they are cut. Three
//! peers are played: one that sends noise, and one on either side that knows the secret, so that all behind the keys is
//! reached. What must hold: no panic, no more held than the bound, no session without the right bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidecast_mse::{Initiator, Offer, Random, Responder, Swarms};

fn random(n: u8) -> Random {
    Random { secret: [n; 20], pad: vec![n; usize::from(n)] }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    let cut = usize::from(cut).max(1);
    let swarms = Swarms::new([[1; 20], [2; 20]]);
    let mut noise = Responder::new(random(3));
    for part in bytes.chunks(cut) {
        if !matches!(noise.receive(part, &swarms, &mut Vec::new()), Ok(None)) {
            break;
        }
    }
    let mut opening = Vec::new();
    let mut initiator = Initiator::new([1; 20], Offer::Either, b"first", &random(4), &mut opening);
    let mut answer = Vec::new();
    let mut responder = Responder::new(random(5));
    assert!(matches!(responder.receive(&opening, &swarms, &mut answer), Ok(None)));
    let mut request = Vec::new();
    assert!(matches!(initiator.receive(&answer, &mut request), Ok(None)));
    // What is right until here goes on with the bytes: changed in place, as the streams hide what they mean.
    for (at, byte) in bytes.iter().enumerate().take(request.len()) {
        request[at] ^= byte;
    }
    request.extend_from_slice(bytes.get(request.len()..).unwrap_or_default());
    let mut reply = Vec::new();
    let mut agreed = None;
    for part in request.chunks(cut) {
        match responder.receive(part, &swarms, &mut reply) {
            Ok(None) => {}
            Ok(Some(session)) => {
                agreed = Some(session);
                break;
            }
            Err(_) => break,
        }
    }
    if agreed.is_none() {
        reply = bytes.to_vec();
    }
    for part in reply.chunks(cut) {
        if !matches!(initiator.receive(part, &mut Vec::new()), Ok(None)) {
            break;
        }
    }
});
