#![allow(clippy::unwrap_used)]
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tidecast_metainfo::{Builder, Content, Entry, Version};

use super::*;

fn entry(path: &str, content: Content) -> Entry {
    Entry { path: path.into(), content, mode: None, mtime: None, xattrs: Vec::new() }
}

fn file(path: &str, len: u64) -> Entry {
    entry(path, Content::File { len, executable: false, holes: vec![], hard_link: None })
}

fn link(path: &str, to: &str) -> Entry {
    entry(path, Content::Symlink(to.into()))
}

fn tree(entries: Vec<Entry>) -> Tree {
    let manifest = Builder::new(b"top", Version::V2, 16384, entries).unwrap().draft().unwrap();
    Tree::new(Arc::new(manifest), (7, 8))
}

/// The object at a path without symbolic links.
fn at(tree: &Tree, path: &str) -> Option<Node> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.into_iter().try_fold(Node::Dir(0), |node, part| match node {
        Node::Dir(dir) => tree.lookup(dir, part.as_bytes()),
        Node::File(_) => None,
    })
}

#[test]
fn paths_are_followed_to_files() {
    let links = [link("lib64", "lib"), link("lib/x.so", "deep/x.so.1")];
    let tree = tree([&links[..], &[file("lib/deep/x.so.1", 3), entry("empty", Content::Directory)]].concat());
    let find = |path: &[u8]| walk::find(&tree, b"/opt/env", path).map(|found| found.path);
    assert_eq!(find(b"/opt/env/lib64/x.so").unwrap(), b"/opt/env/lib/deep/x.so.1");
    assert_eq!(find(b"/opt/env/lib64/../lib/deep/x.so.1").unwrap(), b"/opt/env/lib/deep/x.so.1");
    assert_eq!((find(b"/opt/env/empty"), find(b"/opt/env/lib/y"), find(b"/lib/x.so")), (None, None, None));
}

#[test]
fn attributes_are_those_that_were_published() {
    let linked =
        Content::File { len: 5, executable: false, holes: vec![], hard_link: Some(b"a/one".to_vec()) };
    let mut plain = file("a/one", 5);
    plain.mode = Some(0o640);
    plain.mtime = Some(Mtime { secs: -2, nanos: 500_000_000 });
    plain.xattrs = vec![(b"user.k".to_vec(), b"v".to_vec())];
    let run = Content::File { len: 20_000, executable: true, holes: vec![], hard_link: None };
    let tree = tree(vec![plain, entry("b/two", linked), entry("run", run), link("l", "a/one")]);
    let attr = |path: &str| tree.attr(at(&tree, path).unwrap());
    let one = attr("a/one");
    assert_eq!((one.perm, one.size, one.nlink, one.uid, one.gid), (0o640, 5, 2, 7, 8));
    assert_eq!(one.mtime, UNIX_EPOCH - Duration::from_millis(1500));
    assert_eq!(attr("b/two").ino, one.ino);
    assert_eq!((attr("run").perm, attr("run").nlink, attr("run").blocks), (0o755, 1, 40));
    assert_eq!((attr("").nlink, attr("").kind), (4, FileType::Directory));
    let own = at(&tree, "l").unwrap();
    assert_eq!((tree.kind(own), tree.attr(own).size), (FileType::Symlink, 5));
    assert_eq!(tree.xattrs(at(&tree, "a/one").unwrap()), [(&b"user.k"[..], &b"v"[..])]);
    assert!(tree.has_xattrs() && !self::tree(vec![file("x", 1)]).has_xattrs());
}

#[test]
fn a_file_published_alone_lies_in_a_directory() {
    let tree = tree(vec![file("", 100)]);
    let node = tree.lookup(0, b"top").unwrap();
    assert_eq!((node, tree.attr(node).size, tree.entries()), (Node::File(0), 100, 2));
    assert_eq!(tree.path(0), b"top");
    assert_eq!(
        (tree.at(INodeNo(0)), tree.at(INodeNo(1)), tree.at(INodeNo(3))),
        (None, Some(Node::Dir(0)), None)
    );
}

proptest! {
    /// Whatever the tree: exactly the published names are found, each in its directory, and listed in order.
    #[test]
    fn names_and_numbers_are_one_to_one(paths in prop::collection::btree_set("[ab]{1,3}(/[ab]{1,2}){0,3}", 0..40)) {
        // A file whose path is also a directory is left out.
        let is_dir = |p: &String| paths.iter().any(|q| q.starts_with(&format!("{p}/")));
        let files: BTreeSet<String> = paths.iter().filter(|p| !is_dir(p)).cloned().collect();
        prop_assume!(!files.is_empty());
        let tree = tree(files.iter().map(|p| file(p, 1)).collect());
        let mut seen = BTreeMap::new();
        let mut todo = vec![(0u32, String::new())];
        while let Some((dir, path)) = todo.pop() {
            prop_assert_eq!(tree.at(tree.ino(Node::Dir(dir))), Some(Node::Dir(dir)));
            let names: Vec<Vec<u8>> = tree.children(dir, 0).map(|c| c.name.to_vec()).collect();
            prop_assert!(names.is_sorted());
            prop_assert_eq!(tree.children(dir, names.len().min(2)).count(), names.len() - names.len().min(2));
            for child in tree.children(dir, 0) {
                prop_assert_eq!(tree.lookup(dir, child.name), Some(child.node));
                let path = format!("{path}{}", String::from_utf8_lossy(child.name));
                match child.node {
                    Node::Dir(below) => {
                        prop_assert_eq!(tree.parent(below), dir);
                        todo.push((below, path + "/"));
                    }
                    Node::File(_) => {
                        let number = tree.ino(child.node);
                        prop_assert_eq!(tree.at(number), Some(child.node));
                        prop_assert!(seen.insert(number.0, path).is_none());
                    }
                }
            }
            prop_assert_eq!(tree.lookup(dir, b"c"), None);
        }
        prop_assert_eq!(seen.into_values().collect::<BTreeSet<_>>(), files);
    }
}
