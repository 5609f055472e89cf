//! Prints the trace of each seed: two builds that print the same decide alike, event for event.
//!
//! `cargo run --release -p tidecast-sim --example traces -- 0..200`: seeds as `tidecast sim --seeds` draws them;
//! `... -- 0..200 swarm` and `... -- 0..200 planned`: as swarms, and as broadcasts by a plan.
#![allow(clippy::print_stdout, reason = "an example speaks on standard output")]

use tidecast_sim::scenario::Scenario;
use tidecast_sim::soak;

fn main() -> Result<(), String> {
    let mut words = std::env::args().skip(1);
    let seeds = words.next().ok_or("which seeds? FROM..TO")?;
    let (from, to) = seeds.split_once("..").ok_or("seeds are FROM..TO")?;
    let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
    let draw = match words.next().as_deref() {
        None => Scenario::new,
        Some("swarm") => Scenario::swarm,
        Some("planned") => Scenario::planned,
        Some(other) => return Err(format!("{other}: neither swarm nor planned")),
    };
    for seed in number(from)?..number(to)? {
        match soak::job(&draw(seed).job) {
            Ok(ran) => println!("{seed} {:016x} {}", ran.outcome.trace, ran.outcome.events),
            Err(violation) => println!("{seed} {violation}"),
        }
    }
    Ok(())
}
