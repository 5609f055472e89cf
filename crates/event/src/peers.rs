//! Events of `doctor --peers`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::rounded;

/// An event of `doctor --peers`.
pub type Event = crate::Event<Started, Done, News>;

/// The check of hosts and the paths between them begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `doctor`.
    pub command: &'static str,
    /// Hosts of the list.
    pub hosts: usize,
    /// Rates are measured, which fills links.
    pub rates: bool,
}

/// Events that only this check has.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
#[non_exhaustive]
pub enum News {
    /// A path was measured.
    Path(Box<Path>),
    /// All rates of a path are measured. Not in JSON lines: `done` has them.
    #[serde(skip)]
    Stage {
        /// The stage: `quiet`, `rates`, `places`.
        name: &'static str,
        /// Pairs of hosts that it measures.
        pairs: usize,
    },
    /// A host failed; the others continue. Not in JSON lines: `done` has it.
    #[serde(skip)]
    Failed {
        /// Its name.
        host: String,
        /// Why.
        reason: String,
    },
    /// Several names of the list are the same host. Not in JSON lines: `done` has them.
    #[serde(skip)]
    Aliases {
        /// The name under which it is checked.
        host: String,
        /// Its other names.
        names: Vec<String>,
    },
}

/// A host.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Host {
    /// Its name in the list.
    pub name: String,
    /// Its agent ran to the end.
    pub ok: bool,
    /// Why it failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The host's own name; empty if it did not start.
    pub hostname: String,
    /// The version of Tidecast there; empty if it did not start.
    pub version: String,
    /// The release of its kernel; empty if it did not start.
    pub kernel: String,
    /// The number of its group: hosts of a group are near each other, on one switch if switches show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<usize>,
    /// Its clock compared with the median of all hosts, seconds; positive: ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_seconds: Option<f64>,
    /// The error of `clock_seconds`, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_error_seconds: Option<f64>,
    /// The highest rate that it sent to another host, bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_rate: Option<u64>,
    /// The highest rate that it received from another host, bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_rate: Option<u64>,
    /// Other names of it in the list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
}

/// The path from one host to another, measured by the first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Path {
    /// The host that connects and sends.
    pub from: String,
    /// The host that receives.
    pub to: String,
    /// The first connects to the second by TCP.
    pub connects: bool,
    /// Why it does not connect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The address that it connects to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Lowest round-trip time, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_min_seconds: Option<f64>,
    /// Median round-trip time, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_median_seconds: Option<f64>,
    /// The receiver's clock minus the sender's, seconds; its error is half of the lowest round-trip time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_seconds: Option<f64>,
    /// Datagrams sent to find losses; 0 if none could be sent.
    pub datagrams: u32,
    /// Of them, those that arrived.
    pub arrived: u32,
    /// Answers to them that came back.
    pub answered: u32,
    /// The largest IP packet that arrived, bytes, with fragmentation forbidden; absent if no datagram arrives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The MTU of the sender's interface, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface_mtu: Option<u32>,
    /// Larger packets vanish, and no router reports it: TCP connections may hang.
    pub black_hole: bool,
    /// The rate of one TCP stream, bits per second, as received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// The rate of several TCP streams together, bits per second, as received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_streams: Option<u64>,
    /// The number of those streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// CPU seconds of the sender's thread per GiB, with one stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_cpu_seconds: Option<f64>,
    /// CPU seconds of the receiver's thread per GiB, with one stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_cpu_seconds: Option<f64>,
    /// The rates were measured while no other pair sent.
    pub alone: bool,
}

/// What is wrong, and what it costs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Fault {
    /// Stable name of the check: `unreachable`, `one-way`, `udp-blocked`, `mtu-black-hole`, `loss`, `slow-host`, `clock`,
    /// `version`.
    pub check: &'static str,
    /// The hosts, or the hosts of the path: sender, receiver.
    pub hosts: Vec<String>,
    /// What was measured, on which host or path, and what to do.
    pub message: String,
    /// The share of the rate that is lost, 0 to 1, if a model exists: 1 if nothing works.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "rounded_option")]
    #[schemars(with = "Option<f64>")]
    pub cost: Option<f64>,
}

/// Hosts near each other.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Group {
    /// Its hosts.
    pub hosts: Vec<String>,
}

/// No host failed, and no path has a fault. Otherwise the check fails, and these fields are in its `error` event.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub seconds: f64,
    /// Every host, in the order of the list.
    pub hosts: Vec<Host>,
    /// The paths that were measured, both directions of each pair.
    pub paths: Vec<Path>,
    /// Pairs of hosts that were measured, of all pairs that there are.
    pub pairs_measured: usize,
    /// All pairs of hosts.
    pub pairs: usize,
    /// The groups of hosts.
    pub groups: Vec<Group>,
    /// Faults; those that cost most come first.
    pub faults: Vec<Fault>,
    /// Rates were measured.
    pub rates: bool,
    /// The groups are found by rates of simultaneous transfers too, not only by round-trip times.
    pub groups_by_rate: bool,
    /// Bytes that all hosts together received to measure rates.
    pub bytes: u64,
}

fn rounded_option<S: serde::Serializer>(number: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => rounded(number, to),
        None => to.serialize_none(),
    }
}
