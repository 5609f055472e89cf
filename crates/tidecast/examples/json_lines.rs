//! Prints the events of an operation as the program does with `--json`.

use std::error::Error;
use std::fs;

use tidecast::{Event, PublishOptions, publish};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    fs::write(dir.path().join("data"), "the same bytes")?;
    let options = PublishOptions { state_dir: Some(dir.path().join("state")), ..Default::default() };
    let mut publishing = publish(dir.path().join("data"), options);
    while let Some(event) = publishing.next_blocking() {
        // The first event has no line of JSON.
        if !matches!(event, Event::Phase(_)) {
            println!("{}", serde_json::to_string(&event)?);
        }
    }
    Ok(())
}
