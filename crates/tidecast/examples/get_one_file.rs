//! Gets only the files that match a pattern.

use std::error::Error;
use std::fs;

use tidecast::{GetOptions, ShareOptions, Source, SwarmOptions, get, share};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let (swarm, state_dir) = (SwarmOptions::loopback(), Some(dir.path().join("state")));
    let data = dir.path().join("genomes");
    fs::create_dir(&data)?;
    fs::write(data.join("chr1.fa"), "ACGT")?;
    fs::write(data.join("chr1.bam"), "not wanted")?;

    let options = ShareOptions { swarm: swarm.clone(), state_dir: state_dir.clone(), ..Default::default() };
    let sharing = share(&data, options);
    let ticket = sharing.ready_blocking()?.ticket.ok_or("no ticket")?;

    let options = GetOptions { files: vec!["*.fa".into()], swarm, state_dir, ..Default::default() };
    let done = get(Source::read(&ticket)?, dir.path().join("to"), options).wait_blocking()?;
    assert!(done.path.join("chr1.fa").exists() && !done.path.join("chr1.bam").exists());
    println!("{} of 2 files", done.files);
    Ok(())
}
