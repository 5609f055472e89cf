//! A destination that holds something else: former versions by our own record are replaced, name by name and
//! atomically; anything else is refused, unless it is forced.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink as link_to};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use common::sim::SimDisk;
use common::{Fixture, Item, Rng, VERSIONS, bytes, dir, file, publish, symlink};
use tempfile::TempDir;
use tidecast_metainfo::Version;
use tidecast_store::disk::{Disk, How};
use tidecast_store::{DownloadOptions, Durability, Error, Opened, Replace, Store, Summary};

/// All that is missing, and its final name.
fn bring(fixture: &Fixture, opened: &Opened) -> Result<Summary, Error> {
    let store = &opened.store;
    for piece in opened.to_check.iter().cloned().flatten() {
        store.check(piece)?;
    }
    for piece in opened.wanted.iter().cloned().flatten().filter(|p| !store.has(*p)) {
        fixture.deliver(store, piece, &mut Rng(1))?;
    }
    store.finish()
}

/// A directory for data, and one for records.
struct Place {
    to: TempDir,
    records: TempDir,
}

impl Place {
    fn new() -> Self {
        Place { to: tempfile::tempdir().unwrap(), records: tempfile::tempdir().unwrap() }
    }

    fn home(&self) -> PathBuf {
        self.to.path().join("data")
    }

    fn put(&self, fixture: &Fixture, force: bool, delete: bool) -> Result<Summary, Error> {
        self.put_by(fixture, Replace { force, delete, ..Replace::default() })
    }

    /// Also over regular files that the record does not know.
    fn put_over_unknown(&self, fixture: &Fixture) -> Result<Summary, Error> {
        self.put_by(fixture, Replace { unknown: true, ..Replace::default() })
    }

    fn put_by(&self, fixture: &Fixture, replace: Replace) -> Result<Summary, Error> {
        let replace = Replace { records: Some(self.records.path().to_path_buf()), ..replace };
        let options = DownloadOptions { replace, durability: Durability::None, ..Default::default() };
        let opened = Store::download(fixture.manifest.clone(), self.to.path(), &options)?;
        let done = bring(fixture, &opened);
        done.inspect_err(|_| opened.store.abandon())
    }

    fn must(&self, fixture: &Fixture) -> Summary {
        let done = self.put(fixture, false, false).unwrap();
        fixture.assert_at(&self.home());
        assert_eq!(self.names(), ["data"]);
        done
    }

