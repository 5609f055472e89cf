//! Web seeds (BEP 19): which URLs are kept, and where each file is below them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use tidecast_hash::sha1;
use tidecast_metainfo::{ContentRange, Magnet, Manifest, Warning, clean_web_seed};

/// A v1 manifest of one file, or of a directory, with these bytes as `url-list` and the like.
fn manifest(info: &[u8], before: &[u8], behind: &[u8]) -> Manifest {
    Manifest::parse(&[b"d", before, b"4:info", info, behind, b"e"].concat()).unwrap()
}

fn single(name: &[u8]) -> Vec<u8> {
    let head = [b"d6:lengthi5e4:name", name.len().to_string().as_bytes(), b":", name].concat();
    [&head, &b"12:piece lengthi16384e6:pieces20:"[..], &sha1(b"hello"), b"e"].concat()
}

fn tree() -> Vec<u8> {
    let files = "5:filesld6:lengthi4e4:pathl3:a b6:c#%d\u{e9}eed6:lengthi1e4:pathl1:+eee4:name4:d\u{e9}t";
    [b"d", files.as_bytes(), b"12:piece lengthi16384e6:pieces20:", &sha1(b"hello"), b"e"].concat()
}

fn list(urls: &[&str]) -> Vec<u8> {
    let entries: String = urls.iter().map(|url| format!("{}:{url}", url.len())).collect();
    format!("8:url-listl{entries}e").into_bytes()
}

#[test]
fn a_string_or_a_list_names_the_seeds() {
    let info = single(b"f.bin");
    let text = manifest(&info, b"", b"8:url-list16:http://h/a/f.bin");
    assert_eq!(text.web_seeds(), ["http://h/a/f.bin"]);
    let urls = ["http://h/a", "", "HTTPS://h/b/", "http://h/a", " http://h/c d\u{e9}#x ", "ftp://h/e", "/f"];
    let many = manifest(&info, b"", &list(&urls));
    assert_eq!(many.web_seeds(), ["http://h/a", "HTTPS://h/b/", "http://h/c%20d%C3%A9"]);
    assert_eq!(many.warnings(), [Warning::OtherSeeds(2)]);
    for empty in [&b"8:url-list0:"[..], b"8:url-listle", b"8:url-listde", b"8:url-listi5e", b""] {
        let none = manifest(&info, b"", empty);
        assert!(none.web_seeds().is_empty() && none.warnings().is_empty());
    }
    let mixed = manifest(&info, b"", b"8:url-listli1e10:http://h/ad1:xi1eel1:yee");
    assert_eq!(mixed.web_seeds(), ["http://h/a"]);
    let crowd: Vec<String> = (0..70).map(|n| format!("http://h/{n}")).collect();
    let crowd: Vec<&str> = crowd.iter().map(String::as_str).collect();
    let crowd = manifest(&info, b"", &list(&crowd));
    assert_eq!((crowd.web_seeds().len(), crowd.warnings()), (64, vec![Warning::OtherSeeds(6)]));
}

#[test]
fn seeds_of_the_other_kind_are_passed_over_with_a_word() {
    let other = manifest(&single(b"f"), b"9:httpseedsl15:http://h/s.php?e", b"");
    assert_eq!((other.web_seeds().len(), other.warnings()), (0, vec![Warning::HttpSeeds(1)]));
    assert!(other.warnings()[0].to_string().contains("BEP 17"));
}

#[test]
fn a_file_is_at_the_url_or_below_it() {
    let one = manifest(&single(b"f 1"), b"", b"");
    assert_eq!(one.web_url("http://h/x?y=z", 0).unwrap(), "http://h/x?y=z");
    assert_eq!(one.web_url("http://h/x/", 0).unwrap(), "http://h/x/f%201");
    assert_eq!(one.web_url("http://h/x/", 1), None);
    let many = manifest(&tree(), b"", b"");
    for seed in ["http://h/x/", "http://h/x"] {
        let urls: Vec<_> = (0..2).map(|file| many.web_url(seed, file).unwrap()).collect();
        assert_eq!(urls, ["http://h/x/d%C3%A9t/a%20b/c%23%25d%C3%A9", "http://h/x/d%C3%A9t/%2B"]);
    }
}

#[test]
fn what_is_written_is_read_alike() {
    let info = tree();
    let bare = manifest(&info, b"", b"");
    assert!(!bare.to_bytes().windows(8).any(|w| w == b"url-list"));
    let with = bare.clone().with_web_seeds(["http://h/data", "https://g/"]);
    // Of a directory, so that each client takes it for one.
    assert_eq!(with.web_seeds(), ["http://h/data/", "https://g/"]);
    let again = Manifest::parse(&with.to_bytes()).unwrap();
    assert_eq!((again.web_seeds(), again.hash_v1()), (with.web_seeds(), bare.hash_v1()));
    let link = with.magnet().to_string();
    assert!(link.contains("&ws=http%3A%2F%2Fh%2Fdata%2F&ws=https"), "{link}");
    assert_eq!(link.parse::<Magnet>().unwrap().web_seeds, with.web_seeds());
    let file = manifest(&single(b"f"), b"", b"").with_web_seeds(["http://h/data"]);
    assert_eq!(file.web_seeds(), ["http://h/data"]);
}

#[test]
fn what_a_server_says_of_a_range_is_read_strictly() {
    let read = |text: &str| text.parse::<ContentRange>().ok().map(|r| (r.first, r.last, r.total));
    assert_eq!(read("bytes 0-9/10"), Some((0, 9, Some(10))));
    assert_eq!(read(" Bytes 5-5/* "), Some((5, 5, None)));
    let wrong = ["bytes */10", "bytes 0-10/10", "bytes 5-4/10", "items 0-9/10", "bytes 0-9", "bytes +0-9/10"];
    let more =
        ["", "bytes", "bytes -1-9/10", "bytes 0-99999999999999999999/*", "bytes 0-9/1e9", "bytes 0x0-9/10"];
    for text in wrong.into_iter().chain(more) {
        assert_eq!(read(text), None, "{text:?}");
    }
}

proptest! {
    #[test]
    fn any_range_is_read_or_refused(text in "\\PC{0,40}", first: u64, len in 1_u64..1 << 40) {
        let _ = text.parse::<ContentRange>();
        let last = first.saturating_add(len - 1);
        let said = format!("bytes {first}-{last}/*").parse();
        prop_assert_eq!(said, Ok(ContentRange { first, last, total: None }));
    }

    #[test]
    fn any_name_goes_into_one_segment(name in proptest::collection::vec(any::<u8>(), 1..40), seed: Vec<u8>) {
        let escaped = clean_web_seed(&seed);
        prop_assert!(escaped.is_none_or(|url| url.bytes().all(|b| b.is_ascii_graphic())));
        let parsed = Manifest::parse(&[&b"d4:info"[..], &single(&name), b"e"].concat());
        if let Ok(m) = parsed {
            let url = m.web_url("http://h/", 0).unwrap();
            let segment = url.strip_prefix("http://h/").unwrap();
            prop_assert!(segment.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%".contains(&b)));
            let back: Vec<u8> = segment.split('%').enumerate().flat_map(|(i, part)| match i {
                0 => part.as_bytes().to_vec(),
                _ => [&[u8::from_str_radix(&part[..2], 16).unwrap()], &part.as_bytes()[2..]].concat(),
            }).collect();
            prop_assert_eq!(back, m.name_bytes());
        }
    }
}
