//! Users who could put another directory in the place of a mount while a program uses it. The kernel lets a directory be
//! renamed or removed that is a mount point in another mount namespace only, and then the program sees what has its name now.

use std::path::PathBuf;

use tidecast_paths::{Step, unmapped_now};

/// A name on the way to a place that another user could replace.
#[derive(Debug, thiserror::Error)]
pub enum Replaceable {
    /// It is that user's, in a directory where all users may create names.
    #[error("user {owner} could put another directory there while it is used, as {name} is that user's")]
    Planted {
        /// The name.
        name: PathBuf,
        /// That user.
        owner: u32,
    },
    /// All users may rename it.
    #[error("every user could put another directory there while it is used, as all may rename {name}")]
    ByAll {
        /// The name.
        name: PathBuf,
    },
    /// Its directory is that user's, and the caller has not chosen the place.
    #[error(
        "user {owner} could put another directory there while it is used, as {name} is in a directory of that user; \
         if you trust user {owner}, name the place with --at"
    )]
    OfOther {
        /// The name.
        name: PathBuf,
        /// The owner of its directory.
        owner: u32,
    },
}

/// Whether another user than this one and root could put another name in the place of this one. `trusting`: the owner of a
/// directory is trusted, unless that user may have planted the directory.
pub(crate) fn replaceable(step: &Step<'_>, trusting: bool) -> Option<Replaceable> {
    let (name, owner) = (step.path.to_owned(), step.dir.owner);
    if step.dir.lets_exchange() {
        return Some(Replaceable::ByAll { name });
    }
    if let Some(owner) = step.planter() {
        return Some(Replaceable::Planted { name, owner });
    }
    (!trusting && !is_trusted(owner)).then_some(Replaceable::OfOther { name, owner })
}

/// In a user namespace the host's root has the number of all users that it does not know: the check before the namespace was
/// entered has seen them.
fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == rustix::process::geteuid().as_raw() || Some(owner) == unmapped_now()
}
