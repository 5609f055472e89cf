//! The kernel, the IOMMU, what file systems need, and what a container or a virtual machine hides.

use tidecast_text::Rate;

use super::load::Load;
use crate::model::{self, Packet};
use crate::{Change, Facts, Finding, Goal, Purpose};

const KERNEL: &str = "kernelnewbies.org/LinuxVersions";
const IOMMU: &str =
    "fasterdata.es.net/host-tuning/linux; kernel: admin-guide/kernel-parameters.txt (iommu=pt)";
const MOUNT: &str = "docs/how-to/without-root";
/// The oldest kernel that all functions were tried on.
const OLDEST: (u32, u32) = (5, 10);

pub(super) fn check(facts: &Facts, goal: &Goal) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(version(facts));
    found.extend(drivers(facts));
    found.extend(iommu(facts, goal));
    if goal.is_for(Purpose::Mount) {
        found.extend(mounting(facts));
    }
    found.extend(hidden(facts));
    found
}

fn version(facts: &Facts) -> Option<Finding> {
    let release = facts.kernel.release.clone()?;
    let wanted = format!("{}.{} or newer", OLDEST.0, OLDEST.1);
    let finding = Finding::new("kernel-version", "", release, wanted, KERNEL);
    let is_old = facts.kernel.version.is_some_and(|version| version < OLDEST);
    Some(if is_old {
        finding.note().because("older kernels lack calls that save copies and round trips")
    } else {
        finding
    })
}

/// Driver and version of each card, for the record: their notes of release say what was mended.
fn drivers(facts: &Facts) -> Vec<Finding> {
    let of = |of: &crate::facts::Interface| {
        let driver = of.driver.clone()?;
        let version = of
            .driver_version
            .clone()
            .map_or_else(|| "the kernel's".to_owned(), |version| format!("version {version}"));
        let finding = Finding::new(
            "nic-driver",
            &of.name,
            format!("{driver}, {version}"),
            "any",
            "100 Gbit/s paper, section 6",
        );
        let slow = ["e1000", "8139cp", "ne2k_pci", "pcnet32", "rtl8139"];
        if slow.contains(&driver.as_str()) {
            return Some(finding.note().because("the hypervisor imitates an old card, packet by packet: give the guest virtio or a slice of a real card"));
        }
        Some(finding)
    };
    facts.carriers().filter_map(of).collect()
}

/// Whether the memory of each packet is mapped for the card.
fn iommu(facts: &Facts, goal: &Goal) -> Option<Finding> {
    let words = &facts.kernel.command_line;
    let has = |word: &str| words.iter().any(|found| found == word);
    let passes = has("iommu=pt")
        || has("iommu.passthrough=1")
        || facts.kernel.iommu_domain.as_deref() == Some("identity");
    let domain = facts.kernel.iommu_domain.as_deref().unwrap_or("unknown");
    let Some(iommus) = facts.kernel.iommus else {
        let unseen = Finding::new("iommu", "", "", "iommu=pt", IOMMU).unknown();
        return Some(unseen.because("/sys is not shown here"));
    };
    let read = match (iommus, passes) {
        (0, _) => "off".to_owned(),
        (_, true) => "passed through".to_owned(),
        (_, false) => format!("on (domains: {domain})"),
    };
    let finding = Finding::new("iommu", "", read, "iommu=pt", IOMMU);
    if iommus == 0 || passes {
        return Some(finding);
    }
    let card = facts.carriers().max_by_key(|of| (of.speed, of.receive_queues.len()))?;
    let load = Load::of(facts, card);
    let (now, then) = (load.capacity(Packet { mapped: true, ..load.packet }), load.capacity(load.packet));
    let model = format!("{} {} instead of {}", load.carry(), Rate(now as u64), Rate(then as u64));
    let lost = model::lost_between(now, then, goal.link);
    let finding = finding
        .because("the memory of each packet is mapped for the card, and the mapping taken back")
        .costs(lost, model);
    let finding = if lost > 0.0 { finding } else { finding.note() };
    let command = "grubby --update-kernel=ALL --args=iommu=pt   # or GRUB_CMDLINE_LINUX of /etc/default/grub; then reboot";
    Some(finding.mend([Change::Manual { command: command.into() }]))
}

/// What `mount` and `run` need.
fn mounting(facts: &Facts) -> Vec<Finding> {
    let kernel = &facts.kernel;
    let mut found = Vec::new();
    let there = if kernel.fuse { "/dev/fuse is there" } else { "/dev/fuse is missing" };
    let fuse = Finding::new("fuse", "", there, "/dev/fuse", MOUNT);
    found.push(if kernel.fuse {
        fuse
    } else {
        let command = "modprobe fuse".to_owned();
        fuse.breaks()
            .because("without it nothing is mounted; a container needs --device /dev/fuse")
            .mend([Change::Manual { command }])
    });
    let helper = Finding::new(
        "fusermount3",
        "",
        if kernel.fusermount { "installed" } else { "missing" },
        "installed",
        MOUNT,
    );
    found.push(match (kernel.fusermount, facts.root) {
        (true, _) => helper,
        (false, true) => helper.note().because("users without root mount by it; root needs it not"),
        (false, false) => {
            let command = "apt-get install fuse3   # or dnf install fuse3".to_owned();
            helper.breaks().because("users without root mount by it").mend([Change::Manual { command }])
        }
    });
    found.extend(namespaces(facts));
    for (check, kind, why) in [
        ("overlay", "overlay", "a writable layer over a mounted tree is made with it"),
        ("erofs", "erofs", "images of this kind can be mounted over a delivered file"),
    ] {
        let known = kernel.has_file_system(kind);
        let finding = Finding::new(
            check,
            "",
            if known { "in the kernel" } else { "not loaded" },
            "in the kernel",
            MOUNT,
        );
        let change = Change::Manual { command: format!("modprobe {kind}") };
        found.push(if known { finding } else { finding.note().because(why).mend([change]) });
    }
    found
}

/// User namespaces, by which users without root mount in one of their own.
fn namespaces(facts: &Facts) -> Option<Finding> {
    let kernel = &facts.kernel;
    let (read, change) = if kernel.user_namespaces? == 0 {
        ("none allowed", Some(("user.max_user_namespaces", "10000")))
    } else if kernel.unprivileged_namespaces == Some(false) {
        ("for root alone", Some(("kernel.unprivileged_userns_clone", "1")))
    } else if kernel.apparmor_restricts == Some(true) {
        ("only with a profile of AppArmor", Some(("kernel.apparmor_restrict_unprivileged_userns", "0")))
    } else {
        ("allowed", None)
    };
    let finding = Finding::new("user-namespaces", "", read, "allowed", MOUNT);
    let Some((name, value)) = change else { return Some(finding) };
    let why =
        "containers without root, and mounts of their own, need them; some sites forbid them for security";
    Some(finding.note().because(why).mend([Change::sysctl(name, value)]))
}

/// What cannot be seen from where this program runs.
fn hidden(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let finding = |check, read: String| {
        Finding::new(check, "", read, "run on the host too", "100 Gbit/s paper, section 6.4")
    };
    if let Some(name) = &facts.kernel.hypervisor {
        let why = "the hypervisor hides the card's slot, power and sleep states, turbo, NUMA nodes and the load of other guests: checks of these do not apply here";
        found.push(finding("virtual-machine", name.clone()).unknown().because(why));
    }
    if let Some(name) = &facts.kernel.container {
        let why = "a container has interfaces of its own: the host's card, its queues and interrupts, irqbalance and net.core limits cannot be seen from here";
        found.push(finding("container", name.clone()).unknown().because(why));
    }
    found
}
