//! A tracker and nothing else: `cargo run -p tidecast-discovery --example tracker -- [ADDR:PORT]`.
//! Prints its counters, as text, whenever they change.

use std::time::Duration;

use tidecast_discovery::server::{Options, Tracker};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listen = std::env::args().nth(1).unwrap_or_else(|| "[::]:6969".into());
    let tracker = Tracker::bind(listen.parse()?, Options::default())?;
    println!("listening on {}", tracker.local_addr());
    let mut last = tracker.stats();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = tracker.stats();
        if now != last {
            println!("{now:?}");
            last = now;
        }
    }
}