    /// Refused with these words, and nothing is left behind.
    fn refuses(&self, fixture: &Fixture, words: &str) {
        let error = self.put(fixture, false, false).expect_err("must be refused");
        assert!(error.is_in_the_way() && error.to_string().contains(words), "{error}");
        assert_eq!(self.names(), ["data"]);
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.to.path()).unwrap();
        names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn single(version: Version, content: &[u8]) -> Fixture {
    publish("data", version, &[file("", content.to_vec())])
}

/// With something that is always the same.
fn tree(version: Version, items: Vec<Item>) -> Fixture {
    let mut all = vec![file("same", bytes(9, 50_000))];
    all.extend(items);
    publish("data", version, &all)
}

#[test]
fn a_former_version_is_replaced_and_who_reads_it_keeps_it() {
    for version in VERSIONS {
        let place = Place::new();
        let contents = [
            bytes(1, 70_000),
            bytes(2, 70_000),
            Vec::new(),
            bytes(3, 40_000),
            b"key = 1".to_vec(),
            b"key = 2".to_vec(),
        ];
        assert!(place.must(&single(version, b"the first")).fresh);
        let mut before = b"the first".to_vec();
        for content in contents {
            let mut reader = fs::File::open(place.home()).unwrap();
            let done = place.must(&single(version, &content));
            assert_eq!((done.fresh, done.replaced), (false, 1), "{version}");
            let mut found = Vec::new();
            reader.read_to_end(&mut found).unwrap();
            assert_eq!(found, before);
            before = content;
        }
        let again = place.must(&single(version, b"key = 2"));
        assert_eq!((again.kept, again.replaced), (1, 0), "the same stays");
    }
}

#[test]
fn what_is_no_former_version_is_refused_with_the_flag_and_forced_with_it() {
    for version in VERSIONS {
        for content in [bytes(1, 70_000), b"short".to_vec(), Vec::new()] {
            for mine in [bytes(5, 70_000), b"mine!".to_vec(), vec![0; 3]] {
                let place = Place::new();
                fs::write(place.home(), &mine).unwrap();
                let new = single(version, &content);
                place.refuses(&new, "--force");
                assert_eq!(fs::read(place.home()).unwrap(), mine);
                place.put(&new, true, false).unwrap();
                new.assert_at(&place.home());
            }
        }
    }
}

#[test]
fn unknown_files_give_way_where_that_is_meant_and_are_counted() {
    for version in VERSIONS {
        for content in [bytes(1, 70_000), b"short".to_vec(), Vec::new()] {
            for mine in [bytes(5, 70_000), b"mine!".to_vec(), vec![0; 3]] {
                let (place, new) = (Place::new(), single(version, &content));
                fs::write(place.home(), &mine).unwrap();
                let mut reader = fs::File::open(place.home()).unwrap();
                let done = place.put_over_unknown(&new).unwrap();
                assert_eq!((done.replaced, done.replaced_foreign, done.kept), (1, 1, 0), "{version}");
                new.assert_at(&place.home());
                let mut before = Vec::new();
                reader.read_to_end(&mut before).unwrap();
                assert_eq!(before, mine, "it was replaced, not written to");
                // From now on it is known.
                let next = single(version, b"next");
                assert_eq!(place.must(&next).replaced_foreign, 0);
                fs::write(place.home(), "my notes").unwrap();
                let error = place.put_over_unknown(&new).unwrap_err();
                assert!(
                    error.is_in_the_way() && error.to_string().contains("it has changed since"),
                    "{error}"
                );
                assert_eq!(fs::read(place.home()).unwrap(), b"my notes");
            }
        }
    }
}

#[test]
fn only_regular_files_give_way_unknown() {
    let (new, as_link) = (single(Version::V2, b"new"), tree(Version::V2, vec![symlink("x", "same")]));
    let place = Place::new();
    link_to("/etc/passwd", place.home()).unwrap();
    assert!(place.put_over_unknown(&new).unwrap_err().is_in_the_way());
    // A link, or a directory, where a file is.
    let place = Place::new();
    fs::write(place.home(), "mine").unwrap();
    assert!(place.put_over_unknown(&as_link).unwrap_err().is_in_the_way());
    let place = Place::new();
    fs::create_dir(place.home()).unwrap();
    fs::write(place.home().join("same"), bytes(9, 50_000)).unwrap();
    fs::write(place.home().join("x"), "mine").unwrap();
    assert!(place.put_over_unknown(&as_link).unwrap_err().is_in_the_way());
    assert_eq!(fs::read(place.home().join("x")).unwrap(), b"mine");
    // A directory that has nothing of the tree.
    let place = Place::new();
    fs::create_dir(place.home()).unwrap();
    fs::write(place.home().join("thesis"), "mine").unwrap();
    assert!(place.put_over_unknown(&as_link).unwrap_err().to_string().contains("other things"));
}

#[test]
fn of_a_tree_each_unknown_file_is_counted_and_the_edited_one_stays() {
    for version in [Version::V2, Version::Hybrid] {
        let place = Place::new();
        let of = |seed| {
            let file = |name, seed| file(name, bytes(seed, 40_000));
            tree(version, vec![file("a/x", seed), file("a/y", seed + 1), file("z", 7)])
        };
        fs::create_dir_all(place.home().join("a")).unwrap();
        for (name, seed, len) in [("a/x", 70, 40_000), ("a/y", 71, 1000), ("z", 7, 40_000), ("mine", 3, 10)] {
            fs::write(place.home().join(name), bytes(seed, len)).unwrap();
        }
        let done = place.put_over_unknown(&of(1)).unwrap();
        let figures = (done.replaced, done.replaced_foreign, done.kept, done.stale, done.foreign);
        assert_eq!(figures, (2, 2, 1, 1, 1), "{version}: `same` is new, `z` stays");
        assert_eq!(fs::read(place.home().join("a/y")).unwrap(), bytes(2, 40_000));
        // `z` was there before, and is unknown still; `a/x` is known, and edited.
        fs::write(place.home().join("a/x"), "edited").unwrap();
        let error = place.put_over_unknown(&of(3)).unwrap_err();
        assert!(error.to_string().contains("a/x"), "{error}");
        assert_eq!(fs::read(place.home().join("a/y")).unwrap(), bytes(2, 40_000), "nothing is replaced");
    }
}

#[test]
fn what_a_user_has_edited_is_not_ours_and_what_only_looks_other_is() {
    let (old, new) = (single(Version::V2, &bytes(1, 70_000)), single(Version::V2, &bytes(2, 70_000)));
    let set_time = |path: PathBuf, time| {
        fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    // In place, and of the same size.
    let place = Place::new();
    place.must(&old);
    let time = fs::metadata(place.home()).unwrap().modified().unwrap();
    let mut edited = bytes(1, 70_000);
    edited[60_000] ^= 1;
    fs::write(place.home(), &edited).unwrap();
    set_time(place.home(), time + Duration::from_secs(1));
    place.refuses(&new, "--force");
    place.refuses(&old, "--force");
    assert_eq!(fs::read(place.home()).unwrap(), edited);
    // Bytes that changed while the time did not are damage, and are repaired.
    set_time(place.home(), time);
    place.must(&old);
    // Another mode and time, another inode: the content decides.
    let place = Place::new();
    place.must(&old);
    fs::set_permissions(place.home(), fs::Permissions::from_mode(0o600)).unwrap();
    place.must(&new);
    fs::copy(place.home(), place.to.path().join("copy")).unwrap();
    fs::rename(place.to.path().join("copy"), place.home()).unwrap();
    let old_time = SystemTime::now() - Duration::from_secs(1_000_000);
    set_time(place.home(), old_time);
    place.must(&old);
}

#[test]
fn records_are_of_one_place_and_damaged_ones_prove_nothing() {
    let place = Place::new();
    place.must(&single(Version::V2, b"one"));
    for entry in fs::read_dir(place.records.path()).unwrap() {
        fs::write(entry.unwrap().path(), "garbage").unwrap();
    }
    place.refuses(&single(Version::V2, b"two"), "--force");
    // The same data found there proves nothing either.
    assert_eq!(place.must(&single(Version::V2, b"one")).kept, 1);
    place.refuses(&single(Version::V2, b"two"), "--force");
    place.put(&single(Version::V2, b"two"), true, false).unwrap();
    place.must(&single(Version::V2, b"six"));
}

#[test]
fn one_edited_file_of_a_tree_stops_it_before_anything_is_replaced() {
    for version in [Version::V2, Version::Hybrid] {
        let place = Place::new();
        let of = |seed| {
            tree(version, vec![file("a/x", bytes(seed, 40_000)), file("b/y", bytes(seed + 1, 40_000))])
        };
        place.must(&of(1));
        fs::write(place.home().join("b/y"), bytes(77, 40_000)).unwrap();
        place.refuses(&of(3), "b/y");
        assert_eq!(fs::read(place.home().join("a/x")).unwrap(), bytes(1, 40_000));
        assert_eq!(fs::read(place.home().join("b/y")).unwrap(), bytes(77, 40_000));
        // One that the user made the new version himself is as good as ours.
        fs::write(place.home().join("b/y"), bytes(4, 40_000)).unwrap();
        assert_eq!(place.must(&of(3)).replaced, 1);
    }
}

/// The kinds of entries of a tree.
fn kinds() -> Vec<Vec<Item>> {
    vec![
        vec![file("x", b"a file".to_vec())],
        vec![file("x", Vec::new())],
        vec![symlink("x", "same")],
        vec![symlink("x", "elsewhere")],
        vec![dir("x")],
        vec![file("x/in", b"side".to_vec()), file("x/deep/er", bytes(4, 40_000)), symlink("x/link", "in")],
        vec![],
    ]
}

#[test]
fn any_kind_becomes_any_other() {
    for version in [Version::V2, Version::Hybrid, Version::V1] {
        for old in kinds() {
            for new in kinds() {
                let place = Place::new();
                place.must(&tree(version, old.iter().map(copy).collect()));
                let inode = fs::metadata(place.home().join("same")).unwrap().ino();
                place.must(&tree(version, new.iter().map(copy).collect()));
                // In v1 its last piece has bytes of the next file, too.
                let now = fs::metadata(place.home().join("same")).unwrap().ino();
                assert!(now == inode || version == Version::V1, "what is the same stays");
            }
        }
    }
}

fn copy(item: &Item) -> Item {
    Item { entry: item.entry.clone(), data: item.data.clone() }
}

#[test]
fn the_destination_itself_changes_its_kind() {
    let (one, many) = (single(Version::V2, b"one"), tree(Version::V2, vec![file("d/x", b"x".to_vec())]));
    let place = Place::new();
    for fixture in [&one, &many, &one, &many] {
        place.must(fixture);
    }
    // A directory to which another program has added files stays, by force too.
    fs::write(place.home().join("d/thesis"), "mine").unwrap();
    place.refuses(&one, "thesis");
    assert!(place.put(&one, true, true).is_err());
    assert_eq!(fs::read(place.home().join("d/thesis")).unwrap(), b"mine");
    // And so does one that was never ours.
    let place = Place::new();
    fs::create_dir(place.home()).unwrap();
    place.refuses(&one, "--force does not");
    assert!(place.put(&one, true, true).is_err());
}

#[test]
fn links_are_replaced_and_never_followed_and_special_files_are_neither() {
    let outside = tempfile::tempdir().unwrap();
    let precious = outside.path().join("precious");
    fs::write(&precious, "precious").unwrap();
    for (new, force) in [(single(Version::V2, b"new"), true), (tree(Version::V2, vec![]), true)] {
        for target in [precious.as_path(), outside.path()] {
            let place = Place::new();
            link_to(target, place.home()).unwrap();
            place.refuses(&new, "--force");
            place.put(&new, force, true).unwrap();
            new.assert_at(&place.home());
            assert_eq!(fs::read(&precious).unwrap(), b"precious");
            assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
        }
        let place = Place::new();
        let made = std::process::Command::new("mkfifo").arg(place.home()).status().unwrap();
        assert!(made.success());
        place.refuses(&new, "a pipe");
        assert!(place.put(&new, true, true).is_err(), "not by force either");
    }
}

#[test]
fn what_the_data_has_no_more_is_counted_or_removed() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "precious").unwrap();
    let place = Place::new();
    let old = tree(
        Version::V2,
        vec![file("gone", b"1".to_vec()), file("d/gone", b"2".to_vec()), file("e/f/g", b"3".to_vec())],
    );
    let new = tree(Version::V2, vec![file("d/here", b"4".to_vec())]);
    place.must(&old);
    link_to(outside.path(), place.home().join("d/link")).unwrap();
    fs::write(place.home().join("d/mine"), "mine").unwrap();
    fs::create_dir(place.home().join(".tidecast-other-1234")).unwrap();
    let done = place.must(&new);
    assert_eq!((done.stale, done.foreign, done.deleted), (5, 2, 0));
    assert_eq!(place.must(&new).stale, 5, "it says so each time");
    let done = place.put(&new, false, true).unwrap();
    assert_eq!((done.stale, done.foreign, done.deleted, done.kept), (2, 2, 3, 2), "what we put there goes");
    assert!(!place.home().join("e").exists() && place.home().join("d/mine").exists());
    let done = place.put(&new, true, true).unwrap();
    assert_eq!((done.stale, done.deleted, done.kept), (0, 2, 2), "and by force all");
    new.assert_at(&place.home());
    assert!(!place.home().join("e").exists() && !place.home().join("d/link").is_symlink());
    assert!(outside.path().join("precious").exists());
    assert!(place.home().join(".tidecast-other-1234").exists(), "another transfer's");
    let done = place.put(&new, false, true).unwrap();
    assert_eq!((done.stale, done.deleted), (0, 0));
}

