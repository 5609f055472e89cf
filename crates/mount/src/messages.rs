//! Messages between processes about mounts.

use std::path::PathBuf;
use std::process::Command;

use serde::{Deserialize, Serialize};
use tidecast_event::mount::Status;

/// The environment variable that sets the role of a process of the program.
const ROLE: &str = "TIDECAST_MOUNT_PART";

/// The role of a process that the program has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It holds devices, and starts servers.
    Keeper,
    /// It serves a tree.
    Server,
}

impl Role {
    /// The role of this process; `None` if it runs its command line.
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

/// Requests to the process that serves mounts, from the same user or root.
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
        /// Keep the directory from being removed meanwhile, and remove it after the mount if it was made for one.
        hold: bool,
    },
    /// The ticket that another mount of the tree was given: for when no peer is left that accepts the one before.
    Ticket(String),
    /// End: waiting requests fail, and all mounts are dead.
    Stop,
    /// End, and continue as a new process with the same mounts.
    Restart,
}

/// Its answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Its status.
    Status(Box<Status>),
    /// It is done.
    Done,
    /// It has stopped serving: a caller that needs a mount starts another server.
    Ending,
    /// It cannot be done.
    Failed(String),
}

/// Between the process that serves mounts and the one that keeps their devices.
#[derive(Debug, Serialize, Deserialize)]
pub enum Keep {
    /// Keep this device, which comes with the message; or, to a process that continues a mount: serve it.
    Device {
        /// Its name.
        number: u32,
        /// Where it is mounted.
        at: PathBuf,
        /// Keep the directory from being removed meanwhile, and remove it after the mount if it was made for one.
        hold: bool,
    },
    /// The record of a mount's open files; it comes with the message.
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
    /// Another ticket; or, to a process that begins: the one that the keeper has beside that process's own.
    Ticket(String),
    /// Give the next server that other ticket.
    Exchange,
    /// It is not mounted any more.
    Gone {
        /// Its name.
        number: u32,
    },
    /// To a process that begins: these were all.
    Begin,
}
