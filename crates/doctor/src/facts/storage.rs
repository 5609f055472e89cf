//! File systems, and the disks and space below directories of stores and caches.

use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::parse::{self, Mount};
use crate::System;

/// Most directories that are looked at.
const MOST: usize = 64;

/// File systems and directories.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Storage {
    /// Memory shared between processes: /dev/shm.
    pub shared_memory: Option<Directory>,
    /// The directories asked for.
    pub directories: Vec<Directory>,
}

/// A directory, the file system that it is on, and the disk below.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Directory {
    /// Its path.
    pub path: PathBuf,
    /// Whether it exists; if not, the facts are those of the nearest directory above it.
    pub exists: bool,
    /// The mount.
    pub mount: Option<Mount>,
    /// Bytes of the file system, and those that are free.
    pub bytes: Option<(u64, u64)>,
    /// Files that it can have, and those that are free; `None`: no limit.
    pub files: Option<(u64, u64)>,
    /// The disk, where it is one of this host.
    pub disk: Option<Disk>,
}

/// A disk.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Disk {
    /// Its name: `nvme0n1`.
    pub name: String,
    /// Whether it has to turn.
    pub rotates: Option<bool>,
    /// How requests are ordered: `none`, `mq-deadline`.
    pub scheduler: Option<String>,
    /// Bytes that are read ahead.
    pub read_ahead: Option<u64>,
    /// Gigatransfers per second and lanes of its slot, if it has one of its own.
    pub slot: Option<(f64, u32)>,
}

impl Storage {
    pub(super) fn read(system: &System, dirs: &[PathBuf]) -> Self {
        let mounts = parse::mounts(&system.text("/proc/self/mountinfo").unwrap_or_default());
        let shared = Directory::read(system, &mounts, Path::new("/dev/shm"));
        Self {
            shared_memory: Some(shared).filter(|of| of.exists),
            directories: dirs.iter().take(MOST).map(|dir| Directory::read(system, &mounts, dir)).collect(),
        }
    }
}

impl Directory {
    fn read(system: &System, mounts: &[Mount], path: &Path) -> Self {
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let real = if system.is_host() { whole.canonicalize().unwrap_or(whole) } else { whole };
        let open = |path: &Path| system.open(path.to_str()?, OFlags::PATH | OFlags::DIRECTORY).ok();
        let opened = real.ancestors().find_map(open);
        let space = opened.and_then(|dir| rustix::fs::fstatvfs(dir).ok());
        // The last mount at the longest place that leads to it: mounts cover earlier ones.
        let covers = |mount: &&Mount| real.starts_with(&mount.point);
        let mount =
            mounts.iter().filter(covers).max_by_key(|mount| Path::new(&mount.point).components().count());
        Self {
            exists: open(&real).is_some(),
            bytes: space
                .as_ref()
                .map(|of| (of.f_blocks.saturating_mul(of.f_frsize), of.f_bavail.saturating_mul(of.f_frsize))),
            files: space.filter(|of| of.f_files > 0).map(|of| (of.f_files, of.f_favail)),
            disk: mount.and_then(|mount| Disk::read(system, &mount.device)),
            mount: mount.cloned(),
            path: path.to_owned(),
        }
    }

    /// Kind of its file system; empty if unknown.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.mount.as_ref().map_or("", |mount| mount.kind.as_str())
    }
}

impl Disk {
    /// The disk with this device number, or that of the partition with it.
    fn read(system: &System, number: &str) -> Option<Self> {
        let partition = format!("/sys/dev/block/{number}");
        let name = system.link(&partition)?;
        let whole = if system.exists(&format!("{partition}/partition")) {
            format!("{partition}/..")
        } else {
            partition
        };
        let text = |file: &str| system.text(&format!("{whole}/{file}"));
        let speed = text("device/device/current_link_speed").and_then(|speed| parse::gigatransfers(&speed));
        let lanes = text("device/device/current_link_width").and_then(|lanes| lanes.parse().ok());
        Some(Self {
            name,
            rotates: text("queue/rotational").map(|value| value == "1"),
            scheduler: text("queue/scheduler").and_then(|text| parse::chosen(&text).map(str::to_owned)),
            read_ahead: text("queue/read_ahead_kb")
                .and_then(|kib| kib.parse::<u64>().ok())
                .map(|kib| kib << 10),
            slot: speed.zip(lanes),
        })
    }
}
