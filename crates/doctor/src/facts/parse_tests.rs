#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

#[test]
fn texts_of_real_hosts() {
    assert_eq!(list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
    assert_eq!(list(""), Some(vec![]));
    assert_eq!(list("3-1"), None);
    assert_eq!(list("0-4294967295"), None, "no list makes memory run out");
    assert_eq!(mask("1,00000005"), Some(vec![0, 2, 32]));
    assert_eq!(mask("x"), None);
    assert_eq!(triple("4096\t131072\t6291456\n"), Some([4096, 131_072, 6_291_456]));
    let snmp = "Ip: A B\nIp: 1 2\nUdp: InDatagrams RcvbufErrors\nUdp: 9 147809\n";
    assert_eq!(counter(snmp, "Udp", "RcvbufErrors"), Some(147_809));
    assert_eq!(counter(snmp, "Udp", "None"), None);
    assert_eq!(
        meminfo("MemTotal:       49368168 kB\nHugePages_Total:       3\n", "MemTotal"),
        Some(49_368_168 << 10)
    );
    assert_eq!(meminfo("HugePages_Total:       3\n", "HugePages_Total"), Some(3));
    assert_eq!(chosen("always [madvise] never"), Some("madvise"));
    assert_eq!(chosen("performance"), Some("performance"));
    assert_eq!(gigatransfers("16.0 GT/s PCIe"), Some(16.0));
    assert_eq!(gigatransfers("Unknown"), None);
    assert_eq!(version("6.18.44-fc-v669"), Some((6, 18)));
    let limits = "Max open files            1024                 524288               files     \n";
    assert_eq!(limit(limits, "Max open files"), Some(Limit { soft: 1024, hard: 524_288 }));
    let line = r"36 35 0:98 / /mnt/my\040disk rw,noatime master:1 - nfs4 store:/a rw,vers=4.2";
    let found = mounts(line).remove(0);
    assert_eq!(
        (found.point.as_str(), found.kind.as_str(), found.source.as_str()),
        ("/mnt/my disk", "nfs4", "store:/a")
    );
    assert_eq!(found.options, ["rw", "noatime", "rw", "vers=4.2"]);
    let table =
        "           CPU0       CPU2\n 24:  1  5  IO-APIC  5-edge  ACPI:Ged\nNMI:  0  0  Non-maskable\n";
    let (cpus, rows) = interrupts(table);
    assert_eq!(cpus, [0, 2]);
    assert_eq!(rows, [Interrupt { number: 24, counts: vec![1, 5], name: "ACPI:Ged".into() }]);
}

#[test]
fn listening_sockets_are_found() {
    let table = "  sl  local_address rem_address   st tx_queue\n\
                 0: 00000000:1B44 00000000:0000 0A 00000000:00000000\n\
                 1: 0100007F:1F90 0100007F:9C40 01 00000000:00000000\n nonsense\n";
    let found: Vec<u16> = table.lines().filter_map(|line| bound(line, "0A")).collect();
    assert_eq!(found, [6980]);
}

proptest! {
    #[test]
    fn a_list_of_cpus_is_read_as_it_is_written(cpus in proptest::collection::btree_set(0u32..4096, 0..64)) {
        let words: Vec<String> = cpus.iter().map(ToString::to_string).collect();
        prop_assert_eq!(list(&words.join(",")), Some(cpus.iter().copied().collect::<Vec<_>>()));
        let mut groups = vec![0u32; 128];
        for cpu in &cpus {
            groups[(cpu / 32) as usize] |= 1 << (cpu % 32);
        }
        let text: Vec<String> = groups.iter().rev().map(|bits| format!("{bits:08x}")).collect();
        prop_assert_eq!(mask(&text.join(",")), Some(cpus.into_iter().collect::<Vec<_>>()));
    }

    #[test]
    fn a_mount_is_read_as_the_kernel_writes_it(point in "/[a-z \\\\\t]{0,12}", kind in "[a-z0-9.]{1,8}") {
        let escaped: String = point.chars().map(|c| match c {
            ' ' | '\t' | '\\' => format!("\\{:03o}", c as u32),
            c => c.to_string(),
        }).collect();
        let found = mounts(&format!("1 0 8:1 / {escaped} rw - {kind} /dev/a rw"));
        prop_assert_eq!(&found[0].point, &point);
        prop_assert_eq!(&found[0].kind, &kind);
    }

    #[test]
    fn any_text_is_survived(text in "[ -~\n]{0,200}", name in "[a-zA-Z: ]{0,8}") {
        everything(&text, &name);
    }
}