#[test]
fn what_others_put_into_a_directory_of_ours_stays_with_it() {
    let place = Place::new();
    place.must(&tree(
        Version::V2,
        vec![file("d/e/x", b"1".to_vec()), file("d/y", b"2".to_vec()), dir("void")],
    ));
    fs::write(place.home().join("d/e/mine"), "mine").unwrap();
    let new = tree(Version::V2, vec![]);
    for left in [(1, 1, 3), (1, 1, 0)] {
        let done = place.put(&new, false, true).unwrap();
        assert_eq!((done.stale, done.foreign, done.deleted), left);
        assert_eq!(fs::read(place.home().join("d/e/mine")).unwrap(), b"mine");
        assert!(!place.home().join("void").exists() && !place.home().join("d/y").exists());
    }
    // Without that file the directories are ours again, and empty.
    fs::remove_file(place.home().join("d/e/mine")).unwrap();
    place.put(&new, false, true).unwrap();
    assert!(!place.home().join("d").exists());
    // An edited file is its editor's.
    place.must(&tree(Version::V2, vec![file("x", b"1".to_vec())]));
    fs::write(place.home().join("x"), "edited").unwrap();
    let done = place.put(&new, false, true).unwrap();
    assert_eq!((done.foreign, done.deleted), (1, 0));
}

