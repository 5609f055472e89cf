//! Publishes a tree and says how fast: for measurements, and to compare manifests with those of other programs.
//!
//! `cargo run --release -p tidecast-publish --example publish -- PATH OUT [auto|v1|v2|hybrid] [PIECE_LENGTH] [THREADS]`

use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Instant;

use tidecast_metainfo::Version;
use tidecast_publish::{Format, HashOptions, Progress, ScanOptions, hash, scan, verify};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().collect();
    let arg = |i: usize| args.get(i).map(String::as_str);
    let (Some(path), Some(out)) = (arg(1), arg(2)) else {
        return Err("usage: publish PATH OUT [auto|v1|v2|hybrid] [PIECE_LENGTH] [THREADS]".into());
    };
    let format = match arg(3).unwrap_or("auto") {
        "v1" => Format::Exactly(Version::V1),
        "v2" => Format::Exactly(Version::V2),
        "hybrid" => Format::Exactly(Version::Hybrid),
        _ => Format::Auto,
    };
    let options = HashOptions {
        format,
        piece_length: arg(4).map(str::parse).transpose()?.filter(|length| *length > 0),
        threads: arg(5).map(str::parse).transpose()?,
        ..HashOptions::default()
    };
    let progress = Progress::new();
    let start = Instant::now();
    let tree = scan(Path::new(path), &ScanOptions::default(), &progress)?;
    let scanned = start.elapsed();
    let start = Instant::now();
    let made = hash(&tree, &options, &progress, |_| ())?;
    let hashed = start.elapsed();
    fs::write(out, made.manifest.to_bytes())?;
    let start = Instant::now();
    let report = verify(&made.manifest, Path::new(path), options.threads, &progress)?;
    let verified = start.elapsed();
    let bytes = tree.total_len() as f64;
    let rate = |time: std::time::Duration| bytes / time.as_secs_f64() / 1e9;
    println!("{}; {} pieces of {}", made.why, made.manifest.piece_count(), made.manifest.piece_length());
    println!("{} files, {bytes} bytes; scanned in {scanned:.3?}", tree.files.len());
    println!(
        "hashed in {hashed:.3?} ({:.2} GB/s), verified in {verified:.3?} ({:.2} GB/s)",
        rate(hashed),
        rate(verified)
    );
    report.problems.iter().for_each(|problem| println!("{problem}"));
    Ok(())
}
