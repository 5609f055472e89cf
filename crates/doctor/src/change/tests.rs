//! Fix and undo against a host in memory, with a crash at every step.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::*;

/// Settings in memory.
#[derive(Debug, Default)]
struct Memory {
    values: RefCell<BTreeMap<Target, Value>>,
    /// Targets that refuse every change.
    fixed: Vec<Target>,
    /// A target of which the kernel makes another value.
    clamped: Option<(Target, Value)>,
}

impl Host for Memory {
    fn get(&self, target: &Target) -> io::Result<Option<Value>> {
        Ok(self.values.borrow().get(target).cloned())
    }

    fn set(&self, target: &Target, value: &Value) -> io::Result<()> {
        if self.fixed.contains(target) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut values = self.values.borrow_mut();
        let is_new = |to: &Value| value == to;
        let value = match &self.clamped {
            Some((clamped, to)) if clamped == target && !is_new(&text("1")) => to,
            _ => value,
        };
        match (target, value) {
            (Target::File(_), Value::Absent) => drop(values.remove(target)),
            // As the kernel reads back a table of numbers.
            (Target::Sysctl(_), Value::Text(value)) => {
                let words: Vec<_> = value.split_whitespace().collect();
                values.insert(target.clone(), text(&words.join("\t")));
            }
            _ => drop(values.insert(target.clone(), value.clone())),
        }
        Ok(())
    }

    fn has_directory(&self, _: &str) -> bool {
        true
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn rmem() -> Target {
    Target::Sysctl("net.ipv4.tcp_rmem".into())
}

fn governor() -> Target {
    Target::Sysfs("devices/system/cpu/cpu0/cpufreq/scaling_governor".into())
}

fn sysctl(name: &str, value: &str) -> Change {
    Change::Sysctl { name: name.into(), value: value.into() }
}

fn host() -> Memory {
    let values = [
        (rmem(), text("4096\t131072\t6291456")),
        (Target::Sysctl("net.ipv4.tcp_mtu_probing".into()), text("0")),
        (governor(), text("powersave")),
        (
            Target::File("sysctl.d/90-tidecast-doctor.conf".into()),
            Value::File {
                mode: 0o640,
                owner: Some([0, 7]),
                content: data_encoding::BASE64.encode(b"# an administrator's\n"),
            },
        ),
    ];
    Memory { values: RefCell::new(values.into()), ..Memory::default() }
}

fn changes() -> Vec<Change> {
    vec![
        sysctl("net.ipv4.tcp_rmem", "4096 131072 268435456"),
        sysctl("net.ipv4.tcp_mtu_probing", "1"),
        Change::Sysfs {
            path: "devices/system/cpu/cpu0/cpufreq/scaling_governor".into(),
            value: "performance".into(),
        },
        Change::Mtu { interface: "eth0".into(), bytes: 9000 },
        Change::Qdisc { interface: "eth0".into(), kind: "fq".into() },
        Change::Manual { command: "set the BIOS to performance".into() },
    ]
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("record")
    }

    /// The record. A process that another test starts has the descriptors of this one, with its lock, until it runs its
    /// program.
    fn record(&self) -> Record {
        for _ in 0..10_000 {
            match Record::open(&self.path()) {
                Err(Error::Locked) => std::thread::sleep(std::time::Duration::from_millis(1)),
                other => return other.unwrap(),
            }
        }
        panic!("the record stays locked");
    }
}

fn on(_: &'static str) -> Result<(), Error> {
    Ok(())
}

fn fix(host: &Memory, place: &Place, changes: &[Change]) -> Vec<Applied> {
    let mut record = place.record();
    let plan = Plan::new(changes, host, Some(record.entries()));
    apply(&plan, host, &mut record, &mut on).unwrap()
}

fn lasting(host: &Memory, path: &str) -> String {
    let Some(Value::File { content, .. }) = host.get(&Target::File(path.into())).unwrap() else {
        panic!("no file");
    };
    String::from_utf8(data_encoding::BASE64.decode(content.as_bytes()).unwrap()).unwrap()
}

#[test]
fn what_is_fixed_is_undone() {
    let (host, place) = (host(), Place::new());
    let before = host.values.borrow().clone();
    let applied = fix(&host, &place, &changes());
    assert_eq!(applied.len(), 6, "three settings and three files: {applied:?}");
    assert!(applied.iter().all(|applied| applied.now.is_ok()), "{applied:?}");
    assert_eq!(host.get(&rmem()).unwrap(), Some(text("4096\t131072\t268435456")));
    assert!(fix(&host, &place, &changes()).is_empty(), "all is as wanted");
    let undone = undo(&host, place.record(), &mut on).unwrap();
    assert!(undone.iter().all(|undone| matches!(undone.restored, Restored::Now(_))), "{undone:?}");
    assert_eq!(*host.values.borrow(), before);
    assert!(!place.path().exists(), "nothing of ours stays");
    assert!(undo(&host, place.record(), &mut on).unwrap().is_empty());
}

#[test]
fn a_crash_at_any_step_of_fix_can_be_undone() {
    let mut step = 0_usize;
    loop {
        let (host, place) = (host(), Place::new());
        let before = host.values.borrow().clone();
        let mut record = place.record();
        let plan = Plan::new(&changes(), &host, Some(record.entries()));
        let mut left = step;
        let mut crash = |at: &'static str| {
            let is_over = left == 0;
            left = left.wrapping_sub(1);
            if is_over { Err(Error::Interrupted(at)) } else { Ok(()) }
        };
        let ended = apply(&plan, &host, &mut record, &mut crash);
        drop(record);
        if ended.is_ok() {
            assert!(step > 18, "every change has three steps");
            return;
        }
        undo(&host, place.record(), &mut on).unwrap();
        assert_eq!(*host.values.borrow(), before, "crashed at step {step}: {ended:?}");
        assert!(!place.path().exists());
        step += 1;
    }
}

