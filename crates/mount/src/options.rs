//! How a tree comes to a mount.

use std::path::PathBuf;
use std::time::Duration;

use tidecast_node::SwarmOptions;

/// What is fetched without being asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// What the prefetch list names.
    #[default]
    Hybrid,
    /// Nothing: only what is opened is fetched.
    File,
    /// Everything, what the prefetch list names first.
    Bulk,
}

impl Mode {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hybrid => "hybrid",
            Self::File => "file",
            Self::Bulk => "bulk",
        }
    }
}

/// The list of what is fetched first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Prefetch {
    /// The file [`OWN_LIST`](crate::OWN_LIST) that was published with the tree, if there is one.
    #[default]
    Auto,
    /// None.
    None,
    /// This file, as `record` writes it.
    List(PathBuf),
}

/// How a tree comes to a mount. The default fetches what is opened, and what the tree's own list names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServeOptions {
    /// What is fetched without being asked for.
    pub mode: Mode,
    /// The list of what is fetched first.
    pub prefetch: Prefetch,
    /// Programs of the tree: what they need to start is fetched first, libraries and all.
    pub prefetch_exe: Vec<String>,
    /// Write what was read to this file, as a list for [`Prefetch::List`], when the last mount of the tree has ended.
    pub record: Option<PathBuf>,
    /// Where data is kept for the next mount. Default: RAM if there is plenty, else the directory for temporary files.
    pub cache: Option<PathBuf>,
    /// Take what any node of the group opens, as it is opened: one plan for all that mount with this option.
    pub group: bool,
    /// A read fails when no peer has given its data for so long. Default: 10 minutes.
    pub timeout: Option<Duration>,
    /// A directory with the same tree on a shared file system: used, verified, while peers do not give what is waited for.
    pub fallback: Option<PathBuf>,
    /// How to take part in the swarm.
    pub swarm: SwarmOptions,
}
