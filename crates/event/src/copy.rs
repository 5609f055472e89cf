//! Events of `copy`.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Text, rounded};

/// An event of `copy-server`.
pub type ServerEvent = crate::Event<Serving, Served>;

/// An event of `copy`.
pub type Event = crate::Event<Started, Done, News>;

path_field!(path, path_hex, "Its path in the copy.", crate::path::hex, "hexadecimal digits");
path_field!(target, target_hex, "Where it leads.", crate::path::hex, "hexadecimal digits");
path_field!(to, to_hex, "The file that has the same content.", crate::path::hex, "hexadecimal digits");

/// The copy begins.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `copy`.
    pub command: &'static str,
    /// Where from; of several pairs of hosts, of the first.
    pub from: String,
    /// Where to; of several pairs of hosts, of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The pairs of hosts, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<String>,
    /// With `--to-memory`: the directory in shared memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<PathBuf>,
    /// With `--to-memory`: how much memory may be taken, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<u64>,
}

/// A copy server can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Serving {
    /// The command: `copy-server`.
    pub command: &'static str,
    /// Its URL, with the key for writing; where nothing can be written, for reading. A secret.
    pub url: String,
    /// Its URL, with the key for reading. A secret.
    pub url_read: String,
    /// Where it listens.
    #[schemars(with = "String")]
    pub address: SocketAddr,
    /// Nothing can be written.
    pub read_only: bool,
    /// What holds the process to its files, if anything does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confined: Option<String>,
    /// Its URL, without a key. Not in JSON lines.
    #[serde(skip)]
    pub bare: String,
}

/// The server was stopped, which is the normal end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Served {
    /// Seconds since the start.
    pub seconds: f64,
}

/// What only a copy tells.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum News {
    /// Of a copy that is explained: a step has been measured. Not in JSON lines.
    #[serde(skip)]
    Step(Step),
}

/// What holds a copy up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Limit {
    /// The sources are read.
    #[serde(rename = "reading")]
    Reading,
    /// The way between the hosts.
    #[serde(rename = "the network")]
    Network,
    /// The destination is written.
    #[serde(rename = "writing")]
    Writing,
    /// The rate that was set.
    #[serde(rename = "--limit")]
    Rate,
    /// All has come, and is synced to disk.
    #[serde(rename = "syncing")]
    Syncing,
}

impl Limit {
    /// Its name, in JSON and for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::Network => "the network",
            Self::Writing => "writing",
            Self::Rate => "--limit",
            Self::Syncing => "syncing",
        }
    }
}

/// What a copy works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Working {
    /// Connections of a copy.
    pub streams: u32,
    /// Threads that read.
    pub readers: u32,
    /// Threads that write.
    pub writers: u32,
    /// Blocks in memory, at both ends.
    pub blocks: u32,
    /// What holds the copy up now.
    pub limit: Limit,
}

/// Seconds for which each held the copy up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct Limits {
    /// Reading.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub reading: f64,
    /// The network.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub network: f64,
    /// Writing.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub writing: f64,
    /// The rate that was set.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub rate: f64,
}

impl Limits {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> [(Limit, f64); 4] {
        [
            (Limit::Reading, self.reading),
            (Limit::Network, self.network),
            (Limit::Writing, self.writing),
            (Limit::Rate, self.rate),
        ]
    }

    /// What was the limit for most of the time.
    #[must_use]
    pub fn main(&self) -> Limit {
        self.all().into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(Limit::Network, |(limit, _)| limit)
    }
}

/// Something that concerns one name; the rest goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The name, as a person would write it; what is no UTF-8 is U+FFFD.
    pub path: String,
    /// Then its bytes, in Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
    /// What happened, and what was done about it.
    pub what: String,
    /// Whether it is missing at the destination because of that, or still there; else it is a warning.
    pub failed: bool,
    /// Whether an attribute of it is missing.
    #[serde(default)]
    pub lost: bool,
}

impl Problem {
    /// Of a name.
    pub fn new(path: &[u8], what: impl Into<String>, failed: bool) -> Self {
        let Text { text: path, base64: path_base64 } = Text::of_bytes(path);
        Self { path, path_base64, what: what.into(), failed, lost: false }
    }
}

/// What is done to one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The name, as a person would write it; what is no UTF-8 is U+FFFD.
    pub path: String,
    /// Then its bytes, in Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
    /// "copy", "delete", "make the directory".
    pub what: String,
    /// The same in the letters of rsync's `--itemize-changes`, and the name as rsync writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub itemized: Option<String>,
}

impl Change {
    /// Of a name.
    #[must_use]
    pub fn new(path: &[u8], what: &str) -> Self {
        let Text { text: path, base64: path_base64 } = Text::of_bytes(path);
        Self { path, path_base64, what: what.into(), itemized: None }
    }
}

/// What the kernel knows of the streams of one sender, counted from the start, those that have ended included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Wire {
    /// Streams that were looked at last.
    pub streams: u32,
    /// The round trip, in the mean over these, seconds.
    pub round_trip: f64,
    /// Seconds that streams had something to send.
    pub busy: f64,
    /// Of these, seconds that they waited for room at the receiver.
    pub window_limited: f64,
    /// Of these, seconds that they waited for room in this host's send buffers.
    pub buffer_limited: f64,
    /// The most that was under way on one stream, bytes.
    pub under_way: u64,
    /// The least round trip of one of these, seconds: without what queues on a full path. Not in JSON lines.
    #[serde(skip)]
    pub least_round_trip: f64,
    /// The send buffer of one stream, bytes.
    pub send_buffer: u64,
    /// Segments sent.
    pub segments: u64,
    /// Segments sent again.
    pub again: u64,
    /// Bytes that the other end has acknowledged, with what TLS adds.
    pub acknowledged: u64,
}

