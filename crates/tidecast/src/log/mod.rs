//! A log for a program without its own: `tracing` events on standard error, each one line. Warnings and
//! errors that repeat are counted (`repeat.rs`), here and so for every part of the program.
//!
//! ```no_run
//! tidecast::log::start("warn,tidecast_net=debug")?;
//! // ... at the end of the program, the counts that have not been written:
//! tidecast::log::finish();
//! # Ok::<(), tidecast::Error>(())
//! ```

mod repeat;

use std::io::{IsTerminal as _, Write};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tidecast_event::{Context as _, Error};
use tidecast_text::escaped;
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

use self::repeat::{PAUSE, Repeats};

/// Starts the log, once a process. `filter`: as `tracing` knows it (`warn`, `debug`, `tidecast_net=trace`).
///
/// # Errors
/// The filter does not parse; of kind [`Kind::Usage`](crate::Kind::Usage).
pub fn start(filter: &str) -> Result<(), Error> {
    let parsed = EnvFilter::builder().parse(filter);
    let filter = parsed.with_context(|| format!("cannot parse the log filter {filter:?}"));
    let filter = filter.map_err(|error| Error::new(tidecast_event::Kind::Usage, error))?;
    // No colours in a file, nor where they are not wanted (no-color.org).
    let colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|wish| wish.is_empty());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Lines)
        .with_ansi(colours)
        .with_target(true);
    // If standard error is closed, an error message about that would end the program.
    log.log_internal_errors(false).init();
    Ok(())
}

/// Whether a filter parses, and if not, why.
pub(crate) fn check(filter: &str) -> Result<(), String> {
    EnvFilter::builder().parse(filter).map(drop).map_err(|error| error.to_string())
}

/// The written lines, by the place in the program that wrote them.
static REPEATS: LazyLock<Mutex<Repeats<Identifier>>> = LazyLock::new(|| Mutex::new(Repeats::new()));

fn repeats() -> MutexGuard<'static, Repeats<Identifier>> {
    // Counts are worth having whatever ended another thread.
    REPEATS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the counts that have not been written: the program ends.
pub fn finish() {
    let rest = repeats().rest();
    rest.iter().for_each(|line| write(&format!("{} {line}\n", now())));
}

/// Writes counts when they are due, on a thread that lasts as long as there are any.
fn count_on() {
    loop {
        std::thread::sleep(PAUSE);
        let (due, waiting) = {
            let mut repeats = repeats();
            (repeats.due(Instant::now()), repeats.is_waiting())
        };
        due.iter().for_each(|line| write(&format!("{} {line}\n", now())));
        let mut counting = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting && !repeats().is_waiting() {
            *counting = false;
            return;
        }
    }
}

/// Whether the thread runs.
static COUNTING: Mutex<bool> = Mutex::new(false);

fn start_counting() {
    let mut counting = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    if !*counting {
        // Without a thread the counts are written at the end.
        *counting = std::thread::Builder::new().name("log".into()).spawn(count_on).is_ok();
    }
}

/// The time, as at the beginning of each line.
fn now() -> String {
    let mut text = String::new();
    // Only a clock before 1970 has no text.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// Standard error, for whole events: each is one line, without control characters but the colours of the log itself.
struct Lines;

/// The key of one event. Its place in the program, if its repetitions are counted: lines requested with `-v`
/// are always written.
struct Event(Option<Identifier>);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Event;

    fn make_writer(&'a self) -> Event {
        Event(None)
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Event {
        Event(Some(meta.callsite()).filter(|_| *meta.level() <= Level::WARN))
    }
}

impl Write for Event {
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        // The formatter hands over an event at once, and escapes escape sequences of its fields itself.
        let text = printable(event);
        let written = match (&self.0, text.trim_end().split_once(' ')) {
            (Some(place), Some((_, rest))) => {
                let clock = now().get(11..16).map(|clock| format!("{clock}Z")).unwrap_or_default();
                repeats().hear(Instant::now(), &clock, place, rest)
            }
            _ => true,
        };
        if written {
            write(&text);
        } else {
            start_counting();
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// If standard error is closed, the error cannot be reported.
fn write(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn line(text: &str) -> String {
    escaped(text).to_string()
}

fn printable(event: &[u8]) -> String {
    let text = String::from_utf8_lossy(event);
    let (text, end) = text.strip_suffix('\n').map_or((&*text, ""), |text| (text, "\n"));
    let mut parts = text.split('\u{1b}');
    let mut out = parts.next().map(line).unwrap_or_default();
    for part in parts {
        let colour = part.strip_prefix('[').and_then(|rest| rest.split_once('m'));
        let colour = colour.filter(|(code, _)| code.bytes().all(|b| b.is_ascii_digit() || b == b';'));
        match colour {
            Some((code, rest)) => out.push_str(&format!("\u{1b}[{code}m{}", line(rest))),
            None => out.push_str(&format!("\\x1b{}", line(part))),
        }
    }
    out + end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_and_keeps_only_colours() {
        let event = b"\x1b[2mnow\x1b[0m \x1b[33m WARN\x1b[0m two\nlines \x1b]0;title\x07 \x1b[2J\n";
        let shown =
            "\u{1b}[2mnow\u{1b}[0m \u{1b}[33m WARN\u{1b}[0m two\\nlines \\x1b]0;title\\x07 \\x1b[2J\n";
        assert_eq!(printable(event), shown);
    }
}
