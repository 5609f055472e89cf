//! What processes tell each other about mounts.

use std::path::PathBuf;
use std::process::Command;

use serde::{Deserialize, Serialize};
use tidecast_event::mount::Status;

/// Where a process of the program finds out what it is to be.
const ROLE: &str = "TIDECAST_MOUNT_PART";

/// What a process that the program has started is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It holds devices, and starts servers.
    Keeper,
    /// It serves a tree.
    Server,
}

impl Role {
    /// That of this process; None if it is to do what its command line says.
    #[must_use]
    pub fn of_environment() -> Option<Self> {
        match std::env::var(ROLE).as_deref() {
            Ok("keeper") => Some(Self::Keeper),
            Ok("server") => Some(Self::Server),
            _ => None,
        }
    }

    /// That of a process which is to be started.
    pub(crate) fn give(self, to: &mut Command) -> &mut Command {
        to.env(ROLE, if self == Self::Keeper { "keeper" } else { "server" })
    }
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
    /// What it says of itself.
    Status(Box<Status>),
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
