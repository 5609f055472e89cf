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
path_field!(target, target_hex, "Its target.", crate::path::hex, "hexadecimal digits");
path_field!(to, to_hex, "The file that has the same content.", crate::path::hex, "hexadecimal digits");

/// The copy begins.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `copy`.
    pub command: &'static str,
    /// The source; of several pairs of hosts, that of the first pair.
    pub from: String,
    /// The destination; of several pairs of hosts, that of the first pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The pairs of hosts, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<String>,
    /// With `--to-memory`: the directory in shared memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<PathBuf>,
    /// With `--to-memory`: the limit of shared memory, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<u64>,
}

/// A copy server is listening.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Serving {
    /// The command: `copy-server`.
    pub command: &'static str,
    /// Its URL, with the key for writing; with `read_only`, the key for reading. A secret.
    pub url: String,
    /// Its URL, with the key for reading. A secret.
    pub url_read: String,
    /// Its address.
    #[schemars(with = "String")]
    pub address: SocketAddr,
    /// Writing is not allowed.
    pub read_only: bool,
    /// How the process is confined to its files, if it is.
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

/// Events that only a copy has.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum News {
    /// With `--explain`: a step was measured. Not in JSON lines.
    #[serde(skip)]
    Step(Step),
}

/// The bottleneck of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Limit {
    /// Reading the sources.
    #[serde(rename = "reading")]
    Reading,
    /// The network between the hosts.
    #[serde(rename = "the network")]
    Network,
    /// Writing the destination.
    #[serde(rename = "writing")]
    Writing,
    /// The rate that was set.
    #[serde(rename = "--limit")]
    Rate,
    /// All data has arrived and is synced to disk.
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

/// The resources that a copy uses.
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
    /// The bottleneck now.
    pub limit: Limit,
}

/// Seconds for which each was the bottleneck.
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

    /// The bottleneck for most of the time.
    #[must_use]
    pub fn main(&self) -> Limit {
        self.all().into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(Limit::Network, |(limit, _)| limit)
    }
}

/// A problem with one name; the copy continues with the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The name; bytes that are not UTF-8 are replaced by U+FFFD.
    pub path: String,
    /// The bytes of the name in Base64, if they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
    /// The problem, and its consequence.
    pub what: String,
    /// Whether the name was not copied or not deleted because of the problem; else it is a warning.
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

/// A change of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The name; bytes that are not UTF-8 are replaced by U+FFFD.
    pub path: String,
    /// The bytes of the name in Base64, if they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
    /// "copy", "delete", "make the directory".
    pub what: String,
    /// The change in the format of rsync's `--itemize-changes`.
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

/// The kernel's statistics of the streams of one sender since the start, including ended streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Wire {
    /// Streams at the last measurement.
    pub streams: u32,
    /// Mean round-trip time of these streams, seconds.
    pub round_trip: f64,
    /// Seconds that streams had data to send.
    pub busy: f64,
    /// Seconds of `busy` that streams waited for the receive window.
    pub window_limited: f64,
    /// Seconds of `busy` that streams waited for space in this host's send buffers.
    pub buffer_limited: f64,
    /// The most unacknowledged bytes on one stream.
    pub under_way: u64,
    /// The minimum round-trip time of one stream, seconds, without queueing. Not in JSON lines.
    #[serde(skip)]
    pub least_round_trip: f64,
    /// The send buffer of one stream, bytes.
    pub send_buffer: u64,
    /// Segments sent.
    pub segments: u64,
    /// Segments retransmitted.
    pub again: u64,
    /// Bytes that the other end acknowledged, including the overhead of TLS.
    pub acknowledged: u64,
}

/// A step of `--explain`, between the simplest transfer and the whole copy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Step {
    /// The kind of transfer.
    #[serde(rename = "step")]
    pub what: &'static str,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Its duration, seconds.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub seconds: f64,
}

/// The results of `--explain`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Ladder {
    /// The steps of `--explain`, from the simplest on.
    #[serde(rename = "ladder")]
    pub steps: Vec<Step>,
    /// The bottleneck of the whole copy, for people.
    pub limit: String,
    /// The kernel's statistics of the streams in the step over the network alone.
    pub wire: Wire,
}

/// The work of one of several pairs of hosts.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Pair {
    /// Its source.
    pub from: String,
    /// Its destination.
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
    /// Bytes per second.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub rate: f64,
    /// Why it failed, if it did.
    pub broke: Option<String>,
}

/// The copy is complete. If names failed or lack attributes the operation fails, and these fields are in its `error` event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
    /// Names of every kind in the sources.
    pub entries: u64,
    /// Files in the sources.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Files that were copied.
    pub files_copied: u64,
    /// Bytes of these files that this run wrote.
    pub bytes_copied: u64,
    /// Files that the destination already had.
    pub files_kept: u64,
    /// Bytes reused from an interrupted copy.
    pub bytes_resumed: u64,
    /// Names that were deleted.
    pub deleted: u64,
    /// Blocks that were sent again.
    pub blocks_again: u64,
    /// Seconds from the first connection to the end.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub transfer_seconds: f64,
    /// No change was made: all figures are those of a real run.
    pub dry_run: bool,
    /// Seconds for which each was the bottleneck.
    pub limits: Limits,
    /// The first problems.
    pub problems: Vec<Problem>,
    /// Names that were not copied or not deleted because of problems.
    pub failed: u64,
    /// Names that lack attributes.
    pub attributes_lost: u64,
    /// The first changes of a dry run, or with `--itemize-changes` of this run.
    pub planned: Vec<Change>,
    /// Number of changes beyond those in `planned`.
    pub planned_more: u64,
    /// The work of each of several pairs of hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<Pair>,
    /// The results of `--explain`.
    #[serde(flatten)]
    pub ladder: Option<Ladder>,
    /// Problems beyond those in `problems`. Not in JSON lines.
    #[serde(skip)]
    pub problems_more: u64,
}

/// Attributes of an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct Attributes {
    /// Its mode.
    pub mode: u32,
    /// Its modification time, seconds since 1970.
    pub mtime: f64,
}

/// An entry that arrived in shared memory.
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
    /// All entries have arrived. Files in memory must still be released.
    Copied(Copied),
}

/// A part of a file has arrived: with `--blocks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Block {
    /// Its path in the copy.
    #[serde(flatten, serialize_with = "path::serialize")]
    #[schemars(with = "path::Schema")]
    pub path: PathBuf,
    /// The file's number, by which the part is released.
    pub number: u64,
    /// The path of the file in shared memory.
    pub at: PathBuf,
    /// The offset of the part, bytes.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// A complete file has arrived.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct File {
    /// Its path in the copy.
    #[serde(flatten, serialize_with = "path::serialize")]
    #[schemars(with = "path::Schema")]
    pub path: PathBuf,
    /// Its number, by which it is released.
    pub number: u64,
    /// Its path in shared memory.
    pub at: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// Its attributes.
    #[serde(flatten)]
    pub attributes: Attributes,
}

/// A symbolic link in the copy.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Symlink {
    /// Its path in the copy.
    #[serde(flatten, serialize_with = "path::serialize")]
    #[schemars(with = "path::Schema")]
    pub path: PathBuf,
    /// Its target.
    #[serde(flatten, serialize_with = "target::serialize")]
    #[schemars(with = "target::Schema")]
    pub target: PathBuf,
    /// Its attributes.
    #[serde(flatten)]
    pub attributes: Attributes,
}

/// Another name of a file, a hard link.
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

/// An entry without content.
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

/// All entries have arrived. Files in memory must still be released.
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
