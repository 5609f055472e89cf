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
