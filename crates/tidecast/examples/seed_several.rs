//! Seeds several manifests on one port. One whose data is missing does not keep the others from being served.

use std::error::Error;
use std::fs;

use tidecast::{Event, PartialResult, PublishOptions, SeedOptions, SwarmOptions, publish, seed_many};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let state_dir = Some(dir.path().join("state"));
    let mut torrents = Vec::new();
    for name in ["a", "b", "c"] {
        let (data, torrent) = (dir.path().join(name), dir.path().join(format!("{name}.torrent")));
        fs::write(&data, name)?;
        let (output, state_dir) = (Some(torrent.clone()), state_dir.clone());
        publish(&data, PublishOptions { output, state_dir, ..Default::default() }).wait_blocking()?;
        torrents.push(torrent);
    }
    fs::remove_file(dir.path().join("b"))?;
    let options = SeedOptions { swarm: SwarmOptions::loopback(), state_dir, ..Default::default() };
    let mut seeding = seed_many(&torrents, &[dir.path().to_owned()], options);
    let mut served = 0;
    while served < 2 {
        if let Some(Event::Started(started)) = seeding.next_blocking() {
            println!("{} at {:?}", started.name, started.listen);
            served += 1;
        }
    }
    seeding.stop();
    let error = seeding.wait_blocking().err().ok_or("b was served")?;
    println!("{}", error.in_full());
    let Some(PartialResult::SeedMany(done)) = error.partial_result() else { return Err(error.into()) };
    assert_eq!((done.all.swarms.len(), done.all.failed.len()), (2, 1));
    Ok(())
}
