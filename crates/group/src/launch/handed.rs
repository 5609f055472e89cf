//! The ticket that whoever starts a worker hands it: in the environment, or in the first line of standard input.

use std::io::{self, BufRead, Read as _};
use std::sync::mpsc;
use std::time::Duration;

use super::TICKET_VARIABLE;
use crate::{GroupTicket, NoTicket};

/// Whoever starts a worker hands it the ticket at once.
const PATIENCE: Duration = Duration::from_secs(60);
/// No ticket is longer.
const MAX_LINE: u64 = 8192;

/// Why there is no ticket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotHanded {
    /// Nothing came.
    #[error("no ticket came on standard input")]
    Nothing,
    /// Standard input cannot be read.
    #[error("cannot read standard input: {0}")]
    Unreadable(io::Error),
    /// It is none.
    #[error("{0}: `tidecast bcast` starts workers")]
    Malformed(NoTicket),
}

/// The ticket that this process was handed. What follows its line on standard input is not read.
///
/// # Errors
/// None came within a minute, or what came is none.
pub fn handed() -> Result<GroupTicket, NotHanded> {
    let text = match std::env::var(TICKET_VARIABLE) {
        Ok(text) => text,
        Err(_) => {
            let (say, heard) = mpsc::channel();
            std::thread::spawn(move || say.send(first_line(io::stdin().lock())));
            let read = heard.recv_timeout(PATIENCE).map_err(|_| NotHanded::Nothing)?;
            read.map_err(NotHanded::Unreadable)?
        }
    };
    text.parse().map_err(NotHanded::Malformed)
}

/// Byte by byte: what follows the line is not ours.
fn first_line(from: impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    for byte in from.take(MAX_LINE).bytes() {
        match byte? {
            b'\n' => break,
            byte => line.push(byte),
        }
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_first_line_is_read_and_a_bounded_one() {
        let mut input = io::Cursor::new(b"ticket\nrest".to_vec());
        assert_eq!(first_line(&mut input).unwrap(), "ticket");
        assert_eq!(input.position(), 7);
        assert_eq!(first_line(io::BufReader::new(io::repeat(b'x'))).unwrap().len() as u64, MAX_LINE);
    }
}
