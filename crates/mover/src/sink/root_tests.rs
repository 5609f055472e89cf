//! Copies to a destination that is not there yet.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::tests::*;
use super::*;
use crate::flags::Only;
use crate::part::BLOCK;
use crate::spec::Backup;

/// The only staging directory in a directory.
fn stage_in(dir: &Path) -> Option<PathBuf> {
    let found = names(dir).into_iter().filter(|name| name.starts_with(stage::PREFIX));
    let found: Vec<_> = found.map(|name| dir.join(name)).collect();
    assert!(found.len() <= 1);
    found.into_iter().next()
}

fn write(sink: &Directory, all: &[Piece]) {
    all.iter().for_each(|piece| drop(sink.write(0, &block(std::slice::from_ref(piece))).unwrap()));
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

#[test]
fn a_destination_appears_with_all_of_it() {
    let at = tempfile::tempdir().unwrap();
    let dest = at.path().join("new/dest");
    let sink = open(&spec(&dest));
    assert!(sink.fresh() && !dest.exists());
    write(&sink, &[small(1, "d/f", b"bytes"), bare(2, dir("d", 0o555)), bare(3, dir("", 0o550))]);
    let root = stage_in(&at.path().join("new")).unwrap().join("root");
    let made = inode(&root.join("d/f"));
    assert!(!dest.exists());
    assert_eq!(sink.finish(&complete()).unwrap().problems, []);
    assert_eq!((names(&at.path().join("new")), names(&dest)), (vec!["dest".into()], vec!["d".into()]));
    assert_eq!((inode(&dest.join("d/f")), fs::read(dest.join("d/f")).unwrap()), (made, b"bytes".to_vec()));
    for (name, mode) in [("", 0o550), ("d", 0o555), ("d/f", 0o640)] {
        let meta = fs::metadata(dest.join(name)).unwrap();
        assert_eq!((meta.permissions().mode() & 0o7777, meta.mtime()), (mode, MTIME.seconds), "{name}");
    }
}

#[test]
fn what_a_killed_copy_has_brought_is_there_and_what_it_had_begun_is_replaced() {
    let at = tempfile::tempdir().unwrap();
    let dest = at.path().join("dest");
    let all = [small(1, "d/whole", b"whole"), small(2, "d/half", b"half"), small(3, "none", b"")];
    let sink = open(&spec(&dest));
    write(&sink, &all[..2]);
    drop(sink);
    let root = stage_in(at.path()).unwrap().join("root");
    let whole = inode(&root.join("d/whole"));
    // As they are before the rest of the bytes, and before the time is set.
    fs::write(root.join("d/half"), b"ha").unwrap();
    fs::write(root.join("none"), b"").unwrap();
    fs::set_permissions(&root, PermissionsExt::from_mode(0o500)).unwrap();
    let sink = open(&spec(&dest));
    assert!(!sink.fresh() && !dest.exists());
    let asked = [("d/whole", 5), ("d/half", 4), ("none", 0)];
    let is_wanted =
        |(n, (path, len)): (usize, &(&str, usize))| wanted(&sink, n as u64 + 1, &file(path, *len)).is_some();
    assert_eq!(asked.iter().enumerate().map(is_wanted).collect::<Vec<_>>(), [false, true, true]);
    write(&sink, &all[1..]);
    let written = sink.finish(&complete()).unwrap();
    assert_eq!((written.files, written.kept, written.failed), (2, 1, 0), "{:?}", written.problems);
    assert_eq!(inode(&dest.join("d/whole")), whole);
    assert_eq!(fs::read(dest.join("d/half")).unwrap(), b"half");
    assert_eq!(fs::metadata(dest.join("none")).unwrap().mtime(), MTIME.seconds);
    assert_eq!(names(at.path()), ["dest"]);
}

#[test]
fn nothing_of_an_earlier_copy_is_taken_over_if_that_is_not_wanted() {
    let at = tempfile::tempdir().unwrap();
    let dest = at.path().join("dest");
    write(&open(&spec(&dest)), &[small(1, "old", b"old")]);
    copy(&ReceiveSpec { resume: false, ..spec(&dest) }, &[small(1, "new", b"new")]);
    assert_eq!((names(at.path()), names(&dest)), (vec!["dest".into()], vec!["new".into()]));
    // A root that no copy has begun.
    let other = at.path().join("other");
    drop(open(&spec(&other)));
    let left = stage_in(at.path()).unwrap();
    fs::remove_file(left.join("journal")).unwrap();
    fs::write(left.join("root/planted"), b"x").unwrap();
    copy(&spec(&other), &[small(1, "f", b"1")]);
    assert_eq!(names(&other), ["f"]);
}

#[test]
fn a_destination_that_has_come_to_be_meanwhile_gets_all_of_it() {
    let at = tempfile::tempdir().unwrap();
    let dest = at.path().join("dest");
    let sink = open(&ReceiveSpec { prove: true, ..spec(&dest) });
    write(
        &sink,
        &[small(1, "d/f", b"new"), small(2, "d/e/g", b"2"), small(3, "h", b"3"), bare(4, dir("d", 0o750))],
    );
    write(&sink, &[small(5, "full", b"5")]);
    fs::create_dir_all(dest.join("d")).unwrap();
    fs::write(dest.join("d/f"), b"other").unwrap();
    fs::write(dest.join("d/kept"), b"kept").unwrap();
    fs::create_dir_all(dest.join("full/x")).unwrap();
    let written = sink.finish(&complete()).unwrap();
    assert!(written.failed == 1 && written.problems[0].path.ends_with("full"), "{:?}", written.problems);
    assert_eq!((names(at.path()), written.proved), (vec!["dest".into()], vec![]));
    assert_eq!(names(&dest), ["d", "full", "h"]);
    assert_eq!(names(&dest.join("d")), ["e", "f", "kept"]);
    assert_eq!(fs::read(dest.join("d/f")).unwrap(), b"new");
    assert_eq!(fs::metadata(dest.join("d")).unwrap().permissions().mode() & 0o7777, 0o750);
    // Something that is no directory is not replaced.
    let sink = open(&spec(&at.path().join("taken")));
    write(&sink, &[small(1, "f", b"1")]);
    fs::write(at.path().join("taken"), b"file").unwrap();
    assert!(sink.finish(&complete()).is_err());
    assert_eq!(fs::read(at.path().join("taken")).unwrap(), b"file");
}

#[test]
fn two_copies_to_the_same_new_destination_complete_it() {
    let at = tempfile::tempdir().unwrap();
    let dest = at.path().join("dest");
    let mut other = spec(&dest);
    other.offer.identity = "host:/other".into();
    let (first, second) = (open(&spec(&dest)), open(&other));
    write(&first, &[small(1, "a/1", b"1"), small(2, "both", b"1")]);
    write(&second, &[small(1, "a/2", b"2"), small(2, "both", b"2")]);
    for sink in [first, second] {
        assert_eq!(sink.finish(&complete()).unwrap().failed, 0);
    }
    assert_eq!((names(at.path()), names(&dest)), (vec!["dest".into()], vec!["a".into(), "both".into()]));
    assert_eq!(
        (names(&dest.join("a")), fs::read(dest.join("both")).unwrap()),
        (vec!["1".into(), "2".into()], b"2".to_vec())
    );
}

#[test]
fn parts_of_a_file_are_found_again_wherever_the_next_copy_looks() {
    let data = noise(2 * BLOCK + 1000);
    let entry = file("big", data.len());
    let all = pieces(5, &entry, &data, 2);
    for case in ["not there", "made", "finished"] {
        let at = tempfile::tempdir().unwrap();
        let dest = at.path().join("dest");
        let sink = open(&spec(&dest));
        write(&sink, &all[..2]);
        write(&sink, &[small(1, "f", b"1")]);
        match case {
            "made" => fs::create_dir(&dest).unwrap(),
            "finished" => drop(sink.finish(&complete()).unwrap()),
            _ => {}
        }
        drop(sink);
        let sink = open(&spec(&dest));
        assert_eq!(wanted(&sink, 9, &entry).unwrap().have, [0, 1], "{case}");
        for (part, bytes) in &all {
            sink.write(0, &block(&[(Part { file: 9, ..part.clone() }, bytes.clone())])).unwrap();
        }
        write(&sink, &[small(10, "f", b"1")]);
        assert_eq!(sink.finish(&complete()).unwrap().failed, 0, "{case}");
        assert!(fs::read(dest.join("big")).unwrap() == data, "{case}");
        assert_eq!((names(at.path()), names(&dest)), (vec!["dest".into()], vec!["big".into(), "f".into()]));
    }
}

#[test]
fn a_directory_that_passes_something_on_and_flags_that_look_at_what_is_there_go_without() {
    let at = tempfile::tempdir().unwrap();
    let is_made = |change: &dyn Fn(&mut ReceiveSpec)| {
        let dest = at.path().join("dest");
        let mut spec = spec(&dest);
        change(&mut spec);
        let sink = open(&spec);
        let made = dest.exists();
        drop(sink);
        let _ = fs::remove_dir_all(&dest);
        made
    };
    assert!(!is_made(&|_| ()));
    assert!(is_made(&|spec| spec.shared = true));
    assert!(is_made(&|spec| spec.update = true));
    assert!(is_made(&|spec| spec.itemize = true));
    assert!(is_made(&|spec| spec.only = Only { size_only: true, ..Only::default() }));
    assert!(is_made(&|spec| spec.backup = Some(Backup { suffix: "~".into(), dir: None })));
    fs::set_permissions(at.path(), PermissionsExt::from_mode(0o2755)).unwrap();
    assert!(is_made(&|_| ()));
}

#[test]
fn an_empty_destination_gets_all_of_it_at_the_end_also_if_the_copy_is_killed_then() {
    let all = [
        small(1, "d/e/f", b"bytes"),
        small(2, "top", b"top"),
        bare(3, dir("d", 0o750)),
        bare(4, dir("", 0o711)),
    ];
    for killed in [false, true] {
        let at = tempfile::tempdir().unwrap();
        let sink = open(&spec(at.path()));
        write(&sink, &all);
        let stage = stage_in(at.path()).unwrap();
        assert!(sink.fresh() && names(at.path()).len() == 1 && stage.join("root/d/e/f").exists());
        let written = if killed {
            drop(sink);
            fs::write(stage.join(stage::WHOLE), b"").unwrap();
            fs::rename(stage.join("root/d"), at.path().join("d")).unwrap();
            let sink = open(&spec(at.path()));
            assert!(
                wanted(&sink, 1, &file("d/e/f", 5)).is_none() && wanted(&sink, 2, &file("top", 3)).is_none()
            );
            write(&sink, &all[2..]);
            sink.finish(&complete()).unwrap()
        } else {
            sink.finish(&complete()).unwrap()
        };
        assert_eq!((written.failed, written.kept), (0, if killed { 2 } else { 0 }));
        assert_eq!(
            (names(at.path()), names(&at.path().join("d/e"))),
            (vec!["d".into(), "top".into()], vec!["f".into()])
        );
        for (name, mode) in [("", 0o711), ("d", 0o750), ("d/e/f", 0o640)] {
            let meta = fs::metadata(at.path().join(name)).unwrap();
            assert_eq!((meta.permissions().mode() & 0o7777, meta.mtime()), (mode, MTIME.seconds), "{name}");
        }
    }
}
