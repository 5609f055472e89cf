//! The museum of hostile manifests: each exhibit with the error that it must give.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use tidecast_metainfo::bencode::{Cursor, Fault, Limits, Value};
use tidecast_metainfo::{Builder, Content, Error, Manifest, Version, Warning};

fn text(s: &str) -> String {
    format!("{}:{s}", s.len())
}

fn list(parts: &[&str]) -> String {
    format!("l{}e", parts.iter().map(|p| text(p)).collect::<String>())
}

/// A v1 manifest: items of `files`, and the number of piece hashes.
fn v1(files: &str, pieces: usize) -> Vec<u8> {
    v1_with("", files, pieces, "")
}

fn v1_with(before: &str, files: &str, pieces: usize, after: &str) -> Vec<u8> {
    let hashes = text(&"x".repeat(20 * pieces));
    format!("d4:infod{before}5:filesl{files}e4:name1:n12:piece lengthi16384e6:pieces{hashes}{after}ee")
        .into_bytes()
}

fn item(path: &[&str], len: i64) -> String {
    format!("d6:lengthi{len}e4:path{}e", list(path))
}

fn link(path: &[&str], target: &[&str]) -> String {
    format!("d4:attr1:l6:lengthi0e4:path{}12:symlink path{}e", list(path), list(target))
}

/// A v2 manifest: the inside of its file tree.
fn v2(tree: &str) -> Vec<u8> {
    v2_with(tree, 16_384, "")
}

fn v2_with(tree: &str, piece_length: i64, after: &str) -> Vec<u8> {
    format!("d4:infod9:file treed{tree}e12:meta versioni2e4:name1:n12:piece lengthi{piece_length}e{after}ee")
        .into_bytes()
}

fn leaf(len: i64) -> String {
    let root = if len > 0 { format!("11:pieces root{}", text(&"r".repeat(32))) } else { String::new() };
    format!("d0:d6:lengthi{len}e{root}ee")
}

fn tidecast(inner: &str) -> Vec<u8> {
    let links = "d0:d4:attr1:l6:lengthi0e12:symlink pathl1:aeee";
    let tree = format!("1:a{}1:b{}1:l{links}", leaf(5), leaf(5));
    v2_with(&tree, 16_384, &format!("8:tidecastd{inner}e"))
}

#[track_caller]
fn refused(what: &str, torrent: &[u8], says: &str) {
    match Manifest::parse(torrent) {
        Ok(_) => panic!("{what}: accepted"),
        Err(e) => {
            let e = e.to_string();
            assert!(e.contains(says), "{what}: expected `{says}`, got `{e}`");
            assert!(e.len() < 700 && !e.contains('\0'), "{what}: unfit to print: {e:?}");
        }
    }
}

#[test]
fn controls_are_accepted() {
    // Without these, the museum could refuse for reasons other than those on the labels.
    let m = Manifest::parse(&v1(&item(&["a", "b"], 5), 1)).unwrap();
    assert_eq!(m.file_count(), 1);
    let m = Manifest::parse(&v2(&format!("1:a{}", leaf(5)))).unwrap();
    assert_eq!(m.file_count(), 1);
    let m = Manifest::parse(&tidecast("1:vi1e")).unwrap();
    assert!(m.has_extra() && m.file_count() == 3);
    Manifest::parse(&v1(&link(&["a", "l"], &["b"]), 0)).unwrap();
}

