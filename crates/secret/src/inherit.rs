//! Secrets for processes that this one starts and that live on: each comes in an anonymous file that the child inherits;
//! the environment has its number, so neither the command line nor the environment has the secret.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

use rustix::fs::MemfdFlags;

use super::Error;
use super::command_line::{FD, anonymous, read_descriptor};

/// The number of the descriptor.
const VARIABLE: &str = "TIDECAST_SECRET_FD";

/// Keeps the file that a child is to inherit until it has been started. No other process is to be started
/// meanwhile.
#[derive(Debug)]
pub struct InheritedFile(#[allow(dead_code, reason = "holds the descriptor open")] OwnedFd);

/// Has `command` inherit `text`.
///
/// # Errors
/// The system has no memory or descriptor left.
pub fn pass(command: &mut Command, text: &str) -> Result<InheritedFile, Error> {
    let file = anonymous(text.as_bytes(), MemfdFlags::empty()).map_err(Error::HandOver)?;
    command.env(VARIABLE, file.as_raw_fd().to_string());
    Ok(InheritedFile(file))
}

/// Lets `command`, which does not read its standard input, inherit `text` there. Unlike with [`pass`], other
/// threads may start processes meanwhile, which do not inherit it.
///
/// # Errors
/// The system has no memory or descriptor left.
pub fn pass_as_stdin(command: &mut Command, text: &str) -> Result<(), Error> {
    let file = anonymous(text.as_bytes(), MemfdFlags::CLOEXEC).map_err(Error::HandOver)?;
    command.stdin(file).env(VARIABLE, "0");
    Ok(())
}

/// A secret in an anonymous file, and the word that stands for it on the command line of a program of ours, which inherits the file
/// under the same number. The file is closed when this process executes another program: the caller lets the one child have it.
///
/// # Errors
/// The system gives no memory or descriptor.
pub fn lend(text: &str) -> Result<(OwnedFd, String), Error> {
    let file = anonymous(text.as_bytes(), MemfdFlags::CLOEXEC).map_err(Error::HandOver)?;
    let word = format!("@{FD}{}", file.as_raw_fd());
    Ok((file, word))
}

/// The secret passed to this process, if any; to be called once. Its descriptor is closed, so no child has
/// it.
///
/// # Errors
/// The descriptor cannot be read.
pub fn inherited() -> Result<Option<String>, Error> {
    let Some(number) = std::env::var(VARIABLE).ok().and_then(|text| text.parse::<i32>().ok()) else {
        return Ok(None);
    };
    let text = read_descriptor(number).map_err(Error::TakeOver)?;
    if number == 0 {
        // A closed standard input would give its number to the next file that is opened.
        let null = File::open("/dev/null").map_err(Error::TakeOver)?;
        rustix::stdio::dup2_stdin(&null).map_err(|error| Error::TakeOver(error.into()))?;
    } else {
        let _ = nix::unistd::close(number);
    }
    Ok(Some(text))
}
