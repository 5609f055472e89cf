//! Manifests of real trees, in all three formats, against hashes computed the plain way.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::num::NonZero;
use std::os::unix::fs::MetadataExt;

use common::*;
use proptest::prelude::*;
use tidecast_hash::{Digest, sha256};
use tidecast_metainfo::{Manifest, Version};
use tidecast_publish::{Error, Format, HashOptions, Progress, ScanOptions, hash, scan};

const VERSIONS: [Version; 3] = [Version::V1, Version::V2, Version::Hybrid];

#[test]
fn every_format_has_the_right_hashes() {
    let (_temp, root) = rich();
    for version in VERSIONS {
        for length in [16 << 10, 64 << 10, 1 << 20, 4 << 20] {
            let manifest = publish(&root, version, length);
            assert_eq!(manifest.version(), version);
            assert_hashes(&manifest, &root);
            assert_eq!(Manifest::parse(&manifest.to_bytes()).unwrap().to_bytes(), manifest.to_bytes());
        }
    }
}

#[test]
fn a_single_file_has_the_right_hashes() {
    let (_temp, root) = tree("one", &[("file", 700_000)]);
    let file = root.join("file");
    for version in VERSIONS {
        let manifest = publish(&file, version, 64 << 10);
        assert!(manifest.is_single_file());
        assert_eq!(manifest.name(), "file");
        assert_hashes(&manifest, &file);
    }
}

/// Pieces larger than a thread's buffer are read side by side for v1, if there are enough of them in a row.
#[test]
fn large_pieces_have_the_right_hashes() {
    let (temp, root) = tree("large", &[("a", 100), ("b", (13 << 19) + 1), ("c", 1 << 20), ("d", 3)]);
    let path = temp.path().join("leaves");
    for version in VERSIONS {
        let options = HashOptions { leaves: Some(path.clone()), ..options(version, 1 << 20) };
        let made = hash(&scanned(&root), &options, &Progress::new(), |_| ()).unwrap();
        assert_hashes(&made.manifest, &root);
        assert_eq!(fs::read(&path).unwrap(), plain_leaves(&made.manifest, &root).concat());
    }
}

#[test]
fn the_number_of_threads_does_not_matter() {
    let (_temp, root) = rich();
    let tree = scanned(&root);
    for version in VERSIONS {
        let with = |threads| {
            let options = HashOptions { threads: NonZero::new(threads), ..options(version, 32 << 10) };
            let made = hash(&tree, &options, &Progress::new(), |_| ()).unwrap();
            made.manifest.to_bytes()
        };
        let one = with(1);
        assert!((2..6).all(|threads| with(threads) == one));
    }
}

#[test]
fn metadata_is_recorded() {
    let (_temp, root) = rich();
    let manifest = publish(&root, Version::V2, 64 << 10);
    let paths: Vec<String> = manifest.files().map(|f| f.path().to_string()).collect();
    let expected = ["a/empty", "a/link", "a/x", "a-b", "b", "big", "c/again", "c/d/e", "c/d/f", "z"];
    assert_eq!(paths, expected.map(|p| format!("rich/{p}")));
    let file = |name: &str| {
        let wanted = format!("rich/{name}");
        manifest.files().find(|f| f.path().to_string() == wanted).unwrap()
    };
    assert!(file("b").is_executable() && !file("z").is_executable());
    assert_eq!(file("b").mode(), Some(0o755));
    assert_eq!(*file("a/link").symlink().unwrap(), b"../b"[..]);
    // `big` sorts before `c/again`: so that is the link.
    assert_eq!(file("c/again").hard_link(), Some(file("big").index()));
    let meta = fs::metadata(root.join("z")).unwrap();
    let mtime = file("z").mtime().unwrap();
    assert_eq!((mtime.secs, i64::from(mtime.nanos)), (meta.mtime(), meta.mtime_nsec()));
    assert!(manifest.dirs().any(|d| d.path().to_string() == "rich/hollow"));
    assert_eq!(manifest.prefix(), None);
}

/// The whole leaf table, computed the plain way.
fn plain_leaves(manifest: &Manifest, root: &std::path::Path) -> Vec<Digest> {
    let files = contents(manifest, root);
    let units: Vec<Vec<u8>> = if manifest.version().has_v2() {
        files
    } else {
        let all = files.concat();
        all.chunks(manifest.piece_length() as usize).map(<[u8]>::to_vec).collect()
    };
    units.iter().flat_map(|unit| unit.chunks(16_384).map(sha256).collect::<Vec<_>>()).collect()
}

