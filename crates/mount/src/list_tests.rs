//! Lists are read as they were written, by a person or by us, and come to the right bytes.
#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

fn path(path: &str) -> Entry {
    Entry { name: Name::Path(path.into()), range: None }
}

fn pattern(pattern: &str) -> Entry {
    Entry { name: Name::Pattern(pattern.into()), range: None }
}

#[test]
fn a_person_writes_a_list() {
    let text = b"# what we need\r\n\n  bin/tool  \n./lib/a b.so\n\\#odd\nlib/**/*.so\nshare/\n\
                 lib/x\\*y\\x20\nbig\t100+28\n  # done";
    let list = List::parse(text).unwrap();
    let want = [
        path("bin/tool"),
        path("lib/a b.so"),
        path("#odd"),
        pattern("lib/**/*.so"),
        pattern("share/**"),
        path("lib/x*y "),
        Entry { range: Some(100..128), ..path("big") },
    ];
    assert_eq!(list.entries, want);
    assert_eq!(list.manifest, None);
}

#[test]
fn a_recorded_list_says_what_of() {
    let hash = "0123456789abcdef".repeat(4);
    let list = List { manifest: Some(hash.clone()), entries: vec![path("tidecast-prefetch 1"), path("b")] };
    let text = format!("tidecast-prefetch 1 {hash}\ntidecast-prefetch 1\nb\n");
    assert_eq!(String::from_utf8(list.to_bytes()).unwrap(), text);
    assert_eq!(List::parse(text.as_bytes()).unwrap(), list);
    let upper = format!("tidecast-prefetch 1 {}", hash.to_uppercase());
    assert_eq!(List::parse(upper.as_bytes()).unwrap().manifest, Some(hash));
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let line = |text: &[u8]| match List::parse(text).unwrap_err() {
        ListError::Line { line, problem } => (line, problem),
        other => panic!("{other}"),
    };
    assert_eq!(line(b"tidecast-prefetch 2"), (1, ListProblem::Version("2".into())));
    assert_eq!(line(b"tidecast-prefetch 1 beef"), (1, ListProblem::Hash));
    for range in ["", "1", "1+0", "1-2", "-1+2", "x+1", "1+18446744073709551615", " 1+2 3"] {
        // The tab is in the middle: a tab at the end is white space.
        assert_eq!(line(format!("a\nb\t{range}.").as_bytes()), (2, ListProblem::Range), "{range}");
    }
    for escape in ["\\", "\\q", "\\x", "\\x1", "\\x1g", "\\x\\x", "a\\"] {
        assert_eq!(line(format!("\n\n{escape}").as_bytes()), (3, ListProblem::Escape), "{escape}");
    }
    assert!(matches!(line(b"a[b"), (1, ListProblem::Pattern(_))));
    assert!(matches!(line(b"{a"), (1, ListProblem::Pattern(_))));
    assert!(matches!(line(b"\xff*"), (1, ListProblem::Pattern(_))));
    assert!(matches!(line(b"*\\n"), (1, ListProblem::Pattern(_))));
    assert_eq!(line(&[b'a'; MAX_PATH + 1]), (1, ListProblem::TooLong));
    assert_eq!(line(&[b' ', b'a'].repeat(MAX_LINE)), (1, ListProblem::TooLong));
    assert_eq!(line(&b"*\n".repeat(MAX_PATTERNS + 1)), (MAX_PATTERNS + 1, ListProblem::TooManyPatterns));
    assert_eq!(line(&b"a\n".repeat(MAX_ENTRIES + 1)), (MAX_ENTRIES + 1, ListProblem::TooMany));
    assert_eq!(List::parse(&b"a\n".repeat(MAX_ENTRIES)).unwrap().entries.len(), MAX_ENTRIES);
}

const TREE: [(u32, &[u8], u64); 8] = [
    (0, b"bin/tool", 10),
    (1, b"lib/a.so", 100),
    (2, b"lib/py/b.so", 200),
    (3, b"lib/py/b.txt", 300),
    (4, b"lib/zero.so", 0),
    (5, b"we[i]rd", 5),
    (6, b"\xff\n", 6),
    // A symlink to the first one.
    (0, b"bin/t", 10),
];

fn resolve(text: &[u8]) -> Resolved {
    List::parse(text).unwrap().resolve(TREE.into_iter()).unwrap()
}

#[test]
fn a_list_comes_to_bytes_in_its_order() {
    let got = resolve(b"lib/py/\nlib/zero.so\nbin/t\n\\xff\\n\nwe\\[i]rd\n");
    assert_eq!(got.ranges, [(2, 0..200), (3, 0..300), (0, 0..10), (6, 0..6), (5, 0..5)]);
    assert!(got.missing.is_empty());
    // A star matches within its directory only; a file is listed once, under whichever name.
    assert_eq!(
        resolve(b"bin/tool\nlib/*.so\nlib/**/*.so\nbin/*").ranges,
        [(0, 0..10), (1, 0..100), (2, 0..200)]
    );
    assert_eq!(resolve(b"lib/{a,py/b}.so").ranges, [(1, 0..100), (2, 0..200)]);
}

