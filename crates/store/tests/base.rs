//! An older version elsewhere: its data is not transferred again, and it is neither trusted nor changed.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::os::unix::fs::symlink as link_to;
use std::path::Path;

use common::{Fixture, Item, PIECE, Rng, VERSIONS, bytes, file, publish, symlink};
use tidecast_metainfo::Version;
use tidecast_store::{Base, DownloadOptions, Store};

/// Pieces that have to come.
fn fetched(new: &Fixture, bases: &[&Path]) -> u64 {
    let to = tempfile::tempdir().unwrap();
    let bases = bases.iter().map(|base| Base::open(base).unwrap()).collect();
    let options = DownloadOptions { bases, ..DownloadOptions::default() };
    let opened = Store::download(new.manifest.clone(), to.path(), &options).unwrap();
    let fetched = new.complete(&opened, &mut Rng(7)).unwrap();
    new.assert_at(&to.path().join(new.manifest.name().as_ref()));
    fetched
}

fn pieces(data: &[u8]) -> u64 {
    data.len().div_ceil(PIECE as usize) as u64
}

#[test]
fn what_an_older_version_has_is_not_brought_again() {
    let big = bytes(1, 10 * PIECE as usize + 5);
    let mut changed = big.clone();
    changed[3 * PIECE as usize + 9] ^= 1;
    let (grown, cut) = ([&big[..], b"more"].concat(), big[..5 * PIECE as usize].to_vec());
    let items = |changed: &[u8], grown: &[u8], cut: &[u8]| -> Vec<Item> {
        vec![
            file("d/changed", changed.to_vec()),
            file("grown", grown.to_vec()),
            file("cut", cut.to_vec()),
            file("same", big.clone()),
            symlink("link", "same"),
        ]
    };
    for version in VERSIONS {
        let old = publish("data", version, &items(&big, &big, &big));
        let base = tempfile::tempdir().unwrap();
        old.write_to(base.path());
        let mut all = items(&changed, &grown, &cut);
        all.push(file("new", bytes(2, 100)));
        let new = publish("data", version, &all);
        let total = u64::from(new.manifest.piece_count());
        let few = fetched(&new, &[base.path()]);
        // In v1 pieces go over the ends of files, which have moved.
        if version.has_v2() {
            assert_eq!(few, 3, "the changed piece, the grown one, and the new file");
        }
        assert_eq!(fetched(&new, &[]), total);
        old.assert_at(base.path());
        // A better one comes first; files that only the other has are taken from there.
        let partly = tempfile::tempdir().unwrap();
        fs::create_dir(partly.path().join("d")).unwrap();
        fs::write(partly.path().join("d/changed"), &changed).unwrap();
        if version.has_v2() {
            assert_eq!(fetched(&new, &[partly.path(), base.path()]), 2);
        }
    }
}

#[test]
fn a_file_alone_has_a_base_too() {
    let old = bytes(1, 4 * PIECE as usize);
    let mut data = old.clone();
    data[0] ^= 1;
    let new = publish("nt.fa", Version::V2, &[file("", data)]);
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("nt.fa"), &old).unwrap();
    assert_eq!(fetched(&new, &[&place.path().join("nt.fa")]), 1);
    assert_eq!(fetched(&new, &[place.path()]), 1);
    fs::rename(place.path().join("nt.fa"), place.path().join("nt.1")).unwrap();
    assert_eq!(fetched(&new, &[place.path()]), 4);
}

#[test]
fn nothing_is_read_through_a_link_of_a_base() {
    let data = bytes(1, 3 * PIECE as usize);
    let new = publish("data", Version::V2, &[file("a", data.clone()), file("d/b", data.clone())]);
    let (base, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(elsewhere.path().join("a"), &data).unwrap();
    fs::write(elsewhere.path().join("b"), &data).unwrap();
    link_to(elsewhere.path().join("a"), base.path().join("a")).unwrap();
    link_to(elsewhere.path(), base.path().join("d")).unwrap();
    assert_eq!(fetched(&new, &[base.path()]), u64::from(new.manifest.piece_count()));
    // The entry there is not a file, or is empty.
    fs::remove_file(base.path().join("a")).unwrap();
    fs::create_dir(base.path().join("a")).unwrap();
    fs::remove_file(base.path().join("d")).unwrap();
    fs::write(base.path().join("d"), "a file").unwrap();
    assert_eq!(fetched(&new, &[base.path()]), pieces(&data) * 2);
    assert!(Base::open(&base.path().join("absent")).is_err());
}

#[test]
fn what_was_fetched_already_is_not_begun_again() {
    let old = bytes(1, 6 * PIECE as usize);
    let new = publish("data", Version::V2, &[file("f", bytes(2, old.len()))]);
    let (to, base) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(base.path().join("f"), &old).unwrap();
    let options =
        || DownloadOptions { bases: vec![Base::open(base.path()).unwrap()], ..DownloadOptions::default() };
    let opened = Store::download(new.manifest.clone(), to.path(), &options()).unwrap();
    for piece in [0, 1, 2] {
        new.deliver(&opened.store, piece, &mut Rng(1)).unwrap();
    }
    opened.store.sync().unwrap();
    drop(opened);
    let opened = Store::download(new.manifest.clone(), to.path(), &options()).unwrap();
    assert_eq!(new.complete(&opened, &mut Rng(2)).unwrap(), 3);
    new.assert_at(&to.path().join("data"));
}
