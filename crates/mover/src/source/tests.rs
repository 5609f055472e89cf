use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;

use tidecast_hash::Digest;

use super::*;
use crate::block::Pool;
use crate::digest::Layer;
use crate::entry::{Entry, Kind};
use crate::filter::rules;
use crate::job::Wanted;
use crate::part::{Data, Part, Parts};

pub(super) fn spec(sources: &[&str]) -> SendSpec {
    SendSpec { sources: sources.iter().map(Into::into).collect(), ..SendSpec::default() }
}

/// The assembled content of blocks: each entry with its bytes.
#[derive(Default)]
pub(super) struct Built {
    pub(super) entries: BTreeMap<String, (Entry, Vec<u8>)>,
    pub(super) asked: Vec<u64>,
    pub(super) roots: BTreeMap<String, Digest>,
}

impl Built {
    pub(super) fn take(&mut self, block: &Block) {
        let (mut parts, mut part, mut at) = (Parts::new(&block.table, block.len), Part::default(), 0);
        while parts.next(&mut part).unwrap() {
            let path = String::from_utf8(part.entry.path.clone()).unwrap();
            let (_, bytes) = self
                .entries
                .entry(path.clone())
                .or_insert_with(|| (part.entry.clone(), vec![0; part.entry.len() as usize]));
            match part.data {
                Data::Bytes { offset, len, digest, root } => {
                    let data = &block.payload()[at..at + len as usize];
                    assert_eq!(crate::digest::part(data), digest);
                    bytes[offset as usize..][..data.len()].copy_from_slice(data);
                    at += data.len();
                    self.roots.extend(root.map(|root| (path, root)));
                }
                Data::Hole { root, .. } => self.roots.extend(root.map(|root| (path, root))),
                Data::Same { root, .. } => {
                    self.asked.push(part.file);
                    self.roots.extend(root.map(|root| (path, root)));
                }
                Data::Ask { .. } => self.asked.push(part.file),
                Data::None | Data::Apart => {}
            }
        }
    }
}

pub(super) fn walked(tree: &Tree, fresh: bool) -> Vec<Job> {
    let mut jobs = Vec::new();
    tree.walk(fresh, &mut |job| {
        jobs.push(job);
        true
    })
    .unwrap();
    jobs
}

pub(super) fn filled(tree: &Tree, jobs: &[Job]) -> Built {
    let (pool, mut built) = (Pool::new(1), Built::default());
    for job in jobs {
        let mut block = pool.take().unwrap();
        tree.fill(job, &mut block).unwrap();
        built.take(&block);
    }
    built
}

impl Work {
    fn again(&self) -> Self {
        let Self::Cut { whole, offset } = self else { panic!("{self:?}") };
        Self::Cut { whole: whole.clone(), offset: *offset }
    }
}

fn run(tree: &Tree, fresh: bool) -> Built {
    let pool = Pool::new(1);
    let (mut built, mut jobs) = (Built::default(), Vec::new());
    tree.walk(fresh, &mut |job| {
        jobs.push(job);
        true
    })
    .unwrap();
    while let Some(job) = jobs.pop() {
        for _ in 0..2 {
            let mut block = pool.take().unwrap();
            let rest = tree.fill(&job, &mut block).unwrap();
            assert!(rest.is_none());
            built.take(&block);
        }
        if tree.asks(&job) {
            let wanted = |file: &u64| Wanted { file: *file, ..Wanted::default() };
            jobs.extend(tree.wanted(&job, &Want { files: built.asked.iter().map(wanted).collect() }));
            built.asked.clear();
        }
    }
    built
}

fn make(dir: &Path) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(tree.join("a/b/empty")).unwrap();
    std::fs::write(tree.join("a/small"), "hello").unwrap();
    std::fs::write(tree.join("a/none"), "").unwrap();
    let big: Vec<u8> = (0..2 * BLOCK + 1000).map(|i| (i / 7) as u8).collect();
    std::fs::write(tree.join("a/b/big"), big).unwrap();
    std::fs::hard_link(tree.join("a/small"), tree.join("a/b/again")).unwrap();
    symlink("../nowhere", tree.join("a/link")).unwrap();
    let sparse = std::fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(5 * BLOCK as u64 + 10).unwrap();
    sparse.write_all_at(b"x", 3 * BLOCK as u64 + 5).unwrap();
    tree
}

