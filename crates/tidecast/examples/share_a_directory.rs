//! Shares a directory privately on one node and gets it on another.

use std::error::Error;
use std::fs;

use tidecast::{GetOptions, ShareOptions, Source, SwarmOptions, get, share};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("genomes/human"))?;
    fs::write(at("genomes/human/chr1.fa"), "ACGT".repeat(100_000))?;

    // Without these two options a node listens on all its addresses and keeps its key in the home directory.
    let (swarm, state_dir) = (SwarmOptions::loopback(), Some(at("state of the first")));
    let sharing = share(at("genomes"), ShareOptions { swarm, state_dir, ..Default::default() });
    let ticket = sharing.ready_blocking()?.ticket.ok_or("no ticket")?;
    println!("the ticket: {ticket}");

    let (swarm, state_dir) = (SwarmOptions::loopback(), Some(at("state of the second")));
    let options = GetOptions { swarm, state_dir, ..Default::default() };
    let done = get(Source::read(&ticket)?, at("scratch"), options).wait_blocking()?;
    println!("{}: {} files, {} bytes", done.path.display(), done.files, done.file_bytes);

    sharing.stop();
    println!("sent: {} bytes", sharing.wait_blocking()?.totals.sent);
    Ok(())
}
