//! Finds the files of a copy that differ from the published ones.

use std::error::Error;
use std::fs;

use tidecast::{PartialResult, PublishOptions, VerifyOptions, publish, verify};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let (data, torrent) = (dir.path().join("data"), dir.path().join("data.torrent"));
    fs::create_dir(&data)?;
    for name in ["good", "bad", "gone"] {
        fs::write(data.join(name), name)?;
    }
    let (output, state_dir) = (Some(torrent.clone()), Some(dir.path().join("state")));
    publish(&data, PublishOptions { output, state_dir, ..Default::default() }).wait_blocking()?;

    fs::write(data.join("bad"), "BAD")?;
    fs::remove_file(data.join("gone"))?;
    fs::write(data.join("new"), "")?;
    let verifying = verify(&torrent, &data, VerifyOptions::default());
    let error = verifying.wait_blocking().err().ok_or("all is well")?;
    println!("{}", error.in_full());
    let Some(PartialResult::Verify(found)) = error.partial_result() else { return Err(error.into()) };
    found.problems.iter().for_each(|problem| println!("  {problem}"));
    assert_eq!((found.damaged.len(), found.missing.len(), found.extra.len()), (1, 1, 1));
    Ok(())
}
