//! The ticket of an agent.

use std::fmt;
use std::str::FromStr;

use crate::control::ticket::{GroupTicket, NoTicket, PREFIX};

/// The first characters, which tell it from the ticket of a broadcast: both are passed to `tidecast worker`.
const OWN_PREFIX: &str = "tideagent1";

/// Finds and authenticates the coordinator of agents; a secret for as long as they run. `Display` writes it, `FromStr` reads it.
#[derive(Clone, Debug)]
pub struct AgentTicket(pub(super) GroupTicket);

impl fmt::Display for AgentTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        write!(f, "{OWN_PREFIX}{}", text.strip_prefix(PREFIX).unwrap_or(&text))
    }
}

impl FromStr for AgentTicket {
    type Err = NoTicket;

    fn from_str(text: &str) -> Result<Self, NoTicket> {
        let body = text.trim().strip_prefix(OWN_PREFIX).ok_or(NoTicket)?;
        format!("{PREFIX}{body}").parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::control::ticket::Token;
    use tidecast_identity::NodeId;

    #[test]
    fn tickets_of_agents_and_of_broadcasts_are_told_apart() {
        let addresses = vec!["10.0.0.1:5".parse().unwrap()];
        let ticket = AgentTicket(GroupTicket::new(NodeId([7; 32]), Token::random(), addresses, None));
        let text = ticket.to_string();
        let again: AgentTicket = format!(" {text}\n").parse().unwrap();
        assert_eq!(again.to_string(), text);
        assert!(text.parse::<GroupTicket>().is_err());
        assert!(ticket.0.to_string().parse::<AgentTicket>().is_err());
    }
}
