//! Properties: any tree survives the round trip in every version, all versions describe the same
//! files, the layout equals a naive one, and no bytes make a reader panic.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use tidecast_hash::LEAF;
use tidecast_metainfo::bencode::{Limits, Value, Writer};
use tidecast_metainfo::{
    Entry, Layout, Magnet, Manifest, Mtime, Version, choose_piece_length, choose_version, merkle,
};

fn name() -> impl Strategy<Value = Vec<u8>> {
    // Few letters, so that prefixes, shared directories and odd orders occur.
    vec(prop::sample::select(b"ab.-\xff".to_vec()), 1..4).prop_filter("a name", |n| n != b"." && n != b"..")
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    vec(name(), 1..4).prop_map(|parts| parts.join(&b'/'))
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), 1..40usize, Just(LEAF), Just(2 * LEAF), LEAF - 2..LEAF + 3, 0..5 * LEAF]
}

/// A tree without clashes between files and directories.
fn tree() -> impl Strategy<Value = Tree> {
    btree_map(path(), (0..4u64, size()), 0..12).prop_map(|files| {
        let mut tree = Tree::new();
        for (path, (seed, len)) in files {
            let under =
                |a: &[u8], b: &[u8]| a.strip_prefix(b).is_some_and(|rest| rest.first() == Some(&b'/'));
            if !tree.keys().any(|p| under(p, &path) || under(&path, p)) {
                tree.insert(path, noise(seed, len));
            }
        }
        tree
    })
}

type Metadata = (Option<u32>, Option<Mtime>, Vec<(Vec<u8>, Vec<u8>)>);

fn metadata() -> impl Strategy<Value = Metadata> {
    let mtime = (any::<i64>(), 0..1_000_000_000u32).prop_map(|(secs, nanos)| Mtime { secs, nanos });
    let xattrs = btree_map(vec(1..255u8, 1..4), vec(any::<u8>(), 0..4), 0..3);
    (
        prop::option::of(0..0o10000u32),
        prop::option::of(mtime),
        xattrs.prop_map(|set| set.into_iter().collect()),
    )
}

fn piece_length() -> impl Strategy<Value = u32> {
    (14..18u32).prop_map(|bits| 1 << bits)
}

type Listing = Vec<(Vec<u8>, u64, Option<u32>, Option<Mtime>)>;

