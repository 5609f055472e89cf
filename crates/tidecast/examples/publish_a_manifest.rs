//! Makes a standard .torrent file of a directory, with a tracker and a web seed, and looks into it.

use std::error::Error;
use std::fs;

use tidecast::{Manifest, PublishOptions, TreeOptions, publish};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let (data, torrent) = (dir.path().join("genomes"), dir.path().join("genomes.torrent"));
    fs::create_dir(&data)?;
    fs::write(data.join("chr1.fa"), "ACGT")?;
    fs::write(data.join("chr1.tmp"), "left out")?;

    let options = PublishOptions {
        output: Some(torrent.clone()),
        tree: TreeOptions { exclude: vec!["*.tmp".into()], ..Default::default() },
        trackers: vec!["http://head:6969/announce".into()],
        web_seeds: vec!["https://data.example/".into()],
        state_dir: Some(dir.path().join("state")),
        ..Default::default()
    };
    let done = publish(&data, options).wait_blocking()?;
    println!("{} ({})", done.summary.magnet, done.why);

    let manifest = Manifest::parse(&fs::read(torrent)?)?;
    for file in manifest.files() {
        println!("{:>10} {}", file.len(), file.path());
    }
    assert_eq!(manifest.file_count(), 1);
    Ok(())
}
