//! Ports that a socket of this network namespace listens on.

use std::collections::BTreeSet;

use super::parse::bound;
use crate::System;

/// State of a TCP socket that listens, and of a UDP socket that is bound.
const LISTENS: (&str, &str) = ("0A", "07");

/// Most sockets that are looked at.
const SOCKETS: usize = 1 << 22;

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
            let lines = names.iter().filter_map(|name| system.lines(&format!("/proc/net/{name}"))).flatten();
            let ports: BTreeSet<u16> = lines.take(SOCKETS).filter_map(|line| bound(&line, state)).collect();
            ports.into_iter().collect()
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