#[test]
fn a_crash_at_any_step_of_undo_can_be_undone() {
    let mut step = 0_usize;
    loop {
        let (host, place) = (host(), Place::new());
        let before = host.values.borrow().clone();
        fix(&host, &place, &changes()[..2]);
        fix(&host, &place, &[sysctl("net.ipv4.tcp_rmem", "1 2 3"), changes()[2].clone()]);
        let mut left = step;
        let mut crash = |at: &'static str| {
            let is_over = left == 0;
            left = left.wrapping_sub(1);
            if is_over { Err(Error::Interrupted(at)) } else { Ok(()) }
        };
        let ended = undo(&host, place.record(), &mut crash);
        let again = undo(&host, place.record(), &mut on).unwrap();
        assert!(!again.iter().any(|undone| matches!(undone.restored, Restored::Foreign { .. })), "{again:?}");
        assert_eq!(*host.values.borrow(), before, "crashed at step {step}");
        if ended.is_ok() {
            assert!(step > 4);
            return;
        }
        step += 1;
    }
}

#[test]
fn two_fixes_are_undone_to_the_first_value() {
    let (host, place) = (host(), Place::new());
    let before = host.values.borrow().clone();
    fix(&host, &place, &[sysctl("net.ipv4.tcp_rmem", "1 2 3")]);
    fix(&host, &place, &[sysctl("net.ipv4.tcp_rmem", "4 5 6"), sysctl("net.ipv4.tcp_mtu_probing", "1")]);
    let file = lasting(&host, target::SYSCTL);
    assert!(file.ends_with("-net.ipv4.tcp_mtu_probing = 1\n-net.ipv4.tcp_rmem = 4 5 6\n"), "{file}");
    assert_eq!(undo(&host, place.record(), &mut on).unwrap().len(), 3);
    assert_eq!(*host.values.borrow(), before);
}

#[test]
fn what_somebody_else_has_changed_stays() {
    let (host, place) = (host(), Place::new());
    fix(&host, &place, &changes());
    host.set(&rmem(), &text("4096 131072 1000000")).unwrap();
    host.values.borrow_mut().remove(&governor());
    let undone = undo(&host, place.record(), &mut on).unwrap();
    let of = |target: &Target| &undone.iter().find(|undone| undone.target == *target).unwrap().restored;
    assert!(matches!(of(&rmem()), Restored::Foreign { .. }));
    assert_eq!(*of(&governor()), Restored::Gone);
    assert_eq!(host.get(&rmem()).unwrap(), Some(text("4096\t131072\t1000000")));
    assert!(!place.path().exists(), "it was said once");
}