#[test]
fn names() {
    let long = "x".repeat(256);
    for (name, says) in [
        ("..", "lead out of its directory"),
        (".", "lead out of its directory"),
        ("", "name is empty"),
        ("nul\0x", "NUL"),
        (&*long, "at most 255 bytes"),
    ] {
        refused(name, &v1(&item(&[name], 5), 1), says);
        refused(name, &v1(&item(&["d", name], 5), 1), says);
        refused(name, &v1(&item(&[name, "f"], 5), 1), says);
        let says = if name.is_empty() { "both a file and a directory" } else { says };
        refused(name, &v2(&format!("{}{}", text(name), leaf(0))), says);
        refused(name, &v2(&format!("{}d1:f{}e", text(name), leaf(0))), says);
    }
    // A `/` that other programs leave in a name separates nothing; the result must still be a valid name.
    for (name, becomes) in [("a/b", "a_b"), ("/etc", "_etc"), ("../x", ".._x"), ("//", "__")] {
        for torrent in [
            v1(&item(&[name], 5), 1),
            v1(&item(&["d", name], 5), 1),
            v2(&format!("{}{}", text(name), leaf(0))),
        ] {
            let manifest = Manifest::parse(&torrent).unwrap();
            let file = manifest.file(0).unwrap();
            assert_eq!(file.path().name(), becomes.as_bytes());
            let whole = manifest.to_bytes();
            assert!(
                whole.windows(name.len()).any(|w| w == name.as_bytes()),
                "what is hashed stays as it came"
            );
            assert_eq!(Manifest::parse(&whole).unwrap().hash_v1(), manifest.hash_v1());
        }
        let below = Manifest::parse(&v1(&item(&[name, "f"], 5), 1)).unwrap();
        assert_eq!(below.file(0).unwrap().path().to_string(), format!("{}/{becomes}/f", below.name()));
        refused(name, &v1(&(item(&[name], 5) + &item(&["..", "x"], 5)), 1), "lead out");
    }
    refused("alike", &v1(&(item(&["a/b"], 5) + &item(&["a_b"], 5)), 1), "occurs twice");
    refused("root", b"d4:infod6:lengthi0e4:name2:..12:piece lengthi16384e6:pieces0:ee", "lead out");
    refused("no path", &v1("d6:lengthi5e4:pathlee", 1), "path of a file is empty");
    let deep = vec!["d"; 201];
    refused("deep", &v1(&item(&deep, 5), 1), "nested too deep");
    let long = "y".repeat(250);
    refused("long path", &v1(&item(&[&*long; 17], 5), 1), "longer than 4095");
    let deep = format!("{}1:f{}{}", "1:dd".repeat(201), leaf(0), "e".repeat(201));
    refused("deep v2", &v2(&deep), "nested too deep");
}

#[test]
fn clashes() {
    let says = "occurs twice";
    refused("v1", &v1(&(item(&["a"], 5) + &item(&["a"], 5)), 1), says);
    refused("v2 file", &v2(&format!("1:a{}1:b{}1:a{}", leaf(0), leaf(0), leaf(0))), says);
    refused("v2 dir", &v2(&format!("1:ad1:x{}e1:ad1:y{}e", leaf(0), leaf(0))), says);
    let says = "both a file and a directory";
    refused("v1", &v1(&(item(&["a"], 5) + &item(&["a", "b"], 5)), 1), says);
    refused("v1, later", &v1(&(item(&["a", "b"], 5) + &item(&["a"], 5)), 1), says);
    refused("v2, two keys", &v2(&format!("1:a{}1:ad1:x{}e", leaf(0), leaf(0))), says);
    refused("v2, one dict", &v2("1:ad0:d6:lengthi0ee1:xdee"), says);
    refused("v2, unsorted", &v2("1:ad1:xd0:d6:lengthi0eee0:d6:lengthi0eee"), says);
    refused("link as directory", &v1(&(link(&["a"], &["b"]) + &item(&["a", "b"], 5)), 1), says);
}

#[test]
fn symlinks() {
    for target in [&[".."][..], &["a", "..", "..", ".."], &["/etc/passwd"], &[""], &["a", "."]] {
        refused("v1 target", &v1(&link(&["l"], target), 0), "symbolic link");
    }
    refused("no target", &v1("d4:attr1:l6:lengthi0e4:pathl1:lee", 0), "missing `symlink path`");
    let with_len = "d4:attr1:l6:lengthi5e4:pathl1:le12:symlink pathl1:aee";
    refused("length", &v1(with_len, 1), "must not have a length");
    let many = vec!["x"; 300];
    refused("long", &v1(&link(&["l"], &many), 0), "200 components");
    let alone = "1:nd0:d4:attr1:l6:lengthi0e12:symlink pathl1:aeee";
    refused("alone", &v2(alone), "published alone");
    let exact = |target: &str| tidecast(&format!("8:symlinksli2e{}e1:vi1e", text(target)));
    Manifest::parse(&exact("./a")).unwrap();
    refused("other", &exact("b"), "`symlink path` differ");
    refused("empty", &exact(""), "target is empty");
    refused("long text", &exact(&"x/".repeat(2048)), "longer than 4095");
    // A link out of the tree has no target for other clients, so that they do not follow it.
    for text in ["/a", "../a", "/", "..", "d/../../a"] {
        refused("a target for a link out", &exact(text), "`symlink path` differ");
    }
    let through = Manifest::parse(&exact("x/../a")).unwrap();
    assert!(through.warnings()[0].to_string().contains("leads out of the tree (`l` -> `x/../a`)"));
}

