//! Ports that a socket of this network namespace listens on.

use crate::System;

/// Most lines of a table.
const LINES: usize = 1 << 16;
/// State of a TCP socket that listens, and of a UDP socket that is bound.
const LISTENS: (&str, &str) = ("0A", "07");

/// Ports in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ports {
    /// TCP ports that are listened on, sorted.
    pub tcp: Vec<u16>,
    /// UDP ports that are bound, sorted.
    pub udp: Vec<u16>,
    /// The ports that connections leave from.
    pub ephemeral: Option<(u16, u16)>,
}

impl Ports {
    pub(super) fn read(system: &System) -> Self {
        let of = |names: [&str; 2], state: &str| {
            let text = names.map(|name| system.text(&format!("/proc/net/{name}")).unwrap_or_default());
            let mut ports: Vec<u16> = text.iter().flat_map(|text| bound(text, state)).collect();
            ports.sort_unstable();
            ports.dedup();
            ports
        };
        let range = system.text("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        let mut range = range.split_whitespace().map(str::parse);
        Self {
            tcp: of(["tcp", "tcp6"], LISTENS.0),
            udp: of(["udp", "udp6"], LISTENS.1),
            ephemeral: range.next().and_then(Result::ok).zip(range.next().and_then(Result::ok)),
        }
    }
}

/// The local ports of the sockets in this state.
fn bound(table: &str, state: &str) -> Vec<u16> {
    let of = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, _, found) = (words.next()?, words.next()?, words.next()?);
        let port = u16::from_str_radix(local.rsplit(':').next()?, 16).ok()?;
        (found == state).then_some(port)
    };
    table.lines().skip(1).take(LINES).filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_found() {
        let table = "  sl  local_address rem_address   st tx_queue\n\
                     0: 00000000:1B44 00000000:0000 0A 00000000:00000000\n\
                     1: 0100007F:1F90 0100007F:9C40 01 00000000:00000000\n nonsense\n";
        assert_eq!(bound(table, "0A"), [6980]);
    }
}
