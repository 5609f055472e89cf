//! Any bytes in the midst of TLS; the first byte says how they are cut. They come as a ClientHello, as the answer to one, and over
//! a right conversation. What must hold: no panic, no buffer beyond its bound, nothing decrypted that was not sent.
#![no_main]

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use tidecast_identity::{NodeKey, Tls, placeholder_name};
use tidecast_tls::{INCOMING, PartialHello, Read, Session};

fn tls() -> &'static Tls {
    static TLS: OnceLock<Tls> = OnceLock::new();
    TLS.get_or_init(|| Tls::new(&NodeKey::generate().unwrap()).unwrap())
}

/// All that it has room for; false if it wants no more.
fn give(to: &mut Session, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let Ok(room) = to.room() else { return false };
        assert!(!room.is_empty() && room.len() <= INCOMING);
        let now = bytes.len().min(room.len());
        room[..now].copy_from_slice(&bytes[..now]);
        to.received(now);
        bytes = &bytes[now..];
        if to.agreed().is_handshaking() {
            let _ = to.shake_hands();
        }
        loop {
            let mut heard = Vec::new();
            match to.read(5000, |plain| heard.extend_from_slice(plain)) {
                Ok(Read::Plain(_)) => assert!(b"this is all that was sent".starts_with(&heard)),
                Ok(Read::Wanting) => break,
                Ok(Read::End) | Err(_) => return false,
            }
        }
        let _ = to.write(b"");
    }
    true
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    let cut = usize::from(cut).max(1);
    let client = || Session::client(tls().client(), placeholder_name()).unwrap();
    let mut hello = PartialHello::default();
    for part in bytes.chunks(cut) {
        match hello.receive(part) {
            Ok(None) => {}
            Ok(Some(greeting)) => {
                let _ = greeting.client_hello().server_name();
                let mut server = greeting.answer(Arc::clone(&tls().server())).unwrap();
                let _ = server.shake_hands();
                break;
            }
            Err(_) => break,
        }
    }
    let mut alone = client();
    let _ = alone.shake_hands();
    for part in bytes.chunks(cut) {
        if !give(&mut alone, part) {
            break;
        }
    }
    // A right conversation, changed in place by the bytes, which mostly are zero there.
    let (mut near, mut far) = (client(), Session::server(tls().server()).unwrap());
    let _ = near.shake_hands();
    let (mut changes, mut said) = (bytes.iter(), false);
    for _ in 0..6 {
        for _ in 0..2 {
            let mut flight = near.waiting().to_vec();
            near.sent(flight.len());
            for byte in &mut flight {
                *byte ^= changes.next().copied().unwrap_or_default();
            }
            for part in flight.chunks(cut) {
                if !give(&mut far, part) {
                    return;
                }
            }
            std::mem::swap(&mut near, &mut far);
        }
        if !near.agreed().is_handshaking() && !said {
            said = near.write(b"this is all that was sent").is_ok();
        }
    }
});
