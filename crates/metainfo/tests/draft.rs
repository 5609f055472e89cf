//! A draft becomes the manifest of the same tree, root by root, and nothing else does.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use proptest::prelude::*;
use tidecast_metainfo::{Builder, Content, Entry, Error, Manifest, Version, Warning};

const PIECE: u32 = 32 << 10;

fn museum() -> (Tree, Vec<Entry>) {
    let mut tree = Tree::new();
    let mut put = |path: &str, data: Vec<u8>| drop(tree.insert(path.into(), data));
    put("a/big", noise(2, 200_000));
    put("a/copy-of-big", noise(2, 200_000));
    put("a/link-to-big", noise(2, 200_000));
    put("empty", Vec::new());
    put("one-leaf", noise(3, 100));
    put("sparse", [vec![0; 65_536], noise(4, 100), vec![0; 100_000]].concat());
    put("two-pieces", noise(6, 2 * PIECE as usize));
    put("zz-empty", Vec::new());
    let mut all = entries(&tree);
    for e in &mut all {
        let Content::File { holes, hard_link, .. } = &mut e.content else { unreachable!() };
        match e.path.as_slice() {
            b"sparse" => *holes = vec![0..65_536, 65_636..165_636],
            b"a/link-to-big" => *hard_link = Some(b"a/big".to_vec()),
            _ => {}
        }
        e.mode = Some(0o640);
    }
    all.extend([symlink("alias", "a/big"), directory("hollow")]);
    (tree, all)
}

fn draft_of(entries: Vec<Entry>) -> Manifest {
    Builder::new(b"root", Version::V2, PIECE, entries).unwrap().draft().unwrap()
}

/// The root of each piece, by the content of the files.
fn roots(draft: &Manifest, tree: &Tree) -> Vec<[u8; 32]> {
    let files: Vec<Vec<u8>> = draft
        .files()
        .map(|f| {
            let path = f.path().to_string();
            let inner = path.strip_prefix("root/").unwrap_or("");
            tree.get(inner.as_bytes()).cloned().unwrap_or_default()
        })
        .collect();
    let root = |p| {
        let bytes = piece_bytes(draft.layout(), p, draft.piece_len(p), |f| files[f as usize].clone());
        draft.root_of_leaves(p, &leaf_digests(&bytes)).unwrap()
    };
    (0..draft.piece_count()).map(root).collect()
}

#[test]
fn a_draft_becomes_the_manifest_of_its_tree() {
    let (tree, entries) = museum();
    let full = build_entries(Version::V2, PIECE, &tree, entries.clone(), |_| {});
    let draft = draft_of(entries.clone());
    assert!(draft.is_draft() && !full.is_draft());
    assert_eq!(draft.layout(), full.layout());
    assert_ne!(draft.hash_v2(), full.hash_v2());
    assert_eq!(draft.hash_v2(), draft_of(entries).hash_v2(), "the same tree, the same draft");
    let copy = Manifest::parse_draft(&draft.to_bytes()).unwrap();
    assert_eq!(copy.hash_v2(), draft.hash_v2());
    let link = copy.files().find(|f| f.path().to_string().ends_with("link-to-big")).unwrap();
    assert_eq!(link.hard_link(), Some(0), "links are known before any content");
    let roots = roots(&draft, &tree);
    for (piece, root) in (0..draft.piece_count()).zip(&roots).rev() {
        assert_eq!(copy.sealed_hash(), None);
        assert!(matches!(copy.seal(), Err(Error::Draft(_))));
        assert_eq!(copy.expected(piece).v2, None);
        assert!(copy.learn_root(piece, *root));
        assert_eq!(copy.expected(piece).v2, Some(*root));
        assert_eq!(full.expected(piece).v2, Some(*root));
    }
    assert_eq!(copy.sealed_hash(), full.hash_v2());
    let sealed = copy.seal().unwrap();
    assert_eq!(sealed.to_bytes(), full.to_bytes());
    assert!(!sealed.is_draft());
}

#[test]
fn a_root_is_set_once() {
    let (_, entries) = museum();
    let draft = draft_of(entries);
    let shared = draft.clone();
    assert!(draft.learn_root(3, [7; 32]));
    assert!(draft.learn_root(3, [7; 32]), "the same again");
    assert!(!draft.learn_root(3, [8; 32]));
    assert_eq!(shared.expected(3).v2, Some([7; 32]));
    assert!(!draft.learn_root(draft.piece_count(), [7; 32]));
}

