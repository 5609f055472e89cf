//! What coordinator and workers say to each other. Types alone, which name nothing else of this crate: a fuzz target reads them too.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A worker's first words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// What the coordinator called this host, where it said so.
    pub(crate) host: Option<String>,
    /// What the scheduler that started this worker calls the host, where it says so.
    pub(crate) scheduled: Option<String>,
    /// What the host calls itself.
    pub(crate) hostname: String,
    /// Which machine it is, as long as it runs: no two have the same.
    pub(crate) machine: Option<String>,
    /// Its addresses.
    pub(crate) addresses: Vec<Address>,
    /// Where it takes connections of other members.
    pub(crate) port: u16,
    /// Where it says who it is. Not the same: members who begin before it find `port` silent, not strange.
    pub(crate) answers: u16,
    /// Where it takes connections of other members for the manifest, if that comes as data.
    pub(crate) prelude: u16,
    /// What to show at `answers` to be met there.
    pub(crate) pass: [u8; 16],
    /// Its process.
    pub(crate) pid: u32,
    /// The source can be read there too.
    pub(crate) sight: Option<Sight>,
}

/// A second member at a worker, which can serve the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sight {
    /// Its key.
    pub(crate) node: [u8; 32],
    /// Where it takes connections.
    pub(crate) port: u16,
}

/// Its place in the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seat {
    pub(crate) number: u32,
    /// The right to take part.
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

/// A member of the broadcast, as the others see it. Number 0 is the origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) number: u32,
    /// Its key.
    pub(crate) node: [u8; 32],
    /// Where it can be dialled; empty if it cannot.
    pub(crate) addresses: Vec<SocketAddr>,
}

/// What to get and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The metainfo file; empty if it comes as data.
    pub(crate) manifest: Vec<u8>,
    /// How it comes as data.
    pub(crate) bulk: Option<Bulk>,
    /// Where to put it: the bytes of an absolute path.
    pub(crate) dest: Vec<u8>,
    /// Where the source is, for a worker on the same host.
    pub(crate) lineage: Lineage,
    /// Sync to disk.
    pub(crate) durable: bool,
    /// Replace what stands there though it is no former version, and remove what a tree has no more.
    pub(crate) force: bool,
    pub(crate) delete: bool,
    /// Where older versions may lie: the bytes of absolute paths.
    pub(crate) bases: Vec<Vec<u8>>,
    /// The right to take part; none: the data travels in the open.
    pub(crate) right: Option<Right>,
    /// The network on which members meet.
    pub(crate) network: Option<(IpAddr, u8)>,
    /// This worker's number.
    pub(crate) me: u32,
    /// BitTorrent's mechanisms, for comparison.
    pub(crate) classic: bool,
    /// A plan says who feeds whom.
    pub(crate) planned: bool,
    /// This worker serves a share of the source beside its part.
    pub(crate) seat: Option<Seat>,
    pub(crate) news: News,
}

/// An epoch on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Issue {
    pub(crate) number: u32,
    pub(crate) source: u32,
    /// Place and part of each member.
    pub(crate) members: Vec<(u32, u8)>,
    /// What each place hangs on, and the rate of that link.
    pub(crate) places: Vec<(Option<u32>, u64)>,
    pub(crate) stripes: u16,
    pub(crate) seed: u64,
    pub(crate) shape: u8,
}

/// A manifest that is long: it comes like data, before the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bulk {
    /// The metainfo of the metainfo file.
    pub(crate) manifest: Vec<u8>,
    /// The right to take part.
    pub(crate) right: Option<Right>,
    /// Everyone by number, and the ports at which they are to be called for it.
    pub(crate) ports: Vec<(u32, u16)>,
    /// The plan by which it comes; those who are late have none.
    pub(crate) issue: Option<Issue>,
}

/// The source, as the host of the origin knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lineage {
    /// The kernel that knows files by these numbers.
    pub(crate) boot: String,
    /// The bytes of its path.
    pub(crate) path: Vec<u8>,
    /// Device and inode of the source itself, and of the directories above it.
    pub(crate) above: Vec<(u64, u64)>,
    /// Where the user wants it recorded on this host what was put where.
    pub(crate) records: Option<Vec<u8>>,
}

