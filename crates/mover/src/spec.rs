//! The requests to the two ends of a copy, sent as JSON to the hosts on which they run.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use crate::filter::Rule;
use crate::flags::{Alter, Keep, Only};
use crate::overlap::SourceLocations;

/// The prefix of every staging directory. Its contents are not part of a tree.
pub(crate) const STAGING: &str = ".tidecast-copy-";

/// The request to the sender.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SendSpec {
    /// Files and directories, including patterns. A slash at the end of a directory means its contents, as
    /// with rsync.
    pub sources: Vec<OsString>,
    /// Sources keep their paths.
    pub relative: Option<Relative>,
    /// The names to leave out.
    pub filter: Vec<Rule>,
    /// Files of equal size and time are compared by content.
    pub checksum: bool,
    /// Only files, and of these only the batches that [`crate::batches::Batches`] lets it have: several senders walk the same tree.
    pub share: bool,
    /// Files, and all else but directories, are removed when the receiver has proved that it has them.
    pub remove: bool,
    /// The attributes that the receiver keeps; others need not be sent.
    pub keep: Keep,
    /// Symbolic links that are sent as their targets.
    pub follow: Follow,
    /// File systems mounted below a source: 1, their directories only; 2, not even these.
    pub one_file_system: u8,
    /// One file for a receiver that writes in order ([`crate::sink::InOrder`]): few blocks are in flight, and
    /// a read error ends the copy.
    pub in_order: bool,
    /// The destination, if it is on the same host: then it is not part of the tree.
    pub dest: Option<OsString>,
    /// Instead of files: this many bytes of generated data, in files of this many bytes.
    pub null: Option<(u64, u64)>,
}

/// Sources that keep their paths, as with rsync's `--relative`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Relative {
    /// The paths to copy below the only source.
    pub names: Option<Names>,
    /// With `names`: directories among them with all that is in them.
    pub recursive: bool,
    /// Directories above them are not copied, and made as the receiver's system makes them.
    pub no_implied: bool,
}

/// Names, each but the last followed by a NUL. Sent in base 64.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Names(pub Vec<u8>);

impl Names {
    /// Most bytes of all of them: they travel in one message.
    pub const MOST: usize = 32 << 20;
}

impl From<Names> for String {
    fn from(names: Names) -> Self {
        data_encoding::BASE64.encode(&names.0)
    }
}

impl TryFrom<String> for Names {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let names =
            data_encoding::BASE64.decode(text.as_bytes()).map_err(|_| "list of names is not valid base64")?;
        if names.len() <= Self::MOST { Ok(Self(names)) } else { Err("list of names is too long") }
    }
}

/// Which symbolic links of a source are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Follow {
    /// None.
    #[default]
    None,
    /// Those that lead to directories.
    Dirs,
    /// All.
    All,
}

/// The sender's offer, which a receiver needs before it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Offer {
    /// The same for the same sources of the same host: an interrupted copy is known by it.
    pub identity: String,
    /// The name of the only source, if it is not a directory: it may get another name.
    pub single: Option<Vec<u8>>,
    /// The names of the directories that are sent by name, if contents of others are merged with them.
    pub mixed: Vec<Vec<u8>>,
    /// Where the sources are.
    pub lineage: Box<SourceLocations>,
}