#[test]
fn blocks_bring_all_of_a_tree_asked_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let source = make(dir.path());
    for fresh in [true, false] {
        let tree = Tree::new(&spec(&[source.to_str().unwrap()]), None).unwrap();
        let built = run(&tree, fresh);
        let names: Vec<&str> = built.entries.keys().map(String::as_str).collect();
        let all = [
            "tree",
            "tree/a",
            "tree/a/b",
            "tree/a/b/again",
            "tree/a/b/big",
            "tree/a/b/empty",
            "tree/a/link",
            "tree/a/none",
            "tree/a/small",
            "tree/sparse",
        ];
        assert_eq!(names, all);
        for (path, (entry, bytes)) in &built.entries {
            let disk = dir.path().join(path);
            match &entry.kind {
                Kind::File { .. } => assert!(std::fs::read(disk).unwrap() == *bytes, "{path}"),
                Kind::Symlink { target } => assert_eq!(target, b"../nowhere"),
                Kind::HardLink { to } => {
                    assert!(["tree/a/small", "tree/a/b/again"].contains(&std::str::from_utf8(to).unwrap()))
                }
                _ => assert!(disk.is_dir()),
            }
        }
        assert_eq!(built.roots.keys().collect::<Vec<_>>(), ["tree/a/b/big", "tree/sparse"]);
        let walked = tree.walked();
        assert!(walked.complete && walked.problems.is_empty(), "{walked:?}");
        assert_eq!(walked.entries, 10);
    }
}

#[test]
fn parts_that_are_there_are_read_and_asked_about() {
    let dir = tempfile::tempdir().unwrap();
    let big: Vec<u8> = (0..3 * BLOCK + 1).map(|i| (i / 3) as u8).collect();
    let path = dir.path().join("big");
    std::fs::write(&path, &big).unwrap();
    let tree = Tree::new(&spec(&[path.to_str().unwrap()]), None).unwrap();
    assert_eq!(tree.offer().single.as_deref(), Some(b"big".as_slice()));
    let digest = |n: usize| crate::digest::part(&big[n * BLOCK..big.len().min((n + 1) * BLOCK)]);
    for have in [vec![0, 2], vec![0, 1, 2, 3, 4]] {
        let jobs = walked(&tree, false);
        let Work::Ask(items) = &jobs[0].0 else { panic!() };
        let wanted = Wanted { file: items[0].file, have: have.clone(), ..Wanted::default() };
        let more = tree.wanted(&jobs[0], &Want { files: vec![wanted] });
        let asked: Vec<u64> = (0..).zip(&more).filter(|(_, job)| tree.asks(job)).map(|(n, _)| n).collect();
        assert_eq!(asked, have.iter().copied().filter(|n| *n < 4).collect::<Vec<u64>>());
        let built = filled(&tree, &more);
        let mut layer = Layer::new(big.len() as u64);
        (0..4).for_each(|n| layer.set(n as u64, digest(n)));
        assert_eq!(built.roots.get("big").copied(), layer.root());
        // Entries that differ there are sent, with the root if it was requested.
        let refused = Want { files: vec![Wanted::default()] };
        let again: Vec<Job> = asked.iter().flat_map(|n| tree.wanted(&more[*n as usize], &refused)).collect();
        let rest = (0..4).filter(|n| !asked.contains(n)).map(|n| Job(more[n as usize].0.again()));
        let built = filled(&tree, &again.into_iter().chain(rest).collect::<Vec<_>>());
        assert!(built.entries["big"].1 == big);
        assert_eq!(built.roots.get("big").copied(), layer.root());
        assert_eq!(tree.wanted(&more[0], &Want::default()).len(), 0);
    }
}

#[test]
fn what_changes_vanishes_or_cannot_be_read_is_told_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let source = make(dir.path());
    let tree = Tree::new(&spec(&[&format!("{}/", source.display())]), None).unwrap();
    let jobs = walked(&tree, true);
    std::fs::write(source.join("a/none"), "no more").unwrap();
    std::fs::write(source.join("a/b/big"), "shorter").unwrap();
    std::fs::remove_file(source.join("sparse")).unwrap();
    let built = filled(&tree, &jobs);
    let walked = tree.walked();
    assert!(!walked.complete);
    let told: Vec<&str> = walked.problems.iter().map(|p| p.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(told.len(), 3, "{walked:?}");
    assert!(built.entries.contains_key("a/small") && !built.entries.contains_key("a/none"));
}

