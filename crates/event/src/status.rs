//! What `status` says.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Connected, OneSwarm, Progress, Text, Traffic, bcast, copy, daemon, mount};

/// What runs on this host for this user.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Shown {
    /// Each mount.
    pub mounts: Vec<mount::State>,
    /// Each process of this user that gets, shares, seeds, broadcasts or copies; left out where one mount was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<Process>>,
    /// The daemon that serves this user, if there is one; left out where one mount was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daemon: Option<Option<Box<daemon::Status>>>,
}

/// What a process says of itself. It may be of another version of the program: what it does not say is left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Process {
    /// Its number.
    pub pid: Option<u32>,
    /// What it does: `get`, `share`, `seed`, `bcast`, `copy`, `mount`.
    pub command: Option<String>,
    /// When it began, seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// Seconds since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// What it is about.
    #[serde(flatten)]
    pub about: About,
    /// How far it is.
    #[serde(flatten)]
    pub work: Work,
    /// What moves between it and its peers.
    #[serde(flatten)]
    pub traffic: Option<Traffic>,
    /// How the hosts of a broadcast fare.
    #[serde(flatten)]
    pub hosts: Option<bcast::Hosts>,
    /// What a copy works with.
    #[serde(flatten)]
    pub copy: Option<copy::Working>,
    /// Some of the connected peers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected: Option<Vec<Connected>>,
    /// Each of several manifests that it serves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub swarms: Vec<Swarm>,
    /// What went wrong last.
    pub last_error: Option<Trouble>,
}

/// What a process is about: what it said when it began, but for secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct About {
    /// The name of what was published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it listens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub listen: Option<Vec<SocketAddr>>,
    /// What is broadcast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The path that it shall have on each host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dest: Option<String>,
    /// Where it goes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// How far a process is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Work {
    /// What is being done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Bytes done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes to do; 0 where there is no end.
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
    /// What it describes.
    pub name: String,
    /// What is being done.
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

/// What went wrong last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Trouble {
    /// What.
    pub message: String,
    /// Seconds since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// How often it came, one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
}

impl Process {
    /// It is so far.
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