#[test]
fn what_the_system_refuses_is_said_and_the_rest_is_done() {
    let (mut host, place) = (host(), Place::new());
    host.fixed.push(rmem());
    host.clamped = Some((Target::Sysctl("net.ipv4.tcp_mtu_probing".into()), text("0")));
    let before = host.values.borrow().clone();
    let applied = fix(&host, &place, &changes());
    let refused: Vec<_> = applied.iter().filter(|applied| applied.now.is_err()).collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(refused[0].target, rmem());
    host.fixed = vec![governor()];
    let undone = undo(&host, place.record(), &mut on).unwrap();
    assert!(undone.iter().any(|undone| matches!(undone.restored, Restored::Refused(_))));
    assert_eq!(place.record().entries().len(), 1, "it can be tried again");
    host.fixed.clear();
    undo(&host, place.record(), &mut on).unwrap();
    assert_eq!(*host.values.borrow(), before);
}

#[test]
fn a_value_that_the_kernel_changes_is_put_back() {
    let (mut host, place) = (host(), Place::new());
    let probing = Target::Sysctl("net.ipv4.tcp_mtu_probing".into());
    host.values.borrow_mut().insert(probing.clone(), text("1"));
    host.clamped = Some((probing.clone(), text("0")));
    let applied = fix(&host, &place, &[sysctl("net.ipv4.tcp_mtu_probing", "2")]);
    assert!(applied[0].now.is_err(), "{applied:?}");
    assert_eq!(host.get(&probing).unwrap(), Some(text("1")));
}

#[test]
fn a_setting_changed_after_the_plan_is_not_overwritten() {
    let (host, place) = (host(), Place::new());
    let mut record = place.record();
    let plan = Plan::new(&changes()[..1], &host, Some(record.entries()));
    host.set(&rmem(), &text("7 7 7")).unwrap();
    let applied = apply(&plan, &host, &mut record, &mut on).unwrap();
    assert!(applied[0].now.is_err());
    drop(record);
    undo(&host, place.record(), &mut on).unwrap();
    assert_eq!(host.get(&rmem()).unwrap(), Some(text("7\t7\t7")));
}

#[test]
fn missing_settings_and_what_a_person_decides_are_named() {
    let host = host();
    let mut all = changes();
    all.extend([sysctl("net.none", "1"), sysctl("a..b", "1")]);
    let plan = Plan::new(&all, &host, Some(&[]));
    assert_eq!((plan.manual.len(), plan.notes.len()), (3, 2), "{plan:?}");
}

#[test]
fn the_lasting_files_contain_only_what_was_made() {
    let (mut host, place) = (host(), Place::new());
    fix(&host, &place, &[sysctl("net.ipv4.tcp_mtu_probing", "1")]);
    host.fixed = vec![rmem(), governor()];
    let applied = fix(&host, &place, &changes());
    let files: Vec<_> = applied.iter().filter(|one| matches!(one.target, Target::File(_))).collect();
    assert!(files.is_empty(), "what was to last was refused: {files:?}");
    host.fixed = vec![rmem()];
    let applied = fix(&host, &place, &changes());
    assert!(applied.iter().any(|one| one.target == Target::File(target::UNIT.into())), "{applied:?}");
    let file = lasting(&host, target::SYSCTL);
    assert!(file.contains("tcp_mtu_probing = 1") && !file.contains("tcp_rmem"), "{file}");
}

#[test]
fn without_the_record_no_lasting_file_is_planned() {
    let plan = Plan::new(&changes(), &host(), None);
    assert_eq!(plan.steps.len(), 3, "{plan:?}");
    assert!(plan.notes[0].contains("record"), "{plan:?}");
}

#[test]
fn one_process_at_a_time() {
    let place = Place::new();
    let record = place.record();
    assert!(matches!(Record::open(&place.path()), Err(Error::Locked)));
    drop(record);
    drop(place.record());
}

