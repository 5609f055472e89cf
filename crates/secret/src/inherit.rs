//! Secrets for processes that this one starts and that live on: each comes in an anonymous file that the child inherits;
//! the environment has its number, so neither the command line nor the environment has the secret.

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

use super::Error;

/// The number of the descriptor.
const VARIABLE: &str = "TIDECAST_SECRET_FD";

/// Keeps what a child is to inherit until it has been started. No other process is to be started meanwhile.
#[derive(Debug)]
pub struct Passed(#[allow(dead_code, reason = "holds the descriptor open")] OwnedFd);

/// Has `command` inherit `text`.
///
/// # Errors
/// The system gives no memory or descriptor.
pub fn pass(command: &mut Command, text: &str) -> Result<Passed, Error> {
    let file = super::command_line::anonymous(text.as_bytes()).map_err(Error::HandOver)?;
    command.env(VARIABLE, file.as_raw_fd().to_string());
    Ok(Passed(file))
}

/// What this process was handed, if anything; to be called once. Its descriptor is closed, so no child has it.
///
/// # Errors
/// The descriptor cannot be read.
pub fn inherited() -> Result<Option<String>, Error> {
    let Some(number) = std::env::var(VARIABLE).ok().and_then(|text| text.parse::<i32>().ok()) else {
        return Ok(None);
    };
    let text = super::command_line::read_descriptor(number).map_err(Error::TakeOver)?;
    let _ = nix::unistd::close(number);
    Ok(Some(text))
}
