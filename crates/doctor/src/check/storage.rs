//! Directories of stores and caches: file system, space, and the disk below.

use tidecast_text::{Rate, Size, grouped};

use crate::facts::{Directory, Disk};
use crate::{Facts, Finding, Goal, model};

const SOURCE: &str = "docs/guide/destinations, docs/daemon";
const DISK: &str = "kernel: block/queue-sysfs.rst";
/// Bits per second of a disk that turns.
const TURNING: f64 = 1.6e9;
/// Less room than this, and no cache or tree of use fits.
const LITTLE: u64 = 1 << 30;
/// Less room than this share of the file system slows it down.
const FULL: f64 = 0.05;
const FEW_FILES: u64 = 10_000;
const READ_AHEAD: u64 = 128 << 10;
const REMOTE: [&str; 10] = ["nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "beegfs", "gpfs", "9p", "afs"];

pub(super) fn check(facts: &Facts, goal: &Goal) -> Vec<Finding> {
    facts.storage.directories.iter().flat_map(|dir| directory(dir, goal)).collect()
}

fn directory(dir: &Directory, goal: &Goal) -> Vec<Finding> {
    let name = dir.path.display().to_string();
    let mut found = vec![kind(dir, &name)];
    found.extend(dir.bytes.map(|(all, free)| space(&name, all, free)));
    found.extend(dir.files.map(|(all, free)| files(&name, all, free)));
    if let Some(disk) = &dir.disk {
        found.extend(speed(&name, disk, goal));
    }
    found
}

/// The kind of the file system.
fn kind(dir: &Directory, name: &str) -> Finding {
    let kind = dir.kind();
    let missing = if dir.exists { "" } else { " (does not exist yet)" };
    let finding =
        Finding::new("file-system", name, format!("{kind}{missing}"), "a local file system", SOURCE);
    let read_only = dir.mount.as_ref().is_some_and(|mount| mount.options.iter().any(|word| word == "ro"));
    if read_only {
        return finding.breaks().because("it is mounted read-only: nothing can be kept here");
    }
    if kind.is_empty() {
        return finding.unknown().because("the mounts of this process do not show it");
    }
    if REMOTE.contains(&kind) || kind.starts_with("fuse") {
        let why = "every node reads and writes over the network again; a store here is shared by nodes that do not know of each other";
        return finding.note().because(why);
    }
    match kind {
        "overlay" => finding.note().because(
            "the first write to a file copies it, and a container's end deletes all: mount a volume",
        ),
        "tmpfs" | "ramfs" => finding.note().because("files here take memory, and a reboot deletes them"),
        _ => finding,
    }
}

fn space(name: &str, all: u64, free: u64) -> Finding {
    let share = free as f64 / all.max(1) as f64;
    let read = format!("{} free of {}", Size(free), Size(all));
    let finding = Finding::new("free-space", name, read, format!("at least {}", Size(LITTLE)), SOURCE);
    if free < LITTLE {
        return finding.breaks().because("a tree that does not fit is refused before its first byte");
    }
    if share < FULL {
        return finding
            .note()
            .because("a file system that is nearly full scatters new files, which slows writing");
    }
    finding
}

fn files(name: &str, all: u64, free: u64) -> Finding {
    let read = format!("{} free of {}", grouped(free), grouped(all));
    let finding = Finding::new("free-inodes", name, read, format!("at least {}", grouped(FEW_FILES)), SOURCE);
    if free >= FEW_FILES {
        return finding;
    }
    finding
        .breaks()
        .because("each file takes an inode: small files fail with \"no space left\" while bytes are free")
}

fn speed(name: &str, disk: &Disk, goal: &Goal) -> Vec<Finding> {
    let mut found = Vec::new();
    let object = format!("{name} ({})", disk.name);
    // A hypervisor's disk says that it turns whatever is behind it.
    let is_virtual = ["vd", "xvd", "loop", "zram", "sr"].iter().any(|head| disk.name.starts_with(head));
    let finding = |read: &str| Finding::new("disk-speed", &object, read, Rate(goal.link).to_string(), DISK);
    if is_virtual {
        found.push(finding("").unknown().because("the disk is virtual: the hypervisor hides the real one"));
    } else if disk.rotates == Some(true) {
        let model = format!("about {} in sequence of {}", Rate(TURNING as u64), Rate(goal.link));
        let why = "a disk that turns writes some 200 MB/s in sequence, and far less of small files";
        let lost = model::share_lost(TURNING, goal.link as f64);
        found.push(finding("turns").because(why).costs(lost, model));
    } else if let Some((transfers, lanes)) = disk.slot {
        let rate = model::pcie_rate(transfers, lanes);
        let model =
            format!("{transfers} GT/s x {lanes} lanes = {} of {}", Rate(rate as u64), Rate(goal.link));
        let lost = model::share_lost(rate, goal.link as f64);
        let read = format!("PCIe {transfers} GT/s x{lanes}");
        found.push(finding(&read).because("no disk is faster than its slot").costs(lost, model));
    }
    if let Some(bytes) = disk.read_ahead {
        let finding = Finding::new(
            "read-ahead",
            &object,
            Size(bytes).to_string(),
            format!("at least {}", Size(READ_AHEAD)),
            DISK,
        );
        let why = "files are read in sequence, and each request costs the disk's latency";
        let path = format!("block/{}/queue/read_ahead_kb", disk.name);
        let change = crate::Change::Sysfs { path, value: (READ_AHEAD >> 10).to_string() };
        found.push(if bytes < READ_AHEAD { finding.note().because(why).mend([change]) } else { finding });
    }
    if let Some(scheduler) = disk.scheduler.as_deref().filter(|_| disk.name.starts_with("nvme")) {
        let finding = Finding::new("io-scheduler", &object, scheduler, "none", DISK);
        let path = format!("block/{}/queue/scheduler", disk.name);
        let change = crate::Change::Sysfs { path, value: "none".into() };
        let why = "such a disk has queues of its own, and ordering requests costs CPU";
        found.push(if scheduler == "none" { finding } else { finding.note().because(why).mend([change]) });
    }
    found
}