#[test]
fn a_record_of_another_or_a_link_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    std::fs::create_dir(place.path()).unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(Record::open(&place.path()), Err(Error::NotOurs { .. })));
    let link = place.0.path().join("link");
    std::os::unix::fs::symlink(place.path(), &link).unwrap();
    assert!(matches!(Record::open(&link), Err(Error::Record { .. })));
}

#[test]
fn a_planted_record_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let (host, place) = (host(), Place::new());
    fix(&host, &place, &changes()[..1]);
    let file = place.path().join("record");
    let mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o620);
    assert!(matches!(Record::open(&place.path()), Err(Error::NotOurs { .. })), "others may write to it");
    assert!(matches!(Record::look(&place.path()), Err(Error::NotOurs { .. })));
    mode(0o600);
    for (target, after) in [
        (r#"{"file":"cron.d/x"}"#, r#"{"file":{"mode":420,"owner":null,"content":""}}"#),
        (r#"{"file":"../srv/x"}"#, r#"{"link":"y"}"#),
        (r#"{"sysctl":"net.x\nkernel.core_pattern"}"#, r#"{"text":"1"}"#),
        (r#"{"sysctl":"../../etc/x"}"#, r#"{"text":"1"}"#),
        (r#"{"sysfs":"../etc/x"}"#, r#"{"text":"1"}"#),
        (r#"{"sysctl":"net.x"}"#, r#"{"text":"1\n2"}"#),
        (r#"{"sysctl":"net.x"}"#, r#"{"link":"1"}"#),
    ] {
        let line = format!(r#"{{"intent":{{"target":{target},"before":"absent","after":{after}}}}}"#);
        std::fs::write(&file, format!("{{\"version\":1}}\n{line}\n")).unwrap();
        let opened = Record::open(&place.path());
        assert!(matches!(opened, Err(Error::Damaged { line: 2, .. })), "{target}: {opened:?}");
        assert!(matches!(Record::look(&place.path()), Err(Error::Damaged { .. })), "{target}");
    }
}

#[test]
fn a_line_that_was_cut_short_is_not_read_and_a_damaged_one_is_named() {
    let (host, place) = (host(), Place::new());
    fix(&host, &place, &changes()[..1]);
    let file = place.path().join("record");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() - 3]).unwrap();
    assert_eq!(place.record().entries().len(), 2);
    std::fs::write(&file, [&whole[..], b"{\"made\":{\"entry\":9,\"read\":\"absent\"}}\n"].concat()).unwrap();
    assert!(matches!(Record::open(&place.path()), Err(Error::Damaged { line: 6, .. })));
    std::fs::write(&file, "{\"version\":2}\n").unwrap();
    assert!(matches!(Record::open(&place.path()), Err(Error::Damaged { line: 1, .. })));
}

#[test]
fn the_script_is_a_script_whatever_the_values_are() {
    let host = host();
    let odd = Target::Sysfs("devices/x'; touch /tmp/y; '".replace(' ', "_"));
    host.values.borrow_mut().insert(odd.clone(), text("a\nreboot"));
    let Target::Sysfs(path) = odd else { unreachable!() };
    let all = [changes(), vec![Change::Sysfs { path, value: "$(reboot) 'x".into() }]].concat();
    let plan = Plan::new(&all, &host, Some(&[]));
    let script = plan.script();
    assert!(script.starts_with("#!/bin/sh\n") && script.contains("\nset -eu\n"));
    assert!(script.contains("\n# To be run by hand: tc qdisc replace dev eth0 root fq\n"), "{script}");
    assert!(script.contains("\nsysctl -w net.ipv4.tcp_rmem='4096 131072 268435456'\n"), "{script}");
    assert!(script.contains("before: a reboot\n") && !script.contains("\nreboot"), "{script}");
    assert_eq!(plan.commands().len(), plan.steps.len());
    let checked = std::process::Command::new("sh").args(["-n", "-c", &script]).output().unwrap();
    assert!(checked.status.success(), "{script}\n{checked:?}");
}
