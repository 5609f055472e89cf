//! A built manifest reads back the same, in every version.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use tidecast_hash::{LEAF, sha1};
use tidecast_metainfo::{Content, Entry, Manifest, Mtime, Version, merkle};

const PIECE: u32 = 32 << 10;

/// A tree with everything in it: contents, and entries with all metadata.
fn museum() -> (Tree, Vec<Entry>) {
    let mut tree = Tree::new();
    let mut put = |path: &str, data: Vec<u8>| drop(tree.insert(path.into(), data));
    put("a.b", noise(1, 10));
    put("a/big", noise(2, 200_000));
    put("a/copy-of-big", noise(2, 200_000));
    put("a/link-to-big", noise(2, 200_000));
    put("bin/tool", noise(3, 40_000));
    put("empty-file", Vec::new());
    put("sparse", [vec![0; 65_536], noise(4, 100), vec![0; 100_000]].concat());
    put("z/exactly-one-piece", noise(5, PIECE as usize));
    put("z/two-pieces", noise(6, 2 * PIECE as usize));
    let mut all = entries(&tree);
    for e in &mut all {
        let Content::File { executable, holes, hard_link, .. } = &mut e.content else { unreachable!() };
        match e.path.as_slice() {
            b"bin/tool" => *executable = true,
            b"sparse" => *holes = vec![0..65_536, 65_636..165_636],
            b"a/link-to-big" => *hard_link = Some(b"a/big".to_vec()),
            _ => {}
        }
    }
    all.extend([
        symlink("bin/alias", "tool"),
        symlink("bin/up", "../a/big"),
        symlink("bin/odd-text", "./../a//big"),
        symlink("lib", "a"),
        symlink("dangling", "no/such/file"),
        symlink("a/to-root", ".."),
        directory(""),
        directory("a"),
        directory("hollow/inner"),
        directory("hollow"),
        directory("deep/er/est"),
    ]);
    for (i, e) in all.iter_mut().enumerate() {
        e.mode = (i % 5 > 0).then_some(0o644 + (i as u32 % 3) * 0o100);
        e.mtime = (i % 7 > 0).then_some(Mtime {
            secs: 1_700_000_000 - i as i64 * 1_000_003,
            nanos: (i as u32 * 77_777_777) % 1_000_000_000,
        });
        if i % 3 == 0 {
            e.xattrs = vec![(b"user.b".to_vec(), vec![0, 1, 2]), (b"user.a".to_vec(), vec![i as u8 % 2])];
        }
    }
    all[0].mtime = Some(Mtime { secs: i64::MIN, nanos: 999_999_999 });
    all[1].mtime = Some(Mtime { secs: i64::MAX, nanos: 0 });
    (tree, all)
}

fn museum_manifest(version: Version) -> Manifest {
    let (tree, all) = museum();
    build_entries(version, PIECE, &tree, all, |b| {
        b.private = true;
        b.prefix = Some(b"/opt/site/env".to_vec());
        b.trackers = vec![vec!["http://a/x".into(), "udp://b:1".into()], vec!["http://c".into()]];
        b.ssl_cert = Some(b"-----BEGIN CERTIFICATE-----".to_vec());
        b.created_by = Some("test".into());
        b.creation_date = Some(1_234_567);
        b.comment = Some("a comment".into());
    })
}

fn sorted(mut xattrs: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    xattrs.sort();
    xattrs
}

#[test]
fn everything_comes_back() {
    for version in VERSIONS {
        let built = museum_manifest(version);
        let m = Manifest::parse(&built.to_bytes()).unwrap();
        assert_eq!(m.info_bytes(), built.info_bytes());
        assert_eq!(m.to_bytes(), built.to_bytes(), "{version}");
        assert_eq!(m.version(), version);
        assert_eq!(m.name(), "root");
        assert!(m.private() && m.has_extra() && !m.is_single_file());
        assert_eq!(m.prefix(), Some(&b"/opt/site/env"[..]));
        assert_eq!(m.ssl_cert(), Some(&b"-----BEGIN CERTIFICATE-----"[..]));
        assert_eq!(m.trackers().len(), 2);
        assert_eq!((m.created_by(), m.creation_date()), (Some("test"), Some(1_234_567)));
        assert_eq!(m.comment(), Some("a comment"));
        assert_eq!(m.warnings(), []);
        assert_eq!(m.hash_v1().is_some(), version != Version::V2);
        assert_eq!(m.hash_v2().is_some(), version != Version::V1);
        let (_, all) = museum();
        for e in &all {
            check_entry(&m, e);
        }
        let files = all.iter().filter(|e| e.content != Content::Directory).count();
        assert_eq!(m.file_count() as usize, files);
        let dirs: Vec<String> = m.dirs().map(|d| d.path().to_string()).collect();
        assert_eq!(
            dirs,
            [
                "root",
                "root/a",
                "root/bin",
                "root/z",
                "root/deep",
                "root/deep/er",
                "root/deep/er/est",
                "root/hollow",
                "root/hollow/inner"
            ]
        );
    }
}