#[test]
fn no_entry_lies_below_a_link() {
    // However the texts lead: a name is a link or a directory.
    for target in ["/etc", "..", "d"] {
        let below = vec![common::symlink("d", target), common::file("d/passwd", 1)];
        let error = Builder::new(b"n", Version::V2, 16_384, below).unwrap_err();
        assert!(matches!(error, Error::FileAndDirectory(_)), "{error}");
    }
    let alias = "d0:d4:attr1:l6:lengthi0e12:symlink pathl1:aeee";
    refused(
        "v2, a file below",
        &v2(&format!("1:ld0:d4:attr1:l6:lengthi0e12:symlink pathl1:aee1:b{}e", leaf(0))),
        "",
    );
    refused("v2, twice", &v2(&format!("1:l{alias}1:ld1:b{}e", leaf(0))), "");
    let v1_below = self::link(&["l"], &["a"]) + &item(&["l", "b"], 0);
    refused("v1", &v1(&v1_below, 0), "both a file and a directory");
}

#[test]
fn links_through_links() {
    // hop -> d/d: through it, `..` is d, not the root, and further ones leave the tree.
    let entries = |text: &str| {
        let mut tree = common::Tree::new();
        tree.insert(b"d/d/f".to_vec(), vec![1]);
        let mut all = common::entries(&tree);
        all.push(common::symlink("d/d/hop", "../.."));
        all.push(common::symlink("l", text));
        let mut b = Builder::new(b"n", Version::V2, 16_384, all).unwrap();
        common::hash(&mut b, &tree, Version::V2);
        b.build()
    };
    entries("d/d/../d/f").expect("no link on the way up");
    assert_eq!(entries("d/d/hop/d").expect("down through a link").warnings(), []);
    let up = entries("d/d/hop/../x").unwrap();
    assert!(matches!(&up.warnings()[..], [Warning::OutsideLinks { links: 1, .. }]), "{:?}", up.warnings());
}

#[test]
fn links_to_the_place_that_a_tree_was_built_for_do_not_lead_out() {
    let told = |prefix: Option<&str>, texts: &[&str]| {
        let tree = common::Tree::from([(b"f".to_vec(), vec![1])]);
        let mut all = common::entries(&tree);
        all.extend(texts.iter().enumerate().map(|(i, text)| common::symlink(&format!("l{i}"), text)));
        let mut b = Builder::new(b"env", Version::V2, 16_384, all).unwrap();
        b.prefix = prefix.map(|prefix| prefix.as_bytes().to_vec());
        common::hash(&mut b, &tree, Version::V2);
        let warnings = b.build().unwrap().warnings();
        let links = |w: &Warning| match w {
            Warning::OutsideLinks { links, .. } => format!("out {links}"),
            Warning::LinksToPrefix { links, path, .. } => format!("own {links} {path}"),
            other => other.to_string(),
        };
        warnings.iter().map(links).collect::<Vec<_>>().join(", ")
    };
    let texts =
        ["/opt/env/lib/a", "/opt//./env", "/opt/environment", "/opt/env/../x", "/usr/bin/python3", "f"];
    assert_eq!(told(Some("/opt/env"), &texts), "out 3, own 2 l0");
    assert_eq!(told(None, &texts), "out 5");
    assert_eq!(told(Some("/opt/env"), &["f"]), "");
}