#[test]
fn all_leaves_are_written_in_their_places() {
    let (temp, root) = rich();
    let path = temp.path().join("leaves");
    for version in VERSIONS {
        let options = HashOptions { leaves: Some(path.clone()), ..options(version, 64 << 10) };
        let made = hash(&scanned(&root), &options, &Progress::new(), |_| ()).unwrap();
        let found = fs::read(&path).unwrap();
        assert_eq!(found, plain_leaves(&made.manifest, &root).concat(), "{version}");
        if version.has_v2() {
            let table = found.as_chunks::<32>().0;
            for piece in 0..made.manifest.piece_count() {
                let range = made.manifest.leaf_range(piece);
                let leaves = &table[range.start as usize..range.end as usize];
                assert_eq!(made.manifest.check_leaves(piece, leaves), Some(true));
            }
        }
    }
}

#[test]
fn v1_is_added_where_its_padding_is_cheap() {
    let auto = |files: &[(&str, usize)]| {
        let (_temp, root) = tree("auto", files);
        let options = HashOptions { piece_length: Some(64 << 10), ..HashOptions::default() };
        assert_eq!(options.format, Format::Auto);
        let made = hash(&scanned(&root), &options, &Progress::new(), |_| ()).unwrap();
        (made.manifest.version(), made.why)
    };
    let (version, why) = auto(&[("a", 1 << 20), ("b", 10)]);
    assert_eq!(version, Version::Hybrid);
    assert!(why.contains("padding"), "{why}");
    let (version, why) = auto(&[("a", 10), ("b", 10), ("c", 10)]);
    assert_eq!(version, Version::V2);
    assert!(why.contains("padding"), "{why}");
}

#[test]
fn the_caller_sets_what_is_not_in_the_tree() {
    let (_temp, root) = tree("set", &[("a", 10)]);
    let made = hash(&scanned(&root), &HashOptions::default(), &Progress::new(), |builder| {
        builder.private = true;
        builder.trackers = vec![vec!["http://tracker.example/announce".into()]];
        builder.prefix = Some(b"/opt/set".to_vec());
    })
    .unwrap();
    assert!(made.manifest.private());
    assert_eq!(made.manifest.trackers().len(), 1);
    assert_eq!(made.manifest.prefix(), Some(&b"/opt/set"[..]));
}

#[test]
fn equal_trees_at_different_places_have_equal_manifests() {
    for version in VERSIONS {
        let made =
            [tree("same", &[("a", 10), ("d/b", 100_000)]), tree("same", &[("a", 10), ("d/b", 100_000)])].map(
                |(_temp, root)| {
                    let then = std::time::SystemTime::UNIX_EPOCH;
                    for path in ["a", "d/b", "d", ""] {
                        fs::File::open(root.join(path)).unwrap().set_modified(then).unwrap();
                    }
                    publish(&root, version, 64 << 10).to_bytes()
                },
            );
        assert!(made[0] == made[1], "{version}");
    }
}

#[test]
fn progress_counts_every_byte_once() {
    let (_temp, root) = rich();
    for version in VERSIONS {
        let progress = Progress::new();
        hash(&scanned(&root), &options(version, 32 << 10), &progress, |_| ()).unwrap();
        assert_eq!(progress.bytes(), scanned(&root).total_len());
        assert_eq!(progress.total(), progress.bytes());
        assert_eq!(progress.reused(), 0);
    }
}

#[test]
fn a_file_that_changed_since_the_scan_is_named() {
    let files = [("a", 100_000), ("b", 200_000), ("c", 10)];
    type Change = (&'static str, &'static dyn Fn(&std::path::Path));
    let changes: [Change; 4] = [
        ("longer", &|p| fs::write(p, noise(200_001, 2)).unwrap()),
        ("shorter", &|p| fs::write(p, noise(1, 2)).unwrap()),
        ("replaced", &|p| {
            fs::write(p.with_extension("new"), noise(200_000, 9)).unwrap();
            fs::rename(p.with_extension("new"), p).unwrap();
        }),
        ("touched", &|p| {
            let time = std::time::SystemTime::UNIX_EPOCH;
            fs::File::options().write(true).open(p).unwrap().set_modified(time).unwrap();
        }),
    ];
    for version in VERSIONS {
        for (what, change) in &changes {
            let (_temp, root) = tree("change", &files);
            let scan = scanned(&root);
            change(&root.join("b"));
            let failed = hash(&scan, &options(version, 64 << 10), &Progress::new(), |_| ());
            let error = failed.expect_err(what);
            assert!(matches!(error, Error::Changed { .. }), "{what}: {error}");
            assert!(error.to_string().contains("change/b"), "{what}: {error}");
        }
    }
}

