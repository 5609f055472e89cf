use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use super::*;
use tidecast_hash::Digest;

use crate::block::{Leased, Pool};
use crate::digest;
use crate::entry::{Attributes, Entry, Kind, Owner, Time};
use crate::job::Wanted;
use crate::part::{BLOCK, Data, TableWriter};
use crate::spec::Offer;

pub(super) const MTIME: Time = Time { seconds: 1_600_000_000, nanos: 123_456_789 };

pub(super) fn entry(path: &str, kind: Kind) -> Entry {
    let owner = Owner {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..Owner::default()
    };
    let attributes = Attributes { mode: 0o640, mtime: MTIME, owner, xattrs: None };
    Entry { path: path.into(), attributes, kind }
}

pub(super) fn file(path: &str, len: usize) -> Entry {
    entry(path, Kind::File { len: len as u64, sparse: false })
}

pub(super) fn dir(path: &str, mode: u32) -> Entry {
    let mut dir = entry(path, Kind::Dir);
    dir.attributes.mode = mode;
    dir
}

fn link(path: &str, target: &str) -> Entry {
    entry(path, Kind::Symlink { target: target.into() })
}

fn hard(path: &str, to: &str) -> Entry {
    entry(path, Kind::HardLink { to: to.into() })
}

/// A part with its bytes.
pub(super) type Piece = (Part, Vec<u8>);

pub(super) fn bare(file: u64, entry: Entry) -> Piece {
    (Part { file, entry, data: Data::None }, Vec::new())
}

pub(super) fn ask(file: u64, entry: Entry, root: Option<Digest>) -> Piece {
    (Part { file, entry, data: Data::Ask { root } }, Vec::new())
}

/// A file's root, of its parts' digests.
pub(super) fn root(data: &[u8]) -> Digest {
    let mut layer = digest::Layer::new(data.len() as u64);
    if data.len() <= BLOCK {
        return digest::part(data);
    }
    for (n, chunk) in data.chunks(BLOCK).enumerate() {
        layer.set(n as u64, digest::part(chunk));
    }
    layer.root().unwrap()
}

/// All parts of a file; the root is in that numbered `last`.
pub(super) fn pieces(number: u64, entry: &Entry, data: &[u8], last: usize) -> Vec<Piece> {
    let chunks: Vec<&[u8]> = if data.is_empty() { vec![data] } else { data.chunks(BLOCK).collect() };
    let part = |(n, chunk): (usize, &&[u8])| {
        let digest = digest::part(chunk);
        let root = (data.len() > BLOCK && n == last % chunks.len()).then(|| root(data));
        let data = Data::Bytes { offset: (n * BLOCK) as u64, len: chunk.len() as u32, digest, root };
        (Part { file: number, entry: entry.clone(), data }, chunk.to_vec())
    };
    chunks.iter().enumerate().map(part).collect()
}

pub(super) fn small(number: u64, path: &str, data: &[u8]) -> Piece {
    pieces(number, &file(path, data.len()), data, 0).remove(0)
}

