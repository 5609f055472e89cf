//! Every kind of damage is found and named, in all formats, and nothing is found where nothing is wrong.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use common::*;
use tidecast_metainfo::{Manifest, Version};
use tidecast_publish::{Error, Kind, ProblemKind, Progress, Report, verify};

const VERSIONS: [Version; 3] = [Version::V1, Version::V2, Version::Hybrid];

fn check(manifest: &Manifest, path: &Path) -> Report {
    verify(manifest, path, None, &Progress::new()).unwrap()
}

/// Publishes, changes the tree, and returns the found problems, as (path, problem).
fn after(version: Version, change: impl FnOnce(&Path)) -> Vec<(String, ProblemKind)> {
    let (_temp, root) = rich();
    let manifest = publish(&root, version, 64 << 10);
    change(&root);
    let report = check(&manifest, &root);
    let say = |p: tidecast_publish::Problem| (p.path.display().to_string(), p.what);
    report.problems.into_iter().map(say).collect()
}

/// Changes a byte of a file, without a trace in its size.
fn flip(path: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
}

#[test]
fn nothing_is_wrong_with_a_good_tree() {
    for version in VERSIONS {
        assert_eq!(after(version, |_| ()), []);
    }
    let (_temp, root) = tree("single", &[("file", 100_000)]);
    for version in VERSIONS {
        let manifest = publish(&root.join("file"), version, 16 << 10);
        let progress = Progress::new();
        let report = verify(&manifest, &root.join("file"), None, &progress).unwrap();
        assert!(report.is_good(), "{report:?}");
        assert_eq!(progress.bytes(), 100_000);
    }
}

#[test]
fn one_byte_is_enough() {
    for version in [Version::V2, Version::Hybrid] {
        let found = after(version, |root| flip(&root.join("c/d/f"), 65_536));
        assert_eq!(found, [("c/d/f".into(), ProblemKind::Content { pieces: 1, of: 2 })]);
        let found = after(version, |root| flip(&root.join("z"), 0));
        assert_eq!(found, [("z".into(), ProblemKind::Content { pieces: 1, of: 1 })]);
        // Both names of a file are damaged with it.
        let found = after(version, |root| {
            flip(&root.join("big"), 0);
            flip(&root.join("big"), 3_000_000);
        });
        let damage = ProblemKind::Content { pieces: 2, of: 46 };
        assert_eq!(found, [("big".into(), damage.clone()), ("c/again".into(), damage)]);
    }
}

#[test]
fn in_v1_all_files_of_a_damaged_piece_are_suspect() {
    let found = after(Version::V1, |root| flip(&root.join("z"), 0));
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["c/d/f", "z"]);
    assert!(found.iter().all(|(_, what)| matches!(what, ProblemKind::Content { pieces: 1, .. })));
}

#[test]
fn a_missing_file_is_missing_and_what_shares_its_pieces_unchecked() {
    for version in VERSIONS {
        let found = after(version, |root| fs::remove_file(root.join("a-b")).unwrap());
        assert!(found.contains(&("a-b".into(), ProblemKind::Missing)), "{found:?}");
        let others: Vec<_> = found.into_iter().filter(|(path, _)| path != "a-b").collect();
        if version == Version::V1 {
            assert!(others.iter().all(|(_, what)| what.word() == "unchecked"), "{others:?}");
            assert_eq!(others.len(), 3, "{others:?}");
        } else {
            assert_eq!(others, []);
        }
    }
}

