//! How a tree comes to a mount.

use std::path::PathBuf;
use std::time::Duration;

use tidecast_node::SwarmOptions;

/// Data that is fetched ahead of reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The files of the prefetch list.
    #[default]
    Hybrid,
    /// Nothing: only opened files are fetched.
    File,
    /// Everything, beginning with the files of the prefetch list.
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

/// The list of files that are fetched first.
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

/// How a mount fetches its tree. The default fetches opened files, and the files of the tree's own list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServeOptions {
    /// Data that is fetched ahead of reads.
    pub mode: Mode,
    /// The list of files that are fetched first.
    pub prefetch: Prefetch,
    /// Programs of the tree: the files that they need to start, including libraries, are fetched first.
    pub prefetch_exe: Vec<String>,
    /// Write the record of reads to this file, as a list for [`Prefetch::List`], when the last mount of the
    /// tree has ended.
    pub record: Option<PathBuf>,
    /// Where data is kept for the next mount. Default: RAM if there is plenty, else the directory for temporary files.
    pub cache: Option<PathBuf>,
    /// Receive the files that any node of the group opens, when they are opened: one plan for all mounts with
    /// this option.
    pub group: bool,
    /// A read fails when no peer has given its data for this long. Default: 10 minutes.
    pub timeout: Option<Duration>,
    /// A directory with the same tree on a shared file system: its data is used, after verification, while no
    /// peer supplies awaited data.
    pub fallback: Option<PathBuf>,
    /// How to take part in the swarm.
    pub swarm: SwarmOptions,
}