#[test]
fn a_tree_of_others_is_not_ours_because_names_or_contents_agree() {
    for version in VERSIONS {
        for force in [false, true] {
            let place = Place::new();
            fs::create_dir_all(place.home().join(".ssh")).unwrap();
            for (name, content) in [("none", &b""[..]), ("thesis", b"mine"), (".ssh/id", b"key")] {
                fs::write(place.home().join(name), content).unwrap();
            }
            let of = |seed| tree(version, vec![file("none", Vec::new()), file("x", bytes(seed, 40_000))]);
            // The first may be forced among them; the existing file does not become a delivered one by that.
            place.put(&of(1), force, false).unwrap();
            let done = place.put(&of(2), false, true).unwrap();
            assert_eq!((done.stale, done.foreign, done.deleted), (2, 2, 0), "{version}");
            let done = place.put(&tree(version, vec![]), false, true).unwrap();
            assert_eq!((done.stale, done.foreign, done.deleted), (3, 3, 1), "{version}: x goes, none stays");
            place.refuses(&single(version, b"one"), "");
            assert_eq!(fs::read(place.home().join("thesis")).unwrap(), b"mine");
        }
    }
}

#[test]
fn the_same_data_by_another_hand_stays_that_hands() {
    for version in VERSIONS {
        let place = Place::new();
        fs::write(place.home(), "one").unwrap();
        for force in [false, true] {
            assert_eq!(place.put(&single(version, b"one"), force, false).unwrap().kept, 1);
            place.refuses(&single(version, b"two"), "--force");
        }
        place.put(&single(version, b"two"), true, false).unwrap();
        place.must(&single(version, b"six"));
        // A delivered file stays recorded when it is found unchanged.
        assert_eq!(place.must(&single(version, b"six")).kept, 1);
        place.must(&single(version, b"ten"));
    }
}

