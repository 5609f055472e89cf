//! Scans of real trees, friendly and hostile.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::ffi::OsStr;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use common::*;
use tidecast_publish::{
    Content, Error, HashOptions, Progress, ScanOptions, Tree, Warning, hash, scan, verify,
};

fn paths(tree: &Tree) -> Vec<String> {
    tree.files.iter().map(|f| f.path.display().to_string()).collect()
}

fn excluding(root: &Path, globs: &[&str]) -> Result<Tree, Error> {
    let options =
        ScanOptions { exclude: globs.iter().map(ToString::to_string).collect(), ..ScanOptions::default() };
    scan(root, &options, &Progress::new())
}

#[test]
fn the_order_is_that_of_components_not_of_text() {
    let (_temp, root) = tree("order", &[("a/z", 1), ("a-b", 1), ("a.c", 1), ("a/b/c", 1), ("B", 1)]);
    assert_eq!(paths(&scanned(&root)), ["B", "a/b/c", "a/z", "a-b", "a.c"]);
}

#[test]
fn patterns_leave_out_names_paths_and_whole_directories() {
    let files =
        [("keep", 1), ("x.tmp", 1), ("sub/y.tmp", 1), ("sub/z", 1), ("deep/sub/w", 1), (".git/config", 1)];
    let (_temp, root) = tree("exclude", &files);
    let left = |globs: &[&str]| paths(&excluding(&root, globs).unwrap());
    assert_eq!(left(&["*.tmp", ".git"]), ["deep/sub/w", "keep", "sub/z"]);
    assert_eq!(left(&["/sub"]), [".git/config", "deep/sub/w", "keep", "x.tmp"]);
    assert_eq!(left(&["sub/"]), [".git/config", "keep", "x.tmp"]);
    assert_eq!(left(&["w/", "keep/", "*/"]), ["keep", "x.tmp"], "a slash at the end is for directories only");
    assert_eq!(left(&["*/sub/*", "**/config"]), ["keep", "sub/y.tmp", "sub/z", "x.tmp"]);
    assert_eq!(left(&["[!k]*"]), ["keep"]);
    let error = excluding(&root, &["a[b"]).unwrap_err();
    assert!(error.to_string().contains("a[b"), "{error}");
}