#[test]
fn who_wants_a_manifest_gets_no_draft() {
    let (tree, entries) = museum();
    let draft = draft_of(entries);
    assert!(matches!(Manifest::parse(&draft.to_bytes()), Err(Error::Draft(_))));
    assert!(matches!(Manifest::from_info(draft.info_bytes(), Vec::new()), Err(Error::Draft(_))));
    // Half of one: one root is filled in.
    let full = build(Version::V2, PIECE, &tree);
    let mut info = full.info_bytes().to_vec();
    let root = full.file(0).unwrap().pieces_root().unwrap();
    let at = info.windows(32).position(|w| w == root).unwrap();
    info[at..at + 32].fill(0);
    let torrent = [b"d4:info".as_slice(), &info, b"e"].concat();
    assert!(matches!(Manifest::parse_draft(&torrent), Err(Error::Draft(_))));
    // And a manifest is taken where a draft may be.
    assert!(!Manifest::parse_draft(&full.to_bytes()).unwrap().is_draft());
    assert!(!full.learn_root(0, [1; 32]));
    assert_eq!(full.sealed_hash(), None);
}

#[test]
fn links_out_of_the_tree_stay_as_they_are() {
    let (tree, mut all) = museum();
    let given = ["/usr/bin/python3", "../../x", "alias/../big", "/", "..", "a/../../root/a", "//net/x/"];
    all.extend(given.iter().enumerate().map(|(i, text)| symlink(&format!("link{i}"), text)));
    all.push(symlink("long", &"n".repeat(300)));
    let draft = draft_of(all.clone());
    let draft = Manifest::parse_draft(&draft.to_bytes()).unwrap();
    for (piece, root) in (0..).zip(roots(&draft, &tree)) {
        assert!(draft.learn_root(piece, root));
    }
    let sealed = Manifest::parse(&draft.seal().unwrap().to_bytes()).unwrap();
    for version in [Version::V1, Version::V2, Version::Hybrid] {
        let mut builder = Builder::new(b"root", version, PIECE, all.clone()).unwrap();
        hash(&mut builder, &tree, version);
        let made = builder.build().unwrap();
        if version == Version::V2 {
            assert_eq!(made.to_bytes(), sealed.to_bytes());
        }
        let read = Manifest::parse(&made.to_bytes()).unwrap();
        let links: Vec<_> = read.files().filter_map(|f| f.symlink().map(|t| t.into_owned())).collect();
        assert_eq!(links[0], b"a/big");
        assert!(links[1..8].iter().eq(given.iter().map(|t| t.as_bytes())), "{links:?}");
        let [Warning::OutsideLinks { links, path, target }] = &read.warnings()[..] else {
            panic!("{:?}", read.warnings())
        };
        assert_eq!((*links, &path[..], &target[..]), (8, "link0", "/usr/bin/python3"));
    }
}

#[test]
fn only_v2_is_drafted_and_what_has_no_content_is_done() {
    for version in [Version::V1, Version::Hybrid] {
        let builder = Builder::new(b"root", version, PIECE, vec![file("a", 10)]).unwrap();
        assert!(matches!(builder.draft(), Err(Error::Draft(_))));
    }
    let nothing = draft_of(vec![file("a", 0), directory("d")]);
    assert!(!nothing.is_draft());
    assert_eq!(nothing.piece_count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_seals_to_what_hashing_first_gives(
        sizes in prop::collection::vec(0usize..150_000, 1..8), seed in any::<u64>()
    ) {
        let tree: Tree = sizes
            .iter()
            .enumerate()
            .map(|(i, len)| (format!("d{}/f{i}", i % 2).into_bytes(), noise(seed ^ (i as u64 % 3), *len)))
            .collect();
        let full = build(Version::V2, PIECE, &tree);
        let draft = draft_of(entries(&tree));
        for (piece, root) in (0..).zip(roots(&draft, &tree)) {
            prop_assert!(draft.learn_root(piece, root));
        }
        if draft.is_draft() {
            prop_assert_eq!(draft.seal().unwrap().to_bytes(), full.to_bytes());
        } else {
            prop_assert_eq!(draft.to_bytes(), full.to_bytes());
        }
    }
}
