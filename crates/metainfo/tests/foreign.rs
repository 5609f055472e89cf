//! Manifests made by libtorrent 2.1 (`create_torrent` of a small tree with links, an executable
//! and an empty file; piece length 32 KiB), one of each version.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::leaf_digests;
use data_encoding::HEXLOWER;
use tidecast_hash::sha1;
use tidecast_metainfo::{Manifest, Version};

const V1: &[u8] = include_bytes!("fixtures/libtorrent-v1.torrent");
const V2: &[u8] = include_bytes!("fixtures/libtorrent-v2.torrent");
const HYBRID: &[u8] = include_bytes!("fixtures/libtorrent-hybrid.torrent");

fn content(path: &str) -> Vec<u8> {
    match path {
        "root/a" => vec![b'a'; 100],
        "root/d/big" => (0..=255).collect::<Vec<u8>>().repeat(300),
        "root/d/e/x" => b"#!/bin/sh\n".to_vec(),
        _ => Vec::new(),
    }
}

fn check(torrent: &[u8], version: Version, v1: Option<&str>, v2: Option<&str>) {
    let m = Manifest::parse(torrent).unwrap();
    assert_eq!((m.version(), &*m.name(), m.piece_length()), (version, "root", 32_768));
    assert_eq!(m.hash_v1().map(|h| HEXLOWER.encode(&h)).as_deref(), v1);
    assert_eq!(m.hash_v2().map(|h| HEXLOWER.encode(&h)).as_deref(), v2);
    assert_eq!(m.trackers(), [["udp://tracker.example:1"]]);
    assert_eq!((m.total_len(), m.warnings()), (76_910, Vec::new()));
    let mut files: Vec<String> = m
        .files()
        .map(|f| {
            assert_eq!(f.is_executable(), f.is_symlink() || f.path().name() == b"x");
            let link = f.symlink().map(|t| format!(" -> {}", String::from_utf8_lossy(&t)));
            format!("{}{} {}", f.path(), link.unwrap_or_default(), f.len())
        })
        .collect();
    // libtorrent gives v1 files the order of their sizes.
    files.sort();
    assert_eq!(
        files,
        [
            "root/a 100",
            "root/d/big 76800",
            "root/d/e/ld -> .. 0",
            "root/d/e/x 10",
            "root/d/up -> ../a 0",
            "root/empty 0",
            "root/l -> d/big 0",
        ]
    );
    let data = |file: u32| content(&m.file(file).unwrap().path().to_string());
    for p in 0..m.piece_count() {
        let wire = common::piece_bytes(m.layout(), p, m.wire_len(p), data);
        let payload = common::piece_bytes(m.layout(), p, m.piece_len(p), data);
        let expected = m.expected(p);
        assert_eq!(expected.v1.is_some(), version != Version::V2);
        assert!(expected.v1.is_none_or(|h| h == sha1(&wire)), "{version} {p}");
        let sound = m.check_leaves(p, &leaf_digests(&payload));
        assert_eq!(sound, (version != Version::V1).then_some(true));
    }
}

#[test]
fn v1_of_libtorrent() {
    check(V1, Version::V1, Some("2195243e584a335289de3f2ed708e41f0a3141f7"), None);
}

#[test]
fn v2_of_libtorrent() {
    let hash = "a93ce1d2f3a57ba2cd6744dad94121b885c4a9b7411d34fbf7970890c5ab9875";
    check(V2, Version::V2, None, Some(hash));
}

#[test]
fn hybrid_of_libtorrent() {
    check(
        HYBRID,
        Version::Hybrid,
        Some("1e012d6a60d189f0a081b33099e195afe3254117"),
        Some("7529e44005334032bca18a9f8d047731eaa8a9af67f837f4a3bedcbf9cc403a6"),
    );
    // It pads behind the last file: a v1 peer may ask for a whole last piece.
    let m = Manifest::parse(HYBRID).unwrap();
    assert_eq!((m.piece_count(), m.piece_len(4), m.wire_len(4)), (5, 10, 32_768));
}

#[test]
fn cutting_or_flipping_any_byte_never_panics() {
    for torrent in [V1, V2, HYBRID] {
        for i in 0..torrent.len() {
            assert!(Manifest::parse(&torrent[..i]).is_err());
            for bit in [1, 0x20, 0x80] {
                let mut broken = torrent.to_vec();
                broken[i] ^= bit;
                let _ = Manifest::parse(&broken);
            }
        }
    }
}

