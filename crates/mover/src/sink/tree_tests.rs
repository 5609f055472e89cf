//! Cut files, interruption, and whole random trees in random order.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::tests::*;
use super::*;
use crate::entry::{Entry, Kind};
use crate::part::{BLOCK, Data};

fn staged(dest: &Path) -> PathBuf {
    let find = |dir: &Path, start: &str| {
        let mut names = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
        names.find(|p| p.file_name().unwrap().to_str().unwrap().starts_with(start)).unwrap()
    };
    find(&find(dest, stage::PREFIX), "f")
}

/// Writes all but the last part of a file of three, and stops.
fn interrupted(dest: &Path) -> (Entry, Vec<Piece>, Vec<u8>) {
    let data = noise(2 * BLOCK + 1000);
    let entry = file("big", data.len());
    let all = pieces(5, &entry, &data, 2);
    let sink = open(&spec(dest));
    all[..2].iter().for_each(|piece| drop(sink.write(0, &block(std::slice::from_ref(piece))).unwrap()));
    (entry, all, data)
}

fn have(sink: &Directory, entry: &Entry) -> Vec<u64> {
    wanted(sink, 9, entry).unwrap().have
}

/// Asks whether these parts are there; which of them are wanted.
fn refused(sink: &Directory, all: &[Piece]) -> Vec<usize> {
    let ask = |(part, _): &Piece| {
        let Data::Bytes { offset, len, digest, root } = part.data else { unreachable!() };
        let data = Data::Same { offset, len, digest, root };
        let part = Part { file: 9, entry: part.entry.clone(), data };
        !sink.write(0, &block(&[(part, Vec::new())])).unwrap().unwrap().files.is_empty()
    };
    (0..all.len()).filter(|n| ask(&all[*n])).collect()
}

fn send(sink: &Directory, pieces: &[Piece]) {
    for (part, data) in pieces {
        let part = Part { file: 9, ..part.clone() };
        assert_eq!(sink.write(0, &block(&[(part, data.clone())])).unwrap(), None);
    }
}

#[test]
fn an_interrupted_file_goes_on_where_it_stopped() {
    let at = tempfile::tempdir().unwrap();
    let (entry, all, data) = interrupted(at.path());
    let sink = open(&spec(at.path()));
    assert_eq!(have(&sink, &entry), [0, 1]);
    // The answers may get lost: the same again.
    assert_eq!(have(&sink, &entry), [0, 1]);
    for _ in 0..2 {
        assert!(refused(&sink, &all[..2]).is_empty());
    }
    send(&sink, &all[2..]);
    let written = sink.finish(&complete()).unwrap();
    assert_eq!((written.bytes, written.resumed, written.files), (1000, 2 * BLOCK as u64, 1));
    assert_eq!(fs::read(at.path().join("big")).unwrap(), data);
    assert_eq!(fs::read_dir(at.path()).unwrap().count(), 1);
}

#[test]
fn parts_that_were_left_count_only_if_they_are_the_sources() {
    type Hurt = fn(&fs::File);
    let hurts: [(Hurt, &[usize]); 4] = [
        (|file| std::os::unix::fs::FileExt::write_all_at(file, b"lost", 77).unwrap(), &[0, 2]),
        (|file| file.set_len(BLOCK as u64 + 5).unwrap(), &[1, 2]),
        (|file| file.set_len(5 * BLOCK as u64).unwrap(), &[2]),
        (|file| file.set_len(0).unwrap(), &[0, 1, 2]),
    ];
    for (hurt, expected) in hurts {
        let at = tempfile::tempdir().unwrap();
        let (entry, all, data) = interrupted(at.path());
        hurt(&fs::OpenOptions::new().write(true).open(staged(at.path())).unwrap());
        let sink = open(&spec(at.path()));
        assert_eq!(have(&sink, &entry), [0, 1]);
        assert_eq!(refused(&sink, &all), expected);
        send(&sink, &expected.iter().map(|n| all[*n].clone()).collect::<Vec<_>>());
        assert_eq!(sink.finish(&complete()).unwrap().failed, 0);
        assert!(fs::read(at.path().join("big")).unwrap() == data, "{expected:?}");
    }
}