#[test]
fn patterns_slashes_and_names() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["x1", "x2", ".x3"] {
        std::fs::write(dir.path().join(name), name).unwrap();
    }
    let at = |tail: &str| format!("{}/{tail}", dir.path().display());
    let names = |sources: &[&str]| {
        Tree::new(&spec(sources), None).map(|tree| run(&tree, true).entries.into_keys().collect::<Vec<_>>())
    };
    assert_eq!(names(&[&at("x*")]).unwrap(), ["x1", "x2"]);
    assert_eq!(names(&[&at("")]).unwrap(), ["", ".x3", "x1", "x2"]);
    assert!(names(&[&at("y*")]).is_err());
    assert!(names(&[&at("nothing")]).is_err());
    assert_eq!(names(&[&at("x1"), &at("x1")]).unwrap(), ["x1"]);
    let some = Tree::new(&spec(&[&at("x1"), &at("nothing")]), None).unwrap();
    assert_eq!(some.walked().failed, 1);
    let excluding = SendSpec { filter: rules(&["x2"]), ..spec(&[&at("")]) };
    let tree = Tree::new(&excluding, None).unwrap();
    assert_eq!(run(&tree, true).entries.len(), 3);
}

#[test]
fn of_several_sources_contents_the_first_wins() {
    let dir = tempfile::tempdir().unwrap();
    let at = |tail: &str| format!("{}/{tail}", dir.path().display());
    for (place, names) in
        [("a", "same d/in d/own x/one"), ("b", "same d/in d/more x alone"), ("d", "in named")]
    {
        for name in names.split(' ') {
            let path = dir.path().join(place).join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, place).unwrap();
        }
    }
    let brought = |sources: &[&str]| {
        let tree = Tree::new(&spec(sources), None).unwrap();
        let built = run(&tree, true).entries.into_iter().filter(|(_, (e, _))| !matches!(e.kind, Kind::Dir));
        let all: Vec<_> =
            built.map(|(path, (_, bytes))| format!("{path}={}", String::from_utf8_lossy(&bytes))).collect();
        (all.join(" "), tree.walked().failed)
    };
    assert_eq!(
        brought(&[&at("a/"), &at("b/")]),
        ("alone=b d/in=a d/more=b d/own=a same=a x/one=a".into(), 0)
    );
    assert_eq!(
        brought(&[&at("b/"), &at("a/")]),
        ("alone=b d/in=b d/more=b d/own=a same=b x/one=a".into(), 0),
        "a directory wins"
    );
    // A source of its own name collides with entries of that name in other sources.
    assert_eq!(brought(&[&at("d"), &at("a/")]), ("d/in=d d/named=d d/own=a same=a x/one=a".into(), 0));
    assert_eq!(brought(&[&at("b/x"), &at("a/")]).0, "d/in=a d/own=a same=a x/one=a");
}

#[test]
fn a_served_root_is_never_left() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    std::fs::create_dir_all(root.join("in")).unwrap();
    std::fs::write(dir.path().join("secret"), "s").unwrap();
    std::fs::write(root.join("in/open"), "o").unwrap();
    symlink(dir.path(), root.join("out")).unwrap();
    for bad in ["../secret", "/../secret", "out/secret", "/out/", "in/../../secret"] {
        assert!(Tree::new(&spec(&[bad]), Some(&root)).is_err(), "{bad}");
    }
    let tree = Tree::new(&spec(&["/in"]), Some(&root)).unwrap();
    assert!(run(&tree, true).entries.contains_key("in/open"));
}

#[test]
fn noise_is_as_much_as_was_wished() {
    for (bytes, file) in [(10_000_000, 0), (5_000, 1_000), (12 << 20, 5 << 20)] {
        let null = Null::new(bytes, file);
        let pool = Pool::new(1);
        let mut built = Built::default();
        null.walk(true, &mut |job| {
            let mut block = pool.take().unwrap();
            null.fill(&job, &mut block).unwrap();
            built.take(&block);
            true
        })
        .unwrap();
        assert!(built.entries.values().map(|(_, b)| b.len() as u64).sum::<u64>() >= bytes);
    }
}
