//! Gets a new version over an old one: only changed data is transferred, and files that the new version lacks
//! are removed.

use std::error::Error;
use std::fs;

use tidecast::event::get::{Action, Done};
use tidecast::{GetOptions, ShareOptions, Source, SwarmOptions, get, share};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let (data, to) = (dir.path().join("env"), dir.path().join("to"));
    let (swarm, state_dir) = (SwarmOptions::loopback(), Some(dir.path().join("state")));
    let deliver = || -> Result<Done, Box<dyn Error>> {
        let (with, state) = (swarm.clone(), state_dir.clone());
        let sharing = share(&data, ShareOptions { swarm: with, state_dir: state, ..Default::default() });
        let ticket = sharing.ready_blocking()?.ticket.ok_or("no ticket")?;
        let (swarm, state_dir) = (swarm.clone(), state_dir.clone());
        let options = GetOptions { delete: true, swarm, state_dir, ..Default::default() };
        Ok(get(Source::read(&ticket)?, &to, options).wait_blocking()?)
    };
    fs::create_dir(&data)?;
    fs::write(data.join("big"), (0..500_000u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>())?;
    fs::write(data.join("old"), "goes")?;
    assert_eq!(deliver()?.action, Action::Delivered);

    fs::remove_file(data.join("old"))?;
    fs::write(data.join("new"), "comes")?;
    let done = deliver()?;
    println!("{} bytes received, {} files kept", done.totals.received, done.files_kept);
    assert_eq!((done.action, done.files_deleted), (Action::Replaced, 1));
    assert!(done.totals.received < 100_000);
    Ok(())
}
