//! A recorded list has the accesses in the order of the first ones.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::MetadataExt;

use super::*;
use proptest::prelude::*;

const LEN: u64 = 10 << 20;

fn record(touches: &[(u32, Range<u64>)]) -> Vec<(String, Option<Range<u64>>)> {
    let recorder = Recorder::new();
    for (file, range) in touches {
        recorder.touch(*file, range.clone());
    }
    let list = recorder.finish(None, |file| (file < 10).then(|| (format!("f{file}").into_bytes(), LEN)));
    let text =
        |entry: &Entry| (String::from_utf8_lossy(entry.name.as_bytes()).into_owned(), entry.range.clone());
    list.entries.iter().map(text).collect()
}

#[test]
fn order_is_that_of_first_touch() {
    let (f1, f2) = (|range| ("f1".to_owned(), range), |range| ("f2".to_owned(), range));
    // Sequential reads of one file make one range, and a repeated access changes nothing.
    let got = record(&[(1, 0..4096), (2, 8 << 20..9 << 20), (1, 4096..1 << 20), (2, 8 << 20..9 << 20)]);
    assert_eq!(got, [f1(Some(0..1 << 20)), f2(Some(8 << 20..9 << 20))]);
    // Small gaps are closed, from either side; large ones are not.
    assert_eq!(
        record(&[(1, GAP + 10..GAP + 11), (1, 9..10)]),
        [f1(Some(GAP + 10..GAP + 11)), f1(Some(9..10))]
    );
    assert_eq!(record(&[(1, GAP + 9..GAP + 11), (1, 9..10)]), [f1(Some(9..GAP + 11))]);
    assert_eq!(
        record(&[(1, 9..10), (1, GAP + 10..GAP + 11)]),
        [f1(Some(9..10)), f1(Some(GAP + 10..GAP + 11))]
    );
    assert_eq!(record(&[(1, 9..10), (1, GAP + 9..GAP + 11)]), [f1(Some(9..GAP + 11))]);
    // A range that joins two has the place of the earlier one.
    let (a, b, c) = (1 << 20..2 << 20, 3 << 20..4 << 20, 2 << 20..3 << 20);
    assert_eq!(record(&[(1, b), (2, 0..5), (1, a), (1, c)]), [f1(Some(1 << 20..4 << 20)), f2(Some(0..5))]);
}

#[test]
fn whole_files_are_named_whole() {
    assert_eq!(record(&[(1, 0..LEN)]), [("f1".to_owned(), None)]);
    assert_eq!(record(&[(1, GAP - 1..LEN - GAP + 1)]), [("f1".to_owned(), None)]);
    assert_eq!(record(&[(1, GAP..LEN)]), [("f1".to_owned(), Some(GAP..LEN))]);
    // The kernel may ask beyond the end; a file that is not in the tree is not in the list.
    assert_eq!(
        record(&[(1, LEN - 1..LEN + 9), (1, LEN + GAP * 9..u64::MAX), (77, 0..5), (2, 5..5)]),
        [("f1".to_owned(), Some(LEN - 1..LEN))]
    );
}

#[test]
fn many_threads_record_at_once() {
    let recorder = Recorder::new();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let recorder = &recorder;
            scope.spawn(move || {
                for i in 0..1000 {
                    let start = (i * 4 + thread) * 1024;
                    recorder.touch(1, start..start + 1024);
                }
            });
        }
    });
    let list = recorder.finish(None, |_| Some((b"f".to_vec(), u64::MAX)));
    assert_eq!(list.entries, [Entry { name: Name::Path(b"f".to_vec()), range: Some(0..4_096_000) }]);
    assert_eq!(recorder.left_out(), 0);
}

#[test]
fn memory_is_bounded() {
    let recorder = Recorder::new();
    for i in 0..MAX_ENTRIES as u64 + 5 {
        recorder.touch(1, i * 2 * GAP..i * 2 * GAP + 1);
    }
    assert_eq!(recorder.left_out(), 5);
    let list = recorder.finish(None, |_| Some((b"f".to_vec(), u64::MAX)));
    assert_eq!(list.entries.len(), MAX_ENTRIES);
    assert_eq!(List::parse(&list.to_bytes()).unwrap(), list);
}

#[test]
fn a_list_is_written_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("list");
    let mut list =
        List { manifest: None, entries: vec![Entry { name: Name::Path(b"a".to_vec()), range: None }] };
    save(&list, &path).unwrap();
    list.manifest = Some("0f".repeat(20));
    save(&list, &path).unwrap();
    assert_eq!(List::parse(&std::fs::read(&path).unwrap()).unwrap(), list);
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o700, 0o600);
    save(&list, &dir.path().join("none/list")).unwrap_err();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

proptest! {
    /// Against a plain model: which blocks of 1 KiB are within reach of a touch.
    #[test]
    fn all_that_was_touched_is_in_the_list_once(
        touches in proptest::collection::vec((0u32..2, 0u64..3000, 1u64..400), 1..40)
    ) {
        let recorder = Recorder::new();
        for &(file, start, count) in &touches {
            recorder.touch(file, start << 10..(start + count) << 10);
        }
        let list = recorder.finish(None, |file| Some((vec![b'a' + file as u8], u64::MAX)));
        let mut ranges: Vec<(u8, Range<u64>)> =
            list.entries.iter().map(|e| (e.name.as_bytes()[0] - b'a', e.range.clone().unwrap())).collect();
        for (file, start, count) in touches {
            let held = |(f, r): &(u8, Range<u64>)| {
                u32::from(*f) == file && r.start <= start << 10 && (start + count) << 10 <= r.end
            };
            prop_assert_eq!(ranges.iter().filter(|r| held(r)).count(), 1);
        }
        ranges.sort_by_key(|(file, range)| (*file, range.start));
        for pair in ranges.windows(2) {
            prop_assert!(pair[0].0 != pair[1].0 || pair[0].1.end + GAP <= pair[1].1.start);
        }
    }
}
