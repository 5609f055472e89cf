//! What a mount says of itself, and what processes tell each other about mounts.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How a mount goes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// What is mounted.
    pub name: String,
    /// Files in it, symbolic links among them.
    pub files: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Pieces in it; equal files count once.
    pub pieces: usize,
    /// Those that are not here.
    pub pieces_missing: usize,
    /// Requests of the kernel, by kind.
    pub requests: BTreeMap<String, u64>,
    /// Opens and reads whose data was here.
    pub hits: u64,
    /// Those that had to wait.
    pub misses: u64,
    /// Those that failed.
    pub errors: u64,
    /// Bytes given to the kernel.
    pub given: u64,
    /// Pieces in the prefetch list.
    pub listed_pieces: usize,
    /// Requests that wait now.
    pub waiting: usize,
    /// Those who wait now, the longest first.
    pub waits: Vec<Hold>,
    /// Files over which most time was lost.
    pub slowest: Vec<Wait>,
    /// Why the cache did not take what came last, until it takes something again.
    #[serde(default)]
    pub trouble: Option<String>,
    /// Why opens and reads have failed, the last in front.
    #[serde(default)]
    pub failures: Vec<Failed>,
}

/// Opens and reads that have failed for one reason.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Failed {
    /// The reason.
    pub why: String,
    /// How often.
    pub times: u64,
    /// The file of the last one.
    pub path: String,
    /// Seconds since the last one.
    pub seconds: f64,
}

/// Somebody who waits now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Hold {
    /// For this file.
    pub path: String,
    /// The process.
    pub pid: u32,
    /// For so long.
    pub seconds: f64,
    /// For so many pieces.
    pub pieces: u32,
}

/// What was lost over one file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Wait {
    /// The file.
    pub path: String,
    /// How often somebody waited.
    pub times: u64,
    /// For how long in all, seconds.
    pub seconds: f64,
    /// The longest time, seconds.
    pub longest: f64,
}

/// What the process that serves mounts is asked, by those who may: the same user, or root.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// How it goes.
    Status,
    /// Do not end for now: a mount to serve comes on this connection. `Done` or `Ending`.
    Expect,
    /// Serve this mount too; its device comes with the message.
    Serve {
        /// Where it is.
        at: PathBuf,
        /// The directory was made for it, and is removed after it.
        made: bool,
    },
    /// End: whoever waits hears that it failed, and all mounts are dead.
    Stop,
    /// End, and go on as a new process with the same mounts.
    Restart,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// As JSON: a [`Status`] and what the program adds.
    Status(Box<serde_json::Value>),
    /// It is done.
    Done,
    /// It serves no more: whoever wants a mount starts another.
    Ending,
    /// It cannot be done.
    Failed(String),
}

/// Between the process that serves mounts and the one that keeps their devices.
#[derive(Debug, Serialize, Deserialize)]
pub enum Keep {
    /// Keep this device, which comes with the message; or, to a process that goes on: serve it.
    Device {
        /// What it is called.
        number: u32,
        /// Where it is mounted.
        at: PathBuf,
        /// The directory was made for it, and is removed after it.
        made: bool,
    },
    /// What notes which files of a mount are open; it comes with the message.
    Opens {
        /// The device.
        number: u32,
    },
    /// A file of a mount has been registered with the kernel for reading past us.
    Backing {
        /// The device.
        number: u32,
        /// The file.
        ino: u64,
        /// As the kernel calls it.
        id: u32,
    },
    /// It is not mounted any more.
    Gone {
        /// What it was called.
        number: u32,
    },
    /// To a process that begins: these were all.
    Begin,
}
