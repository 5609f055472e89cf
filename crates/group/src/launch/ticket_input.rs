//! Reads the ticket that the launcher of a worker passes: in the environment, or in the first line of standard input.

use std::io::{self, BufRead, Read as _};
use std::sync::mpsc;
use std::time::Duration;

use super::TICKET_VARIABLE;
use crate::agents::AgentTicket;
use crate::{GroupTicket, NoTicket};

/// The maximum wait for the ticket, which a launcher passes immediately.
const PATIENCE: Duration = Duration::from_secs(60);
/// The maximum length of a ticket.
const MAX_LINE: u64 = 8192;

/// Why there is no ticket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoTicketReceived {
    /// No ticket was received.
    #[error("no ticket received on standard input")]
    Nothing,
    /// Standard input cannot be read.
    #[error("cannot read standard input: {0}")]
    Unreadable(io::Error),
    /// The ticket is invalid.
    #[error("{0}; workers are started by `tidecast bcast`")]
    Malformed(NoTicket),
}

/// The ticket of a process that a launcher started.
#[derive(Clone, Debug)]
pub enum Handed {
    /// It is a worker of a broadcast.
    Worker(GroupTicket),
    /// It is an agent.
    Agent(AgentTicket),
}

/// The ticket of this process. Standard input after its first line is not read.
///
/// # Errors
/// No ticket was received within a minute, or it is invalid.
pub fn worker_ticket() -> Result<Handed, NoTicketReceived> {
    let text = match std::env::var(TICKET_VARIABLE) {
        Ok(text) => text,
        Err(_) => {
            let (say, heard) = mpsc::channel();
            std::thread::spawn(move || say.send(first_line(io::stdin().lock())));
            let read = heard.recv_timeout(PATIENCE).map_err(|_| NoTicketReceived::Nothing)?;
            read.map_err(NoTicketReceived::Unreadable)?
        }
    };
    match text.parse() {
        Ok(ticket) => Ok(Handed::Agent(ticket)),
        Err(_) => text.parse().map(Handed::Worker).map_err(NoTicketReceived::Malformed),
    }
}

/// Reads byte by byte, because the data after the line belongs to other code.
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
