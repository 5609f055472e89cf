//! `--to-memory`: another program takes the files. It hears of them by lines on standard output and gives them back by lines on standard
//! input.

use std::io::{self, BufRead, Write};
use std::str::FromStr;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tidecast_mover::entry::{Entry, Kind};
use tidecast_mover::session::{Consumer, Copy, Said};
use tidecast_mover::sink::Arrived;
use tidecast_text::Size;

use super::run::follow;
use super::tell;
use crate::cmd::Context;
use crate::failure::Failure;
use crate::report::{Reporter, object};

/// How much memory may be taken: `auto` or a size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget(pub(super) Option<Size>);

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" { Ok(Self(None)) } else { text.parse().map(|size| Self(Some(size))) }
    }
}

/// Copies, and lets the program have the files.
pub(super) fn run(copy: Copy, context: &Context<'_>, reporter: &mut Reporter) -> crate::failure::Outcome {
    let from = copy.pairs().first().map_or(String::new(), |(from, _)| from.to_string());
    let copying = copy.start().map_err(tell::failure)?;
    let Some(consumer) = copying.consumer() else { return Err(Failure::cut("cut off")) };
    let start = json!({ "from": from, "memory": consumer.place(), "budget": consumer.budget() });
    reporter.started("copy", object(start));
    let (told, heard) = (consumer.clone(), consumer);
    let printing = std::thread::spawn(move || print(&told));
    std::thread::spawn(move || listen(&heard));
    let done = follow(copying, false, context, reporter);
    // The last line comes after all that was said of files.
    let _ = printing.join();
    tell::tell(&done?, false, tell::Shown::default(), reporter)
}

fn print(consumer: &Arc<Consumer>) {
    while let Some(said) = consumer.hear() {
        let line = match said {
            Said::Arrived(arrived) => event(&arrived, consumer),
            Said::Copied { files, bytes, failed } => {
                json!({ "event": "copied", "files": files, "bytes": bytes, "failed": failed })
            }
        };
        let mut out = io::stdout().lock();
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            return consumer.leave("the consumer has closed standard output");
        }
    }
}

/// What it gives back: `release NUMBER`, or with blocks `release NUMBER OFFSET`.
fn listen(consumer: &Arc<Consumer>) {
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
            Ok(false) => tracing::warn!("standard input: {line:?} names nothing that is held"),
            Err(e) => tracing::warn!("{e}"),
        }
    }
    consumer.leave("the consumer has closed standard input");
}

fn event(arrived: &Arrived, consumer: &Consumer) -> Value {
    let at = |number: u64| consumer.path(number);
    let (name, entry, more) = match arrived {
        Arrived::Block { number, entry, offset, len } => {
            ("block", entry, json!({ "number": number, "at": at(*number), "offset": offset, "bytes": len }))
        }
        Arrived::File { number, entry } => {
            ("file", entry, json!({ "number": number, "at": at(*number), "bytes": entry.len() }))
        }
        Arrived::Other(entry) => match &entry.kind {
            Kind::Symlink { target } => ("symlink", entry, text("target", target)),
            Kind::HardLink { to } => ("link", entry, text("to", to)),
            Kind::Dir => ("directory", entry, Value::Null),
            Kind::Fifo | Kind::Socket | Kind::Device { .. } | Kind::File { .. } => {
                ("special", entry, Value::Null)
            }
        },
    };
    let mut fields = Map::new();
    fields.insert("event".into(), name.into());
    fields.extend(object(text("path", &entry.path)));
    if let Value::Object(more) = more {
        fields.extend(more);
    }
    if name != "block" {
        fields.extend(object(attributes(entry)));
    }
    Value::Object(fields)
}

fn attributes(entry: &Entry) -> Value {
    let mtime = entry.attributes.mtime;
    json!({ "mode": entry.attributes.mode, "mtime": mtime.seconds as f64 + f64::from(mtime.nanos) * 1e-9 })
}

/// A name; one that is not UTF-8 is there in hexadecimal digits too.
fn text(key: &str, name: &[u8]) -> Value {
    match std::str::from_utf8(name) {
        Ok(name) => json!({ key: name }),
        Err(_) => json!({ key: String::from_utf8_lossy(name), format!("{key}_hex"): hex(name) }),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_text_are_told_too() {
        assert_eq!(text("path", b"a b"), json!({ "path": "a b" }));
        assert_eq!(text("path", b"a\xff"), json!({ "path": "a\u{fffd}", "path_hex": "61ff" }));
    }
}