#[test]
fn sizes_and_counts() {
    refused("negative", &v1(&item(&["a"], -1), 1), "has -1 bytes");
    refused(
        "few hashes",
        &v1(&item(&["a"], 16_385), 1),
        "give 2 pieces, but the manifest has 1 piece hashes",
    );
    refused("many hashes", &v1(&item(&["a"], 5), 2), "give 1 pieces, but the manifest has 2 piece hashes");
    let huge = item(&["a"], i64::MAX) + &item(&["b"], i64::MAX) + &item(&["c"], i64::MAX);
    refused("overflow", &v1(&huge, 1), "exceeds 64 bits");
    refused("giant", &v1(&item(&["a"], i64::MAX), 1), "limit of 2147483647");
    refused("giant v2", &v2(&format!("1:a{}", leaf(i64::MAX))), "limit of 2147483647");
    let pads = "d4:attr1:p6:lengthi9223372036854775807e4:pathl1:pee".repeat(3);
    refused("pads", &v1(&pads, 1), "exceeds 64 bits");
    let odd = b"d4:infod6:lengthi5e4:name1:n12:piece lengthi16384e6:pieces3:abcee";
    refused("hash length", odd, "not a multiple of 20");
    for (length, says) in [
        (0, "BEP 52"),
        (-16_384, "BEP 52"),
        (8_192, "BEP 52"),
        (49_152, "BEP 52"),
        (1 << 40, "more than 512 MiB"),
        (i64::MIN, "BEP 52"),
    ] {
        refused("piece length", &v2_with("", length, ""), says);
    }
    let short_root = "1:ad0:d6:lengthi5e11:pieces root3:abcee";
    refused("root length", &v2(short_root), "3 bytes instead of 32");
    refused("no root", &v2("1:ad0:d6:lengthi5eee"), "no `pieces root`");
    refused("no length", &v2("1:ad0:dee"), "no `length`");
    let lens = format!("1:a{}1:b{}", leaf(5), leaf(6));
    refused("one root, two lengths", &v2(&lens), "has another length");
}

#[test]
fn structure() {
    refused("empty", b"", "ends too early");
    refused("text", b"<html>", "unexpected byte 0x3c");
    refused("no info", b"de", "no `info`");
    refused("list", b"le", "expected a dictionary, found a list");
    refused("info twice", b"d4:infode4:infodee", "occurs twice");
    refused("garbage behind", &[v2("").as_slice(), b"x"].concat(), "extra bytes after the end");
    Manifest::parse(&[v2("").as_slice(), b"\r\n"].concat()).expect("a line end is no harm");
    refused("10 GB string", b"d10737418240:x", "length of 10737418240 bytes");
    refused("10 GB name", b"d4:infod4:name10737418240:", "length of 10737418240 bytes");
    refused("2^64 string", b"d99999999999999999999:x", "malformed string length");
    refused("length 007", b"d4:info003:abce", "malformed string length");
    for int in ["ie", "i-0e", "i01e", "i9223372036854775808e", "i1", "i- 1e", "i--1e", "i1_000e"] {
        let torrent = format!("d13:creation date{int}e");
        assert!(Manifest::parse(torrent.as_bytes()).is_err(), "{int}");
    }
    refused("deep lists", &[b"d4:info".to_vec(), vec![b'l'; 1_000_000]].concat(), "nesting deeper");
    refused("deep dicts", &[b"d4:info".to_vec(), b"d1:a".repeat(100_000)].concat(), "nesting deeper");
    refused("both", &v1_with("", &item(&["a"], 5), 1, "6:lengthi5e"), "cannot both be present");
    refused("version", &v1_with("12:meta versioni3e", "", 0, ""), "metainfo version 3");
    refused("no tree", b"d4:infod12:meta versioni2e4:name1:n12:piece lengthi16384eee", "no `file tree`");
    refused("no version", b"d4:infod9:file treede4:name1:n12:piece lengthi16384eee", "no `meta version`");
    refused("no name", b"d4:infod6:lengthi0e12:piece lengthi16384e6:pieces0:ee", "no `name`");
    let pad = "1:ad0:d4:attr1:p6:lengthi0eee";
    refused("v2 pad", &v2(pad), "pad file");
}

#[test]
fn layers() {
    let tree = format!("1:a{}", leaf(40_000));
    let with = |layers: &str| {
        let mut torrent = v2(&tree);
        torrent.pop();
        [torrent, format!("12:piece layersd{layers}ee").into_bytes()].concat()
    };
    let root = text(&"r".repeat(32));
    assert_eq!(Manifest::parse(&with("")).unwrap().missing_layers().len(), 1);
    refused("key", &with("1:a0:"), "not a 32-byte hash");
    refused("odd", &with(&format!("{root}5:hello")), "not a multiple of 32");
    refused("short", &with(&format!("{root}{}", text(&"h".repeat(64)))), "number of pieces");
    refused("wrong", &with(&format!("{root}{}", text(&"h".repeat(96)))), "not hash to the pieces root");
    let unknown = text(&"u".repeat(32));
    Manifest::parse(&with(&format!("{unknown}5:hello"))).expect("layers of unknown files are passed over");
}

