//! Limits a ticket to one node and an hour, and makes it worthless before that.

use std::error::Error;
use std::fs;
use std::time::Duration;

use tidecast::{GetOptions, Kind, RevokeOptions, ShareOptions, Source, SwarmOptions, TicketOptions};
use tidecast::{get, revoke, share};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let (data, swarm) = (dir.path().join("data"), SwarmOptions::loopback());
    let state_dir = Some(dir.path().join("state"));
    fs::write(&data, "for one")?;
    let ticket = TicketOptions { expires: Some(Duration::from_secs(3600)), uses: Some(1) };
    let (with, state) = (swarm.clone(), state_dir.clone());
    let sharing = share(&data, ShareOptions { ticket, swarm: with, state_dir: state, ..Default::default() });
    let ticket = sharing.ready_blocking()?.ticket.ok_or("no ticket")?;

    revoke(&ticket, RevokeOptions { state_dir })?;
    let (state_dir, timeout) = (Some(dir.path().join("state of another")), Some(Duration::from_secs(20)));
    let options = GetOptions { swarm, state_dir, timeout, ..Default::default() };
    let refused = get(Source::read(&ticket)?, dir.path().join("to"), options).wait_blocking();
    let error = refused.err().ok_or("it was let in")?;
    assert_eq!(error.kind(), Kind::Fault);
    println!("{}", error.in_full());
    Ok(())
}