/// Where it goes, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReceiveSpec {
    /// The directory, or for a single file its new name. A slash at the end marks a directory.
    pub dest: OsString,
    /// The sender's offer.
    pub offer: Offer,
    /// Files that are newer here stay.
    pub update: bool,
    /// Names that the source does not have are deleted, except those that `filter` leaves out.
    pub delete: bool,
    /// But no more than this many names.
    pub max_delete: Option<u64>,
    /// A directory is replaced by a non-directory, even if it is not empty.
    pub force: bool,
    /// The attributes to keep, beside names and contents.
    pub keep: Keep,
    /// The changes to them.
    pub alter: Alter,
    /// Which files are copied.
    pub only: Only,
    /// Files that are here are updated, not replaced.
    pub in_place: InPlace,
    /// The sender is told which files the receiver has.
    pub prove: bool,
    /// Directories from which files are linked that are there as they are sent; from the destination, if relative.
    pub link_dest: Vec<OsString>,
    /// Replaced and deleted files keep a name.
    pub backup: Option<Backup>,
    /// As in [`SendSpec::filter`].
    pub filter: Vec<Rule>,
    /// Files of equal size and time are compared by content.
    pub checksum: bool,
    /// Nothing is changed; the changes are counted.
    pub dry_run: bool,
    /// Changes are reported in rsync's format.
    pub itemize: bool,
    /// Go on where an interrupted copy has stopped.
    pub resume: bool,
    /// When data must be on the disk.
    pub durable: Durable,
    /// Blocks are checked, and nothing is written.
    pub null: bool,
    /// Identities of finished copies to the same place: their staging directories are removed in the end.
    pub leftovers: Vec<String>,
    /// Other copies bring parts of the same tree to the same place at the same time.
    pub shared: bool,
    /// Everything is written to a separate directory at the destination, which is removed in the end:
    /// measures the cost of writing.
    pub discard: bool,
    /// The data comes from another host than the one of the user who copies: as an ordinary user,
    /// the receiver removes its set-ID bits.
    pub pulled: bool,
}

impl ReceiveSpec {
    /// Whether an existing file may stay though it differs, or a missing one may not be created: then the
    /// content of further names must be sent for each of them.
    #[must_use]
    pub fn may_spare(&self) -> bool {
        self.update || self.only.existing || self.only.missing || self.in_place.appends()
    }
}

impl Default for ReceiveSpec {
    fn default() -> Self {
        Self {
            dest: OsString::new(),
            offer: Offer::default(),
            update: false,
            delete: false,
            max_delete: None,
            force: false,
            keep: Keep::ALL,
            alter: Alter::default(),
            only: Only::default(),
            in_place: InPlace::No,
            prove: false,
            link_dest: Vec::new(),
            backup: None,
            filter: Vec::new(),
            checksum: false,
            dry_run: false,
            itemize: false,
            resume: true,
            durable: Durable::default(),
            null: false,
            leftovers: Vec::new(),
            shared: false,
            discard: false,
            pulled: false,
        }
    }
}

/// Where that goes which is replaced or deleted, as with rsync's `--backup`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Backup {
    /// Added to the name.
    pub suffix: OsString,
    /// The directory, below which it keeps its path; from the destination if that is relative. None: where it is.
    pub dir: Option<OsString>,
}

/// How a file is brought up to date that is here, as with rsync's flags of these names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InPlace {
    /// A new one takes its name.
    #[default]
    No,
    /// It is written to.
    Yes,
    /// The existing file is assumed to be the beginning of the sender's; the rest is appended. Longer files
    /// are left alone.
    Append,
    /// The same, but the existing data is compared, and rewritten where it differs.
    AppendVerify,
}

impl InPlace {
    /// Whether files that are not shorter than the sender's are left alone.
    #[must_use]
    pub fn appends(self) -> bool {
        matches!(self, Self::Append | Self::AppendVerify)
    }
}

/// When written data must be on disk, so that it survives a power failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durable {
    /// Never: the system writes it when it likes.
    No,
    /// All of it before the copy is reported as done.
    #[default]
    End,
    /// Each file before it gets its name.
    Each,
}

/// The metadata that a receiver accepts, beside names and bytes. The receiver decides; it is not part of the
/// request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accept {
    /// Everything that this process may set.
    #[default]
    All,
    /// The metadata that a client may store: permission bits, times, links and attributes of the name space
    /// `user`. Everything belongs to the receiver's user; set-id and sticky bits, capabilities, access
    /// control lists, pipes and devices are dropped.
    Restricted,
}
