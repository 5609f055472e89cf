//! Random trees: the content of the blocks equals the disk, in any order, and also if each arrives twice.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

use proptest::prelude::*;

use super::tests::{Built, spec};
use super::*;
use crate::block::Pool;
use crate::entry::Kind;
use crate::job::Wanted;

#[derive(Clone, Debug)]
enum Made {
    Dir,
    File(usize),
    /// Its length in blocks, and in which of them there is something.
    Sparse(u64, u64),
    Symlink(String),
    /// Another name of the first file.
    Again,
}

fn made() -> impl Strategy<Value = Made> {
    prop_oneof![
        3 => Just(Made::Dir),
        6 => (0..40_000_usize).prop_map(Made::File),
        1 => (BLOCK - 2..2 * BLOCK + 2).prop_map(Made::File),
        1 => (1..6_u64, 0..6_u64).prop_map(|(len, at)| Made::Sparse(len, at)),
        2 => "[a-z./]{1,20}".prop_map(Made::Symlink),
        2 => Just(Made::Again),
    ]
}

/// Creates the given entries, each in one of the existing directories.
fn make(root: &Path, wishes: &[(usize, Made)]) {
    let mut dirs = vec![root.to_owned()];
    let mut first = None;
    for (n, (dir, made)) in wishes.iter().enumerate() {
        let path = dirs[dir % dirs.len()].join(format!("n{n}"));
        match made {
            Made::Dir => {
                fs::create_dir(&path).unwrap();
                dirs.push(path);
            }
            Made::File(len) => {
                let data: Vec<u8> = (0..*len).map(|i| (i / 5 + n) as u8).collect();
                fs::write(&path, data).unwrap();
                first.get_or_insert(path);
            }
            Made::Sparse(len, at) => {
                let file = fs::File::create(&path).unwrap();
                file.set_len(len * BLOCK as u64 + 7).unwrap();
                if at < len {
                    file.write_all_at(b"here", at * BLOCK as u64 + 9).unwrap();
                }
            }
            Made::Symlink(to) => symlink(to, &path).unwrap(),
            Made::Again => {
                if let Some(first) = &first {
                    fs::hard_link(first, &path).unwrap();
                }
            }
        }
    }
}

