//! Whole trees of /proc and /sys are planted: a badly tuned host at 100 Gbit/s, a well tuned one, a container, a virtual
//! machine. Each planted fault is found, and nothing costs anything on the well tuned one.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::facts::Card;
use crate::{Change, Purpose, System, Verdict};

const LINK: u64 = 100_000_000_000;

/// A directory with the files of a host.
struct Planted(tempfile::TempDir);

impl Planted {
    fn put(&self, path: &str, text: &str) {
        let file = self.0.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let file = self.0.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, file).unwrap();
    }

    fn sysctl(&self, name: &str, value: &str) {
        self.put(&format!("/proc/sys/{}", name.replace('.', "/")), value);
    }

    /// A card with 16 queues in a slot of node 1 whose CPUs are 16 to 31.
    fn card(&self, name: &str, mbit: u32, mtu: u32, queues: u32, transfers: &str, lanes: u32) {
        let device = format!("/sys/devices/pci0000:80/0000:81:00.0/net/{name}");
        let slot = "/sys/devices/pci0000:80/0000:81:00.0";
        self.link(
            &format!("/sys/class/net/{name}"),
            &format!("../../devices/pci0000:80/0000:81:00.0/net/{name}"),
        );
        self.link(&format!("{device}/device"), "../../../0000:81:00.0");
        self.link(&format!("{slot}/driver"), "../../../bus/pci/drivers/mlx5_core");
        for (file, text) in [
            ("mtu", mtu.to_string()),
            ("speed", mbit.to_string()),
            ("operstate", "up".into()),
            ("ifindex", "2".into()),
            ("statistics/rx_packets", "1000000000".into()),
        ] {
            self.put(&format!("{device}/{file}"), &text);
        }
        for (file, text) in [
            ("current_link_speed", transfers),
            ("max_link_speed", "16.0 GT/s PCIe"),
            ("current_link_width", &lanes.to_string()),
            ("max_link_width", "16"),
            ("numa_node", "1"),
            ("local_cpulist", "16-31"),
        ] {
            self.put(&format!("{slot}/{file}"), text);
        }
        for queue in 0..queues {
            self.put(&format!("{device}/queues/rx-{queue}/rps_cpus"), "00000000");
            self.put(
                &format!("{device}/queues/tx-{queue}/xps_cpus"),
                &format!("{:x}", 1u64 << (16 + queue % 16)),
            );
        }
    }

    /// Interrupts of the card: each on one CPU.
    fn interrupts(&self, cpus: impl Fn(u32) -> u32) {
        let mut table = String::from("     ");
        (0..32).for_each(|cpu| table.push_str(&format!("CPU{cpu} ")));
        for queue in 0..16 {
            let number = 100 + queue;
            let counts: Vec<&str> =
                (0..32).map(|cpu| if cpu == cpus(queue) { "100000" } else { "0" }).collect();
            table.push_str(&format!(
                "\n{number}: {} IR-PCI-MSI 1-edge mlx5_comp{queue}@pci:0000:81:00.0",
                counts.join(" ")
            ));
            self.put(&format!("/proc/irq/{number}/smp_affinity_list"), &cpus(queue).to_string());
        }
        self.put("/proc/interrupts", &table);
    }

    fn cpus(&self, governor: &str) {
        self.put("/sys/devices/system/cpu/online", "0-31");
        for cpu in 0..32 {
            self.put(&format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"), governor);
        }
        for (node, list) in [(0, "0-15"), (1, "16-31")] {
            self.put(&format!("/sys/devices/system/node/node{node}/cpulist"), list);
        }
        self.put("/proc/self/status", "Cpus_allowed_list:\t0-31\nMems_allowed_list:\t0-1\n");
        self.put("/proc/2/comm", "kthreadd");
    }

    fn limits(&self, files: &str) {
        let text = format!(
            "Max open files {files} {files} files\nMax processes 500000 500000 processes\nMax locked memory unlimited unlimited bytes\n"
        );
        self.put("/proc/self/limits", &text);
    }

    fn shm(&self, options: &str) {
        self.put("/proc/self/mountinfo", &format!("1 0 0:22 / /dev/shm rw - tmpfs tmpfs rw{options}\n2 0 8:1 / / rw - ext4 /dev/sda1 rw\n3 0 0:40 / /data rw - nfs4 store:/data rw\n"));
        self.put("/dev/shm/x", "");
        self.put(
            "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
            "always within_size advise [never] deny force",
        );
    }

    fn facts(&self, dirs: &[&str]) -> Facts {
        let dirs: Vec<PathBuf> = dirs.iter().map(PathBuf::from).collect();
        Facts::read(&System::below(self.0.path()).unwrap(), &dirs)
    }
}

fn goal() -> Goal {
    Goal { purposes: Vec::new(), link: LINK, rtt: None }
}

