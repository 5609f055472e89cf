//! Fix and undo on a real kernel, in a network namespace of its own: killed at every step, then undone.
//!
//! The test starts itself again under `unshare`, so that nothing of this machine changes.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tidecast_doctor::Change;
use tidecast_doctor::change::{Error, Live, Places, Plan, Record, Restored, apply, undo};

/// More steps than a fix has.
const STEPS: usize = 200;
const SETUP: &str = "set -e
ip link add name one type veth peer name other
ip link set one up; ip link set other up
exec \"$@\"";

fn places(at: &Path) -> Places {
    Places {
        parameters: "/proc/sys".into(),
        devices: at.join("sys"),
        lasting: at.join("etc"),
        record: at.join("record"),
    }
}

fn changes() -> Vec<Change> {
    let sysctl = |name: &str, value: &str| Change::Sysctl { name: name.into(), value: value.into() };
    vec![
        sysctl("net.ipv4.tcp_rmem", "4096 131072 268435456"),
        sysctl("net.ipv4.tcp_wmem", "4096 65536 268435456"),
        sysctl("net.ipv4.tcp_mtu_probing", "1"),
        sysctl("net.ipv4.conf.one.forwarding", "1"),
        Change::Sysfs { path: "devices/power".into(), value: "1".into() },
    ]
}

/// All parameters of the network, and the files.
fn snapshot(at: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for top in ["/proc/sys/net/ipv4".into(), "/proc/sys/net/ipv6".into(), at.join("etc"), at.join("sys")] {
        let mut left: Vec<PathBuf> = vec![top];
        while let Some(dir) = left.pop() {
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    left.push(entry.path());
                    continue;
                }
                let text = std::fs::read_to_string(entry.path()).unwrap_or_else(|e| e.to_string());
                all.insert(entry.path().display().to_string(), text);
            }
        }
    }
    // The kernel changes it by itself.
    all.retain(|name, _| !name.ends_with("/gc_thresh") && !name.contains("/stable_secret"));
    all
}

/// Runs the ignored test `part` of this program in a namespace of its own; `None` if this user may make none.
fn inside(part: &str, at: &Path) -> Option<Output> {
    let user = if rustix::process::geteuid().is_root() { "-n" } else { "-Urn" };
    let works = |words: &[&str]| {
        Command::new("unshare")
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    };
    if !works(&[user, "sh", "-c", "ip link add name one type veth peer name other"]) {
        eprintln!("skipped: needs unshare, iproute2 and network namespaces");
        return None;
    }
    let program = std::env::current_exe().unwrap();
    let out = Command::new("unshare")
        .args([user, "sh", "-c", SETUP, "sh"])
        .arg(program)
        .args(["--ignored", "--exact", part, "--nocapture", "--test-threads=1"])
        .env("DOCTOR_TEST", at)
        .output()
        .unwrap();
    Some(out)
}

fn planted() -> tempfile::TempDir {
    let at = tempfile::tempdir().unwrap();
    for dir in ["sys/devices", "etc/sysctl.d", "etc/systemd/system/multi-user.target.wants"] {
        std::fs::create_dir_all(at.path().join(dir)).unwrap();
    }
    std::fs::write(at.path().join("sys/devices/power"), "0\n").unwrap();
    std::fs::write(at.path().join("etc/sysctl.d/90-tidecast-doctor.conf"), "# an administrator's\n").unwrap();
    at
}

#[test]
fn killed_at_every_step_all_is_as_before_after_undo() {
    let at = planted();
    if let Some(out) = inside("every_step_in_here", at.path()) {
        let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{text}");
        assert!(text.contains("steps survived"), "{text}");
    }
}

/// In the namespace: a child is killed at each step.
#[test]
#[ignore = "started by the test above, in a namespace of its own"]
fn every_step_in_here() {
    let at = PathBuf::from(std::env::var_os("DOCTOR_TEST").unwrap());
    let before = snapshot(&at);
    assert!(before.len() > 100, "{}", before.len());
    for step in 0..STEPS {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "fix_in_here", "--nocapture", "--test-threads=1"])
            .env("DOCTOR_STEP", step.to_string())
            .output()
            .unwrap();
        let live = Live::new(places(&at));
        let undone = undo(&live, Record::open(&at.join("record")).unwrap(), &mut |_| Ok(())).unwrap();
        let odd = undone.iter().find(|one| !matches!(one.restored, Restored::Now(_) | Restored::Already));
        assert!(odd.is_none(), "step {step}: {odd:?}");
        let after = snapshot(&at);
        for (name, value) in &before {
            assert_eq!(after.get(name), Some(value), "{name} after a kill at step {step}");
        }
        assert_eq!(before.len(), after.len(), "a kill at step {step}");
        assert!(!at.join("record").exists());
        if child.status.success() {
            assert!(step > 20, "{}", String::from_utf8_lossy(&child.stdout));
            println!("{step} steps survived");
            return;
        }
    }
    panic!("the fix never ends");
}

/// Applies all changes and kills itself at a step.
#[test]
#[ignore = "started by the test above, in a namespace of its own"]
fn fix_in_here() {
    let at = PathBuf::from(std::env::var_os("DOCTOR_TEST").unwrap());
    let mut left: usize = std::env::var("DOCTOR_STEP").unwrap().parse().unwrap();
    let live = Live::new(places(&at));
    let plan = Plan::new(&changes(), &live, Some(&[]));
    assert_eq!(plan.steps.len(), 8, "{plan:?}");
    let mut record = Record::open(&at.join("record")).unwrap();
    let mut reach = |_: &'static str| -> Result<(), Error> {
        if left == 0 {
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
            std::thread::park();
        }
        left -= 1;
        Ok(())
    };
    let applied = apply(&plan, &live, &mut record, &mut reach).unwrap();
    assert!(applied.iter().all(|one| one.now.is_ok()), "{applied:?}");
}
