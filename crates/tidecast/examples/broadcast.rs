//! Puts a file at the same path on two hosts, whose workers are operations of this process.

use std::error::Error;
use std::fs;

use tidecast::event::bcast::News;
use tidecast::{BroadcastOptions, Event, Launch, WorkerOptions, broadcast, hosts, worker};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    fs::write(&data, vec![7; 5_000_000])?;

    // Elsewhere `Launch::Auto` starts the program `tidecast` on each host, by srun or ssh.
    let hosts = hosts::parse("node[1-2]")?;
    let mut options = BroadcastOptions::new(&data, dir.path().join("{host}/data"), hosts.clone());
    options.launch = Launch::ByCaller;
    let (mut broadcasting, mut workers) = (broadcast(options), Vec::new());
    while let Some(event) = broadcasting.next_blocking() {
        match event {
            Event::News(News::Ticket(ticket)) => {
                for host in &hosts {
                    let (host, state_dir) = (Some(host.name.clone()), Some(dir.path().join("state")));
                    let options = WorkerOptions { host, state_dir, ..Default::default() };
                    workers.push(worker(ticket.parse()?, options));
                }
            }
            Event::Progress(now) => println!("{}: {} of {} bytes", now.stage.name(), now.bytes, now.total),
            _ => {}
        }
    }
    println!("{} hosts have it", broadcasting.wait_blocking()?.hosts_done);
    assert_eq!(fs::metadata(dir.path().join("node2/data"))?.len(), 5_000_000);
    Ok(())
}
