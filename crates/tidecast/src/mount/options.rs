//! How to mount.

use std::path::PathBuf;

use tidecast_mount::ServeOptions;

/// The program whose processes serve a mount and hold its device. They outlive the process that mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// The program `tidecast`: its path, or a name that is looked for in `PATH`. Default: `tidecast`.
    Named(PathBuf),
    /// This program with its own arguments: for `tidecast` itself, which calls [`serve_mount`](crate::serve_mount).
    Own,
}

impl Default for Program {
    fn default() -> Self {
        Self::Named("tidecast".into())
    }
}

/// How to mount; the default fetches opened files, and leaves the tree mounted.
#[derive(Debug, Clone, Default)]
pub struct MountOptions {
    /// How the tree comes to the mount. Of a tree that is mounted on this host already the first mount's hold.
    pub serve: ServeOptions,
    /// Other users may use the mount too.
    pub allow_other: bool,
    /// The operation ends when the tree is unmounted; to stop the operation unmounts. Without it, the operation ends when the
    /// tree is mounted, and the mount stays until [`unmount`](crate::unmount).
    pub foreground: bool,
    /// The program that serves the mount.
    pub program: Program,
    /// Where this node keeps its key. Default: [`default_state_dir`](crate::default_state_dir).
    pub state_dir: Option<PathBuf>,
    /// Threads of the server. Default: one for each core.
    pub threads: Option<usize>,
}

/// How to run a command.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// How the tree comes to the command. Of a tree that is mounted on this host already the first mount's hold.
    pub serve: ServeOptions,
    /// Where the command sees the tree. Default: where it was built, as its manifest records it.
    pub at: Option<PathBuf>,
    /// The program `tidecast`: its path, or a name that is looked for in `PATH`. Default: `tidecast`.
    pub program: PathBuf,
    /// Where this node keeps its key. Default: [`default_state_dir`](crate::default_state_dir).
    pub state_dir: Option<PathBuf>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { serve: ServeOptions::default(), at: None, program: "tidecast".into(), state_dir: None }
    }
}