/// Names in a local code, with UTF-8 beside them, as old programs of Asia write them.
#[test]
fn names_in_utf8_count_where_they_are_given() {
    let string = |bytes: &[u8]| [format!("{}:", bytes.len()).as_bytes(), bytes].concat();
    let torrent = |name: &[u8], utf8: &[u8], path: &[u8], path_utf8: &[u8]| {
        let file = [b"d6:lengthi1e4:pathl", &*string(path), b"e10:path.utf-8", path_utf8, b"e"].concat();
        let names = [b"e4:name", &*string(name), b"10:name.utf-8", utf8].concat();
        let pieces = b"12:piece lengthi16384e6:pieces20:aaaaaaaaaaaaaaaaaaaaee";
        [b"d7:comment1:a13:comment.utf-83:\xe2\x82\xac4:infod5:filesl", &*file, &*names, pieces].concat()
    };
    let list = |names: &[&[u8]]| [b"l", &*names.concat(), b"e"].concat();
    let (gbk, utf8) = (&b"\xca\xfd"[..], "\u{6570}".as_bytes());
    let good = torrent(gbk, &string(utf8), gbk, &list(&[&string(utf8), &string(b"f")]));
    let manifest = Manifest::parse(&good).unwrap();
    assert_eq!(manifest.file(0).unwrap().path().to_bytes(), [utf8, utf8, b"f"].join(&b'/'));
    assert_eq!(manifest.comment(), Some("\u{20ac}"));
    let slash = torrent(gbk, &string(b"a/b"), gbk, &list(&[&string(b"c/d")]));
    assert_eq!(Manifest::parse(&slash).unwrap().file(0).unwrap().path().to_bytes(), b"a_b/c_d");
    // A value that is not UTF-8, is empty, or has another type does not count.
    for (name, path) in
        [(string(gbk), list(&[])), (string(b""), list(&[&string(b"")])), (b"i1e".to_vec(), b"1:x".to_vec())]
    {
        let manifest = Manifest::parse(&torrent(gbk, &name, gbk, &path)).unwrap();
        assert_eq!(manifest.file(0).unwrap().path().to_bytes(), [gbk, gbk].join(&b'/'));
    }
}

#[test]
fn files_have_the_numbers_of_other_clients() {
    let listed = |torrent| Manifest::parse(torrent).unwrap().listed();
    let all = |last: u32| (0..=last).map(Some).collect::<Vec<_>>();
    assert_eq!((listed(V1), listed(V2)), (all(6), all(6)));
    let hybrid = listed(HYBRID);
    assert_eq!(hybrid.iter().flatten().copied().collect::<Vec<_>>(), (0..7).collect::<Vec<u32>>());
    assert!(hybrid.contains(&None), "padding has numbers too");
}

#[test]
fn what_was_left_out_is_a_hint_that_may_be_damaged() {
    let whole = Manifest::parse(V1).unwrap().to_bytes();
    let with = |key: &[u8]| [&whole[..whole.len() - 1], b"8:tidecast", key, b"e"].concat();
    let left = |key: &[u8]| Manifest::parse(&with(key)).unwrap().left_out().clone();
    let good = left(b"d7:excludel5:*.tmp6:/cachee13:outside linksi1ee");
    assert_eq!(
        (good.exclude.as_slice(), good.outside_links),
        (&["*.tmp".to_owned(), "/cache".to_owned()][..], true)
    );
    let manifest = Manifest::parse(&with(b"d7:excludel5:*.tmpee")).unwrap();
    assert_eq!(Manifest::parse(&manifest.to_bytes()).unwrap().left_out(), manifest.left_out());
    assert_eq!(manifest.hash_v1(), Manifest::parse(V1).unwrap().hash_v1(), "no hash covers it");
    for damaged in
        [&b"i1e"[..], b"1:x", b"de", b"d7:excludei1ee", b"d13:outside links1:xe", b"d7:excludel2:\xff\xfeee"]
    {
        assert_eq!(left(damaged), Default::default(), "{damaged:?}");
    }
    let many = format!("d7:excludel{}ee", "1:x".repeat(100_000));
    assert_eq!(left(many.as_bytes()).exclude.len(), 256);
}
