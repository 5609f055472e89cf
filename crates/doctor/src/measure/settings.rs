//! The settings of a measured line, and for how long it is measured.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Change;

/// Parameters that a measurement takes over from the host; each network namespace has its own.
const TAKEN_OVER: [&str; 8] = [
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_slow_start_after_idle",
];

/// The settings of both ends of a measured line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Kernel parameters by name.
    pub sysctls: BTreeMap<String, String>,
    /// MTU of both ends, bytes.
    pub mtu: u32,
    /// Flows at the same time.
    pub streams: u32,
}

/// Why nothing can be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Namespaces cannot be made.
    #[error(
        "cannot create a network namespace: {0}; run as root, or by: unshare -Ur tidecast doctor --measure"
    )]
    Namespace(std::io::Error),
    /// The line between them cannot be made.
    #[error("cannot create the line between two network namespaces: {0}")]
    Line(String),
    /// A parameter cannot be set there.
    #[error("cannot set {name} in a network namespace: {source}")]
    Parameter {
        /// The parameter.
        name: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The flow failed.
    #[error("the measured flow failed: {0}")]
    Flow(std::io::Error),
}

impl Settings {
    /// Those of this host, with an MTU.
    #[must_use]
    pub fn of_this_host(mtu: u32) -> Self {
        let read = |name: &str| {
            let path = format!("/proc/sys/{}", name.replace('.', "/"));
            let text = std::fs::read_to_string(path).ok()?;
            Some((name.to_owned(), text.split_whitespace().collect::<Vec<_>>().join(" ")))
        };
        let sysctls = TAKEN_OVER.iter().filter_map(|name| read(name)).collect();
        Self { sysctls, mtu, streams: 1 }
    }

    /// These with a change; `None` for one that a network namespace does not have of its own.
    #[must_use]
    pub fn with(&self, change: &Change) -> Option<Self> {
        let mut changed = self.clone();
        match change {
            Change::Sysctl { name, value } if TAKEN_OVER.contains(&name.as_str()) => {
                changed.sysctls.insert(name.clone(), value.clone());
            }
            Change::Mtu { bytes, .. } => changed.mtu = *bytes,
            _ => return None,
        }
        Some(changed)
    }
}

/// How long a flow is given to reach its rate, and how long it is then measured: a flow doubles each round trip
/// from ten packets on.
pub(super) fn times(rtt: Duration) -> (Duration, Duration) {
    let warm = (rtt * 16).clamp(Duration::from_millis(300), Duration::from_millis(1800));
    let measured = (rtt * 8).clamp(Duration::from_millis(400), Duration::from_millis(1200));
    (warm, measured)
}
