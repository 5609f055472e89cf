//! Comparing a view with its manifest.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tidecast_metainfo::{FileRef, Manifest};

use crate::layout::Layout;
use crate::object::{self, ObjectKey};
use crate::open_dir::OpenDir;
use crate::root::root_of;

/// The state of a name in a view.
enum Found {
    Right,
    Wrong,
    /// Right if its inode is this object's, or has the same content.
    Inode(ObjectKey, (u64, u64)),
}

/// The files of the view at `top` that differ from the manifest, in its order. A content may have several inodes, where the
/// number of links is limited: an inode that is not the object's is read.
pub(crate) fn differing<'m>(layout: &Layout, manifest: &'m Manifest, top: &Path) -> Vec<FileRef<'m>> {
    let (mut placed, mut wrong, mut inodes) = (OpenDir::new(layout), Vec::new(), Vec::new());
    for file in manifest.files() {
        match find(&mut placed, file, &file.path().below(top)) {
            Found::Wrong => wrong.push(file),
            Found::Right => {}
            Found::Inode(key, inode) => inodes.push((key, inode, file)),
        }
    }
    // By key: objects of one directory follow each other.
    inodes.sort_unstable_by_key(|(key, _, file)| (*key, file.index()));
    let mut stored = OpenDir::new(layout);
    for (key, inode, file) in inodes {
        if stored.look(&layout.object(&key)).is_ok_and(|m| m.id == inode) {
            continue;
        }
        let root = layout.open(&file.path().below(top)).and_then(|f| root_of(&f, file.len()));
        if root.ok() != Some(key.root) {
            wrong.push(file);
        }
    }
    wrong.sort_unstable_by_key(|file| file.index());
    wrong
}

fn find(open_dir: &mut OpenDir<'_>, file: FileRef<'_>, path: &Path) -> Found {
    let right = |right| if right { Found::Right } else { Found::Wrong };
    let Ok((dir, name)) = open_dir.find(path) else { return Found::Wrong };
    let Ok(meta) = dir.stat(name) else { return Found::Wrong };
    if let Some(target) = file.symlink() {
        return right(dir.read_link(name).is_ok_and(|t| t.as_bytes() == &*target));
    }
    let is_right = meta.is_mine() && meta.len == file.len() && meta.mode & 0o777 == object::mode(file);
    if !meta.is_file() || !is_right {
        return Found::Wrong;
    }
    match ObjectKey::of(file).filter(|_| !file.is_empty()) {
        Some(key) => Found::Inode(key, meta.id),
        None => Found::Right,
    }
}
