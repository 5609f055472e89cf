//! Ports that a socket of this network namespace listens on.

use super::parse::bound;
use crate::System;

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