pub(super) fn block(pieces: &[Piece]) -> Leased {
    let mut block = Pool::new(1).take().unwrap();
    let mut table = TableWriter::new(Vec::new());
    let mut at = 0;
    for (part, bytes) in pieces {
        table.push(part.file, &part.entry, &part.data);
        block.room()[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    }
    block.table = table.finish();
    block.len = at;
    block
}

pub(super) fn spec(dest: &Path) -> ReceiveSpec {
    let offer = Offer { identity: "host:/data".into(), ..Offer::default() };
    ReceiveSpec { dest: dest.to_str().unwrap().into(), offer, ..ReceiveSpec::default() }
}

pub(super) fn open(spec: &ReceiveSpec) -> Directory {
    Directory::open(spec, None).unwrap()
}

pub(super) fn complete() -> Walked {
    Walked { complete: true, ..Walked::default() }
}

/// A whole copy of these.
pub(super) fn copy(spec: &ReceiveSpec, pieces: &[Piece]) -> Written {
    let sink = open(spec);
    pieces.iter().for_each(|piece| drop(sink.write(0, &block(std::slice::from_ref(piece))).unwrap()));
    sink.finish(&complete()).unwrap()
}

pub(super) fn noise(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

pub(super) fn names(dir: &Path) -> Vec<String> {
    let mut all: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    all
}

#[test]
fn attributes_links_and_directories_are_as_sent_and_nothing_else_is_left() {
    let at = tempfile::tempdir().unwrap();
    let dest = at.path().join("new/dest");
    let mut with_attribute = small(3, "d/e/x", b"xattr");
    with_attribute.0.entry.attributes.mode = 0o400;
    with_attribute.0.entry.attributes.xattrs = Some(vec![(b"user.units".to_vec(), b"K".to_vec())]);
    let all = [
        bare(7, hard("h", "d/e/f")),
        small(1, "d/e/f", b"bytes"),
        small(2, "empty", b""),
        with_attribute,
        bare(4, dir("d", 0o755)),
        bare(5, dir("d/e", 0o500)),
        bare(6, link("d/l", "/nowhere")),
        bare(8, dir("", 0o750)),
        bare(9, entry("pipe", Kind::Fifo)),
    ];
    let sink = open(&spec(&dest));
    assert!(sink.fresh());
    all.iter().for_each(|piece| drop(sink.write(0, &block(std::slice::from_ref(piece))).unwrap()));
    let written = sink.finish(&complete()).unwrap();
    assert_eq!(written.problems.iter().filter(|p| p.failed).count(), 0, "{:?}", written.problems);
    assert_eq!((written.files, written.bytes, written.failed), (3, 10, 0));
    assert_eq!(names(&dest), ["d", "empty", "h", "pipe"]);
    assert_eq!(fs::read(dest.join("h")).unwrap(), b"bytes");
    assert_eq!(fs::metadata(dest.join("h")).unwrap().ino(), fs::metadata(dest.join("d/e/f")).unwrap().ino());
    for (name, mode) in
        [("", 0o750), ("d", 0o755), ("d/e", 0o500), ("d/e/f", 0o640), ("d/e/x", 0o400), ("pipe", 0o640)]
    {
        let meta = fs::symlink_metadata(dest.join(name)).unwrap();
        assert_eq!(meta.permissions().mode() & 0o7777, mode, "{name}");
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (MTIME.seconds, i64::from(MTIME.nanos)), "{name}");
    }
    let link = fs::symlink_metadata(dest.join("d/l")).unwrap();
    assert_eq!((link.is_symlink(), link.mtime()), (true, MTIME.seconds));
    let mut value = [0; 9];
    if rustix::fs::getxattr(dest.join("d/e/x"), "user.units", &mut value[..])
        != Err(rustix::io::Errno::OPNOTSUPP)
    {
        assert_eq!(&value[..1], b"K");
    }
}

#[test]
fn directories_that_nobody_names_are_made_as_usual() {
    let at = tempfile::tempdir().unwrap();
    copy(&spec(at.path()), &[small(1, "a/b/c", b"1")]);
    fs::create_dir(at.path().join("usual")).unwrap();
    let mode = |name| fs::metadata(at.path().join(name)).unwrap().permissions().mode();
    assert_eq!(mode("a/b"), mode("usual"));
}

#[test]
fn what_the_destination_means_is_as_with_rsync() {
    let at = tempfile::tempdir().unwrap();
    let single = |dest: &str| {
        let mut spec = spec(&at.path().join(dest));
        spec.offer.single = Some(b"f".to_vec());
        spec
    };
    copy(&single("renamed"), &[small(1, "f", b"1")]);
    assert_eq!(fs::read(at.path().join("renamed")).unwrap(), b"1");
    copy(&single("below/"), &[small(1, "f", b"2")]);
    assert_eq!(fs::read(at.path().join("below/f")).unwrap(), b"2");
    copy(&single("below"), &[small(1, "f", b"3")]);
    assert_eq!(fs::read(at.path().join("below/f")).unwrap(), b"3");
    let sink = open(&single("renamed"));
    assert!(!sink.fresh());
    assert!(matches!(sink.write(0, &block(&[small(1, "g", b"1")])), Err(Error::Damaged(_))));
    drop(sink);
    assert!(matches!(Directory::open(&spec(&at.path().join("renamed")), None), Err(Error::Usage(_))));
    assert!(Directory::open(&single("renamed/"), None).is_err());
}

#[test]
fn below_a_served_root_nothing_leads_out() {
    let at = tempfile::tempdir().unwrap();
    let root = at.path().join("root");
    fs::create_dir_all(root.join("in")).unwrap();
    symlink(at.path(), root.join("out")).unwrap();
    let open = |dest: &str| Directory::open(&spec(Path::new(dest)), Some(&root));
    for dest in ["/out/x", "../x", "in/../../x", "out"] {
        assert!(open(dest).is_err(), "{dest}");
    }
    let sink = open("/in/new").unwrap();
    sink.write(0, &block(&[small(1, "f", b"1")])).unwrap();
    sink.finish(&complete()).unwrap();
    assert_eq!(names(at.path()), ["root"]);
    assert_eq!(names(&root.join("in/new")), ["f"]);
}

#[test]
fn nothing_planted_leads_outside() {
    let at = tempfile::tempdir().unwrap();
    let (dest, out) = (at.path().join("dest"), at.path().join("out"));
    fs::create_dir_all(out.join("sub")).unwrap();
    fs::create_dir(&dest).unwrap();
    fs::write(out.join("victim"), b"safe").unwrap();
    symlink(&out, dest.join("d")).unwrap();
    symlink(out.join("victim"), dest.join("v")).unwrap();
    let out_text = out.to_str().unwrap();
    let sink = open(&spec(&dest));
    let staging = sink.staging.as_ref().unwrap().stage.name.clone();
    let all = [
        small(1, "d/f", b"inside"),
        small(2, "v", b"mine"),
        bare(3, link("p", out_text)),
        small(4, "p/victim", b"bad"),
        bare(5, link("q", out_text)),
        bare(6, dir("q/sub", 0o777)),
        bare(7, link("r", out_text)),
        bare(8, hard("stolen", "r/victim")),
        small(9, &format!("{staging}/journal"), b"bad"),
        bare(10, link(&staging, "/")),
    ];
    all.iter().for_each(|piece| drop(sink.write(0, &block(std::slice::from_ref(piece))).unwrap()));
    let written = sink.finish(&complete()).unwrap();
    assert_eq!(written.failed, 3, "{:?}", written.problems);
    assert_eq!(names(&out), ["sub", "victim"]);
    assert_eq!(fs::read(out.join("victim")).unwrap(), b"safe");
    assert!(names(&out.join("sub")).is_empty());
    assert_eq!(fs::read(dest.join("d/f")).unwrap(), b"inside");
    assert!(fs::symlink_metadata(dest.join("p")).unwrap().is_dir());
    assert!(fs::symlink_metadata(dest.join("v")).unwrap().is_file());
}

#[test]
fn a_directory_in_the_way_stays_if_it_holds_something() {
    let at = tempfile::tempdir().unwrap();
    let make = || {
        fs::create_dir_all(at.path().join("full/x")).unwrap();
        fs::create_dir_all(at.path().join("empty")).unwrap();
    };
    make();
    let pieces = [small(1, "full", b"1"), small(2, "empty", b"2")];
    let written = copy(&spec(at.path()), &pieces);
    assert_eq!((written.failed, written.files), (1, 1));
    assert!(written.problems[0].what.contains("non-empty"), "{:?}", written.problems);
    assert_eq!(fs::read(at.path().join("empty")).unwrap(), b"2");
    let written = copy(&ReceiveSpec { delete: true, ..spec(at.path()) }, &pieces);
    assert_eq!((written.failed, names(at.path())), (0, vec!["empty".to_owned(), "full".to_owned()]));
    assert_eq!(fs::read(at.path().join("full")).unwrap(), b"1");
}

#[test]
fn what_the_source_does_not_have_is_deleted_only_if_all_is_known() {
    let at = tempfile::tempdir().unwrap();
    for name in ["top/old/deep", "top/kept.log", "top/gone/kept.log", "other"] {
        fs::create_dir_all(at.path().join(name).parent().unwrap()).unwrap();
        fs::write(at.path().join(name), b"x").unwrap();
    }
    let spec = ReceiveSpec { delete: true, filter: crate::filter::rules(&["*.log"]), ..spec(at.path()) };
    let run = |spec: &ReceiveSpec, walked: Walked| {
        let sink = open(spec);
        let pieces = [bare(1, dir("top", 0o755)), ask(2, file("top/f", 1), None), small(3, "top/g", b"1")];
        pieces.iter().for_each(|piece| drop(sink.write(0, &block(std::slice::from_ref(piece))).unwrap()));
        sink.finish(&walked).unwrap()
    };
    for walked in [Walked::default(), Walked { failed: 1, ..complete() }] {
        let written = run(&spec, walked);
        assert_eq!((written.deleted, written.problems.len(), written.failed), (0, 1, 0));
    }
    let dry = run(&ReceiveSpec { dry_run: true, ..spec.clone() }, complete());
    assert!(
        dry.planned.iter().any(|c| c.what == "delete" && c.path.ends_with("top/old")),
        "{:?}",
        dry.planned
    );
    assert!(at.path().join("top/old/deep").exists());
    assert_eq!(run(&spec, complete()).deleted, 2);
    assert_eq!(names(at.path()), ["other", "top"]);
    assert_eq!(names(&at.path().join("top")), ["g", "gone", "kept.log"]);
}

#[test]
fn what_is_here_is_kept_and_its_attributes_are_corrected() {
    let at = tempfile::tempdir().unwrap();
    copy(&spec(at.path()), &[small(1, "same", b"1"), small(2, "old", b"2"), small(3, "other", b"3")]);
    let asked = |spec: &ReceiveSpec, entry: Entry, root| {
        let sink = open(spec);
        let want = sink.write(0, &block(&[ask(7, entry, root)])).unwrap().unwrap();
        let written = sink.finish(&complete()).unwrap();
        assert_eq!(written.kept, u64::from(want.files.is_empty()));
        want.files.is_empty()
    };
    let plain = spec(at.path());
    let mut same = file("same", 1);
    same.attributes.mode = 0o600;
    assert!(asked(&plain, same.clone(), None));
    assert_eq!(fs::metadata(at.path().join("same")).unwrap().permissions().mode() & 0o777, 0o600);
    same.attributes.mtime.nanos = 0;
    assert!(asked(&plain, same, None));
    let mut newer = file("old", 1);
    newer.attributes.mtime.seconds += 1;
    let mut older = file("old", 1);
    older.attributes.mtime.seconds -= 1;
    assert!(!asked(&plain, newer.clone(), None) && !asked(&plain, older.clone(), None));
    assert!(!asked(&plain, file("missing", 1), None) && !asked(&plain, file("no/dir", 1), None));
    let update = ReceiveSpec { update: true, ..plain.clone() };
    assert!(!asked(&update, newer, None) && asked(&update, older.clone(), None));
    let checksum = ReceiveSpec { checksum: true, ..plain };
    assert!(!asked(&checksum, file("other", 1), Some(digest::content(b"4", 1))));
    assert!(asked(&checksum, older, Some(digest::content(b"2", 1))));
    assert_eq!(fs::metadata(at.path().join("old")).unwrap().mtime(), MTIME.seconds - 1);
}

#[test]
fn a_dry_run_writes_nothing_and_says_what_it_would() {
    let at = tempfile::tempdir().unwrap();
    let dest = at.path().join("dest");
    let all = [ask(1, file("f", 5), None), bare(2, dir("d", 0o755)), bare(3, link("l", "x"))];
    let dry = |dest: &Path| {
        let sink = open(&ReceiveSpec { dry_run: true, ..spec(dest) });
        assert!(!sink.fresh());
        let want = sink.write(0, &block(&all)).unwrap();
        assert_eq!(want, Some(Want::default()));
        sink.finish(&complete()).unwrap()
    };
    let written = dry(&dest);
    assert_eq!((written.entries, written.files, written.bytes, written.planned.len()), (3, 1, 5, 3));
    assert!(!dest.exists());
    copy(&spec(&dest), &[small(1, "f", b"12345"), all[1].clone(), all[2].clone()]);
    let written = dry(&dest);
    assert_eq!((written.kept, written.planned), (1, Vec::new()));
    assert_eq!(names(&dest), ["d", "f", "l"]);
}

#[test]
fn two_copies_of_the_same_are_not_at_work_at_once() {
    let at = tempfile::tempdir().unwrap();
    let first = open(&spec(at.path()));
    let second = Directory::open(&spec(at.path()), None).unwrap_err();
    assert!(second.to_string().contains("another copy"), "{second}");
    drop(first);
    assert!(!open(&spec(at.path())).fresh());
}

#[test]
fn damage_ends_the_copy() {
    let at = tempfile::tempdir().unwrap();
    let mut bad = small(1, "f", b"12345");
    bad.1[0] ^= 1;
    let (sink, null) = (open(&spec(at.path())), Null::default());
    assert!(matches!(sink.write(0, &block(std::slice::from_ref(&bad))), Err(Error::Damaged(_))));
    assert!(matches!(null.write(0, &block(&[bad])), Err(Error::Damaged(_))));
    null.write(0, &block(&[small(1, "f", b"12345"), bare(2, dir("d", 0))])).unwrap();
    assert_eq!((null.written().entries, null.written().files, null.written().bytes), (2, 1, 5));
    assert!(!at.path().join("f").exists());
}

pub(super) fn wanted(sink: &Directory, number: u64, entry: &Entry) -> Option<Wanted> {
    let want = sink.write(0, &block(&[ask(number, entry.clone(), None)])).unwrap();
    want.unwrap().files.pop()
}
