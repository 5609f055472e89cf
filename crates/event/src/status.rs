//! Results of `status`.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Connected, OneSwarm, Progress, Text, Traffic, bcast, copy, daemon, mount};

/// Mounts, processes and the daemon of this user on this host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Shown {
    /// Each mount.
    pub mounts: Vec<mount::State>,
    /// Each process of this user that gets, shares, seeds, broadcasts or copies; absent if one mount was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<Process>>,
    /// The daemon that serves this user, if it runs; absent if one mount was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daemon: Option<Option<Box<daemon::Status>>>,
}

/// The status of a process. It may be of another version of the program: fields that it does not report are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Process {
    /// Its process id.
    pub pid: Option<u32>,
    /// Its command: `get`, `share`, `seed`, `bcast`, `copy`, `mount`.
    pub command: Option<String>,
    /// When it began, seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// Seconds since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Its names and addresses.
    #[serde(flatten)]
    pub about: About,
    /// Its progress.
    #[serde(flatten)]
    pub work: Work,
    /// The traffic with its peers.
    #[serde(flatten)]
    pub traffic: Option<Traffic>,
    /// The numbers of hosts, in a broadcast.
    #[serde(flatten)]
    pub hosts: Option<bcast::Hosts>,
    /// The resources that a copy uses.
    #[serde(flatten)]
    pub copy: Option<copy::Working>,
    /// Some of the connected peers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected: Option<Vec<Connected>>,
    /// Each of several manifests that it serves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub swarms: Vec<Swarm>,
    /// Its last error.
    pub last_error: Option<LastError>,
}

/// Names and addresses of a process, from its `started` event without secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct About {
    /// The name of the published data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub listen: Option<Vec<SocketAddr>>,
    /// The file or directory that is broadcast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The path of the copy on each host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dest: Option<String>,
    /// The destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// The progress of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Work {
    /// The stage of the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Bytes done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes to do; 0 if there is no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Pieces done (verified).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pieces: Option<u64>,
    /// Pieces to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pieces_total: Option<u64>,
    /// Bytes done per second, over the last seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
}

/// One of several manifests that a process serves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Swarm {
    /// The manifest's file.
    pub manifest: String,
    /// The bytes of that path in Base64, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest_base64: Option<String>,
    /// The name of the published data.
    pub name: String,
    /// The stage of the work.
    pub stage: String,
    /// Bytes verified.
    pub bytes: u64,
    /// Bytes to verify.
    pub total: u64,
    /// Connected peers.
    pub peers: usize,
    /// Payload received, bytes.
    pub received: u64,
    /// Payload sent, bytes.
    pub sent: u64,
}

/// The last error of a process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LastError {
    /// The message.
    pub message: String,
    /// Seconds since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// How many times in a row it occurred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
}

impl Process {
    /// Updates the progress.
    pub fn advance(&mut self, now: &Progress) {
        self.work = Work {
            stage: Some(now.stage.name().to_owned()),
            bytes: Some(now.bytes),
            total: Some(now.total),
            pieces: Some(now.pieces),
            pieces_total: Some(now.pieces_total),
            rate: Some(now.rate),
        };
        self.connected = Some(now.traffic.as_ref().map(|of| of.connected.clone()).unwrap_or_default());
        self.traffic = now.traffic.as_ref().map(|of| Traffic { connected: Vec::new(), ..*of });
        (self.hosts, self.copy) = (now.hosts, now.copy);
        self.swarms = now.swarms.iter().map(Swarm::from).collect();
    }
}

impl From<&OneSwarm> for Swarm {
    fn from(of: &OneSwarm) -> Self {
        let manifest = Text::of(&of.manifest);
        Self {
            manifest: manifest.text,
            manifest_base64: manifest.base64,
            name: of.name.clone(),
            stage: of.stage.name().to_owned(),
            bytes: of.bytes,
            total: of.total,
            peers: of.peers,
            received: of.received,
            sent: of.sent,
        }
    }
}