fn check_entry(m: &Manifest, e: &Entry) {
    let full = [&b"root/"[..], &e.path].concat();
    let full = if e.path.is_empty() { b"root".to_vec() } else { full };
    let name = String::from_utf8_lossy(&full).into_owned();
    let own = |x: (&[u8], &[u8])| (x.0.to_vec(), x.1.to_vec());
    if e.content == Content::Directory {
        let d = m.dirs().find(|d| d.path().to_bytes() == full).expect(&name);
        assert_eq!((d.mode(), d.mtime()), (e.mode, e.mtime), "{name}");
        assert_eq!(d.xattrs().map(own).collect::<Vec<_>>(), sorted(e.xattrs.clone()));
        return;
    }
    let f = m.files().find(|f| f.path().to_bytes() == full).expect(&name);
    assert_eq!((f.mode(), f.mtime(), f.len()), (e.mode, e.mtime, e.len()), "{name}");
    assert_eq!(f.xattrs().map(own).collect::<Vec<_>>(), sorted(e.xattrs.clone()), "{name}");
    match &e.content {
        Content::Symlink(text) => {
            assert!(f.is_symlink());
            assert_eq!(f.symlink().as_deref(), Some(&**text), "{name}");
        }
        Content::File { executable, holes, hard_link, .. } => {
            assert_eq!(f.is_executable(), *executable);
            assert_eq!(f.holes(), holes);
            let target = f.hard_link().and_then(|t| m.file(t)).map(|t| t.path().inner().join(&b'/'));
            assert_eq!(target, *hard_link, "{name}");
        }
        Content::Directory => unreachable!(),
    }
}

#[test]
fn hashes_are_those_of_the_bytes() {
    let (tree, _) = museum();
    for version in VERSIONS {
        let m = museum_manifest(version);
        let data = |file: u32| {
            let path = m.file(file).unwrap().path().inner().join(&b'/');
            tree.get(&path).cloned().unwrap_or_default()
        };
        let mut leaf = 0;
        for p in 0..m.piece_count() {
            let wire = piece_bytes(m.layout(), p, m.wire_len(p), data);
            assert_eq!(wire.len() as u32, m.wire_len(p));
            let expected = m.expected(p);
            assert_eq!(expected.v1.is_some(), version != Version::V2);
            assert!(expected.v1.is_none_or(|h| h == sha1(&wire)), "{version} {p}");
            let payload = piece_bytes(m.layout(), p, m.piece_len(p), data);
            let digests = leaf_digests(&payload);
            if version != Version::V1 {
                assert_eq!(m.check_leaves(p, &digests), Some(true), "{version} {p}");
                assert_eq!(m.check_leaves(p, &digests[1..]), Some(false));
            } else {
                assert_eq!(m.check_leaves(p, &digests), None);
            }
            // The leaf table has no gaps and no overlaps.
            assert_eq!(m.leaf_range(p), leaf..leaf + payload.len().div_ceil(LEAF) as u64);
            leaf += payload.len().div_ceil(LEAF) as u64;
        }
        assert_eq!(m.layout().leaf_count(), leaf);
    }
}

#[test]
fn equal_content_is_known_as_such() {
    for version in [Version::V2, Version::Hybrid] {
        let m = museum_manifest(version);
        let index = |path: &str| {
            let f = m.files().find(|f| f.path().to_string() == path).expect(path);
            (f.index(), f.same_as())
        };
        let big = index("root/a/big");
        assert_eq!(big.0, big.1);
        assert_eq!(index("root/a/copy-of-big").1, big.0);
        assert_eq!(index("root/a/link-to-big").1, big.0);
        assert_eq!(m.unique_len(), m.total_len() - 400_000);
        // Their layer is in the file once.
        let layer = m.file(big.0).unwrap().layer().unwrap().as_flattened();
        let bytes = m.to_bytes();
        assert_eq!(bytes.windows(layer.len()).filter(|w| *w == layer).count(), 1);
    }
}