#[test]
fn hybrids_that_disagree() {
    let hybrid = |tree: &str, files: &str, pieces: usize| {
        let hashes = text(&"x".repeat(20 * pieces));
        format!(
            "d4:infod9:file treed{tree}e5:filesl{files}e12:meta versioni2e4:name1:n\
             12:piece lengthi16384e6:pieces{hashes}ee"
        )
        .into_bytes()
    };
    let other = leaf(5).replace(&"r".repeat(32), &"s".repeat(32));
    let tree = format!("1:a{}1:b{other}", leaf(5));
    let pad = "d4:attr1:p6:lengthi16379e4:pathl1:pee";
    let (a, b) = (item(&["a"], 5), item(&["b"], 5));
    Manifest::parse(&hybrid(&tree, &format!("{a}{pad}{b}"), 2)).expect("the halves agree");
    let other_order = Manifest::parse(&hybrid(&tree, &format!("{b}{pad}{a}"), 2)).expect("the same files");
    assert_eq!((other_order.version(), other_order.hash_v2()), (Version::V1, None));
    assert_eq!(other_order.files().map(|file| file.path().to_string()).collect::<Vec<_>>(), ["n/b", "n/a"]);
    assert!(matches!(other_order.warnings()[..], [Warning::OtherOrder]));
    for (what, files, pieces, says) in [
        ("name", format!("{a}{pad}{}", item(&["c"], 5)), 2, "v1 lists `c`"),
        ("directory", format!("{a}{pad}{}", item(&["d", "b"], 5)), 2, "v1 lists `d/b`"),
        ("order and name", format!("{b}{pad}{}", item(&["c"], 5)), 2, "v1 lists `b`"),
        ("order and length", format!("{b}{pad}{}", item(&["a"], 6)), 2, "v1 lists `b`"),
        ("length", format!("{a}{pad}{}", item(&["b"], 6)), 2, "has 6 bytes in v1 and 5 in v2"),
        ("padding", format!("{a}{b}"), 2, "piece boundary"),
        ("fewer", a.clone(), 2, "v2 lists `b`"),
        ("more", format!("{a}{pad}{b}{}", item(&["c"], 0)), 2, "v1 lists `c`"),
        ("hashes", format!("{a}{pad}{b}"), 3, "give 2 pieces"),
        ("tail", format!("{a}{pad}{b}{pad}{pad}"), 2, "beyond the last piece"),
        ("link", format!("{a}{pad}{}", link(&["b"], &["a"])), 2, "has 0 bytes in v1 and 5"),
    ] {
        refused(what, &hybrid(&tree, &files, pieces), says);
    }
}

