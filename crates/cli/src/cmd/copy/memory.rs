//! `--to-memory`: another program uses the files. It reads events from standard output, and releases files by lines on
//! standard input.

use std::io::{self, BufRead, Write};
use std::str::FromStr;
use std::thread::JoinHandle;

use tidecast::{Consumer, Copy};
use tidecast_text::Size;

use super::run::{Shown, follow};
use crate::failure::Outcome;
use crate::report::Reporter;

/// The limit of shared memory: `auto` or a size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget(pub(super) Option<Size>);

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" { Ok(Self(None)) } else { text.parse().map(|size| Self(Some(size))) }
    }
}

/// Copies, and passes the files to the program.
pub(super) fn run(copy: Copy, reporter: &mut Reporter) -> Outcome {
    let (copying, consumer) = tidecast::copy_to_memory(copy)?;
    let mut printing = None;
    let outcome = follow(copying, Shown::default(), reporter, |_| {
        let (told, heard) = (consumer.clone(), consumer.clone());
        printing = Some(std::thread::spawn(move || print(&told)));
        std::thread::spawn(move || listen(&heard));
    });
    // `done` or `error` must come after all events about files.
    let _ = printing.map(JoinHandle::join);
    outcome
}

fn print(consumer: &Consumer) {
    while let Some(arrived) = consumer.next_arrived() {
        let mut out = io::stdout().lock();
        let said = serde_json::to_writer(&mut out, &arrived).map_err(io::Error::from);
        if said.and_then(|()| writeln!(out)).and_then(|()| out.flush()).is_err() {
            return consumer.leave("the consumer has closed standard output");
        }
    }
}

/// Reads what the program releases: `release NUMBER`, or with blocks `release NUMBER OFFSET`.
fn listen(consumer: &Consumer) {
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let numbers: Option<Vec<u64>> =
            line.strip_prefix("release ").and_then(|rest| rest.split(' ').map(|n| n.parse().ok()).collect());
        let released = match numbers.as_deref() {
            Some([number]) => consumer.release(*number, None),
            Some([number, offset]) => consumer.release(*number, Some(*offset)),
            _ => Ok(false),
        };
        match released {
            Ok(true) => {}
            Ok(false) => tracing::warn!("standard input: {line:?} does not name a file or block in memory"),
            Err(e) => tracing::warn!("{e}"),
        }
    }
    consumer.leave("the consumer has closed standard input");
}
