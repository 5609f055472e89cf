//! The requests to the two ends of a copy, sent as JSON to the hosts on which they run.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use crate::filter::Rule;
use crate::flags::{Alter, Keep, Only};
use crate::lineage::Lineage;

/// How the name of every staging directory begins. What is in one is no part of a tree.
pub(crate) const STAGING: &str = ".tidecast-copy-";

/// What is to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SendSpec {
    /// Files and directories, patterns among them. A slash at the end of a directory means what is in it, as with rsync.
    pub sources: Vec<OsString>,
    /// Sources keep their paths.
    pub relative: Option<Relative>,
    /// What is left out.
    pub filter: Vec<Rule>,
    /// Files of equal size and time are compared by content.
    pub checksum: bool,
    /// Only files, and of these only the batches that [`crate::share::Board`] lets it have: several senders walk the same tree.
    pub share: bool,
    /// Files, and all else but directories, are removed when the receiver has proved that it has them.
    pub remove: bool,
    /// What the receiver keeps; no more need be sent.
    pub keep: Keep,
    /// Symbolic links that are sent as what they lead to.
    pub follow: Follow,
    /// What is mounted below a source: 1, its directories only; 2, not even these.
    pub one_file_system: u8,
    /// It is one file for a receiver that writes in order ([`crate::sink::InOrder`]): little is under way at a time, and what cannot be read
    /// ends the copy.
    pub in_order: bool,
    /// Where it goes, if that is on the same host: then it is no part of the tree.
    pub dest: Option<OsString>,
    /// Instead of files: so many bytes of noise, in files of so many bytes.
    pub null: Option<(u64, u64)>,
}

/// Sources that keep their paths, as with rsync's `--relative`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Relative {
    /// What is copied of the only source: paths below it.
    pub names: Option<Names>,
    /// With `names`: directories among them with all that is in them.
    pub recursive: bool,
    /// Directories above them are not copied, and made as the receiver's system makes them.
    pub no_implied: bool,
}

/// Names, each but the last with a NUL behind it. It travels in base 64.
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

/// What a receiver must know of a sender before it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Offer {
    /// The same for the same sources of the same host: an interrupted copy is known by it.
    pub identity: String,
    /// The name of the only source, if that is no directory: it may get another name.
    pub single: Option<Vec<u8>>,
    /// The names of the directories that are sent by name, if the contents of others come beside them.
    pub mixed: Vec<Vec<u8>>,
    /// Where the sources are.
    pub lineage: Box<Lineage>,
}

/// Where it goes, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReceiveSpec {
    /// The directory, or for a single file its new name. A slash at the end says that it is a directory.
    pub dest: OsString,
    /// What is sent.
    pub offer: Offer,
    /// Files that are newer here stay.
    pub update: bool,
    /// What the source does not have is deleted, but for names that `filter` leaves out.
    pub delete: bool,
    /// But no more than so many names.
    pub max_delete: Option<u64>,
    /// A directory gives way to what is none, whatever is in it.
    pub force: bool,
    /// What is kept beside names and contents.
    pub keep: Keep,
    /// What is changed of that.
    pub alter: Alter,
    /// Which files are copied.
    pub only: Only,
    /// Files that are here are updated, not replaced.
    pub in_place: InPlace,
    /// The sender is told which files are here.
    pub prove: bool,
    /// Directories from which files are linked that are there as they are sent; from the destination, if relative.
    pub link_dest: Vec<OsString>,
    /// What is replaced or deleted keeps a name.
    pub backup: Option<Backup>,
    /// As in [`SendSpec::filter`].
    pub filter: Vec<Rule>,
    /// Files of equal size and time are compared by content.
    pub checksum: bool,
    /// Nothing is changed; what would be is counted.
    pub dry_run: bool,
    /// What is done, or would be, is told in rsync's letters.
    pub itemize: bool,
    /// Go on where an interrupted copy has stopped.
    pub resume: bool,
    /// When data must be on the disk.
    pub durable: Durable,
    /// Blocks are checked, and nothing is written.
    pub null: bool,
    /// Identities of copies to the same place that are over: what they have left there is removed in the end.
    pub leftovers: Vec<String>,
    /// Other copies bring parts of the same tree to the same place at the same time.
    pub shared: bool,
    /// Everything goes into a directory of its own at the destination, which is removed in the end: what writing costs.
    pub discard: bool,
}

impl ReceiveSpec {
    /// Whether a file that is there may stay though it is another, or one that is not there may not be made: then what its
    /// further names are to have must be sent for each of them.
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
    /// It is a beginning of the sender's, as is believed; what comes after that is written to its end. Else it is left alone.
    Append,
    /// The same, but what it has is compared, and written to where it differs.
    AppendVerify,
}

impl InPlace {
    /// Whether files that are not shorter than the sender's are left alone.
    #[must_use]
    pub fn appends(self) -> bool {
        matches!(self, Self::Append | Self::AppendVerify)
    }
}

/// When what was written must be on the disk, so that it outlives a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durable {
    /// Never: the system writes it when it likes.
    No,
    /// All of it before the copy is said to be done.
    #[default]
    End,
    /// Each file before it gets its name.
    Each,
}

/// What a receiver takes beside names and bytes. It is for the receiver to say, and no part of what is asked of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accept {
    /// Everything that this process may set.
    #[default]
    All,
    /// What a guest may leave: permission bits, times, links and attributes of the name space `user`. Everything belongs to
    /// the receiver's user; set-id and sticky bits, capabilities, access control lists, pipes and devices are dropped.
    Plain,
}