#[test]
fn all_files_of_a_directory_that_is_forced_away_are_counted() {
    let place = Place::new();
    fs::create_dir_all(place.home().join("x/deep")).unwrap();
    for n in 0..5 {
        fs::write(place.home().join(format!("x/deep/{n}")), "mine").unwrap();
    }
    let done = place.put(&tree(Version::V2, vec![file("x", b"1".to_vec())]), true, false).unwrap();
    assert_eq!(done.replaced, 5);
}

#[test]
fn a_record_that_cannot_be_kept_is_told_once() {
    let mut place = Place::new();
    let file = place.records.path().join("file");
    fs::write(&file, "").unwrap();
    let records = Some(file.join("records"));
    let replace = Replace { records, ..Default::default() };
    let options = DownloadOptions { replace, durability: Durability::None, ..Default::default() };
    let new = single(Version::V2, b"one");
    let opened = Store::download(new.manifest.clone(), place.to.path(), &options).unwrap();
    let warnings = bring(&new, &opened).unwrap().warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with("cannot record the files delivered to "), "{warnings:?}");
    place.records = tempfile::tempdir().unwrap();
    place.refuses(&single(Version::V2, b"two"), "--force");
}

#[test]
fn the_wait_for_another_that_writes_there_is_told_of_and_can_be_ended() {
    let place = Place::new();
    place.must(&single(Version::V2, b"one"));
    let record = fs::read_dir(place.records.path()).unwrap().next().unwrap().unwrap().path();
    let lock = fs::File::create(record.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let new = single(Version::V2, b"two");
    let replace = Replace { records: Some(place.records.path().into()), ..Default::default() };
    let options = DownloadOptions { replace, durability: Durability::None, ..Default::default() };
    let opened = Store::download(new.manifest.clone(), place.to.path(), &options).unwrap();
    std::thread::scope(|scope| {
        let done = scope.spawn(|| bring(&new, &opened));
        while opened.store.waits_for().is_none() {
            assert!(!done.is_finished(), "it waits");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(opened.store.waits_for().unwrap(), record.with_extension("lock"));
        opened.store.stop_waiting();
        assert!(matches!(done.join().unwrap(), Err(Error::Waited { .. })));
    });
    assert_eq!(fs::read(place.home()).unwrap(), b"one");
    assert!(opened.store.waits_for().is_none());
}

#[test]
fn versions_that_come_at_the_same_time_replace_one_another() {
    let place = Place::new();
    let versions: Vec<Fixture> = (0..6).map(|seed| single(Version::V2, &bytes(seed, 50_000))).collect();
    std::thread::scope(|scope| {
        for version in &versions {
            scope.spawn(|| {
                for _ in 0..5 {
                    // A process that read a file that another has just replaced gets an error.
                    let words = match place.put(version, false, false) {
                        Err(error) => error.to_string(),
                        Ok(_) => continue,
                    };
                    assert!(words.contains("during the transfer"), "{words}");
                }
            });
        }
    });
    assert!(versions.iter().any(|v| fs::read(place.home()).unwrap() == v.data[0]), "one of them, whole");
    place.must(&versions[0]);
}

#[test]
fn what_another_has_put_there_since_the_start_is_a_former_version_too() {
    let place = Place::new();
    fs::write(place.home(), bytes(1, 50_000)).unwrap();
    let (first, second) = (single(Version::V2, &bytes(2, 50_000)), single(Version::V2, &bytes(3, 50_000)));
    let replace = Replace { records: Some(place.records.path().into()), ..Default::default() };
    let options = DownloadOptions { replace, durability: Durability::None, ..Default::default() };
    let opened = Store::download(second.manifest.clone(), place.to.path(), &options).unwrap();
    place.put(&first, true, false).unwrap();
    opened.store.differs(0).unwrap();
    drop(opened);
    // Files that were not delivered are refused as before.
    fs::write(place.home(), bytes(4, 50_000)).unwrap();
    let opened = Store::download(second.manifest.clone(), place.to.path(), &options).unwrap();
    assert!(opened.store.differs(0).unwrap_err().is_in_the_way());
}

#[test]
fn a_refused_tree_deletes_nothing() {
    let place = Place::new();
    place.must(&tree(Version::V2, vec![file("x", b"1".to_vec()), file("gone", b"1".to_vec())]));
    fs::write(place.home().join("x"), "edited").unwrap();
    let new = tree(Version::V2, vec![file("x", b"2".to_vec())]);
    assert!(place.put(&new, false, true).is_err());
    assert!(place.home().join("gone").exists());
}

#[test]
fn read_only_directories_take_the_next_version() {
    if common::is_root() {
        return; // Root may write anywhere; the end-to-end tests have a user.
    }
    let place = Place::new();
    let closed = |items: Vec<Item>| {
        let mut top = dir("d");
        top.entry.mode = Some(0o555);
        tree(Version::V2, items.into_iter().chain([top]).collect())
    };
    place.must(&closed(vec![file("d/old", b"1".to_vec()), file("d/x/y", b"1".to_vec())]));
    let new = closed(vec![file("d/new", b"2".to_vec()), file("d/x", b"1".to_vec())]);
    place.put(&new, false, true).unwrap();
    new.assert_at(&place.home());
    assert!(!place.home().join("d/old").exists());
    assert_eq!(fs::metadata(place.home().join("d")).unwrap().mode() & 0o777, 0o555);
}

#[test]
fn after_a_kill_at_any_step_each_name_has_the_old_or_the_new_and_the_next_run_ends_it() {
    let force = Replace { force: true, ..Default::default() };
    let options = DownloadOptions { replace: force, ..Default::default() };
    let new = publish(
        "data",
        Version::V2,
        &[file("dir", bytes(1, 40_000)), file("file/in", bytes(2, 40_000)), file("same", bytes(3, 40_000))],
    );
    for steps in 0.. {
        let mut disk = SimDisk::new();
        for at in ["data", "data/dir"] {
            disk.mkdir(Path::new(at), false).unwrap();
        }
        for at in ["data/dir/old", "data/file", "data/same"] {
            disk.open(Path::new(at), How::Create).unwrap().write_at(b"old", 0).unwrap();
        }
        disk.sync_all().unwrap();
        disk.set_fuse(Some(steps));
        let run = |disk: &Arc<SimDisk>| {
            let opened = Store::download_on(disk.clone(), new.manifest.clone(), &options)?;
            bring(&new, &opened)
        };
        let done = run(&disk).is_ok();
        disk = if steps % 2 == 0 { disk.kill() } else { disk.cut(&mut Rng(steps)) };
        let read = |path: &str| disk.read(Path::new(path));
        let either = |old: &str, name: &str| {
            let was = read(old).is_some_and(|b| b == b"old");
            was != (read(name)
                == Some(new.data[new.index(name.strip_prefix("data/").unwrap()) as usize].clone()))
        };
        assert!(either("data/dir/old", "data/dir"), "step {steps}");
        assert!(either("data/file", "data/file/in"), "step {steps}");
        assert!(either("data/same", "data/same"), "step {steps}");
        run(&disk).unwrap();
        if done {
            return;
        }
    }
}
