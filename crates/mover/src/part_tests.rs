use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::entry::Attributes;

fn entry() -> impl Strategy<Value = Entry> {
    let attributes = (
        0..0o10000u32,
        any::<i64>(),
        0..1_000_000_000u32,
        0..3u32,
        option::of(vec((vec(1u8.., 1..20), vec(any::<u8>(), 0..40)), 0..3)),
    )
        .prop_map(|(mode, seconds, nanos, uid, xattrs)| Attributes {
            mode,
            mtime: Time { seconds, nanos },
            owner: Owner { uid, gid: uid * 7, user: format!("user{uid}").into(), group: "".into() },
            xattrs,
        });
    let kind = prop_oneof![
        Just(Kind::Dir),
        Just(Kind::Fifo),
        (0..20_000_000u64, any::<bool>()).prop_map(|(len, sparse)| Kind::File { len, sparse }),
        vec(1u8.., 1..30).prop_map(|target| Kind::Symlink { target }),
        Just(Kind::HardLink { to: b"a/b".to_vec() }),
        (any::<bool>(), any::<u64>()).prop_map(|(character, number)| Kind::Device { character, number }),
    ];
    ("([a-c]{1,3}(/[a-c.]{0,2}[a-c]){0,3})?", attributes, kind).prop_map(|(path, attributes, kind)| Entry {
        path: path.into(),
        attributes,
        kind,
    })
}

fn part() -> impl Strategy<Value = Part> {
    (any::<u64>(), entry(), any::<[u8; 32]>(), option::of(any::<[u8; 32]>()), 0..4u8, any::<u64>()).prop_map(
        |(file, entry, digest, root, how, at)| {
            let len = entry.len();
            let blocks = len.div_ceil(BLOCK as u64).max(1);
            let offset = at % blocks * BLOCK as u64;
            let data = match (&entry.kind, how) {
                (Kind::File { .. }, 0) => Data::Ask { root },
                (Kind::File { .. }, 1) => Data::Hole { offset, len: len - offset, root },
                (Kind::File { .. }, 2) => {
                    let len = (len - offset).min(BLOCK as u64) as u32;
                    Data::Same { offset, len, digest, root }
                }
                (Kind::File { .. }, _) => {
                    Data::Bytes { offset, len: (len - offset).min(BLOCK as u64) as u32, digest, root }
                }
                _ => Data::None,
            };
            Part { file, entry, data }
        },
    )
}

fn read(table: &[u8], payload: usize) -> Result<Vec<Part>> {
    let (mut parts, mut part, mut all) = (Parts::new(table, payload), Part::default(), Vec::new());
    while parts.next(&mut part)? {
        all.push(part.clone());
    }
    Ok(all)
}

fn write(parts: &[Part]) -> Vec<u8> {
    let mut table = TableWriter::new(Vec::new());
    parts.iter().for_each(|p| table.push(p.file, &p.entry, &p.data));
    table.finish()
}

proptest! {
    #[test]
    fn what_is_written_is_read(parts in vec(part(), 0..20)) {
        let payload = parts.iter().map(|p| p.data.payload()).sum();
        prop_assert_eq!(read(&write(&parts), payload), Ok(parts));
    }

    #[test]
    fn damage_is_an_error_or_other_safe_parts(parts in vec(part(), 1..5), at in any::<prop::sample::Index>(), to in any::<u8>(), cut in any::<bool>()) {
        let payload = parts.iter().map(|p| p.data.payload()).sum();
        let mut table = write(&parts);
        let at = at.index(table.len());
        if cut { table.truncate(at) } else { table[at] = to }
        if let Ok(all) = read(&table, payload) {
            for part in all {
                prop_assert!(is_safe(&part.entry.path));
                if let Data::Bytes { offset, len, .. } = part.data {
                    prop_assert!(offset + u64::from(len) <= part.entry.len());
                }
            }
        }
    }
}

#[test]
fn no_path_leads_out() {
    for bad in ["/etc", "..", "a/../b", "a//b", "./a", "a/", "a\0b"] {
        assert!(!is_safe(bad.as_bytes()), "{bad:?}");
        let mut part = Part { file: 1, entry: Entry::default(), data: Data::None };
        part.entry.path = bad.into();
        assert!(read(&write(&[part]), 0).is_err(), "{bad:?}");
    }
    assert!(is_safe(b"") && is_safe(b"a/..b/c..") && is_safe("ä".as_bytes()));
}

#[test]
fn payload_must_be_claimed_whole() {
    assert!(read(&[], 1).is_err());
    assert_eq!(read(&[], 0), Ok(Vec::new()));
}