/// A step from the simplest transfer to the whole one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Step {
    /// What was transferred.
    #[serde(rename = "step")]
    pub what: &'static str,
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// For how long.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub seconds: f64,
}

/// What the steps of `--explain` have shown.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Ladder {
    /// The steps of `--explain`, from the simplest on.
    #[serde(rename = "ladder")]
    pub steps: Vec<Step>,
    /// What holds up the whole, for people.
    pub limit: String,
    /// The streams over the network alone, by the kernel.
    pub wire: Wire,
}

/// What one of several pairs of hosts has done.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Pair {
    /// Where it took files from.
    pub from: String,
    /// Where it put them.
    pub to: String,
    /// Batches of files that it took.
    pub batches: usize,
    /// Files that it copied.
    pub files: u64,
    /// Bytes that it wrote.
    pub bytes: u64,
    /// Seconds for which it copied.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub seconds: f64,
    /// Bytes a second.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub rate: f64,
    /// Why it broke, if it did.
    pub broke: Option<String>,
}

/// All was copied. Where names failed, or lack attributes, the operation fails, and these fields are in its `error` event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
    /// Names of every kind in the sources.
    pub entries: u64,
    /// Files among them.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Files that were copied.
    pub files_copied: u64,
    /// Their bytes, as far as this run has written them.
    pub bytes_copied: u64,
    /// Files that were there already.
    pub files_kept: u64,
    /// Bytes that an interrupted copy had left.
    pub bytes_resumed: u64,
    /// Names that were deleted.
    pub deleted: u64,
    /// Blocks that had to be sent again.
    pub blocks_again: u64,
    /// Seconds from the first connection to the end.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub transfer_seconds: f64,
    /// Nothing was done: all figures are of what would be.
    pub dry_run: bool,
    /// Seconds for which each held the copy up.
    pub limits: Limits,
    /// The first problems.
    pub problems: Vec<Problem>,
    /// Names that are missing, or are still there, because of problems.
    pub failed: u64,
    /// Names that lack attributes.
    pub attributes_lost: u64,
    /// What a dry run would do, or with `--itemize-changes` was done; the first of it.
    pub planned: Vec<Change>,
    /// How much more there would be.
    pub planned_more: u64,
    /// What each of several pairs of hosts has done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<Pair>,
    /// With `--explain`: what the steps have shown.
    #[serde(flatten)]
    pub ladder: Option<Ladder>,
    /// Problems beyond those in `problems`. Not in JSON lines.
    #[serde(skip)]
    pub problems_more: u64,
}

/// When and by whom an entry may be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct Attributes {
    /// Its mode.
    pub mode: u32,
    /// When it was changed, seconds since 1970.
    pub mtime: f64,
}

/// What has come into shared memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Arrived {
    /// A part of a file.
    Block(Block),
    /// A file.
    File(File),
    /// A symbolic link.
    Symlink(Symlink),
    /// A hard link.
    Link(Link),
    /// A directory.
    Directory(Other),
    /// A pipe, a socket or a device.
    Special(Other),
    /// All has come. What is held is still to be given back.
    Copied(Copied),
}

/// A part of a file has come: with `--blocks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Block {
    /// Its path in the copy.
    #[serde(flatten, serialize_with = "path::serialize")]
    #[schemars(with = "path::Schema")]
    pub path: PathBuf,
    /// The file's number, by which the part is given back.
    pub number: u64,
    /// Where the file is, in shared memory.
    pub at: PathBuf,
    /// Where the part begins, bytes.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// A file has come, whole.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct File {
    /// Its path in the copy.
    #[serde(flatten, serialize_with = "path::serialize")]
    #[schemars(with = "path::Schema")]
    pub path: PathBuf,
    /// Its number, by which it is given back.
    pub number: u64,
    /// Where it is, in shared memory.
    pub at: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// Its attributes.
    #[serde(flatten)]
    pub attributes: Attributes,
}

/// There is a symbolic link.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Symlink {
    /// Its path in the copy.
    #[serde(flatten, serialize_with = "path::serialize")]
    #[schemars(with = "path::Schema")]
    pub path: PathBuf,
    /// Where it leads.
    #[serde(flatten, serialize_with = "target::serialize")]
    #[schemars(with = "target::Schema")]
    pub target: PathBuf,
    /// Its attributes.
    #[serde(flatten)]
    pub attributes: Attributes,
}

/// There is another name of a file.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Link {
    /// Its path in the copy.
    #[serde(flatten, serialize_with = "path::serialize")]
    #[schemars(with = "path::Schema")]
    pub path: PathBuf,
    /// The file that has the same content.
    #[serde(flatten, serialize_with = "to::serialize")]
    #[schemars(with = "to::Schema")]
    pub to: PathBuf,
    /// Its attributes.
    #[serde(flatten)]
    pub attributes: Attributes,
}

/// There is an entry without content.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Other {
    /// Its path in the copy.
    #[serde(flatten, serialize_with = "path::serialize")]
    #[schemars(with = "path::Schema")]
    pub path: PathBuf,
    /// Its attributes.
    #[serde(flatten)]
    pub attributes: Attributes,
}

/// All has come. What is held is still to be given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Copied {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Names that could not be copied.
    pub failed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_limit_is_the_longest() {
        let limits = Limits { writing: 2.0, network: 1.0, ..Limits::default() };
        assert_eq!(limits.main(), Limit::Writing);
    }
}
