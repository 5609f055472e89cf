//! Any bytes as a metainfo file, and as an info dictionary. What must hold: no panic, bounded
//! memory, and of what is accepted: every path stays inside the tree, the pieces cover the files
//! exactly, and writing and reading again gives the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidecast_metainfo::{Manifest, Warning};

fn check_paths(m: &Manifest) {
    let dirs = m.dirs().map(|d| (d.path(), d.mode(), d.mtime(), d.xattrs().count()));
    let files = m.files().map(|f| (f.path(), f.mode(), f.mtime(), f.xattrs().count()));
    for (path, mode, mtime, _) in dirs.chain(files) {
        let parts = path.components();
        assert!(parts.len() <= 202 && path.to_bytes().len() <= 4096 + 255);
        for part in parts {
            assert!(!part.is_empty() && part != b"." && part != b".." && part.len() <= 255);
            assert!(!part.contains(&b'/') && !part.contains(&0));
        }
        assert!(mode.is_none_or(|m| m <= 0o7777));
        assert!(mtime.is_none_or(|t| t.nanos < 1_000_000_000));
    }
}

fn check_files(m: &Manifest) {
    let mut out = 0;
    for f in m.files() {
        assert_eq!(f.is_symlink(), f.symlink().is_some());
        assert!(f.holes().iter().all(|h| h.start < h.end && h.end <= f.len()));
        assert!(f.hard_link().is_none_or(|t| t < f.index()));
        assert!(f.same_as() <= f.index());
        let depth = f.path().inner().len() as i32 - 1;
        out += u32::from(f.symlink().is_some_and(|text| leads_out(&text, depth)));
    }
    assert!(out <= told_to_lead_out(m), "a link leads out of the tree, and no warning says so");
}

/// Whether the text of a link leads out of the tree, `depth` directories below its root.
fn leads_out(text: &[u8], mut depth: i32) -> bool {
    text.starts_with(b"/")
        || text.split(|b| *b == b'/').any(|part| {
            depth += match part {
                b"" | b"." => 0,
                b".." => -1,
                _ => 1,
            };
            depth < 0
        })
}

/// How many links lead out of the tree by what the manifest warns of.
fn told_to_lead_out(m: &Manifest) -> u32 {
    let links = |w| match w {
        Warning::OutsideLinks { links, .. } | Warning::LinksToPrefix { links, .. } => links,
        _ => 0,
    };
    m.warnings().into_iter().map(links).sum()
}

fn check_pieces(m: &Manifest) {
    if m.piece_count() > 1000 {
        return;
    }
    let mut total = 0;
    let mut leaf = 0;
    for p in 0..m.piece_count() {
        let mut wire = 0;
        for span in m.spans(p, 0, u32::MAX) {
            wire += span.len;
            if !span.pad {
                total += u64::from(span.len);
                assert!(m.file_pieces(span.file).contains(&p));
            }
        }
        assert_eq!(wire, m.wire_len(p));
        assert!(m.piece_len(p) <= wire && wire <= m.piece_length());
        let leaves = m.leaf_range(p);
        assert!(leaves.start >= leaf && leaves.end >= leaves.start);
        leaf = leaves.end;
        let expected = m.expected(p);
        assert_eq!(expected.v1.is_some(), m.version().has_v1());
        let _ = (m.piece_width(p), m.check_leaves(p, &[]));
    }
    assert_eq!(total, m.total_len());
}

fn check_web_seeds(m: &Manifest) {
    assert!(m.web_seeds().len() <= 64);
    for seed in m.web_seeds() {
        assert!(seed.len() <= 2048 && seed.bytes().all(|b| b.is_ascii_graphic()));
        let Some(file) = m.file_count().checked_sub(1) else { return };
        let url = m.web_url(seed, file).expect("there is such a file");
        assert!(url.starts_with(seed.as_str()) && url.bytes().all(|b| b.is_ascii_graphic()));
    }
}

fn check(m: &Manifest) {
    check_web_seeds(m);
    check_paths(m);
    check_files(m);
    check_pieces(m);
    let bytes = m.to_bytes();
    let again = Manifest::parse_draft(&bytes).expect("what was read can be written and read");
    assert_eq!(again.to_bytes(), bytes);
    assert_eq!((again.swarm_hashes(), again.is_draft()), (m.swarm_hashes(), m.is_draft()));
    let _ = (m.warnings(), m.magnet().to_string(), m.missing_layers());
}

/// With any roots a draft becomes a manifest with the same files.
fn seal(m: Manifest) {
    assert!(Manifest::parse(&m.to_bytes()).is_err(), "a draft passes for a manifest");
    if m.piece_count() > 1000 {
        return;
    }
    for p in 0..m.piece_count() {
        assert!(m.sealed_hash().is_none());
        let mut root = [1; 32];
        root[..4].copy_from_slice(&p.to_be_bytes());
        assert!(m.learn_root(p, root));
    }
    let sealed = m.seal().expect("all roots are known");
    assert_eq!((sealed.hash_v2(), sealed.layout()), (m.sealed_hash(), m.layout()));
    check(&sealed);
}

fuzz_target!(|input: &[u8]| {
    let whole = [Manifest::parse(input), Manifest::from_info(input, Vec::new())];
    for m in whole.into_iter().chain([Manifest::parse_draft(input)]) {
        match m {
            Ok(m) if m.is_draft() => {
                check(&m);
                seal(m);
            }
            Ok(m) => check(&m),
            Err(e) => assert!(e.to_string().len() < 2000),
        }
    }
});
