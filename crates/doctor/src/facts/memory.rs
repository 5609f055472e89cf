//! Memory, huge pages and shared memory.

use super::parse;
use crate::System;

/// Memory of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of a page.
    pub page: u64,
    /// All, bytes.
    pub total: Option<u64>,
    /// What programs can have now, bytes.
    pub available: Option<u64>,
    /// When the kernel gives a program huge pages: `always`, `madvise`, `never`.
    pub transparent: Option<String>,
    /// The same for shared memory that no mount option decides: `never`, `advise`, `within_size`, `always`.
    pub shared: Option<String>,
    /// Most bytes that the control group of this process may have.
    pub group_limit: Option<u64>,
}

impl Memory {
    pub(super) fn read(system: &System) -> Self {
        let info = system.text("/proc/meminfo").unwrap_or_default();
        let huge = |file: &str| {
            let text = system.text(&format!("/sys/kernel/mm/transparent_hugepage/{file}"))?;
            parse::chosen(&text).map(str::to_owned)
        };
        Self {
            // That of the kernel which runs: other systems do not show theirs in a file.
            page: rustix::param::page_size() as u64,
            total: parse::meminfo(&info, "MemTotal"),
            available: parse::meminfo(&info, "MemAvailable"),
            transparent: huge("enabled"),
            shared: huge("shmem_enabled"),
            group_limit: system.number("/sys/fs/cgroup/memory.max"),
        }
    }
}
