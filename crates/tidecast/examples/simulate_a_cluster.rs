//! Simulates a broadcast on a cluster that does not exist, beside rival algorithms.

use tidecast::Event;
use tidecast::sim::{SimulateOptions, simulate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = SimulateOptions {
        topology: "leafspine:4,2,8@25gbit".into(),
        size: 256 << 20,
        algorithms: ["plan", "chain", "nfs"].map(str::to_owned).to_vec(),
        ..Default::default()
    };
    let mut simulation = simulate(options, false);
    while let Some(event) = simulation.next_blocking() {
        if let Event::Progress(now) = event {
            eprintln!("{} of {} bytes", now.bytes, now.total);
        }
    }
    let done = simulation.wait_blocking()?;
    println!("no program is faster than {:.3} s: {}", done.bound.seconds, done.bound.limit);
    for run in &done.runs {
        println!("{}: the last node after {:?} s", run.algorithm, run.figures.last);
    }
    Ok(())
}