#[test]
fn nothing_of_another_file_of_equal_length_and_time_stays() {
    let len = 3 * BLOCK + 77;
    let zeros = |data: &mut [u8], part: usize| data[part * BLOCK..][..BLOCK].fill(0);
    for sparse in [false, true] {
        let at = tempfile::tempdir().unwrap();
        let entry = entry("big", Kind::File { len: len as u64, sparse });
        let old = noise(len);
        let sink = open(&spec(at.path()));
        let old_pieces = pieces(5, &entry, &old, 3);
        send(&sink, &old_pieces[..3]);
        drop(sink);
        // Of the new one a part is the same, one is a hole, and one has zeros where the old one has data.
        let mut new = old.clone();
        zeros(&mut new, 1);
        new[2 * BLOCK + 100..3 * BLOCK].fill(0);
        new[3 * BLOCK..].fill(9);
        let all = pieces(9, &entry, &new, 0);
        let sink = open(&spec(at.path()));
        assert_eq!(have(&sink, &entry), [0, 1, 2]);
        assert_eq!(refused(&sink, &all), [1, 2, 3]);
        if sparse {
            let data = Data::Hole { offset: BLOCK as u64, len: BLOCK as u64, root: None };
            send(&sink, &[(Part { data, ..all[1].0.clone() }, Vec::new())]);
        } else {
            send(&sink, &all[1..2]);
        }
        send(&sink, &all[2..]);
        let written = sink.finish(&complete()).unwrap();
        assert_eq!((written.failed, written.resumed), (0, BLOCK as u64), "{:?}", written.problems);
        assert!(fs::read(at.path().join("big")).unwrap() == new, "sparse: {sparse}");
    }
}

#[test]
fn half_a_part_without_a_record_is_written_over() {
    let at = tempfile::tempdir().unwrap();
    let mut data = noise(2 * BLOCK + 9);
    data[BLOCK..2 * BLOCK].fill(0);
    let entry = entry("big", Kind::File { len: data.len() as u64, sparse: true });
    let all = pieces(5, &entry, &data, 2);
    let sink = open(&spec(at.path()));
    send(&sink, &all[..1]);
    drop(sink);
    let file = fs::OpenOptions::new().write(true).open(staged(at.path())).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"torn", BLOCK as u64 + 7).unwrap();
    let sink = open(&spec(at.path()));
    assert_eq!(have(&sink, &entry), [0]);
    assert!(refused(&sink, &all[..1]).is_empty());
    send(&sink, &all[1..]);
    assert_eq!(sink.finish(&complete()).unwrap().failed, 0);
    assert!(fs::read(at.path().join("big")).unwrap() == data);
}

#[test]
fn the_journal_of_another_version_is_not_read() {
    let at = tempfile::tempdir().unwrap();
    let (entry, _, _) = interrupted(at.path());
    let journal = staged(at.path()).with_file_name("journal");
    let mut text = fs::read(&journal).unwrap();
    text[15] = b'2';
    fs::write(&journal, text).unwrap();
    assert!(have(&open(&spec(at.path())), &entry).is_empty());
}

#[test]
fn a_torn_journal_loses_only_its_tail() {
    let at = tempfile::tempdir().unwrap();
    let (entry, _, _) = interrupted(at.path());
    let journal = staged(at.path()).with_file_name("journal");
    let len = fs::metadata(&journal).unwrap().len();
    let file = fs::OpenOptions::new().write(true).open(&journal).unwrap();
    file.set_len(len - 10).unwrap();
    drop(file);
    assert_eq!(have(&open(&spec(at.path())), &entry), [0]);
    let mut file = fs::OpenOptions::new().append(true).open(&journal).unwrap();
    file.write_all(&[7; 100]).unwrap();
    assert_eq!(have(&open(&spec(at.path())), &entry), [0]);
    let fresh_start = ReceiveSpec { resume: false, ..spec(at.path()) };
    assert!(have(&open(&fresh_start), &entry).is_empty());
}

#[test]
fn a_file_that_changed_is_sent_anew() {
    let at = tempfile::tempdir().unwrap();
    let (mut entry, _, _) = interrupted(at.path());
    entry.attributes.mtime.seconds += 1;
    assert!(have(&open(&spec(at.path())), &entry).is_empty());
}