/// A host as fasterdata advises.
fn tuned() -> Planted {
    let host = Planted(tempfile::tempdir().unwrap());
    for (name, value) in [
        ("net.core.rmem_max", "2147483647"),
        ("net.core.wmem_max", "2147483647"),
        ("net.core.default_qdisc", "fq"),
        ("net.core.somaxconn", "4096"),
        ("net.ipv4.tcp_rmem", "4096 131072 1073741824"),
        ("net.ipv4.tcp_wmem", "4096 16384 1073741824"),
        ("net.ipv4.tcp_mem", "3000000 4000000 6000000"),
        ("net.ipv4.tcp_congestion_control", "bbr"),
        ("net.ipv4.tcp_available_congestion_control", "reno cubic bbr"),
        ("net.ipv4.tcp_mtu_probing", "1"),
        ("net.ipv4.tcp_window_scaling", "1"),
        ("net.ipv4.tcp_sack", "1"),
        ("net.ipv4.tcp_timestamps", "1"),
        ("net.ipv4.tcp_no_metrics_save", "1"),
        ("net.ipv4.ip_local_port_range", "32768 60999"),
        ("fs.inotify.max_user_instances", "128"),
        ("user.max_user_namespaces", "100000"),
        ("kernel.osrelease", "6.8.0"),
    ] {
        host.sysctl(name, value);
    }
    host.put("/proc/cmdline", "quiet iommu=pt");
    host.put("/sys/class/iommu/dmar0/x", "");
    host.put("/dev/fuse", "");
    host.put("/usr/bin/fusermount3", "");
    host.put("/proc/filesystems", "\text4\nnodev\toverlay\n\terofs\n");
    host.card("eth0", 100_000, 9000, 16, "8.0 GT/s PCIe", 16);
    host.interrupts(|queue| 16 + queue);
    host.cpus("performance");
    host.limits("65536");
    host.shm(",huge=within_size");
    host
}

fn of<'a>(findings: &'a [Finding], check: &str) -> &'a Finding {
    findings.iter().find(|of| of.check == check).unwrap_or_else(|| panic!("no {check}"))
}

#[test]
fn nothing_costs_anything_on_a_tuned_host() {
    let facts = tuned().facts(&[]);
    assert_eq!(facts.fastest_link(), Some(LINK));
    let findings = all(&facts, &goal());
    let told: Vec<_> = findings.iter().filter(|of| of.verdict != Verdict::Fit).collect();
    assert!(told.iter().all(|of| of.verdict != Verdict::Costs), "{told:#?}");
    let names: Vec<_> = told.iter().map(|of| of.check).collect();
    assert!(names.is_empty(), "{told:#?}");
    assert!(findings.len() >= 30, "only {} checks could read their facts", findings.len());
    let changes: usize = findings.iter().map(|of| of.changes.len()).sum();
    assert_eq!(changes, 0);
}

#[test]
fn each_fault_of_a_badly_tuned_host_is_found_with_its_price() {
    let host = tuned();
    let set = |name, value| host.sysctl(name, value);
    set("net.core.rmem_max", "212992");
    set("net.ipv4.tcp_rmem", "4096 131072 6291456");
    set("net.ipv4.tcp_wmem", "4096 16384 4194304");
    set("net.ipv4.tcp_mem", "1000 2000 20000");
    set("net.ipv4.tcp_window_scaling", "0");
    set("net.ipv4.tcp_mtu_probing", "0");
    set("net.ipv4.tcp_congestion_control", "cubic");
    set("net.ipv4.tcp_available_congestion_control", "reno cubic");
    host.put("/proc/cmdline", "quiet");
    host.put("/sys/kernel/iommu_groups/0/type", "DMA-FQ");
    host.put("/sys/devices/pci0000:80/0000:81:00.0/current_link_width", "4");
    host.put("/sys/devices/pci0000:80/0000:81:00.0/net/eth0/statistics/rx_missed_errors", "1000000");
    host.interrupts(|_| 0);
    host.cpus("powersave");
    host.put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "800000");
    host.put("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3200000");
    host.put("/proc/self/status", "Cpus_allowed_list:\t0-3\nMems_allowed_list:\t0\n");
    host.put("/proc/77/comm", "irqbalance\n");
    host.limits("256");
    host.shm("");
    host.put(
        "/proc/net/tcp",
        "  sl  local_address rem_address   st\n   0: 00000000:1B44 00000000:0000 0A 0:0\n",
    );
    let findings = all(&host.facts(&["/data", "/scratch"]), &goal());

    // One stream: 6 MiB of buffer are 3.48 MiB of window; 8 streams over 50 ms carry 4.67 Gbit/s.
    let buffer = of(&findings, "tcp-receive-buffer");
    assert!((buffer.cost.unwrap() - 0.9533).abs() < 0.001, "{buffer:#?}");
    assert!(
        buffer.model.starts_with("8 streams x 3.") && buffer.model.ends_with("4.67 Gbit/s of 100 Gbit/s")
    );
    let change = Change::Sysctl { name: "net.ipv4.tcp_rmem".into(), value: "4096 131072 268435456".into() };
    assert_eq!(buffer.changes, [change]);
    for check in [
        "tcp-send-buffer",
        "udp-receive-buffer",
        "tcp-memory",
        "tcp-window-scaling",
        "pcie-slot",
        "nic-drops",
        "irq-distribution",
        "open-files",
    ] {
        assert!(of(&findings, check).is_serious(), "{:#?}", of(&findings, check));
    }
    for check in [
        "tcp-mtu-probing",
        "congestion-control",
        "irqbalance",
        "irq-numa",
        "process-numa",
        "memory-numa",
        "iommu",
        "cpu-governor",
        "file-system",
        "port",
    ] {
        let found: Vec<_> =
            findings.iter().filter(|of| of.check == check && of.verdict != Verdict::Fit).collect();
        assert!(!found.is_empty() && found.iter().all(|of| !of.why.is_empty()), "{check}");
    }
    assert_eq!(of(&findings, "shm-huge-pages").read, "huge=never");
    let costs: Vec<f64> =
        findings.iter().filter(|of| of.verdict == Verdict::Costs).map(|of| of.cost.unwrap_or(1.0)).collect();
    assert!(costs.is_sorted_by(|a, b| a >= b), "{costs:?}");
    for finding in findings.iter().filter(|of| of.verdict == Verdict::Costs) {
        assert!(finding.cost.is_none() || !finding.model.is_empty(), "{finding:#?}");
        assert!(!finding.source.is_empty() && !finding.wanted.is_empty());
    }
}

