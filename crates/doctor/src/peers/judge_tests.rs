use proptest::prelude::*;

use super::*;

fn host(name: &str) -> Host {
    Host {
        name: name.into(),
        ok: true,
        reason: None,
        hostname: name.into(),
        version: "1".into(),
        kernel: String::new(),
        group: Some(0),
        clock_seconds: Some(0.001),
        clock_error_seconds: Some(0.001),
        send_rate: Some(1_000_000_000),
        receive_rate: Some(1_000_000_000),
        aliases: Vec::new(),
    }
}

fn path(from: &str, to: &str) -> Path {
    Path {
        from: from.into(),
        to: to.into(),
        connects: true,
        rtt_min_seconds: Some(0.01),
        rtt_median_seconds: Some(0.01),
        datagrams: 400,
        arrived: 400,
        answered: 400,
        mtu: Some(1500),
        interface_mtu: Some(1500),
        ..Path::default()
    }
}

/// All paths among hosts, changed by `fault`.
fn all(names: &[&str], fault: impl Fn(&mut Path)) -> Vec<Path> {
    let mut paths = Vec::new();
    for from in names {
        for to in names.iter().filter(|to| *to != from) {
            let mut one = path(from, to);
            fault(&mut one);
            paths.push(one);
        }
    }
    paths
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn found(fault: impl Fn(&mut Path)) -> Vec<Fault> {
    judge(&NAMES.map(host), &all(&NAMES, fault), "1")
}

fn checks(faults: &[Fault]) -> Vec<(&str, Vec<&str>)> {
    faults.iter().map(|f| (f.check, f.hosts.iter().map(String::as_str).collect())).collect()
}

#[test]
fn a_clean_cluster_has_no_fault() {
    assert!(found(|_| ()).is_empty());
}

#[test]
fn a_firewall_is_named_with_its_direction() {
    let faults = found(|p| p.connects = (p.from.as_str(), p.to.as_str()) != ("b", "a"));
    assert_eq!(checks(&faults), [("one-way", vec!["b", "a"])]);
    assert!(faults[0].message.starts_with("b cannot connect to a"), "{}", faults[0].message);
    assert!(faults[0].message.contains("a connects to b"));
    let faults = found(|p| p.connects = p.to != "c");
    assert_eq!(checks(&faults), [("one-way", vec!["c"])]);
    assert!(faults[0].message.contains("no host connects to c"));
    let faults = found(|p| p.connects = p.to != "c" && p.from != "c");
    assert_eq!(checks(&faults), [("unreachable", vec!["c"])], "{faults:?}");
    let faults = found(|p| p.connects = !matches!((p.from.as_str(), p.to.as_str()), ("a", "b") | ("b", "a")));
    assert_eq!(checks(&faults), [("unreachable", vec!["a", "b"])], "{faults:?}");
}

#[test]
fn a_black_hole_blocked_datagrams_and_losses_are_found_with_their_direction() {
    let faults = found(|p| {
        if p.from == "d" {
            (p.mtu, p.black_hole) = (Some(1400), true);
        }
    });
    assert_eq!(checks(&faults), [("mtu-black-hole", vec!["d"])]);
    assert!(faults[0].message.contains("packets over 1400 bytes vanish"), "{}", faults[0].message);
    let faults = found(|p| p.arrived = if p.to == "a" { 0 } else { 400 });
    assert_eq!(checks(&faults), [("udp-blocked", vec!["a"])]);
    let faults = found(|p| p.arrived = if p.from == "a" && p.to == "b" { 388 } else { 400 });
    assert_eq!(checks(&faults), [("loss", vec!["a", "b"])]);
    assert!(faults[0].message.contains("3.0% of datagrams"), "{}", faults[0].message);
    assert!(faults[0].cost.is_some_and(|cost| cost > 0.9 && cost < 1.0), "{faults:?}");
    assert!(found(|p| p.arrived = 399).is_empty(), "one datagram is no fault");
}

#[test]
fn a_fault_of_the_link_between_two_groups_is_one_fault() {
    let mut hosts = NAMES.map(host);
    hosts[2].group = Some(1);
    hosts[3].group = Some(1);
    let crosses = |p: &Path| p.from.as_str() < "c" && p.to.as_str() > "b";
    let paths = all(&NAMES, |p| p.arrived = if crosses(p) { 380 } else { 400 });
    let faults = judge(&hosts, &paths, "1");
    assert_eq!(checks(&faults), [("loss", vec!["a", "b", "c", "d"])]);
    assert!(
        faults[0].message.starts_with("all 4 measured paths from group 1 to group 2: 5.0%"),
        "{}",
        faults[0].message
    );
}

#[test]
fn a_slow_host_a_wrong_clock_and_another_version_are_found() {
    let mut hosts = NAMES.map(host);
    hosts[1].send_rate = Some(10_000_000);
    hosts[2].clock_seconds = Some(-90.0);
    hosts[3].version = "2".into();
    let faults = judge(&hosts, &all(&NAMES, |_| ()), "1");
    assert_eq!(checks(&faults), [("slow-host", vec!["b"]), ("clock", vec!["c"]), ("version", vec!["d"])]);
    assert!(faults[0].cost.is_some_and(|cost| (cost - 0.99).abs() < 1e-9));
    assert!(faults[1].message.contains("behind"), "{}", faults[1].message);
}

proptest! {
    /// Every path that is bad is in exactly one scope, and no good path is.
    #[test]
    fn every_bad_path_is_reported_once(bad in prop::collection::vec(any::<bool>(), 12), split in 0usize..4) {
        let groups: Groups<'_> = NAMES.iter().enumerate().map(|(at, name)| (*name, usize::from(at < split))).collect();
        let paths = all(&NAMES, |_| ());
        let is_bad = |path: &Path| {
            let at = paths.iter().position(|p| p.from == path.from && p.to == path.to);
            at.is_some_and(|at| bad[at])
        };
        let mut told = Vec::new();
        for scope in scopes(&groups, &paths, is_bad) {
            match scope {
                Scope::To(_, its) | Scope::From(_, its) | Scope::Between(_, its) => told.extend(its),
                Scope::One(path) => told.push(path),
            }
        }
        let key = |p: &&Path| (p.from.clone(), p.to.clone());
        let mut told: Vec<_> = told.iter().map(key).collect();
        let mut expected: Vec<_> = paths.iter().filter(|p| is_bad(p)).collect::<Vec<_>>().iter().map(key).collect();
        told.sort();
        expected.sort();
        prop_assert_eq!(told, expected);
    }
}