#[test]
fn ranges_end_with_the_file_and_what_is_gone_is_said() {
    let got = resolve(b"lib/a.so\t90+20\nlib/a.so\t100+5\nlib/a.so\t0+5\nlib/a.so\t0+5\nlib/a.so");
    assert_eq!(got.ranges, [(1, 90..100), (1, 0..5), (1, 0..100)]);
    let got = resolve(b"lib\ngone\t0+5\ngone\t9+5\nbin/tool\n*.rs\n/bin/tool\nbin/tool\t2+3");
    assert_eq!(got.ranges, [(0, 0..10)]);
    assert_eq!(got.missing, [&b"lib"[..], b"gone", b"*.rs", b"/bin/tool"]);
}

#[test]
fn patterns_that_match_all_files_again_and_again_take_no_memory_for_each() {
    let tree = |files: u32| (0..files).map(|i| (i, &b"lib/x"[..], 1000));
    let lines = |count: usize| (0..count).map(|i| format!("**\t{i}+1\n")).collect::<String>();
    let few = List::parse(lines(4).as_bytes()).unwrap();
    assert_eq!(few.resolve(tree(50_000)).unwrap().ranges.len(), 200_000);
    let many = List::parse(lines(1000).as_bytes()).unwrap();
    assert_eq!(many.resolve(tree(100)).unwrap().ranges.len(), 100_000);
    assert_eq!(many.resolve(tree(200)), Err(ListError::TooManyMatches));
}

/// A path that a tree may have: no empty name, no `.`; bytes of all kinds, those that mean something above all.
fn any_path() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![1u8..=255, proptest::sample::select(b" \t\n\r\\#*?[]{}!.x0+\xc3\xa9".to_vec())];
    let name = proptest::collection::vec(byte, 1..12).prop_map(|mut name| {
        name.retain(|&b| b != b'/');
        if matches!(&name[..], b"" | b"." | b"..") { b"n".to_vec() } else { name }
    });
    proptest::collection::vec(name, 1..4).prop_map(|names| names.join(&b'/'))
}

fn any_list() -> impl Strategy<Value = List> {
    let range = proptest::option::of((any::<u32>(), 1..u64::from(u32::MAX)));
    let range = range.prop_map(|r| r.map(|(first, count)| u64::from(first)..u64::from(first) + count));
    let entry = (any_path(), range).prop_map(|(path, range)| Entry { name: Name::Path(path), range });
    let manifest = proptest::option::of(prop_oneof!["[0-9a-f]{40}", "[0-9a-f]{64}"]);
    let entries = proptest::collection::vec(entry, 0..20);
    (manifest, entries).prop_map(|(manifest, entries)| List { manifest, entries })
}

#[test]
fn what_find_writes_is_read() {
    let got = |text: &str| List::parse(text.as_bytes()).unwrap();
    for (text, want) in [
        ("./", pattern("**")),
        ("././a", path("a")),
        ("\\./a", path("./a")),
        ("./#*", pattern("\\#*")),
        ("./ *", pattern("[ ]*")),
    ] {
        assert_eq!(got(text).entries, [want], "{text}");
        assert_eq!(List::parse(&got(text).to_bytes()).unwrap(), got(text), "{text}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_the_same(list in any_list()) {
        prop_assert_eq!(List::parse(&list.to_bytes()), Ok(list));
    }

    #[test]
    fn what_is_read_is_written_the_same(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(list) = List::parse(&text) {
            prop_assert_eq!(List::parse(&list.to_bytes()), Ok(list));
        }
    }

    #[test]
    fn patterns_keep_their_meaning(text in r"[a-c \\#./*?\[\]{},!^-]{1,12}") {
        if let Ok(list) = List::parse(text.as_bytes()) {
            prop_assert!(list.resolve(TREE.into_iter()).is_ok());
            prop_assert_eq!(List::parse(&list.to_bytes()), Ok(list));
        }
    }

    #[test]
    fn each_path_leads_to_its_own_file(path in any_path()) {
        let list = List { manifest: None, entries: vec![Entry { name: Name::Path(path.clone()), range: None }] };
        let list = List::parse(&list.to_bytes()).unwrap();
        let files = [(3, &b"other"[..], 9), (4, &path[..], 9)];
        prop_assume!(path != b"other");
        prop_assert_eq!(list.resolve(files.into_iter()).unwrap().ranges, [(4, 0..9)]);
    }
}

#[test]
fn a_slash_parts_names_and_cannot_be_escaped() {
    for text in ["lib\\x2f", "lib\\/x", ".\\x2fa*"] {
        assert!(List::parse(text.as_bytes()).is_err(), "{text}");
    }
}