#[test]
fn a_card_is_judged_by_what_ethtool_shows() {
    let mut facts = tuned().facts(&[]);
    let good = Card {
        receive_ring: Some((8192, 8192)),
        send_ring: Some((8192, 8192)),
        channels: Some((32, 63)),
        receive_wait: Some(8),
        receive_frames: Some(128),
        adaptive: Some(true),
        pause: Some((true, true)),
        active: [
            "rx-gro",
            "tx-tcp-segmentation",
            "tx-generic-segmentation",
            "rx-checksum",
            "tx-checksum-ip-generic",
        ]
        .map(String::from)
        .to_vec(),
        changeable: ["rx-gro", "tx-tcp-segmentation", "rx-lro"].map(String::from).to_vec(),
    };
    facts.interfaces[0].card = Some(good.clone());
    facts.interfaces[0].qdiscs = Some(vec!["fq".into()]);
    let findings = all(&facts, &goal());
    assert!(findings.iter().all(|of| of.verdict == Verdict::Fit), "{findings:#?}");

    let bad = Card {
        receive_ring: Some((512, 8192)),
        channels: Some((1, 63)),
        receive_wait: Some(0),
        adaptive: Some(false),
        pause: Some((false, false)),
        active: vec![
            "rx-checksum".into(),
            "tx-checksum-ip-generic".into(),
            "tx-generic-segmentation".into(),
            "rx-lro".into(),
        ],
        ..good
    };
    facts.interfaces[0].card = Some(bad);
    facts.interfaces[0].mtu = Some(1500);
    facts.interfaces[0].qdiscs = Some(vec!["pfifo_fast".into()]);
    facts.interfaces[0].receive_queues.truncate(1);
    let findings = all(&facts, &goal());
    for check in ["nic-queues", "mtu", "rps"] {
        assert!(of(&findings, check).is_serious(), "{:#?}", of(&findings, check));
    }
    for check in ["nic-receive-ring", "nic-coalescing", "nic-pause", "nic-offload", "qdisc"] {
        assert_ne!(of(&findings, check).verdict, Verdict::Fit, "{check}");
        assert!(!of(&findings, check).changes.is_empty(), "{check}");
    }
    let lro = findings.iter().find(|of| of.object.ends_with("rx-lro")).unwrap();
    assert_eq!(lro.verdict, Verdict::Note);
}

#[test]
fn a_container_says_what_it_cannot_see() {
    let host = Planted(tempfile::tempdir().unwrap());
    host.put("/.dockerenv", "");
    host.put("/proc/1/comm", "sh");
    host.sysctl("net.ipv4.tcp_rmem", "4096 131072 6291456");
    host.put("/sys/class/net/eth0/mtu", "1500");
    host.put("/sys/class/net/eth0/operstate", "up");
    host.put("/sys/class/net/eth0/speed", "10000");
    let findings = all(&host.facts(&[]), &Goal { link: 10_000_000_000, ..goal() });
    let unseen: Vec<_> =
        findings.iter().filter(|of| of.verdict == Verdict::Unknown).map(|of| of.check).collect();
    for check in ["container", "irqbalance", "udp-receive-buffer", "tcp-send-buffer", "cpu-governor"] {
        assert!(unseen.contains(&check), "{check}: {unseen:?}");
    }
    assert!(findings.iter().filter(|of| of.verdict == Verdict::Unknown).all(|of| !of.why.is_empty()));
    assert!(of(&findings, "fuse").is_serious());
}