#[test]
fn a_file_that_is_gone_is_named() {
    let (_temp, root) = tree("gone", &[("a", 10), ("b", 20)]);
    let scan = scanned(&root);
    fs::remove_file(root.join("b")).unwrap();
    let error = hash(&scan, &HashOptions::default(), &Progress::new(), |_| ()).unwrap_err();
    assert!(error.to_string().contains("gone/b"), "{error}");
}

#[test]
fn a_pipe_in_place_of_a_file_does_not_hang() {
    let (_temp, root) = tree("pipe", &[("a", 10)]);
    let scan = scanned(&root);
    fs::remove_file(root.join("a")).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("a"), mode).unwrap();
    let error = hash(&scan, &HashOptions::default(), &Progress::new(), |_| ()).unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
}

#[test]
fn links_out_of_the_tree_are_carried_or_left_out() {
    let (_temp, root) = tree("out", &[("dir/a", 10)]);
    std::os::unix::fs::symlink("../../secret", root.join("dir/up")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", root.join("abs")).unwrap();
    std::os::unix::fs::symlink("../dir/a", root.join("dir/fine")).unwrap();
    let progress = Progress::new();
    let manifest = hash(&scanned(&root), &HashOptions::default(), &progress, |_| ()).unwrap().manifest;
    let links: Vec<_> = manifest.files().filter_map(|f| f.symlink()).collect();
    assert_eq!(links, [&b"/etc/passwd"[..], b"../dir/a", b"../../secret"]);
    let says = manifest.warnings()[0].to_string();
    assert!(
        says.starts_with("2 symbolic links lead out of the tree (first `abs` -> `/etc/passwd`)"),
        "{says}"
    );

    let skip = ScanOptions { skip_outside_links: true, ..ScanOptions::default() };
    let tree = scan(&root, &skip, &progress).unwrap();
    assert_eq!(tree.warnings.len(), 2);
    let manifest = hash(&tree, &HashOptions::default(), &progress, |_| ()).unwrap().manifest;
    let paths: Vec<_> = manifest.files().map(|f| f.path().to_string()).collect();
    assert_eq!(paths, ["out/dir/a", "out/dir/fine"]);
    assert_eq!(manifest.warnings(), []);
}

#[test]
fn wrong_piece_lengths_are_refused() {
    let (_temp, root) = tree("wrong", &[("a", 10)]);
    for length in [0, 1, 8192, 48 << 10, 1 << 30, 1 << 31] {
        let options = options(Version::V1, length);
        let error = hash(&scanned(&root), &options, &Progress::new(), |_| ()).unwrap_err();
        assert!(matches!(error, Error::PieceLength(l) if l == length));
    }
}

#[test]
fn nothing_but_empty_files_can_be_published() {
    let (_temp, root) = tree("empty", &[("a", 0), ("b", 0)]);
    for version in [Version::V2, Version::Hybrid] {
        let made = hash(&scanned(&root), &options(version, 16 << 10), &Progress::new(), |_| ());
        match made {
            Ok(made) => assert_eq!(made.manifest.piece_count(), 0),
            Err(e) => assert!(matches!(e, Error::Manifest { .. }), "{e}"),
        }
    }
}

#[test]
fn cancelling_stops_it() {
    let (_temp, root) = rich();
    let progress = Progress::new();
    let tree = scanned(&root);
    progress.cancel();
    assert!(matches!(hash(&tree, &HashOptions::default(), &progress, |_| ()), Err(Error::Cancelled)));
    assert!(matches!(scan(&root, &ScanOptions::default(), &progress), Err(Error::Cancelled)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any tree gives the same files in all formats, with the hashes that the plain computation gives.
    #[test]
    fn any_tree(
        files in proptest::collection::btree_map("[a-c]{1,2}/[a-c]{1,2}", 0usize..300_000, 1..8),
        exponent in 14u32..20,
    ) {
        prop_assume!(files.values().any(|len| *len > 0));
        let files: Vec<(&str, usize)> = files.iter().map(|(p, l)| (p.as_str(), *l)).collect();
        let (_temp, root) = tree("any", &files);
        for version in VERSIONS {
            let manifest = publish(&root, version, 1 << exponent);
            assert_hashes(&manifest, &root);
            let shape: Vec<_> = manifest.files().map(|f| (f.path().to_string(), f.len())).collect();
            prop_assert_eq!(shape.len(), files.len());
            for (path, len) in &files {
                let wanted = (format!("any/{path}"), *len as u64);
                prop_assert!(shape.contains(&wanted));
            }
        }
    }
}