#[test]
fn the_info_alone_needs_layers_which_are_checked() {
    let whole = museum_manifest(Version::V2);
    let mut m = Manifest::from_info(whole.info_bytes(), Vec::new()).unwrap();
    let missing = m.missing_layers();
    assert_eq!(missing.len(), 4, "big, tool, sparse, two-pieces");
    assert!(m.warnings().len() == 1 && m.expected(whole.file_pieces(missing[0].file).start).v2.is_none());
    for gap in missing {
        let layer = whole.file(gap.file).unwrap().layer().unwrap().to_vec();
        assert_eq!(layer.len() as u32, gap.pieces);
        let mut wrong = layer.clone();
        wrong[0][0] ^= 1;
        assert!(m.add_layer(gap.file, &wrong).is_err());
        assert!(m.add_layer(gap.file, &layer[1..]).is_err());
        m.add_layer(gap.file, &layer).unwrap();
    }
    assert_eq!(m.missing_layers(), []);
    let m = m.with_trackers(whole.trackers().to_vec());
    let pieces = |m: &Manifest| (0..m.piece_count()).map(|p| m.expected(p)).collect::<Vec<_>>();
    assert_eq!(pieces(&m), pieces(&whole));
}

#[test]
fn a_single_file_is_no_directory() {
    for version in VERSIONS {
        let tree = Tree::from([(Vec::new(), noise(9, 100_000))]);
        let m = build(version, PIECE, &tree);
        assert!(m.is_single_file() && m.dirs().len() == 0, "{version}");
        let f = m.file(0).unwrap();
        assert_eq!(f.path().to_string(), "root");
        assert_eq!(f.path().below("/x/root".as_ref()), std::path::Path::new("/x/root"));
        assert_eq!(f.path().under("/x".as_ref()), std::path::Path::new("/x/root"));
        assert!(!m.has_extra(), "nothing to say, so no key");
    }
}

#[test]
fn a_directory_with_one_file_of_its_own_name_stays_a_directory() {
    for version in VERSIONS {
        let m = build(version, PIECE, &Tree::from([(b"root".to_vec(), noise(9, 100_000))]));
        assert!(!m.is_single_file(), "{version}");
        assert_eq!(m.file(0).unwrap().path().to_string(), "root/root");
    }
}

#[test]
fn empty_trees_can_be_published() {
    for version in VERSIONS {
        let m = build_entries(version, PIECE, &Tree::new(), vec![directory("only/this")], |_| {});
        assert_eq!((m.file_count(), m.piece_count(), m.total_len()), (0, 0, 0));
        assert_eq!(m.dirs().len(), 3);
        let m = build(version, PIECE, &Tree::from([(b"x".to_vec(), Vec::new())]));
        assert_eq!((m.file_count(), m.piece_count()), (1, 0));
        assert!(m.file(0).unwrap().pieces().is_empty());
    }
}

#[test]
fn names_keep_their_bytes() {
    let name = b"caf\xe9 \xff\n\x1b[31m".to_vec();
    for version in VERSIONS {
        let m = build(version, PIECE, &Tree::from([(name.clone(), noise(1, 5))]));
        let path = m.file(0).unwrap().path();
        assert_eq!(path.name(), &*name);
        let shown = path.to_string();
        assert!(!shown.contains(['\n', '\x1b']), "{shown:?}");
    }
}

#[test]
fn equal_trees_give_equal_bytes() {
    for version in VERSIONS {
        let (tree, mut all) = museum();
        let one = build_entries(version, PIECE, &tree, all.clone(), |_| {});
        all.reverse();
        let other = build_entries(version, PIECE, &tree, all, |_| {});
        assert_eq!(one.to_bytes(), other.to_bytes());
    }
}

