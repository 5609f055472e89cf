//! Limits of a process, and of what a user may watch.

use super::parse::{self, Limit};
use crate::System;

/// Limits that this process has, as any that the same shell or service starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Open files.
    pub files: Option<Limit>,
    /// Bytes of memory that is kept from being swapped.
    pub locked: Option<Limit>,
    /// Processes and threads of the user.
    pub processes: Option<Limit>,
    /// Bytes of a file.
    pub file_size: Option<Limit>,
    /// Open files of the whole host.
    pub all_files: Option<u64>,
    /// Open files that a limit can be raised to.
    pub most_files: Option<u64>,
    /// Files that a user may watch.
    pub watches: Option<u64>,
    /// Sets of watches that a user may have.
    pub watchers: Option<u64>,
    /// Connections that wait to be accepted at one port.
    pub backlog: Option<u64>,
    /// Tasks that the control group of this process may have.
    pub group_tasks: Option<u64>,
}

impl Limits {
    pub(super) fn read(system: &System) -> Self {
        let own = system.text("/proc/self/limits").unwrap_or_default();
        let of = |name: &str| parse::limit(&own, name);
        let kernel = |name: &str| system.number(&format!("/proc/sys/{name}"));
        Self {
            files: of("Max open files"),
            locked: of("Max locked memory"),
            processes: of("Max processes"),
            file_size: of("Max file size"),
            all_files: kernel("fs/file-max"),
            most_files: kernel("fs/nr_open"),
            watches: kernel("fs/inotify/max_user_watches"),
            watchers: kernel("fs/inotify/max_user_instances"),
            backlog: kernel("net/core/somaxconn"),
            group_tasks: system.number("/sys/fs/cgroup/pids.max"),
        }
    }
}
