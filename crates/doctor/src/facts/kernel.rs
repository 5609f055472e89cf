//! The kernel, and what it is under: a virtual machine, a container.

use super::parse;
use crate::System;

/// The kernel, and what can be done with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Its release: `6.18.44`.
    pub release: Option<String>,
    /// Major and minor number.
    pub version: Option<(u32, u32)>,
    /// Words of its command line.
    pub command_line: Vec<String>,
    /// Kinds of file systems that it has now.
    pub file_systems: Vec<String>,
    /// Modules that are loaded.
    pub modules: Vec<String>,
    /// Translations of addresses for devices (IOMMU) that are active. `None`: it is not shown.
    pub iommus: Option<usize>,
    /// The default kind of its domains, where a group shows it: `DMA`, `DMA-FQ`, `identity`.
    pub iommu_domain: Option<String>,
    /// User namespaces that a user may make.
    pub user_namespaces: Option<u64>,
    /// Whether Debian's switch forbids them to users.
    pub unprivileged_namespaces: Option<bool>,
    /// Whether AppArmor forbids them to programs without a profile.
    pub apparmor_restricts: Option<bool>,
    /// Whether /dev/fuse is there.
    pub fuse: bool,
    /// Whether the helper by which users mount is installed.
    pub fusermount: bool,
    /// Virtual machine: what is known of the hypervisor.
    pub hypervisor: Option<String>,
    /// Container: what shows it.
    pub container: Option<String>,
}

impl Kernel {
    pub(super) fn read(system: &System, cpuinfo: &str) -> Self {
        let release = system.text("/proc/sys/kernel/osrelease");
        let words = |path: &str| -> Vec<String> {
            system.text(path).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
        };
        let is = |path: &str, yes: &str| system.text(path).map(|value| value == yes);
        let file_systems = system.text("/proc/filesystems").unwrap_or_default();
        let file_systems = file_systems.lines().filter_map(|line| line.split_whitespace().next_back());
        let modules = system.text("/proc/modules").unwrap_or_default();
        Self {
            version: release.as_deref().and_then(parse::version),
            release,
            command_line: words("/proc/cmdline"),
            file_systems: file_systems.map(str::to_owned).collect(),
            modules: modules.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect(),
            iommus: system.exists("/sys/class").then(|| system.names("/sys/class/iommu").len()),
            iommu_domain: system.text("/sys/kernel/iommu_groups/0/type"),
            user_namespaces: system.number("/proc/sys/user/max_user_namespaces"),
            unprivileged_namespaces: is("/proc/sys/kernel/unprivileged_userns_clone", "1"),
            apparmor_restricts: is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
            fuse: system.exists("/dev/fuse"),
            fusermount: ["/usr/bin", "/bin", "/usr/local/bin"]
                .iter()
                .any(|dir| system.exists(&format!("{dir}/fusermount3"))),
            hypervisor: hypervisor(system, cpuinfo),
            container: container(system),
        }
    }

    /// Whether a file system can be mounted without loading a module.
    #[must_use]
    pub fn has_file_system(&self, kind: &str) -> bool {
        self.file_systems.iter().any(|known| known == kind)
    }
}

fn hypervisor(system: &System, cpuinfo: &str) -> Option<String> {
    let name = |file: &str| system.text(&format!("/sys/class/dmi/id/{file}")).filter(|text| !text.is_empty());
    let product = name("product_name").unwrap_or_default();
    let vendor = name("sys_vendor").unwrap_or_default();
    let known = [
        "KVM",
        "QEMU",
        "VMware",
        "VirtualBox",
        "Virtual Machine",
        "Xen",
        "Amazon EC2",
        "Google",
        "OpenStack",
        "Bochs",
    ];
    if known.iter().any(|word| product.contains(word) || vendor.contains(word)) {
        return Some(format!("{vendor} {product}").trim().to_owned());
    }
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let is_guest = flags.split_whitespace().any(|flag| flag == "hypervisor");
    (is_guest || system.exists("/sys/hypervisor/type")).then(|| "an unnamed hypervisor".to_owned())
}

fn container(system: &System) -> Option<String> {
    let marks = [("/.dockerenv", "Docker"), ("/run/.containerenv", "Podman"), ("/singularity", "Apptainer")];
    if let Some((_, name)) = marks.iter().find(|(path, _)| system.exists(path)) {
        return Some((*name).to_owned());
    }
    let named = system.text("/run/systemd/container");
    if named.is_some() {
        return named;
    }
    // The first process of a host is in no group of a container's runtime.
    let group = system.text("/proc/1/cgroup").unwrap_or_default();
    let words = ["docker", "kubepods", "containerd", "lxc", "libpod"];
    words.iter().find(|word| group.contains(**word)).map(|word| (*word).to_owned())
}