fn paths(root: &Path) -> Vec<String> {
    let (mut found, mut left) = (vec![String::new()], vec![root.to_owned()]);
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            found.push(entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            if entry.file_type().unwrap().is_dir() {
                left.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// Fills the block of each job twice, the jobs in an order that `seed` chooses.
fn bring(tree: &Tree, fresh: bool, seed: u64) -> Built {
    let (pool, mut built, mut jobs) = (Pool::new(1), Built::default(), Vec::new());
    tree.walk(fresh, &mut |job| {
        jobs.push(job);
        true
    })
    .unwrap();
    let mut left: Vec<(Arc<Job>, bool)> = jobs.into_iter().map(|job| (Arc::new(job), true)).collect();
    let mut state = seed;
    while !left.is_empty() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (job, is_first) = left.swap_remove((state >> 33) as usize % left.len());
        let mut block = pool.take().unwrap();
        assert!(tree.fill(&job, &mut block).unwrap().is_none());
        built.take(&block);
        let asked = std::mem::take(&mut built.asked);
        if is_first {
            let files = asked.iter().map(|file| Wanted { file: *file, ..Wanted::default() }).collect();
            left.extend(tree.wanted(&job, &Want { files }).into_iter().map(|job| (Arc::new(job), true)));
            left.push((job, false));
        }
    }
    built
}

fn check(root: &Path, built: &Built) {
    let mut first = BTreeMap::new();
    for (path, (entry, bytes)) in &built.entries {
        let disk = root.join(path);
        let meta = fs::symlink_metadata(&disk).unwrap();
        assert_eq!(entry.attributes.mode, meta.mode() & 0o7777, "{path}");
        assert_eq!(entry.attributes.mtime.seconds, meta.mtime(), "{path}");
        assert_eq!(i64::from(entry.attributes.mtime.nanos), meta.mtime_nsec(), "{path}");
        match &entry.kind {
            Kind::File { .. } => {
                assert!(fs::read(&disk).unwrap() == *bytes, "{path}");
                assert!(meta.nlink() == 1 || first.insert(meta.ino(), ()).is_none(), "{path} is sent again");
                let is_cut = bytes.len() > BLOCK;
                assert_eq!(built.roots.contains_key(path), is_cut, "{path}");
            }
            Kind::Dir => assert!(meta.is_dir(), "{path}"),
            Kind::Symlink { target } => {
                assert_eq!(fs::read_link(&disk).unwrap().as_os_str().as_encoded_bytes(), target)
            }
            Kind::HardLink { to } => {
                let to = std::str::from_utf8(to).unwrap();
                assert_eq!(fs::symlink_metadata(root.join(to)).unwrap().ino(), meta.ino());
                assert!(matches!(built.entries[to].0.kind, Kind::File { .. }), "{to}");
            }
            other => panic!("{path}: {other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_trees_are_rebuilt(
        wishes in prop::collection::vec((any::<usize>(), made()), 0..40),
        fresh in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), &wishes);
        let tree = Tree::new(&spec(&[&format!("{}/", dir.path().display())]), None).unwrap();
        let built = bring(&tree, fresh, seed);
        check(dir.path(), &built);
        prop_assert_eq!(built.entries.keys().cloned().collect::<Vec<_>>(), paths(dir.path()));
        let walked = tree.walked();
        prop_assert!(walked.complete && walked.problems.is_empty(), "{:?}", walked);
    }
}

#[test]
fn a_wide_and_a_deep_tree_are_read_piece_by_piece() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..3000 {
        fs::create_dir(dir.path().join(format!("a directory with a longer name {n}"))).unwrap();
        fs::write(dir.path().join(format!("a file with a longer name {n}")), "x").unwrap();
    }
    let mut deep = dir.path().to_owned();
    for n in 0..200 {
        deep.push(format!("d{n}"));
        fs::create_dir(&deep).unwrap();
        fs::write(deep.join("f"), "y").unwrap();
    }
    let tree = Tree::new(&spec(&[&format!("{}/", dir.path().display())]), None).unwrap();
    let built = bring(&tree, true, 1);
    assert_eq!(built.entries.keys().cloned().collect::<Vec<_>>(), paths(dir.path()));
    assert_eq!(built.entries.len(), 6401);
}

/// Figures, not a test: `cargo test --release … -- --ignored --nocapture what_reading_costs`, with TMPDIR on a tmpfs.
#[test]
#[ignore = "prints figures"]
fn what_reading_costs() {
    let dir = tempfile::tempdir().unwrap();
    let many = dir.path().join("many");
    for n in 0..10_000_usize {
        let sub = many.join((n / 1000).to_string());
        fs::create_dir_all(&sub).unwrap();
        fs::write(sub.join(n.to_string()), vec![n as u8; 10_000]).unwrap();
    }
    let one = dir.path().join("one");
    fs::write(&one, vec![7; 1 << 30]).unwrap();
    for (source, files) in [(&many, 10_000.0), (&one, 1.0)] {
        let tree = Tree::new(&spec(&[source.to_str().unwrap()]), None).unwrap();
        let pool = Pool::new(1);
        for round in 0..3 {
            let (mut bytes, begin) = (0, std::time::Instant::now());
            tree.walk(true, &mut |job| {
                let mut block = pool.take().unwrap();
                tree.fill(&job, &mut block).unwrap();
                bytes += block.len;
                true
            })
            .unwrap();
            let seconds = begin.elapsed().as_secs_f64();
            println!(
                "round {round}: {:.0} files/s, {:.1} us a file, {:.2} GB/s",
                files / seconds,
                seconds / files * 1e6,
                bytes as f64 / seconds / 1e9
            );
        }
    }
}
