//! The log, on standard error: warnings of Tidecast unless more (`-v`), less (`-q`) or a filter is asked for.

use std::io::{IsTerminal as _, Write};

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

use crate::cli::Global;
use crate::names;
use crate::settings::Settings;

/// Starts the log. `-v` shows what is done, `-vv` why, `-vvv` everything; `TIDECAST_LOG` (or `log` in the
/// configuration) is a filter as `tracing` knows it: `debug`, or `tidecast_net=trace`.
pub(crate) fn start(global: &Global, settings: &Settings) -> Result<()> {
    let level = match (global.quiet, global.verbose) {
        (true, _) => "error",
        (_, 0) => "warn",
        (_, 1) => "info",
        (_, 2) => "debug",
        _ => "trace",
    };
    let asked = settings.log.as_deref().filter(|_| global.verbose == 0 && !global.quiet);
    let filter = EnvFilter::builder()
        .parse(asked.unwrap_or(level))
        .with_context(|| format!("the log filter {:?} does not parse", asked.unwrap_or(level)))?;
    // No colours in a file, nor where they are not wanted (no-color.org).
    let colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|wish| wish.is_empty());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Lines)
        .with_ansi(colours)
        .with_target(true);
    // When nobody reads standard error any more, complaining about that would end the program.
    log.log_internal_errors(false).init();
    Ok(())
}

/// Standard error, for whole events: each is one line, without control characters but the colours of the log itself.
struct Lines;

impl Write for Lines {
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        // The formatter hands over an event at once, and escapes escape sequences of its fields itself.
        std::io::stderr().write_all(printable(event).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

fn printable(event: &[u8]) -> String {
    let text = String::from_utf8_lossy(event);
    let (text, end) = text.strip_suffix('\n').map_or((&*text, ""), |text| (text, "\n"));
    let mut parts = text.split('\u{1b}');
    let mut out = parts.next().map(names::line).unwrap_or_default();
    for part in parts {
        let colour = part.strip_prefix('[').and_then(|rest| rest.split_once('m'));
        let colour = colour.filter(|(code, _)| code.bytes().all(|b| b.is_ascii_digit() || b == b';'));
        match colour {
            Some((code, rest)) => out.push_str(&format!("\u{1b}[{code}m{}", names::line(rest))),
            None => out.push_str(&format!("\\x1b{}", names::line(part))),
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