#[test]
fn hash_requests_are_answered_and_verified() {
    let m = museum_manifest(Version::V2);
    let big = m.files().find(|f| f.path().to_string() == "root/a/big").unwrap();
    let leaves = leaf_digests(&noise(2, 200_000));
    let (top, root) = (m.tree_top(big.index()).unwrap(), big.pieces_root().unwrap());
    assert_eq!(top, 4);
    let tree = merkle::Tree::new(&leaves, 0, top);
    assert_eq!(tree.root(), root);
    let layer = merkle::Tree::new(big.layer().unwrap(), 1, top);
    assert_eq!(layer.root(), root);
    for (base, tree) in [(0, &tree), (1, &layer), (1, &tree)] {
        for length in [2, 4, 8, 16] {
            for index in (0..16 >> base).step_by(length) {
                let range = merkle::Range::proven(base, index, length as u32, top);
                let Some(hashes) = tree.answer(&range) else {
                    assert!(length > 16 >> base, "{range:?}");
                    continue;
                };
                let nodes = merkle::verify(&root, top, &range, &hashes).expect("a good proof");
                assert_eq!(nodes.len(), length);
                for bad in 0..hashes.len() {
                    let mut hashes = hashes.clone();
                    hashes[bad][31] ^= 0x80;
                    assert_eq!(merkle::verify(&root, top, &range, &hashes), None);
                }
            }
        }
    }
}

#[test]
fn a_manifest_and_leaves_answer_hash_requests() {
    let m = museum_manifest(Version::V2);
    let (tree, _) = museum();
    for f in m.files().filter(|f| !f.is_empty()) {
        let data = &tree[&f.path().inner().join(&b'/')];
        let leaves = leaf_digests(data);
        let (top, root) = (m.tree_top(f.index()).unwrap(), f.pieces_root().unwrap());
        let upper = m.layer_tree(f.index()).unwrap();
        assert_eq!(upper.root(), root);
        let whole = merkle::Tree::new(&leaves, 0, top);
        let of_piece = |piece: u32| {
            let first = (piece - f.first_piece()) as usize * (PIECE as usize / LEAF);
            let last = (first + PIECE as usize / LEAF).min(leaves.len());
            Some(leaves[first..last].to_vec())
        };
        for (base, length) in [(0, 2), (0, 4), (1, 2), (1, 4), (2, 2), (0, 16)] {
            for index in (0..(1u32 << top) >> base).step_by(length as usize) {
                let range = merkle::Range::proven(base, index, length, top);
                let answer = m.answer_hashes(f.index(), &range, &upper, of_piece);
                assert_eq!(answer, whole.answer(&range), "{} {range:?}", f.path());
                if let Some(hashes) = answer {
                    assert!(merkle::verify(&root, top, &range, &hashes).is_some());
                }
            }
        }
        // Without leaves, or with wrong ones, there is no answer below the pieces.
        let range = merkle::Range::proven(0, 0, 2, top);
        let wrong = |_| Some(vec![[7; 32]; 2]);
        assert_eq!(m.answer_hashes(f.index(), &range, &upper, |_| None), None);
        assert_eq!(m.answer_hashes(f.index(), &range, &upper, wrong), None);
    }
}

#[test]
fn odd_hash_requests_are_refused() {
    let tree = merkle::Tree::new(&leaf_digests(&noise(2, 200_000)), 0, 4);
    let range = |base, index, length, proof_layers| merkle::Range { base, index, length, proof_layers };
    for bad in [
        range(0, 0, 1, 0),
        range(0, 0, 3, 0),
        range(0, 1, 2, 0),
        range(0, 16, 2, 0),
        range(0, u32::MAX - 1, 2, 0),
        range(0, 0, 32, 0),
        range(0, 0, 1 << 31, 0),
        range(0, 0, 2, 4),
        range(0, 0, 2, u32::MAX),
        range(4, 0, 2, 0),
        range(u32::MAX, 0, 2, 0),
    ] {
        assert_eq!(tree.answer(&bad), None, "{bad:?}");
        assert_eq!(merkle::verify(&tree.root(), 4, &bad, &[]), None, "{bad:?}");
    }
    assert_eq!(tree.answer(&range(0, 0, 2, 0)).map(|h| h.len()), Some(2));
    // A request with too few proof layers proves nothing.
    let some = range(0, 0, 2, 1);
    let hashes = tree.answer(&some).unwrap();
    assert_eq!(merkle::verify(&tree.root(), 4, &some, &hashes), None);
}