#[test]
fn without_sys_nothing_is_invented() {
    let host = Planted(tempfile::tempdir().unwrap());
    host.put("/proc/1/comm", "sh");
    let findings = all(&host.facts(&[]), &goal());
    for check in ["iommu", "nic-speed"] {
        assert_eq!(of(&findings, check).verdict, Verdict::Unknown, "{check}");
    }
}

#[test]
fn the_card_is_found_behind_any_number_of_interfaces_without_a_device() {
    let host = tuned();
    for number in 0..300 {
        host.put(&format!("/sys/class/net/cali{number:03}/mtu"), "1500");
    }
    let facts = host.facts(&[]);
    assert_eq!(facts.carriers().map(|of| of.name.as_str()).collect::<Vec<_>>(), ["eth0"]);
}

#[test]
fn sockets_are_given_at_most_half_of_the_memory() {
    let host = tuned();
    host.sysctl("net.ipv4.tcp_mem", "10000 20000 30000");
    let goal = Goal { rtt: Some(Duration::from_millis(300)), ..goal() };
    let changes = |kib: u64| {
        host.put("/proc/meminfo", &format!("MemTotal: {kib} kB\n"));
        of(&all(&host.facts(&[]), &goal), "tcp-memory").changes.clone()
    };
    let page = rustix::param::page_size() as u64;
    let [Change::Sysctl { value, .. }] = &changes(1 << 20)[..] else { panic!() };
    let most: u64 = value.split(' ').next_back().unwrap().parse().unwrap();
    assert_eq!(most, (1 << 29) / page, "{value}");
    assert!(matches!(changes(100 << 10)[..], [Change::Manual { .. }]), "less than there is now");
}

#[test]
fn any_link_and_any_path_is_judged() {
    let facts = tuned().facts(&[]);
    for link in [1, u64::MAX] {
        for rtt in [Duration::ZERO, Duration::MAX] {
            assert!(!all(&facts, &Goal { purposes: Vec::new(), link, rtt: Some(rtt) }).is_empty());
        }
    }
}

#[test]
fn a_virtual_machine_is_told_apart_and_its_disk_is_not_judged() {
    let host = tuned();
    host.put("/sys/class/dmi/id/sys_vendor", "QEMU");
    host.put("/sys/class/dmi/id/product_name", "Standard PC");
    host.put("/proc/self/mountinfo", "2 0 253:1 / / rw - ext4 /dev/vda1 rw\n");
    host.link("/sys/dev/block/253:1", "../../devices/virtio1/block/vda/vda1");
    host.put("/sys/devices/virtio1/block/vda/vda1/partition", "1");
    host.put("/sys/devices/virtio1/block/vda/queue/rotational", "1");
    let mut facts = host.facts(&["/var"]);
    assert_eq!(of(&all(&facts, &goal()), "virtual-machine").read, "QEMU Standard PC");
    let disk = |facts: &Facts| of(&all(facts, &goal()), "disk-speed").clone();
    assert_eq!(disk(&facts).verdict, Verdict::Unknown);
    facts.storage.directories[0].disk.as_mut().unwrap().name = "sda".into();
    assert!(disk(&facts).is_serious(), "a disk that turns carries no 100 Gbit/s");
}

#[test]
fn what_is_checked_depends_on_the_purpose() {
    let facts = tuned().facts(&[]);
    let names = |purpose| -> Vec<&str> {
        let goal = Goal { purposes: vec![purpose], ..goal() };
        all(&facts, &goal).iter().map(|of| of.check).collect()
    };
    assert!(names(Purpose::Mount).contains(&"fuse") && !names(Purpose::Copy).contains(&"fuse"));
    assert!(
        names(Purpose::Field).contains(&"udp-receive-buffer")
            && !names(Purpose::Mount).contains(&"udp-receive-buffer")
    );
    let far = Goal { rtt: Some(Duration::from_millis(300)), ..goal() };
    let host = tuned();
    host.sysctl("net.ipv4.tcp_rmem", "4096 131072 268435456");
    let facts = host.facts(&[]);
    assert_eq!(of(&all(&facts, &goal()), "tcp-receive-buffer").verdict, Verdict::Fit);
    assert!(of(&all(&facts, &far), "tcp-receive-buffer").is_serious(), "a longer path needs a larger window");
}
