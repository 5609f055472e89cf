//! A command in a mount namespace of its own, in which a tree is where it was built, without privilege.
//!
//! The place is a directory that is there, or one that is made for the command (`supervise.rs` removes it), or one in a
//! view of the directory above (`view.rs`), where the user may make none.

mod command_place;
mod error;
mod missing;
mod report;
mod supervise;
mod view;

use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use rustix::mount::MountPropagationFlags;

use crate::created_dirs::{Found, Held};
use crate::place::{Absent, Chosen, Guard, Spot, find};

pub use command_place::place_of_command;
pub use error::Error;
pub use missing::missing_behind;
pub use report::{Account, Report, Reported};
pub use supervise::{Inside, end_as, supervise};
pub use view::show;

/// How often a directory is made that another command removes at the same time.
const TRIES: usize = 1000;

/// The place of a tree, before its mount.
#[derive(Debug)]
pub enum Settled {
    /// A directory that stays, held if this user can lock it.
    There(Option<Held>),
    /// One that is made for this command, or was for another, and is removed when no command uses it.
    Held(Held),
    /// None, and this user may make none: the command is shown one.
    Shown(Absent),
}

/// Sees to it that there is a directory for the tree, if this user may make one.
///
/// # Errors
/// The place is unfit, or cannot be made.
pub fn settle(at: &Path, guard: &Guard, chosen: Chosen) -> Result<Settled, Error> {
    for _ in 0..TRIES {
        let held = match find(at, guard, chosen)? {
            Spot::There(place) => {
                let found = Held::find(place.path());
                match found.map_err(error::failed(format!("cannot use {}", at.display())))? {
                    Found::Stays(held) => return Ok(Settled::There(held)),
                    Found::Held(held) => Some(held),
                    Found::Gone => None,
                }
            }
            Spot::Absent(absent) => match Held::make(&absent) {
                Err(error) if matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem) => {
                    return Ok(Settled::Shown(absent));
                }
                made => made.map_err(error::failed(format!("cannot create {}", at.display())))?,
            },
        };
        if let Some(held) = held {
            return Ok(Settled::Held(held));
        }
    }
    Err(Error::Unstable(at.to_owned()))
}

/// Leaves the host's mount namespace; without the right to do that, as root of a new user namespace.
///
/// # Errors
/// This host lets the user do neither.
pub fn separate() -> Result<(), Error> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // A new user namespace shows the owners of most names as one, after they have been looked at here.
    tidecast_paths::unmapped();
    if unshare(CloneFlags::CLONE_NEWNS).is_err() {
        let why = "this host does not let users create user namespaces (user.max_user_namespaces, kernel.unprivileged_userns_clone)";
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).map_err(error::failed(why))?;
        let write = |name: &str, text: String| {
            let path = format!("/proc/self/{name}");
            std::fs::write(&path, text).map_err(error::failed(format!("cannot write {path}")))
        };
        write("setgroups", "deny".to_owned())?;
        write("uid_map", format!("{user} {user} 1"))?;
        write("gid_map", format!("{group} {group} 1"))?;
    }
    // Later mounts are visible in this namespace only.
    let private = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)
        .map_err(error::failed("cannot make mounts private to this namespace"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use rustix::fs::{FlockOperation, flock};

    use super::*;

    #[test]
    fn a_directory_that_is_just_being_removed_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (at, guard) = (dir.path().join("tree"), Guard::new(&[]));
        let settled = || settle(&at, &guard, Chosen::ByCaller).unwrap();
        drop(settled());
        let removed = std::fs::File::open(&at).unwrap();
        flock(&removed, FlockOperation::NonBlockingLockExclusive).unwrap();
        std::thread::scope(|scope| {
            let next = scope.spawn(settled);
            // A disk may take that long to remove it.
            std::thread::sleep(Duration::from_millis(1200));
            std::fs::remove_dir(&at).unwrap();
            drop(removed);
            assert!(matches!(next.join().unwrap(), Settled::Held(_)));
        });
        assert!(at.is_dir());
    }
}