#[test]
fn a_file_whose_parts_do_not_make_its_root_gets_no_name() {
    let at = tempfile::tempdir().unwrap();
    let data = noise(BLOCK + 5);
    let entry = file("big", data.len());
    let mut all = pieces(1, &entry, &data, 0);
    if let Data::Bytes { root, .. } = &mut all[0].0.data {
        *root = Some([7; 32]);
    }
    let written = copy(&spec(at.path()), &all);
    assert_eq!((written.failed, written.files), (1, 0));
    assert_eq!(fs::read_dir(at.path()).unwrap().count(), 0);
    // Nor does an incomplete one; its received parts stay for another run.
    let written = copy(&spec(at.path()), &pieces(1, &entry, &data, 0)[..1]);
    assert_eq!((written.failed, written.files), (1, 0));
    assert_eq!(have(&open(&spec(at.path())), &entry), [0]);
}

#[test]
fn holes_stay_holes() {
    let at = tempfile::tempdir().unwrap();
    let parts = 5;
    let mut data = vec![0; parts * BLOCK + 100];
    data[2 * BLOCK + 5000..2 * BLOCK + 6000].fill(1);
    let entry = entry("sparse", Kind::File { len: data.len() as u64, sparse: true });
    let hole = |first: usize, end: usize, root| {
        let data = Data::Hole { offset: (first * BLOCK) as u64, len: (end - first * BLOCK) as u64, root };
        (Part { file: 1, entry: entry.clone(), data }, Vec::new())
    };
    let middle = pieces(1, &entry, &data, 0).remove(2);
    let all =
        [hole(3, data.len(), Some(root(&data))), middle, hole(0, 2 * BLOCK, None), hole(0, 2 * BLOCK, None)];
    let written = copy(&spec(at.path()), &all);
    assert_eq!((written.files, written.failed), (1, 0), "{:?}", written.problems);
    assert!(fs::read(at.path().join("sparse")).unwrap() == data);
    assert!(fs::metadata(at.path().join("sparse")).unwrap().blocks() * 512 <= 64 << 10);
}

#[test]
fn a_hole_of_any_length_takes_no_memory() {
    let at = tempfile::tempdir().unwrap();
    let entry = entry("vast", Kind::File { len: 1 << 60, sparse: true });
    let data = Data::Hole { offset: 0, len: 1 << 60, root: Some([0; 32]) };
    let written = copy(&spec(at.path()), &[(Part { file: 1, entry, data }, Vec::new())]);
    assert_eq!(written.failed, 1);
}

#[derive(Clone, Debug)]
enum Node {
    Dir(u32),
    File(usize),
    Link,
}

fn tree() -> impl Strategy<Value = BTreeMap<String, Node>> {
    let len = prop_oneof![
        8 => 0..40_000usize,
        1 => Just(BLOCK),
        1 => Just(BLOCK + 1),
        1 => Just(2 * BLOCK + 70_000),
    ];
    let node = prop_oneof![
        1 => prop_oneof![Just(0o755), Just(0o700), Just(0o555)].prop_map(Node::Dir),
        4 => len.prop_map(Node::File),
        1 => Just(Node::Link),
    ];
    proptest::collection::btree_map("[ab]{1,2}(/[ab]{1,2}){0,3}", node, 1..15).prop_map(|mut tree| {
        // Only directories have entries below them.
        let all: Vec<String> = tree.keys().cloned().collect();
        for path in all {
            for (at, _) in path.match_indices('/') {
                tree.insert(path[..at].to_owned(), Node::Dir(0o755));
            }
        }
        tree
    })
}

fn tree_pieces(tree: &BTreeMap<String, Node>) -> Vec<Piece> {
    let mut all = vec![bare(0, dir("", 0o755))];
    for (n, (path, node)) in tree.iter().enumerate() {
        let n = n as u64 + 1;
        match node {
            Node::Dir(mode) => all.push(bare(n, dir(path, *mode))),
            Node::File(len) => all.extend(pieces(n, &file(path, *len), &noise(*len), n as usize)),
            Node::Link => all.push(bare(n, entry(path, Kind::Symlink { target: b"x".to_vec() }))),
        }
    }
    all
}