#[test]
fn sizes_kinds_targets_and_modes_are_compared() {
    let found = after(Version::V2, |root| {
        fs::write(root.join("z"), b"longer").unwrap();
        fs::remove_file(root.join("a-b")).unwrap();
        fs::create_dir(root.join("a-b")).unwrap();
        fs::remove_file(root.join("a/link")).unwrap();
        symlink("x", root.join("a/link")).unwrap();
        fs::set_permissions(root.join("b"), fs::Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(root.join("hollow"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::remove_file(root.join("a/empty")).unwrap();
        symlink("x", root.join("a/empty")).unwrap();
    });
    let kind = |expected, found| ProblemKind::Kind { expected, found };
    let expected = [
        ("a/empty", kind(Kind::File, Kind::Symlink)),
        ("a/link", ProblemKind::Target { expected: "../b".into(), found: "x".into() }),
        ("a-b", kind(Kind::File, Kind::Directory)),
        ("b", ProblemKind::Mode { expected: 0o755, found: 0o644 }),
        ("hollow", ProblemKind::Mode { expected: 0o755, found: 0o700 }),
        ("z", ProblemKind::Size { expected: 1, found: 6 }),
    ];
    assert_eq!(found, expected.map(|(path, what)| (path.to_owned(), what)));
}

#[test]
fn what_is_too_much_is_named_once() {
    for version in VERSIONS {
        let found = after(version, |root| {
            fs::write(root.join("c/more"), b"x").unwrap();
            fs::create_dir_all(root.join("new/with/depth")).unwrap();
            fs::write(root.join("new/with/file"), b"x").unwrap();
            symlink("/", root.join("hollow/root")).unwrap();
        });
        let expected = ["c/more", "hollow/root", "new"].map(|p| (p.to_owned(), ProblemKind::Extra));
        assert_eq!(found, expected);
    }
}

#[test]
fn a_link_in_place_of_a_directory_is_not_followed() {
    let found = after(Version::V2, |root| {
        fs::rename(root.join("c"), root.join("../elsewhere")).unwrap();
        symlink("../elsewhere", root.join("c")).unwrap();
    });
    let kind = ProblemKind::Kind { expected: Kind::Directory, found: Kind::Symlink };
    assert_eq!(found[0], ("c".into(), kind));
    let rest: Vec<&str> = found[1..].iter().map(|(p, _)| p.as_str()).collect();
    assert_eq!(rest, ["c/again", "c/d", "c/d/e", "c/d/f"]);
    assert!(found[1..].iter().all(|(_, what)| *what == ProblemKind::Missing));
}

#[test]
fn a_tree_that_is_not_there_at_all_is_all_missing() {
    for version in VERSIONS {
        let (temp, root) = rich();
        let manifest = publish(&root, version, 64 << 10);
        let report = check(&manifest, &temp.path().join("nowhere"));
        let missing = report.problems.iter().filter(|p| p.what == ProblemKind::Missing).count();
        assert_eq!(missing, 10 + 5, "{report:?}");
        assert_eq!(report.problems.len(), missing);
        // A file where a directory should be.
        let report = check(&manifest, &root.join("z"));
        assert!(!report.is_good());
    }
}

#[test]
fn piece_layers_that_are_missing_are_made_up_for_by_the_roots() {
    let (_temp, root) = rich();
    for version in [Version::V2, Version::Hybrid] {
        let whole = publish(&root, version, 16 << 10);
        let bare = Manifest::from_info(whole.info_bytes(), vec![]).unwrap();
        assert!(!bare.missing_layers().is_empty());
        assert!(check(&bare, &root).is_good());
        flip(&root.join("a/x"), 50_000);
        let report = check(&bare, &root);
        let paths: Vec<_> = report.problems.iter().map(|p| p.path.display().to_string()).collect();
        assert_eq!(paths, ["a/x"], "{version}");
        flip(&root.join("a/x"), 50_000);
    }
}

/// Pieces of lengths that only other programs' v1 manifests have.
#[test]
fn odd_v1_piece_lengths_are_no_trouble() {
    let (_temp, root) = tree("odd", &[("file", 1_700_001)]);
    let path = root.join("file");
    let bytes = fs::read(&path).unwrap();
    for length in [1_025, 65_535, 100_000, 262_144 + 64, 600_000, 1 << 24] {
        let pieces = plain_v1(std::slice::from_ref(&bytes), length, false);
        let head = format!("d6:lengthi{}e4:name4:file12:piece lengthi{length}e", bytes.len());
        let pieces = pieces.concat();
        let mut info = format!("{head}6:pieces{}:", pieces.len()).into_bytes();
        info.extend_from_slice(&pieces);
        info.push(b'e');
        let manifest = Manifest::from_info(&info, vec![]).unwrap();
        assert!(check(&manifest, &path).is_good(), "{length}");
        flip(&path, 1_700_000);
        let of = manifest.piece_count();
        let problems = check(&manifest, &path).problems;
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].what, ProblemKind::Content { pieces: 1, of });
        flip(&path, 1_700_000);
    }
}

#[test]
fn problems_read_well() {
    let found = after(Version::V2, |root| {
        flip(&root.join("z"), 0);
        fs::write(root.join("new\nline"), b"").unwrap();
    });
    let text: Vec<String> = found
        .into_iter()
        .map(|(path, what)| tidecast_publish::Problem { path: path.into(), what }.to_string())
        .collect();
    assert_eq!(text[0], r#"extra: "new\nline": on disk but not in the manifest"#);
    assert_eq!(text[1], r#"damaged: "z": 1 of 1 pieces differ"#);
}

#[test]
fn cancelling_stops_it() {
    let (_temp, root) = rich();
    let manifest = publish(&root, Version::V2, 64 << 10);
    let progress = Progress::new();
    progress.cancel();
    let result = verify(&manifest, &root, None, &progress);
    assert!(matches!(result, Err(Error::Cancelled)));
}

#[test]
fn what_was_left_out_is_no_problem() {
    let (_temp, root) =
        tree("left", &[("a", 10), ("b.tmp", 10), ("cache/x", 10), ("d/cache/y", 10), ("d/z", 10)]);
    let _socket = std::os::unix::net::UnixListener::bind(root.join("d/socket")).unwrap();
    symlink("/etc", root.join("out")).unwrap();
    symlink("../../x", root.join("d/up")).unwrap();
    for version in VERSIONS {
        let scanning = tidecast_publish::ScanOptions {
            exclude: vec!["*.tmp".into(), "/cache".into()],
            skip_outside_links: true,
            ..Default::default()
        };
        let scanned = tidecast_publish::scan(&root, &scanning, &Progress::new()).unwrap();
        let made =
            tidecast_publish::hash(&scanned, &options(version, 64 << 10), &Progress::new(), |_| ()).unwrap();
        let manifest = Manifest::parse(&made.manifest.to_bytes()).unwrap();
        let report = check(&manifest, &root);
        assert!(report.is_good(), "{version}: {report:?}");
        let left: Vec<_> = report.left_out.iter().map(|p| p.to_str().unwrap()).collect();
        assert_eq!(left, ["b.tmp", "cache", "d/socket", "d/up", "out"], "{version}");
        // Published files that match a pattern now, and files that match no pattern.
        fs::write(root.join("new"), "x").unwrap();
        symlink("d", root.join("in")).unwrap();
        let report = check(&manifest, &root);
        let extra: Vec<_> = report.problems.iter().map(|p| p.path.to_str().unwrap()).collect();
        assert_eq!(extra, ["in", "new"], "{version}");
        fs::remove_file(root.join("new")).unwrap();
        fs::remove_file(root.join("in")).unwrap();
    }
}