#[test]
fn tidecast_key() {
    let bytes = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
    let column = |key: &str, b: &[u8]| tidecast(&format!("{}{}1:vi1e", text(key), text(&bytes(b))));
    // Entries: a, b, l (link), the root.
    assert_eq!(Manifest::parse(&column("modes", &[4, 1])).unwrap().file(0).unwrap().mode(), Some(0));
    for (key, value, says) in [
        ("modes", &[3, 1][..], "fewer values"),
        ("modes", &[5, 1], "5 is more than 4"),
        ("modes", &[0, 1], "run is empty"),
        ("modes", &[4], "truncated"),
        ("mtimes", &[0, 0, 0, 0], "must come together"),
        ("mtimes", &[0, 0, 0], "fewer values"),
        ("mtimes", &[0, 0, 0, 0, 0], "more values"),
        ("xattrs", &[4, 1], "1 is more than 0"),
        ("links", &[0, 1], "earlier file"),
        ("links", &[0, 0], "earlier file"),
        ("links", &[2, 0], "one of its names is a symbolic link"),
        ("links", &[9, 0], "unknown file 9"),
        ("holes", &[0, 1, 0, 6], "6 is more than 5"),
        ("holes", &[0, 1, 0, 0], "hole is empty"),
        ("holes", &[0, 2, 0, 1, 0, 1], "adjacent"),
        ("holes", &[0, 9], "9 is more than 5"),
        ("holes", &[9, 0], "unknown file 9"),
        ("prefix", b"opt", "not an absolute path"),
    ] {
        refused(key, &column(key, value), says);
    }
    Manifest::parse(&column("links", &[1, 0])).expect("b is a link to a: same root, same length");
    refused("no version", &tidecast(""), "no `v`");
    refused("dirs", &tidecast("4:dirsl2:..e1:vi1e"), "lead out");
    refused("dirs", &tidecast("4:dirsl3:a/be1:vi1e"), "both a file and a directory");
    refused("dirs", &tidecast("4:dirsl2:/ae1:vi1e"), "name is empty");
    refused("sets", &tidecast("4:setsld0:1:xee1:vi1e"), "invalid name");
    refused("symlinks", &tidecast("8:symlinksli0e1:ae1:vi1e"), "not a symbolic link");
    let later = Manifest::parse(&tidecast("5:modes3:???1:vi99e")).unwrap();
    assert!(!later.has_extra());
    assert!(later.warnings()[0].to_string().contains("version 99"));
}

#[test]
fn the_builder_refuses_too() {
    let new = |entries| Builder::new(b"n", Version::V2, 16_384, entries).map(drop);
    let file = common::file;
    let of = |path: &str, content| common::entry(path.as_bytes(), content);
    let holes = |holes| Content::File { len: 10, executable: false, holes, hard_link: None };
    let odd_mode = tidecast_metainfo::Entry { mode: Some(0o10000), ..file("a", 1) };
    let twice = tidecast_metainfo::Entry {
        xattrs: vec![(b"x".to_vec(), vec![]), (b"x".to_vec(), vec![1])],
        ..file("a", 1)
    };
    for (entries, says) in [
        (vec![file("a", 1), file("a", 1)], "occurs twice"),
        (vec![file("a", 1), file("a/b", 1)], "both a file and a directory"),
        (vec![file("", 1), file("a", 1)], "other entries"),
        (vec![file("a//b", 1)], "name is empty"),
        (vec![file("../b", 1)], "lead out"),
        (vec![odd_mode], "permission bits"),
        (vec![twice], "duplicate extended attribute"),
        (vec![of("a", holes(vec![0..1, 2..11]))], "holes"),
        (vec![of("a", holes(vec![0..4, 4..6]))], "holes"),
        (vec![common::symlink("", "x")], "published alone"),
    ] {
        let error = new(entries).expect_err(says).to_string();
        assert!(error.contains(says), "expected `{says}`, got `{error}`");
    }
    let build = |entries| Builder::new(b"n", Version::V2, 16_384, entries).and_then(Builder::build);
    let error = build(vec![common::symlink("l", "")]).unwrap_err();
    assert!(matches!(error, Error::Symlink { .. }));
    assert!(build(vec![file("a", 1)]).unwrap_err().to_string().contains("not been hashed"));
    assert!(Builder::new(b"n", Version::V1, 3 << 14, Vec::new()).is_err());
}

#[test]
fn values_are_bounded() {
    let limits = Limits { values: 10, depth: 3 };
    let fault = |input: &[u8]| Value::decode(input, limits).unwrap_err().what;
    assert_eq!(fault(b"li1ei1ei1ei1ei1ei1ei1ei1ei1ei1ee"), Fault::Count(10));
    assert_eq!(fault(b"llllleeeee"), Fault::Depth);
    assert_eq!(fault(b"d1:ai1e1:ai2ee"), Fault::DuplicateKey);
    assert_eq!(fault(b"i1ei2e"), Fault::Trailing);
    assert_eq!(fault(b"l"), Fault::Truncated);
    let (value, used) = Value::decode_prefix(b"d1:bi2e1:a1:xepayload", limits).unwrap();
    assert_eq!(used, 14);
    assert_eq!(value.get(b"a").and_then(Value::as_str), Some("x"), "unsorted keys are tolerated");
    assert!(Cursor::new(b"d1:ae").skip().is_err(), "a key without a value");
    assert!(Cursor::new(b"di1ei2ee").skip().is_err(), "a key that is no string");
}
