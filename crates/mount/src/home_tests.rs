use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

const ID: &str = "0123456789abcdef0123456789abcdef";

/// A directory for homes, and the home of a tree in it.
fn at_home(base: &Path) -> (Root, Home) {
    let root = Root::open(&base.canonicalize().unwrap()).unwrap();
    let home = Home::within(&root, true, ID.into()).unwrap();
    (root, home)
}

#[test]
fn a_home_is_private_to_its_user() {
    let base = tempfile::tempdir().unwrap();
    let (root, home) = at_home(base.path());
    let mode = || fs::metadata(home.path()).unwrap().mode() & 0o7777;
    assert_eq!(mode(), 0o700);
    let chmod = |mode| fs::set_permissions(home.path(), fs::Permissions::from_mode(mode)).unwrap();
    chmod(0o755);
    Home::within(&root, true, ID.into()).unwrap();
    assert_eq!(mode(), 0o700, "others do not read in it");
    for open in [0o777, 0o720, 0o1777] {
        chmod(open);
        let refused = Home::within(&root, true, ID.into());
        assert!(matches!(refused, Err(Error::Foreign(_))), "{open:o} {refused:?}");
    }
}

#[test]
fn a_link_or_a_file_in_the_place_of_a_home_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let root = Root::open(base.path()).unwrap();
    let at = base.path().join(short(ID));
    symlink(other.path(), &at).unwrap();
    assert!(matches!(Home::within(&root, true, ID.into()), Err(Error::Foreign(_))));
    fs::remove_file(&at).unwrap();
    fs::write(&at, "").unwrap();
    assert!(matches!(Home::within(&root, true, ID.into()), Err(Error::Foreign(_))));
}

#[test]
fn where_the_usual_name_is_taken_the_user_has_one_of_its_own() {
    let base = tempfile::tempdir().unwrap();
    let root = Root::open(base.path()).unwrap();
    let first = format!("tidecast-{}", rustix::process::geteuid().as_raw());
    fs::write(base.path().join(&first), "").unwrap();
    fs::write(base.path().join(format!("{first}-0")), "").unwrap();
    let (one, again) = (own(&root).unwrap(), own(&root).unwrap());
    assert_ne!(one.path(), base.path().join(&first));
    assert_eq!(one.path(), again.path());
}

#[test]
fn files_of_a_home_are_opened_through_no_link() {
    let base = tempfile::tempdir().unwrap();
    let (_, home) = at_home(base.path());
    let thesis = base.path().join("thesis");
    fs::write(&thesis, "precious").unwrap();
    for name in [LOG, STARTING, MANIFEST] {
        symlink(&thesis, home.path().join(name)).unwrap();
    }
    assert!(home.open_log().is_err() && home.lock().is_err() && home.manifest().is_none());
    assert_eq!(fs::read(&thesis).unwrap(), b"precious");
}

#[test]
fn an_exchanged_home_gets_no_files() {
    let base = tempfile::tempdir().unwrap();
    let (_, home) = at_home(base.path());
    let (moved, thesis) = (base.path().join("moved"), base.path().join("thesis"));
    fs::write(&thesis, "precious").unwrap();
    fs::rename(home.path(), &moved).unwrap();
    fs::create_dir(home.path()).unwrap();
    for name in [LOG, STARTING] {
        symlink(&thesis, home.path().join(name)).unwrap();
    }
    drop(home.lock().unwrap());
    home.open_log().unwrap().write_all(b"line").unwrap();
    assert_eq!(fs::read(&thesis).unwrap(), b"precious");
    assert_eq!(fs::read(moved.join(LOG)).unwrap(), b"line");
    assert!(home.verify().unwrap_err().to_string().contains(short(ID)));
}

#[test]
fn a_log_is_continued() {
    let base = tempfile::tempdir().unwrap();
    let (_, home) = at_home(base.path());
    for line in ["one ", "two"] {
        home.open_log().unwrap().write_all(line.as_bytes()).unwrap();
    }
    assert_eq!(fs::read(home.log()).unwrap(), b"one two");
}