#[test]
fn a_pattern_whose_path_begins_above_the_tree_is_warned_of() {
    let (_temp, root) = tree("env", &[("lib/a", 1), ("env.d/b", 1)]);
    let whole = format!("{}/lib/", root.display());
    let globs = ["env/lib", "/env/lib/*.so", whole.as_str(), "./lib", "env/", "env.d/c", "lib/a", "env"];
    let meant: Vec<String> = (excluding(&root, &globs).unwrap().warnings.into_iter())
        .map(|warning| match warning {
            Warning::Above { meant, .. } => meant,
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(meant, ["lib", "lib/*.so", "lib/", "lib"]);
    let (_temp, root) = tree("env", &[("env/lib/a", 1), ("b", 1)]);
    let tree = excluding(&root, &["env/lib"]).unwrap();
    assert_eq!((paths(&tree), tree.warnings.len()), (vec!["b".to_owned()], 0));
}

#[test]
fn what_is_no_file_is_left_out_and_said() {
    let (_temp, root) = tree("special", &[("a", 1)]);
    let _socket = UnixListener::bind(root.join("socket")).unwrap();
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("fifo"), mode).unwrap();
    let tree = scanned(&root);
    assert_eq!(paths(&tree), ["a"]);
    let special = |name: &str| Warning::Special(name.into());
    assert_eq!(tree.warnings, [special("fifo"), special("socket")]);
    assert!(tree.warnings[0].to_string().contains("fifo"));
}

#[test]
fn the_mask_of_an_access_list_is_not_the_groups_right() {
    use tidecast_paths::acl::{ATTRIBUTE, Acl};
    let (_temp, root) = tree("lists", &[("dir/a", 5)]);
    let list = Acl { owner: 7, users: vec![(4242, 7)], mask: Some(7), ..Acl::default() };
    for name in ["dir", "dir/a"] {
        let flags = rustix::fs::XattrFlags::empty();
        if rustix::fs::setxattr(root.join(name), ATTRIBUTE, &list.encode(), flags).is_err() {
            eprintln!("SKIPPED: this file system has no access control lists");
            return;
        }
    }
    let tree = scanned(&root);
    let dir = tree.dirs.iter().find(|dir| dir.path == Path::new("dir")).unwrap();
    assert_eq!((dir.mode & 0o777, tree.files[0].mode & 0o777), (0o700, 0o700));
    let manifest = hash(&tree, &HashOptions::default(), &Progress::new(), |_| ()).unwrap().manifest;
    let report = verify(&manifest, &root, None, &Progress::new()).unwrap();
    assert!(report.is_good(), "{report:?}");
}

#[test]
fn links_are_not_followed_but_at_the_top() {
    let (temp, root) = tree("links", &[("dir/a", 5)]);
    symlink("dir", root.join("loop")).unwrap();
    symlink("..", root.join("dir/up")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    let top = temp.path().join("top");
    symlink(&root, &top).unwrap();
    let tree = scanned(&top);
    assert_eq!(tree.name, "top");
    assert_eq!(paths(&tree), ["dangling", "dir/a", "dir/up", "loop"]);
    assert!(matches!(&tree.files[3].kind, Content::Symlink { target } if target == "dir"));
}

#[test]
fn the_name_is_the_directorys_own_or_the_callers() {
    let (_temp, root) = tree("named", &[("dir/a", 5)]);
    assert_eq!(scanned(&root.join("dir/.")).name, "dir");
    assert_eq!(scanned(&root.join("dir/..")).name, "named");
    let options = ScanOptions { name: Some("other".into()), ..ScanOptions::default() };
    assert_eq!(scan(&root, &options, &Progress::new()).unwrap().name, "other");
    assert!(matches!(
        scan(
            Path::new("/"),
            &ScanOptions { exclude: vec!["*".into()], ..ScanOptions::default() },
            &Progress::new()
        ),
        Err(Error::NoName(_))
    ));
}

#[test]
fn what_is_not_there_or_no_file_is_refused_by_name() {
    let (_temp, root) = tree("refused", &[]);
    let fail = |path: &Path| scan(path, &ScanOptions::default(), &Progress::new()).unwrap_err();
    assert!(fail(&root.join("absent")).to_string().contains("absent"));
    assert!(matches!(fail(Path::new("/dev/null")), Error::Kind(_)));
}

#[test]
fn a_file_that_may_not_be_read_is_named_before_hashing() {
    let (_temp, root) = tree("unreadable", &[("a", 1), ("secret", 1)]);
    fs::set_permissions(root.join("secret"), fs::Permissions::from_mode(0o000)).unwrap();
    match scan(&root, &ScanOptions::default(), &Progress::new()) {
        // Root may read everything.
        Ok(_) => assert!(fs::read(root.join("secret")).is_ok()),
        Err(e) => assert!(e.to_string().contains("secret"), "{e}"),
    }
}

#[test]
fn holes_are_mapped() {
    let (_temp, root) = tree("sparse", &[("full", 100_000)]);
    let mut file = fs::File::create(root.join("holes")).unwrap();
    file.seek(SeekFrom::Start(1 << 20)).unwrap();
    file.write_all(&noise(4096, 1)).unwrap();
    file.set_len(3 << 20).unwrap();
    let tree = scanned(&root);
    let holes = |i: usize| match &tree.files[i].kind {
        Content::File { holes, .. } => holes.clone(),
        Content::Symlink { .. } => unreachable!(),
    };
    assert_eq!(holes(0), []);
    // A file system without holes reports none; one with them, these (in blocks of its own size).
    if let [first, second] = holes(1).as_slice() {
        assert!(first.start == 0 && first.end <= 1 << 20 && first.end > 0);
        assert!(second.end == 3 << 20 && second.start >= (1 << 20) + 4096);
    } else {
        assert_eq!(holes(1), []);
    }
    let manifest = publish(&root, tidecast_metainfo::Version::V2, 64 << 10);
    assert_eq!(manifest.files().next_back_holes(), holes(1));
}

/// The holes of the last file.
trait LastHoles {
    fn next_back_holes(self) -> Vec<std::ops::Range<u64>>;
}

impl<'a, I: Iterator<Item = tidecast_metainfo::FileRef<'a>>> LastHoles for I {
    fn next_back_holes(self) -> Vec<std::ops::Range<u64>> {
        self.last().map(|f| f.holes().to_vec()).unwrap_or_default()
    }
}

#[test]
fn user_attributes_are_kept() {
    let (_temp, root) = tree("xattr", &[("a", 1)]);
    let path = root.join("a");
    if xattr::set(&path, "user.colour", b"blue\0\xff").is_err() {
        return; // This file system does not support them.
    }
    xattr::set(&path, "user.a", b"").unwrap();
    let tree = scanned(&root);
    let expected = [("user.a", &b""[..]), ("user.colour", b"blue\0\xff")];
    let expected = expected.map(|(n, v)| (n.into(), v.to_vec()));
    assert_eq!(tree.files[0].xattrs, expected);
}

#[test]
fn further_names_of_a_file_are_links_to_the_first() {
    let (_temp, root) = tree("hard", &[("b", 5), ("c", 5)]);
    fs::hard_link(root.join("b"), root.join("a")).unwrap();
    let tree = scanned(&root);
    let links: Vec<_> = tree
        .files
        .iter()
        .map(|f| match f.kind {
            Content::File { link_of, .. } => link_of,
            Content::Symlink { .. } => None,
        })
        .collect();
    assert_eq!(paths(&tree), ["a", "b", "c"]);
    assert_eq!(links, [None, Some(0), None]);
}

#[test]
fn a_very_deep_tree_is_no_trouble() {
    let (_temp, root) = tree("deep", &[]);
    let deep = root.join("d/".repeat(150));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("end"), b"x").unwrap();
    let tree = scanned(&root);
    assert_eq!((tree.files.len(), tree.dirs.len()), (1, 151));
    hash(&tree, &HashOptions::default(), &Progress::new(), |_| ()).unwrap();
}

#[test]
fn names_that_are_no_text_or_strange_are_published_or_named() {
    for name in [&b"\xff\xfe"[..], b"new\nline", b"back\\slash", b" ", b"..."] {
        let (_temp, root) = tree("names", &[("a", 1)]);
        if fs::write(root.join(OsStr::from_bytes(name)), b"x").is_err() {
            continue; // This file system does not take the name.
        }
        match hash(&scanned(&root), &HashOptions::default(), &Progress::new(), |_| ()) {
            Ok(made) => {
                let kept = made.manifest.files().any(|f| f.path().name() == name);
                assert!(kept, "{name:?} was changed");
            }
            Err(e) => assert!(matches!(e, Error::Manifest { .. }), "{e}"),
        }
    }
}

#[test]
fn a_tree_that_names_its_place_was_built_for_it() {
    let built_for = |path: &str, mode: u32, content: &dyn Fn(&Path) -> Vec<u8>| {
        let (_temp, root) = tree("env", &[("bin/data", 10)]);
        let root = root.canonicalize().unwrap();
        fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        fs::write(root.join(path), content(&root)).unwrap();
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
        scanned(&root).built_for.map(|place| place == root)
    };
    let script = |root: &Path| format!("#!{}/bin/python3\nprint()\n", root.display()).into_bytes();
    let program = |root: &Path| {
        let mut bytes = [&b"\x7fELF"[..], &noise(500_000, 1)].concat();
        bytes.extend(format!("\0{}/lib\0", root.display()).into_bytes());
        bytes
    };
    let patched = |root: &Path| [&b"\x7fELF"[..], &noise(9 << 20, 1), &program(root)[500_000..]].concat();
    for (path, mode, content) in [
        ("bin/tool", 0o755, &script as &dyn Fn(&Path) -> Vec<u8>),
        ("pyvenv.cfg", 0o644, &script),
        ("lib/pkgconfig/x.pc", 0o644, &script),
        ("bin/program", 0o755, &program),
        ("bin/patched", 0o755, &patched),
    ] {
        assert_eq!(built_for(path, mode, content), Some(true), "{path}");
    }
    // Logs and notes name places too, and so do scripts of other trees.
    assert_eq!(built_for("run.log", 0o644, &script), None);
    assert_eq!(built_for("bin/tool", 0o755, &|root| script(&root.with_file_name("env2"))), None);
    assert_eq!(built_for("bin/tool", 0o755, &|_| b"#!/usr/bin/env python3\n".to_vec()), None);
    let (_temp, root) = tree("env", &[("a", 10)]);
    let options = ScanOptions { built_for: Some("/opt/env".into()), ..ScanOptions::default() };
    let told = scan(&root, &options, &Progress::new()).unwrap();
    assert_eq!(told.built_for.as_deref(), Some(Path::new("/opt/env")));
}
