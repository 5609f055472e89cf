//! The number of files that this process may have open.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Allows as many as the system allows this user. Shells start programs with 1024, for the sake of old ones; a server of many
/// clients, or a copy of many sources, needs more.
pub(crate) fn allow_most() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit });
}
