//! Seeds an open manifest at 1 MB/s at most, to a node that knows the address.

use std::error::Error;
use std::fs;

use tidecast::{GetOptions, PublishOptions, SeedOptions, Source, SwarmOptions, get, publish, seed};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let (data, torrent) = (dir.path().join("model.bin"), dir.path().join("model.torrent"));
    let state_dir = Some(dir.path().join("state"));
    fs::write(&data, vec![7; 600_000])?;
    let (output, state) = (Some(torrent.clone()), state_dir.clone());
    publish(&data, PublishOptions { output, state_dir: state, ..Default::default() }).wait_blocking()?;

    // An open swarm, which BitTorrent clients may join: `plain` confirms that this is intended.
    let swarm = SwarmOptions { upload_limit: Some(1_000_000), plain: true, ..SwarmOptions::loopback() };
    let options = SeedOptions { swarm, state_dir: state_dir.clone(), ..Default::default() };
    let seeding = seed(&torrent, &data, options);
    let started = seeding.ready_blocking()?;

    let peers = started.listen.iter().map(ToString::to_string).collect();
    let swarm = SwarmOptions { peers, plain: true, ..SwarmOptions::loopback() };
    let source = Source::read(&torrent.to_string_lossy())?;
    let options = GetOptions { swarm, state_dir, ..Default::default() };
    let done = get(source, dir.path().join("to"), options).wait_blocking()?;
    println!("{} bytes in {} s", done.totals.received, done.get_seconds);
    seeding.stop();
    seeding.wait_blocking()?;
    Ok(())
}
