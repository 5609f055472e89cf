//! Tests of the choice of a place: in directories of their own, and by asking about the host's, which nothing changes.

use std::os::unix::fs::symlink;

use super::*;

fn guard(home: &Path) -> Guard {
    Guard::new(&[home.to_owned()])
}

fn refused(at: &Path, guard: &Guard, chosen: Chosen) -> Unfit {
    match find(at, guard, chosen) {
        Err(unfit) => unfit,
        Ok(_) => panic!("{} may be mounted over", at.display()),
    }
}

#[test]
fn what_the_system_and_the_caller_need_stays_visible_however_it_is_spelled() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("homes/me");
    fs::create_dir_all(&home).unwrap();
    symlink("/etc", dir.path().join("link")).unwrap();
    symlink(dir.path().join("homes"), dir.path().join("door")).unwrap();
    let guard = guard(&dir.path().join("door/me"));
    let mut places = vec![home, dir.path().join("homes"), dir.path().join("door"), dir.path().to_owned()];
    places.extend(SYSTEM.iter().map(PathBuf::from));
    places.extend(
        ["/etc/.", "//etc", "/etc/../etc/", "/usr/../etc", "/proc/self/root/etc", "/proc/self/root"]
            .map(PathBuf::from),
    );
    places.push(dir.path().join("link"));
    places.push(dir.path().join("link/../etc"));
    for place in places {
        for chosen in [Chosen::ByCaller, Chosen::ByManifest] {
            let unfit = refused(&place, &guard, chosen);
            assert!(matches!(unfit, Unfit::Protected { .. }), "{}: {unfit}", place.display());
        }
    }
}

#[test]
fn a_manifest_chooses_no_place_below_the_system_nor_a_hidden_one_of_the_callers() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("me");
    fs::create_dir_all(home.join(".config")).unwrap();
    let guard = guard(&home);
    for place in [
        "/etc/tidecast-no",
        "/usr/lib/tidecast-no/x",
        "/proc/self/root/etc/tidecast-no",
        "/usr/share/tidecast-no",
    ] {
        let unfit = refused(Path::new(place), &guard, Chosen::ByManifest);
        assert!(matches!(unfit, Unfit::Closed { .. }), "{place}: {unfit}");
        assert!(find(Path::new(place), &guard, Chosen::ByCaller).is_ok(), "{place}");
    }
    for place in [home.join(".ssh"), home.join(".config/autostart")] {
        assert!(matches!(refused(&place, &guard, Chosen::ByManifest), Unfit::Closed { .. }));
    }
    for place in [
        home.join("env"),
        home.join("project/.venv"),
        "/usr/local/tidecast-no".into(),
        "/opt/tidecast-no".into(),
    ] {
        assert!(
            matches!(find(&place, &guard, Chosen::ByManifest), Ok(Spot::Absent(_))),
            "{}",
            place.display()
        );
    }
}

#[test]
fn only_the_caller_hides_files() {
    let dir = tempfile::tempdir().unwrap();
    let guard = guard(Path::new("/nonexistent"));
    let (full, empty) = (dir.path().join("full"), dir.path().join("empty"));
    fs::create_dir_all(full.join("x")).unwrap();
    fs::create_dir(&empty).unwrap();
    assert!(matches!(refused(&full, &guard, Chosen::ByManifest), Unfit::NotEmpty { .. }));
    assert!(matches!(find(&full, &guard, Chosen::ByCaller), Ok(Spot::There(_))));
    assert!(matches!(find(&empty, &guard, Chosen::ByManifest), Ok(Spot::There(_))));
}

#[test]
fn where_no_directory_can_be_the_reason_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let guard = guard(Path::new("/nonexistent"));
    fs::write(dir.path().join("file"), "").unwrap();
    symlink("nowhere", dir.path().join("dangling")).unwrap();
    for (place, why) in [
        ("file", "Not a directory"),
        ("file/x", "Not a directory"),
        ("dangling", "a dangling symbolic link"),
        ("no/../x", "`..`"),
    ] {
        let unfit = refused(&dir.path().join(place), &guard, Chosen::ByCaller).to_string();
        assert!(unfit.contains(why), "{place}: {unfit}");
    }
}

#[test]
fn another_user_cannot_put_another_directory_in_its_place() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can make another user's directories");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let guard = guard(&dir.path().join("home"));
    let make = |name: &str, owner: u32, mode: u32| {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(owner), None).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        path
    };
    let (sticky, open, lab) = (make("tmp", 0, 0o1777), make("open", 0, 0o777), make("lab", 61001, 0o755));
    let planted = make("tmp/env", 61001, 0o755);
    symlink(&lab, sticky.join("link")).unwrap();
    std::os::unix::fs::lchown(sticky.join("link"), Some(61001), None).unwrap();
    make("tmp/mine", 0, 0o755);
    for chosen in [Chosen::ByCaller, Chosen::ByManifest] {
        for place in [planted.clone(), planted.join("a/b"), sticky.join("link"), sticky.join("link/a")] {
            let unfit = refused(&place, &guard, chosen);
            assert!(
                matches!(unfit, Unfit::Replaceable { why: Replaceable::Planted { owner: 61001, .. }, .. }),
                "{}: {unfit}",
                place.display()
            );
        }
        let unfit = refused(&open.join("a"), &guard, chosen);
        assert!(matches!(unfit, Unfit::Replaceable { why: Replaceable::ByAll { .. }, .. }), "{unfit}");
        for place in [sticky.join("free/a"), sticky.join("mine"), sticky.join("mine/a")] {
            find(&place, &guard, chosen).unwrap();
        }
    }
    find(&lab.join("env"), &guard, Chosen::ByCaller).unwrap();
    let unfit = refused(&lab.join("env"), &guard, Chosen::ByManifest);
    assert!(
        matches!(unfit, Unfit::Replaceable { why: Replaceable::OfOther { owner: 61001, .. }, .. }),
        "{unfit}"
    );
}

#[test]
fn a_place_that_another_user_puts_there_during_the_look_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can make another user's directories");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let guard = guard(&dir.path().join("home"));
    let sticky = dir.path().join("tmp");
    fs::create_dir(&sticky).unwrap();
    fs::set_permissions(&sticky, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    let (theirs, at) = (sticky.join("theirs"), sticky.join("at"));
    fs::create_dir(&theirs).unwrap();
    std::os::unix::fs::chown(&theirs, Some(61001), None).unwrap();
    let ended = std::sync::atomic::AtomicBool::new(false);
    let (mut refused, mut absent) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                fs::rename(&theirs, &at).unwrap();
                fs::rename(&at, &theirs).unwrap();
            }
        });
        for _ in 0..20_000 {
            match find(&at, &guard, Chosen::ByCaller) {
                Err(Unfit::Replaceable { .. }) => refused += 1,
                Ok(Spot::Absent(_)) => absent += 1,
                found => panic!("{found:?}"),
            }
        }
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(refused > 0 && absent > 0, "{refused} {absent}");
}