fn listing(m: &Manifest) -> Listing {
    m.files().map(|f| (f.path().to_bytes(), f.len(), f.mode(), f.mtime())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_versions_have_the_same_files(
        tree in tree(),
        piece_length in piece_length(),
        data in vec(metadata(), 12),
    ) {
        let all: Vec<Entry> = entries(&tree)
            .into_iter()
            .zip(data)
            .map(|(e, (mode, mtime, xattrs))| Entry { mode, mtime, xattrs, ..e })
            .collect();
        let mut listings = Vec::new();
        for version in VERSIONS {
            let m = build_entries(version, piece_length, &tree, all.clone(), |_| {});
            let back = Manifest::parse(&m.to_bytes()).unwrap();
            prop_assert_eq!(back.to_bytes(), m.to_bytes());
            prop_assert_eq!(back.total_len(), tree.values().map(|d| d.len() as u64).sum::<u64>());
            for e in &all {
                let full = [&b"root/"[..], &e.path].concat();
                let f = back.files().find(|f| f.path().to_bytes() == full).unwrap();
                let xattrs: Vec<_> = f.xattrs().map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
                prop_assert_eq!((f.mode(), f.mtime(), xattrs), (e.mode, e.mtime, e.xattrs.clone()));
            }
            // Writing every piece to its spans gives back every file, byte for byte.
            let mut files: Vec<Vec<u8>> =
                back.files().map(|f| vec![0xee; f.len() as usize]).collect();
            let data = |file: u32| {
                tree[&back.file(file).unwrap().path().inner().join(&b'/')].clone()
            };
            for p in 0..back.piece_count() {
                let bytes = piece_bytes(back.layout(), p, back.wire_len(p), data);
                let mut rest = bytes.as_slice();
                for span in back.spans(p, 0, back.wire_len(p)) {
                    let (now, later) = rest.split_at(span.len as usize);
                    rest = later;
                    if !span.pad {
                        let start = span.offset as usize;
                        files[span.file as usize][start..start + now.len()].copy_from_slice(now);
                        prop_assert!(back.file_pieces(span.file).contains(&p));
                    }
                }
                prop_assert!(rest.is_empty());
            }
            for (i, bytes) in files.iter().enumerate() {
                prop_assert_eq!(bytes, &data(i as u32));
            }
            listings.push(listing(&back));
        }
        prop_assert_eq!(&listings[0], &listings[1]);
        prop_assert_eq!(&listings[1], &listings[2]);
    }

    #[test]
    fn damaged_manifests_never_panic(
        tree in tree(),
        version in prop::sample::select(VERSIONS.to_vec()),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = build(version, 1 << 14, &tree).to_bytes();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(m) = Manifest::parse(&bytes) {
            // An accepted manifest can be walked safely.
            for f in m.files() {
                let _ = (f.path().to_string(), f.symlink(), f.holes(), f.xattrs().count());
            }
            for p in 0..m.piece_count().min(1000) {
                let sum: u32 = m.spans(p, 0, u32::MAX).map(|s| s.len).sum();
                prop_assert_eq!(sum, m.wire_len(p));
                let _ = (m.expected(p), m.leaf_range(p), m.piece_width(p));
            }
            prop_assert!(Manifest::parse(&m.to_bytes()).is_ok());
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = Manifest::parse(&bytes);
        let _ = Value::decode(&bytes, Limits::default());
        let _ = String::from_utf8_lossy(&bytes).parse::<Magnet>();
    }

    #[test]
    fn any_tokens_are_read_without_panic(
        tokens in vec(prop::sample::select(vec![
            "d", "l", "e", "i0e", "i2e", "0:", "4:info", "5:files", "9:file tree", "6:length",
            "4:name", "1:n", "4:path", "12:meta version", "12:piece length", "i16384e",
            "6:pieces", "8:tidecast", "1:v", "i1e", "4:attr", "1:l", "12:symlink path",
        ]), 0..40),
    ) {
        let _ = Manifest::parse(tokens.concat().as_bytes());
        let _ = Manifest::parse(format!("d4:infod{}ee", tokens.concat()).as_bytes());
    }

    #[test]
    fn layouts_agree_with_a_naive_one(
        sizes in vec((0..90u64, prop::bool::weighted(0.2)), 0..20),
        piece_length in 1..64u32,
        aligned: bool,
    ) {
        // The torrent space, byte by byte: (file, offset), or padding.
        let mut space: Vec<Option<(u32, u64)>> = Vec::new();
        let mut file = 0;
        let length = piece_length as usize;
        for (len, pad) in &sizes {
            if *pad && !aligned {
                space.resize(space.len() + *len as usize, None);
                continue;
            }
            if aligned && *len > 0 {
                space.resize(space.len().next_multiple_of(length), None);
            }
            space.extend((0..*len).map(|o| Some((file, o))));
            file += 1;
        }
        let layout = if aligned {
            Layout::aligned(piece_length, sizes.iter().map(|s| s.0)).unwrap()
        } else {
            Layout::packed(piece_length, sizes.iter().copied()).unwrap()
        };
        prop_assert_eq!(layout.file_count(), file);
        prop_assert_eq!(layout.space(), space.len() as u64);
        prop_assert_eq!(layout.piece_count() as usize, space.len().div_ceil(length));
        for p in 0..layout.piece_count() {
            let start = p as usize * length;
            let piece = &space[start..space.len().min(start + length)];
            for begin in 0..length {
                let mut flat = Vec::new();
                for s in layout.spans(p, begin as u32, 7) {
                    prop_assert!(s.len > 0 && s.pad == (s.file == tidecast_metainfo::Span::PAD));
                    let at = |i: u32| (!s.pad).then_some((s.file, s.offset + u64::from(i)));
                    flat.extend((0..s.len).map(at));
                }
                let end = piece.len().min(begin + 7);
                prop_assert_eq!(&flat[..], piece.get(begin..end).unwrap_or_default());
            }
            let payload = match piece.iter().rposition(Option::is_some) {
                Some(last) if aligned => last + 1,
                _ => piece.len(),
            };
            prop_assert_eq!(layout.piece_len(p) as usize, payload);
        }
        for f in 0..file {
            let holds = |p: &u32| {
                let bytes = space.iter().skip(*p as usize * length).take(length);
                bytes.flatten().any(|b| b.0 == f)
            };
            let pieces: Vec<u32> = (0..layout.piece_count()).filter(holds).collect();
            prop_assert_eq!(layout.file_pieces(f).collect::<Vec<_>>(), pieces);
        }
    }

    #[test]
    fn roots_agree_with_a_naive_tree(count in 1..70usize, bits in 14..18u32) {
        let leaves: Vec<_> = (0..count).map(|i| tidecast_hash::sha256(&[i as u8])).collect();
        let mut level = leaves.clone();
        level.resize(count.next_power_of_two(), [0; 32]);
        while level.len() > 1 {
            level = level
                .chunks(2)
                .map(|pair| tidecast_hash::sha256(pair.as_flattened()))
                .collect();
        }
        let (root, layer) = merkle::file(&leaves, 1 << bits).unwrap();
        prop_assert_eq!(root, level[0]);
        let per_piece = 1 << (bits - 14);
        let pieces = count.div_ceil(per_piece);
        prop_assert_eq!(layer.len(), if pieces > 1 { pieces } else { 0 });
    }

    #[test]
    fn bencode_comes_back(pairs in btree_map(vec(any::<u8>(), 0..5), (any::<i64>(), vec(any::<u8>(), 0..5)), 0..8)) {
        let mut w = Writer::new();
        w.dict(|d| for (key, (int, bytes)) in &pairs {
            d.key(key).list(|l| { l.int(*int); l.bytes(bytes); });
        });
        let out = w.into_bytes();
        let value = Value::decode(&out, Limits::default()).unwrap();
        prop_assert_eq!(value.as_dict().unwrap().len(), pairs.len());
        for (key, (int, bytes)) in &pairs {
            let items = value.get(key).and_then(Value::as_list).unwrap();
            prop_assert_eq!(items[0].as_int(), Some(*int));
            prop_assert_eq!(items[1].as_bytes(), Some(&**bytes));
        }
    }

    #[test]
    fn magnets_come_back(
        v1 in prop::option::of(any::<[u8; 20]>()),
        v2: [u8; 32],
        name in prop::option::of(".*"),
        trackers in vec(".*", 0..3),
        peers in vec("[a-z0-9.:\\[\\]]{1,20}", 0..3),
        select in vec((0..1u32 << 30, 0..9u32), 0..5),
    ) {
        let select = select.into_iter().map(|(first, more)| first..=first + more).collect();
        let web_seeds = trackers.clone();
        let magnet = Magnet { v1, v2: Some(v2), name, trackers, peers, select, web_seeds };
        prop_assert_eq!(magnet.to_string().parse::<Magnet>().unwrap(), magnet);
    }

    #[test]
    fn piece_lengths_are_sound(sizes in vec(0..1u64 << 40, 0..50)) {
        let total: u64 = sizes.iter().sum();
        let length = choose_piece_length(total, sizes.iter().copied());
        prop_assert!(length.is_power_of_two() && (1 << 16..=1 << 27).contains(&length));
        let pieces: u64 = sizes.iter().map(|s| s.div_ceil(length.into())).sum();
        prop_assert!(pieces <= 2_097_152);
        let layout = Layout::aligned(length, sizes.iter().copied()).unwrap();
        let (version, why) = choose_version(&layout);
        let cheap = layout.padding() * 20 <= total;
        prop_assert_eq!(version, if cheap { Version::Hybrid } else { Version::V2 }, "{}", why);
    }
}

#[test]
fn piece_lengths_of_known_sizes() {
    let length = |total: u64| choose_piece_length(total, std::iter::once(total));
    assert_eq!(length(0), 64 << 10);
    assert_eq!(length(63 << 20), 64 << 10);
    assert_eq!(length(64 << 20), 128 << 10);
    assert_eq!(length(128 << 20), 256 << 10);
    assert_eq!(length(1 << 30), 256 << 10);
    assert_eq!(length(100 << 30), 4 << 20);
    assert_eq!(length(1 << 40), 16 << 20);
    assert_eq!(length(64 << 40), 32 << 20);
}

#[test]
fn magnets_of_others() {
    let base32: Magnet =
        "magnet:?xt=urn:btih:VKVKVKVKVKVKVKVKVKVKVKVKVKVKVKVK&dn=a+b&tr=udp%3A%2F%2Fx%3A1&so=0"
            .parse()
            .unwrap();
    assert_eq!((base32.v1, base32.select.as_slice()), (Some([0xaa; 20]), &[0..=0][..]));
    assert_eq!(
        (base32.name.as_deref(), base32.trackers.as_slice()),
        (Some("a b"), &["udp://x:1".to_owned()][..])
    );
    let v2: Magnet =
        format!("magnet:?xt.1=urn:btmh:1220{}&x.pe=[::1]:6881", "Ab".repeat(32)).parse().unwrap();
    assert_eq!((v2.v2, v2.peers.len(), v2.swarm_hashes()), (Some([0xab; 32]), 1, vec![[0xab; 20]]));
    let selected: Magnet =
        format!("magnet:?so=0,2,,4%2C6-8&xt=urn:btih:{}&so.1=9", "a".repeat(40)).parse().unwrap();
    assert_eq!(selected.select, [0..=0, 2..=2, 4..=4, 6..=8, 9..=9]);
    let ranges = format!("magnet:?so={}", "1,".repeat(10_001));
    let long = format!("magnet:?xt=urn:btih:{}&dn={}", "a".repeat(40), "x".repeat(100_000));
    for (link, says) in [
        ("http://x", "must start with"),
        ("magnet:?dn=x", "names no torrent"),
        ("magnet:?xt=urn:sha1:x", "names no torrent"),
        ("magnet:?xt=urn:btih:xyz", "invalid info-hash"),
        ("magnet:?xt=urn:btih:0189018901890189018901890189018901890189a", "invalid info-hash"),
        ("magnet:?xt=urn:btmh:1320aa", "invalid info-hash"),
        ("magnet:?xt=urn:btmh:1220aa", "invalid info-hash"),
        ("magnet:?xt=urn:btih:%zz", "malformed escape"),
        ("magnet:?so=3-1", "file selection `so=3-1`"),
        ("magnet:?so=1-", "so=1-"),
        ("magnet:?so=-1", "so=-1"),
        ("magnet:?so=+1", "so=+1"),
        ("magnet:?so=,", "so=,"),
        ("magnet:?so=99999999999", "so=9999"),
        (&*ranges, "so=1,1,"),
        ("magnet:?dn=%ff%", "malformed escape"),
        (&*long, "limit"),
    ] {
        let error = link.parse::<Magnet>().expect_err(link).to_string();
        assert!(error.contains(says), "{link}: {error}");
    }
    let many = format!("magnet:?xt=urn:btih:{}{}", "a".repeat(40), "&tr=x&x.pe=y".repeat(1000));
    let many: Magnet = many.parse().unwrap();
    assert_eq!((many.trackers.len(), many.peers.len()), (200, 200));
}
