//! Messages between coordinator and workers. Only types, without other types of this crate, because a fuzz target includes
//! this file.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A worker's first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The coordinator's name of this host, if the worker was given it.
    pub(crate) host: Option<String>,
    /// The scheduler's name of the host, if it reports it.
    pub(crate) scheduled: Option<String>,
    /// The host's own name.
    pub(crate) hostname: String,
    /// An identifier of the running machine, unique to it.
    pub(crate) machine: Option<String>,
    /// Its addresses.
    pub(crate) addresses: Vec<Address>,
    /// The port for connections of other members.
    pub(crate) port: u16,
    /// The port on which it identifies itself. A separate port, so that members that start earlier get no answer on `port`
    /// instead of a wrong one.
    pub(crate) answers: u16,
    /// The port for connections of other members for the manifest, if that is sent as data.
    pub(crate) manifest_swarm: u16,
    /// The pass that callers at `answers` need for a probe.
    pub(crate) pass: [u8; 16],
    /// Its process id.
    pub(crate) pid: u32,
    /// The member that can serve the source, if it can be read there too.
    pub(crate) source_offer: Option<SourceOffer>,
}

/// A second member at a worker, which can serve the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceOffer {
    /// Its key.
    pub(crate) node: [u8; 32],
    /// Its port for connections.
    pub(crate) port: u16,
}

/// The number and credential of an additional source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceMember {
    pub(crate) number: u32,
    /// The credential of a member.
    pub(crate) right: Option<Right>,
}

/// One address of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Address {
    pub(crate) interface: String,
    pub(crate) ip: IpAddr,
    /// Length of the network prefix, bits.
    pub(crate) prefix: u8,
    /// Bits per second; 0: unknown.
    pub(crate) speed: u64,
    pub(crate) loopback: bool,
}

/// A member of the broadcast, for the other members. Number 0 is the origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) number: u32,
    /// Its key.
    pub(crate) node: [u8; 32],
    /// The addresses at which it is reachable; empty if it is not.
    pub(crate) addresses: Vec<SocketAddr>,
}

/// What to fetch and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The metainfo file; empty if it is sent as data.
    pub(crate) manifest: Vec<u8>,
    /// How the manifest is sent as data.
    pub(crate) bulk: Option<Bulk>,
    /// The destination: the bytes of an absolute path.
    pub(crate) dest: Vec<u8>,
    /// The place of the source, for a worker on the same host.
    pub(crate) source_identity: SourceIdentity,
    /// Sync to disk.
    pub(crate) durable: bool,
    /// Replace existing files that were not delivered, and (`delete`) remove files that are no longer in the tree.
    pub(crate) force: bool,
    pub(crate) delete: bool,
    /// Paths of older versions: the bytes of absolute paths.
    pub(crate) bases: Vec<Vec<u8>>,
    /// The credential of a member; `None`: the data is not encrypted.
    pub(crate) right: Option<Right>,
    /// The network that members use.
    pub(crate) network: Option<(IpAddr, u8)>,
    /// This worker's number.
    pub(crate) me: u32,
    /// Use BitTorrent's mechanisms, for comparison.
    pub(crate) classic: bool,
    /// A plan determines the sender of each stripe to each member.
    pub(crate) planned: bool,
    /// The second member of this worker, which serves a share of the source.
    pub(crate) source_member: Option<SourceMember>,
    pub(crate) news: News,
}

/// An encoded epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Issue {
    pub(crate) number: u32,
    pub(crate) source: u32,
    /// Place and part of each member.
    pub(crate) members: Vec<(u32, u8)>,
    /// The parent of each place, and the rate of the link to it.
    pub(crate) places: Vec<(Option<u32>, u64)>,
    pub(crate) stripes: u16,
    pub(crate) seed: u64,
    pub(crate) shape: u8,
}

/// A long manifest, which is sent as data, before the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bulk {
    /// The metainfo of the metainfo file.
    pub(crate) manifest: Vec<u8>,
    /// The credential of a member.
    pub(crate) right: Option<Right>,
    /// All members by number, and their ports for it.
    pub(crate) ports: Vec<(u32, u16)>,
    /// The plan for it; late members have none.
    pub(crate) issue: Option<Issue>,
}

/// The source on the host of the origin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceIdentity {
    /// The boot id of the kernel for which device and inode numbers are valid.
    pub(crate) boot: String,
    /// The bytes of its path.
    pub(crate) path: Vec<u8>,
    /// Device and inode of the source itself, and of the directories above it.
    pub(crate) above: Vec<(u64, u64)>,
    /// The directory of records that the user chose for the host of the origin.
    pub(crate) records: Option<Vec<u8>>,
}