fn is_rebuilt(tree: &BTreeMap<String, Node>, dest: &Path) -> Result<(), TestCaseError> {
    for (path, node) in tree {
        let at = dest.join(path);
        let meta = fs::symlink_metadata(&at).unwrap();
        prop_assert_eq!(
            (meta.mtime(), meta.mtime_nsec()),
            (MTIME.seconds, i64::from(MTIME.nanos)),
            "{}",
            path
        );
        match node {
            Node::Dir(mode) => prop_assert_eq!(meta.mode() & 0o7777, *mode),
            Node::File(len) => prop_assert!(fs::read(&at).unwrap() == noise(*len)),
            Node::Link => prop_assert_eq!(fs::read_link(&at).unwrap(), Path::new("x")),
        }
    }
    let mut count = 0;
    let mut stack = vec![dest.to_owned()];
    while let Some(dir) = stack.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            count += 1;
            if entry.file_type().unwrap().is_dir() {
                stack.push(entry.path());
            }
        }
    }
    prop_assert_eq!(count, tree.len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Blocks in any order, some twice, by several threads; and killed somewhere in between.
    #[test]
    fn a_tree_is_rebuilt(
        (tree, order) in tree().prop_flat_map(|tree| {
            let twice: Vec<usize> = (0..2 * tree_pieces(&tree).len()).collect();
            (Just(tree), Just(twice).prop_shuffle())
        }),
        kill in any::<prop::sample::Index>(),
    ) {
        let at = tempfile::tempdir().unwrap();
        let all = tree_pieces(&tree);
        let kill = kill.index(order.len());
        for (from, ends) in [(0, false), (kill, true)] {
            let sink = open(&spec(at.path()));
            let part = if ends { &order[..] } else { &order[from..kill] };
            std::thread::scope(|s| {
                for writer in 0..3 {
                    let (sink, all) = (&sink, &all);
                    s.spawn(move || for n in part.iter().skip(writer).step_by(3) {
                        sink.write(writer, &block(std::slice::from_ref(&all[n % all.len()]))).unwrap();
                    });
                }
            });
            if ends {
                let written = sink.finish(&complete()).unwrap();
                prop_assert_eq!(written.failed, 0, "{:?}", written.problems);
                let files = tree.values().filter(|n| matches!(n, Node::File(_))).count();
                prop_assert_eq!(written.files, files as u64);
            }
        }
        is_rebuilt(&tree, at.path())?;
    }
}

/// How fast one thread, and two, write on tmpfs: `cargo test --release ... -- --ignored --nocapture speed`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let root = if Path::new("/dev/shm").is_dir() { Path::new("/dev/shm") } else { Path::new("/tmp") };
    let small: Vec<_> = (0..25)
        .map(|b| {
            let pieces: Vec<_> = (0..400u64)
                .map(|n| {
                    let path = format!("d{b}/file-{n}");
                    pieces(b * 400 + n, &file(&path, 10_000), &noise(10_000), 0).remove(0)
                })
                .collect();
            block(&pieces)
        })
        .collect();
    let data = noise(64 * BLOCK);
    let large: Vec<_> = pieces(1, &file("big", data.len()), &data, 63)
        .iter()
        .map(|p| block(std::slice::from_ref(p)))
        .collect();
    for (what, blocks, units, rounds) in
        [("10 KB files", &small, 10_000, 3), ("bytes", &large, data.len(), 4)]
    {
        for threads in [1, 2] {
            let at = tempfile::tempdir_in(root).unwrap();
            let (mut seconds, mut cpu) = (0.0, 0.0);
            for round in 0..rounds as u32 {
                let sink = open(&spec(&at.path().join(round.to_string())));
                let (began, before) = (std::time::Instant::now(), cpu_time());
                std::thread::scope(|s| {
                    for t in 0..threads {
                        let sink = &sink;
                        s.spawn(move || {
                            blocks
                                .iter()
                                .skip(t)
                                .step_by(threads)
                                .for_each(|b| drop(sink.write(t, b).unwrap()))
                        });
                    }
                });
                seconds += began.elapsed().as_secs_f64();
                cpu += cpu_time() - before;
                sink.finish(&complete()).unwrap();
            }
            let all = rounds as f64 * units as f64;
            println!(
                "{threads} threads: {:.0} {what}/s, {:.2} us of CPU each",
                all / seconds,
                cpu / all * 1e6
            );
        }
    }
}

fn cpu_time() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}
