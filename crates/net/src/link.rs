//! The speed of an interface, where its driver knows it.
//!
//! Drivers of virtual interfaces report some rate, mostly 10 Gbit/s, whatever carries their packets. It counts as
//! unknown, as does that of a bridge, bond or VLAN over one of them: then trials and users decide.

use std::fs;
use std::path::Path;

/// Drivers of devices that a hypervisor makes up.
const INVENTORS: [&str; 5] = ["virtio_net", "vmxnet3", "xen_netfront", "vif", "hv_netvsc"];
/// Nesting of interfaces, at most; a deeper one is a misconfiguration.
const MAX_DEPTH: usize = 8;

/// Bits per second; 0 where nothing is known.
pub(crate) fn link_speed(interface: &str) -> u64 {
    speed(Path::new("/sys/class/net"), interface)
}

/// By way of sysfs, which has Mbit/s, or -1, or nothing.
fn speed(sysfs: &Path, interface: &str) -> u64 {
    let text = fs::read_to_string(sysfs.join(interface).join("speed")).unwrap_or_default();
    let mbits = text.trim().parse::<i64>().ok().and_then(|mbits| u64::try_from(mbits).ok()).unwrap_or(0);
    // The kernel's word for unknown, read as a number without a sign.
    if mbits == 0 || mbits >= u64::from(u32::MAX) || !is_hardware(sysfs, interface, MAX_DEPTH) {
        return 0;
    }
    mbits.saturating_mul(1_000_000)
}

/// Whether packets leave by hardware: its own, or that of all interfaces below it.
fn is_hardware(sysfs: &Path, interface: &str, depth: usize) -> bool {
    let own = sysfs.join(interface);
    if let Ok(driver) = fs::read_link(own.join("device/driver")) {
        let name = driver.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        return !INVENTORS.contains(&name);
    }
    let entries = fs::read_dir(&own).into_iter().flatten().flatten();
    let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let mut below = names.iter().filter_map(|name| name.strip_prefix("lower_")).peekable();
    depth > 0 && below.peek().is_some() && below.all(|lower| is_hardware(sysfs, lower, depth - 1))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn rates_that_drivers_invent_are_not_taken() {
        let sysfs = tempfile::tempdir().unwrap();
        let make = |name: &str, speed: &str, driver: Option<&str>, lower: &[&str]| {
            let at = sysfs.path().join(name);
            fs::create_dir(&at).unwrap();
            fs::write(at.join("speed"), speed).unwrap();
            if let Some(driver) = driver {
                fs::create_dir(at.join("device")).unwrap();
                symlink(format!("../../bus/drivers/{driver}"), at.join("device/driver")).unwrap();
            }
            lower.iter().for_each(|lower| symlink("..", at.join(format!("lower_{lower}"))).unwrap());
        };
        make("eth0", "100000\n", Some("mlx5_core"), &[]);
        make("eth1", "25000\n", Some("ice"), &[]);
        make("eth2", "-1\n", Some("ice"), &[]);
        make("eth3", "4294967295\n", Some("ice"), &[]);
        make("ens3", "10000\n", Some("virtio_net"), &[]);
        make("ens4", "10000\n", Some("vmxnet3"), &[]);
        make("veth0", "10000\n", None, &[]);
        make("tap0", "10000\n", None, &[]);
        make("bond0", "125000\n", None, &["eth0", "eth1"]);
        make("bond1", "20000\n", None, &["eth0", "veth0"]);
        make("vlan7", "125000\n", None, &["bond0"]);
        make("br0", "10000\n", None, &["veth0"]);
        make("br1", "100000\n", None, &["eth0"]);
        make("loop", "10000\n", None, &["loop"]);
        for (name, gbits) in [("eth0", 100), ("eth1", 25), ("bond0", 125), ("vlan7", 125), ("br1", 100)] {
            assert_eq!(speed(sysfs.path(), name), gbits * 1_000_000_000, "{name}");
        }
        for name in ["eth2", "eth3", "ens3", "ens4", "veth0", "tap0", "bond1", "br0", "loop", "none"] {
            assert_eq!(speed(sysfs.path(), name), 0, "{name}");
        }
    }
}