/// Members that are new or have changed, and the epoch of the plan that is now in force, if it is new.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct News {
    pub(crate) members: Vec<Member>,
    pub(crate) issue: Option<Issue>,
}

impl News {
    /// These and later ones, in one.
    pub(crate) fn add(&mut self, later: News) {
        self.members.extend(later.members);
        self.issue = later.issue.or(self.issue.take());
    }
}

/// Membership of the private swarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Right {
    /// Key of its owner.
    pub(crate) owner: [u8; 32],
    /// What the owner signed for this worker's key.
    pub(crate) credential: Vec<u8>,
}

/// How far a worker is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Bytes wanted, and of them verified.
    pub(crate) wanted: u64,
    pub(crate) verified: u64,
    /// Bytes found there already.
    pub(crate) had: u64,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) duplicate: u64,
    pub(crate) corrupt: u64,
    /// What it has sent as a source beside the origin.
    pub(crate) served: u64,
    /// Another process of this host is at work on the same destination.
    pub(crate) waiting: bool,
}

/// What was done to the copy on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Action {
    /// Nothing had its name.
    Delivered,
    /// Another version had: it is replaced, or what differed in it.
    Replaced,
    /// It was right already.
    Unchanged,
}

/// A worker has all of it in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) progress: Progress,
    /// Milliseconds since its `Start` came.
    pub(crate) millis: u64,
    pub(crate) files: u64,
    /// Files that were right already.
    pub(crate) kept: u64,
    pub(crate) action: Action,
    pub(crate) found: Found,
    pub(crate) warnings: Vec<String>,
}

/// What became of files that stood at the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Names that stood for something else, and were replaced.
    pub replaced: u64,
    /// Of those: files that were not known to be put there by us.
    pub replaced_foreign: u64,
    /// Files in the tree that the source does not have: those that stay, and those that were removed.
    pub stale: u64,
    /// Of those that stay: files that were not put there by us.
    pub foreign: u64,
    /// See `stale`.
    pub deleted: u64,
}

/// A transfer of a moment from one host to another and back, while others have theirs: it is to be dialled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meeting {
    /// In which round, and who dials whom, by numbers that only the coordinator understands.
    pub(crate) round: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Where the other is, its key, and what it wants to be shown.
    pub(crate) address: SocketAddr,
    pub(crate) node: [u8; 32],
    pub(crate) pass: [u8; 16],
    /// Milliseconds from this message to its start, and from there to its end.
    pub(crate) after: u32,
    pub(crate) lasts: u32,
}

/// How a meeting went, as one of the two saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Met {
    pub(crate) round: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Who says so is the one who dialled.
    pub(crate) dialled: bool,
    /// Bits per second that came, over the whole time.
    pub(crate) rate: u64,
}

/// A host to start a worker on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Errand {
    /// Its place in the coordinator's list.
    pub(crate) place: u32,
    /// Program and arguments; the ticket goes by standard input.
    pub(crate) argv: Vec<String>,
}

/// Coordinator to worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToWorker {
    /// Still here.
    Alive,
    Start(Box<Start>),
    News(Box<News>),
    /// Start these.
    Launch(Vec<Errand>),
    /// Meet these.
    Meet(Vec<Meeting>),
    /// Say once more how far you are: it is nearly over.
    Count,
    /// Everyone is done.
    Finish,
    /// It is over before its end.
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
    /// A member does not do its part in the plan: it is gone (0), silent (1), slow (2).
    Complaint {
        member: u32,
        why: u8,
    },
    /// The source cannot be served from there.
    Blind(String),
    Counted(Progress),
    Done(Box<Done>),
    Failed(String),
    /// A worker that this one has started, or could not start, has ended.
    LaunchEnded {
        place: u32,
        why: String,
    },
    Met(Met),
}
