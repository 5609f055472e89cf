//! Reads a part of a shared file, without getting the rest of it.

use std::error::Error;
use std::fs;

use tidecast::{OpenOptions, ShareOptions, Source, SwarmOptions, open, share};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let (swarm, state_dir) = (SwarmOptions::loopback(), Some(dir.path().join("state")));
    let data = dir.path().join("genomes");
    fs::create_dir(&data)?;
    fs::write(data.join("chr1.fa"), "ACGT".repeat(1 << 20))?;

    let options = ShareOptions { swarm: swarm.clone(), state_dir: state_dir.clone(), ..Default::default() };
    let sharing = share(&data, options);
    let source = Source::read(&sharing.ready_blocking()?.ticket.ok_or("no ticket")?)?;

    let cache = Some(dir.path().join("cache"));
    let opening = open(source, OpenOptions { cache, swarm, state_dir, ..Default::default() });
    let reader = opening.ready_blocking()?.reader;
    for entry in reader.entries() {
        println!("{} has {} bytes", String::from_utf8_lossy(&entry.path), entry.len);
    }
    let file = reader.find("chr1.fa").ok_or("no such file")?;
    let mut bytes = [0; 6];
    assert_eq!(reader.read_at(file, 2 << 20, &mut bytes)?, 6);
    assert_eq!(&bytes, b"ACGTAC");
    opening.stop();
    let received = opening.wait_blocking()?.totals.map_or(0, |totals| totals.received);
    println!("{received} bytes were fetched");
    assert!(received < 2 << 20);
    Ok(())
}
