//! The log, on standard error: warnings of Tidecast unless more (`-v`), less (`-q`) or a filter is asked for.

use std::io::IsTerminal as _;

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

use crate::cli::Global;
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
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_target(true);
    // When nobody reads standard error any more, complaining about that would end the program.
    log.log_internal_errors(false).init();
    Ok(())
}
