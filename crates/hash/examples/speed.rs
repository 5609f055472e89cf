//! Prints how fast each backend of this CPU hashes on one core, in GB/s (10^9 bytes a second), from data in cache.
//!
//! `cargo run --release -p tidecast-hash --example speed`

use std::hint::black_box;
use std::time::{Duration, Instant};

use tidecast_hash::{Backend, Digest, LEAF, Sha1Lanes, backend, leaves_with, parents_with, sha1, sha256};

/// How long each measurement takes.
const TIME: Duration = Duration::from_millis(200);

/// Calls `hash`, which works on `bytes` bytes, for a while. The rate of the fastest call: other load of the
/// machine only makes calls slower.
fn rate(bytes: usize, mut hash: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut best = Duration::MAX;
    while start.elapsed() < TIME {
        let call = Instant::now();
        hash();
        best = best.min(call.elapsed());
    }
    bytes as f64 / best.as_secs_f64() / 1e9
}

fn main() {
    let data: Vec<u8> = (0..64 * LEAF).map(|i| (i * 7 + i / 251) as u8).collect();
    let mut digests: Vec<Digest> = vec![[0; 32]; 64];
    println!("fastest here: {:?}", backend());
    println!("{:<10} {:>8} {:>8}  leaves left over: GB/s by count", "", "leaves", "pairs");
    for backend in Backend::available() {
        let whole = rate(data.len(), || leaves_with(backend, black_box(&data), &mut digests));
        let children = vec![[7; 32]; 4096];
        let mut parents = vec![[0; 32]; 2048];
        let pairs = rate(children.len() * 32, || {
            parents_with(backend, black_box(&children), &mut parents);
        });
        print!("{:<10} {whole:>8.2} {pairs:>8.2} ", format!("{backend:?}"));
        for count in [1, 2, 3, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15] {
            let part = &data[..count * LEAF];
            let rate = rate(part.len(), || {
                leaves_with(backend, black_box(part), &mut digests[..count]);
            });
            print!(" {count}:{rate:.2}");
        }
        println!();
    }
    let single = rate(data.len(), || {
        black_box(sha256(black_box(&data)));
    });
    let old = rate(data.len(), || {
        black_box(sha1(black_box(&data)));
    });
    let lanes = rate(data.len(), || {
        let mut lanes = Sha1Lanes::new();
        for at in (0..data.len() / 16).step_by(2 * LEAF) {
            let part = |lane: usize| &data[lane * (data.len() / 16) + at..][..2 * LEAF];
            lanes.update(&std::array::from_fn(part));
        }
        black_box(lanes.finish());
    });
    println!("SHA-1 of sixteen: {lanes:.2}");
    println!("one stream: SHA-256 {single:.2}, SHA-1 {old:.2}");
}