/// New or changed members, and the current epoch of the plan, if it is new.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct News {
    pub(crate) members: Vec<Member>,
    pub(crate) issue: Option<Issue>,
}

impl News {
    /// Merges later news into these.
    pub(crate) fn add(&mut self, later: News) {
        self.members.extend(later.members);
        self.issue = later.issue.or(self.issue.take());
    }
}

/// A credential for the private swarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Right {
    /// Key of its owner.
    pub(crate) owner: [u8; 32],
    /// The owner's signature for this worker's key.
    pub(crate) credential: Vec<u8>,
}

/// The progress of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Bytes needed, and (`verified`) bytes of them verified.
    pub(crate) wanted: u64,
    pub(crate) verified: u64,
    /// Bytes of existing data that it has read, to find out what of it is right.
    pub(crate) checked: u64,
    /// Bytes that it had before.
    pub(crate) had: u64,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) duplicate: u64,
    pub(crate) corrupt: u64,
    /// Bytes that it has sent as an additional source.
    pub(crate) served: u64,
    /// Another process of this host is writing to the same destination.
    pub(crate) waiting: bool,
}

/// The result for the copy on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Action {
    /// The destination did not exist.
    Delivered,
    /// An older version, or the files that differed in it, was replaced.
    Replaced,
    /// The destination had the same data.
    Unchanged,
}

/// A worker is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) progress: Progress,
    /// Milliseconds since its `Start` arrived.
    pub(crate) millis: u64,
    pub(crate) files: u64,
    /// Files that already had the right data.
    pub(crate) kept: u64,
    pub(crate) action: Action,
    pub(crate) found: ExistingFiles,
    pub(crate) warnings: Vec<String>,
}

/// Files that existed at the destination before, by their treatment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExistingFiles {
    /// Names with other content that were replaced.
    pub replaced: u64,
    /// Of `replaced`: files that are not recorded as delivered by us.
    pub replaced_foreign: u64,
    /// Files in the tree that the source does not have and that were kept.
    pub stale: u64,
    /// Of `stale`: files that we did not deliver.
    pub foreign: u64,
    /// Files in the tree that the source does not have and that were removed.
    pub deleted: u64,
}

/// A short transfer between two hosts in both directions, while other pairs do the same; this host connects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probe {
    /// The round, and caller and callee, by numbers that only the coordinator interprets.
    pub(crate) round: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// The address of the other host, its key, and its pass.
    pub(crate) address: SocketAddr,
    pub(crate) node: [u8; 32],
    pub(crate) pass: [u8; 16],
    /// Milliseconds from this message to its start, and from there to its end.
    pub(crate) after: u32,
    pub(crate) duration: u32,
}

/// The result of a probe for one of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProbeResult {
    pub(crate) round: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// This result is from the caller.
    pub(crate) dialled: bool,
    /// Bits per second received, over the whole time.
    pub(crate) rate: u64,
}

/// A host to start a worker on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchRequest {
    /// Its place in the coordinator's list.
    pub(crate) place: u32,
    /// Program and arguments; the ticket is passed on standard input.
    pub(crate) argv: Vec<String>,
}

/// Coordinator to worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToWorker {
    /// Keep-alive.
    Alive,
    Start(Box<Start>),
    News(Box<News>),
    /// Start these workers.
    Launch(Vec<LaunchRequest>),
    /// Run these probes.
    Probe(Vec<Probe>),
    /// Report the progress once more, before the end.
    Count,
    /// All hosts are done.
    Finish,
    /// The broadcast ends early.
    Stop(String),
}

/// No message to a worker has a payload.
impl From<ToWorker> for (ToWorker, Bytes) {
    fn from(message: ToWorker) -> Self {
        (message, Bytes::new())
    }
}

/// Worker to coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToCoordinator {
    Hello(Hello),
    Progress(Progress),
    /// A member does not do its part in the plan: it is disconnected (0), silent (1), slow (2).
    Complaint {
        member: u32,
        why: u8,
    },
    /// The source cannot be served from there.
    SourceUnavailable(String),
    Counted(Progress),
    Done(Box<Done>),
    Failed(String),
    /// A launcher of this worker has ended or could not be started.
    LaunchEnded {
        place: u32,
        why: String,
    },
    ProbeResult(ProbeResult),
}
