//! Stops a download half-way; the same call resumes it.

use std::error::Error;
use std::fs;

use tidecast::{Event, GetOptions, Kind, ShareOptions, Source, SwarmOptions, get, share};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let (data, to) = (dir.path().join("data"), dir.path().join("to"));
    let state_dir = Some(dir.path().join("state"));
    fs::write(&data, (0..2_000_000u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>())?;
    let swarm = SwarmOptions { upload_limit: Some(4_000_000), ..SwarmOptions::loopback() };
    let sharing = share(&data, ShareOptions { swarm, state_dir: state_dir.clone(), ..Default::default() });
    let source = || Source::read(&sharing.ready_blocking()?.ticket.unwrap_or_default());
    let options = GetOptions { swarm: SwarmOptions::loopback(), state_dir, ..Default::default() };

    let mut getting = get(source()?, &to, options.clone());
    while let Some(event) = getting.next_blocking() {
        if matches!(event, Event::Progress(now) if now.bytes > 1_000_000) {
            getting.stop();
        }
    }
    let error = getting.wait_blocking().err().ok_or("it was not stopped")?;
    assert_eq!(error.kind(), Kind::Interrupted);
    println!("{}", error.in_full());

    let done = get(source()?, &to, options).wait_blocking()?;
    println!("{} of {} bytes came the second time", done.totals.received, done.file_bytes);
    assert!(done.totals.received < done.file_bytes);
    Ok(())
}
