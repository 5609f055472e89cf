//! Watches a download from async code: on tokio here, and the same on any other runtime.

use std::error::Error;
use std::fs;

use tidecast::{Event, GetOptions, ShareOptions, Source, SwarmOptions, get, share};

fn main() -> Result<(), Box<dyn Error>> {
    tokio::runtime::Builder::new_current_thread().build()?.block_on(watch())
}

async fn watch() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let (data, state_dir) = (dir.path().join("data"), Some(dir.path().join("state")));
    fs::write(&data, vec![1; 3_000_000])?;
    let swarm = SwarmOptions { upload_limit: Some(4_000_000), ..SwarmOptions::loopback() };
    let sharing = share(&data, ShareOptions { swarm, state_dir: state_dir.clone(), ..Default::default() });
    let ticket = sharing.ready().await?.ticket.ok_or("no ticket")?;

    let options = GetOptions { swarm: SwarmOptions::loopback(), state_dir, ..Default::default() };
    let mut getting = get(Source::read(&ticket)?, dir.path().join("to"), options);
    while let Some(event) = getting.next().await {
        match event {
            Event::Started(started) => println!("{}: {} bytes", started.name, started.total),
            Event::Progress(now) => println!("{:>8} bytes, {:>8} bytes/s", now.bytes, now.rate),
            Event::Warning(warning) => eprintln!("warning: {}", warning.message),
            _ => {}
        }
    }
    println!("done in {} s", getting.wait().await?.get_seconds);
    Ok(())
}
