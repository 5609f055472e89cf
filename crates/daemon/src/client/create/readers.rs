//! The default readers of a cache: the users who could read all its files in place. The narrowest mode counts,
//! with the directories on the path.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tidecast_paths::acl::{ATTRIBUTE, Acl};
use tidecast_publish::Tree;

use super::error::Error;

const READ: u32 = 0o4;
const ENTER: u32 = 0o1;

/// The readers, and why not more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Readers {
    /// 0o700, 0o750 or 0o755.
    pub(super) mode: u32,
    /// The group of 0o750.
    pub(super) gid: Option<u32>,
    /// The file that excludes others, with its mode.
    pub(super) narrowed_by: Option<(PathBuf, u32)>,
}

/// One file or directory, and the permissions that readers need.
struct Inode {
    path: PathBuf,
    mode: u32,
    gid: u32,
    needs: u32,
    /// Rights of its own group.
    group: u32,
    /// Its access list names a user or a group that lacks them.
    shuts_out: bool,
}

impl Inode {
    fn of(path: PathBuf, needs: u32) -> Result<Self, Error> {
        let meta = fs::symlink_metadata(&path).map_err(Error::io("stat", &path))?;
        let mode = meta.mode() & 0o7777;
        let (mut group, mut shuts_out) = (mode >> 3 & 0o7, false);
        // With an access control list these bits are its mask, not the group's permissions.
        if group & needs != 0
            && let Ok(Some(list)) = xattr(&path)
        {
            group = u32::from(list.group_rights());
            shuts_out = list.named_rights().any(|rights| u32::from(rights) & needs != needs);
        }
        Ok(Self { path, mode, gid: meta.gid(), needs, group, shuts_out })
    }

    /// All users but its owner have the needed permissions.
    fn is_open(&self) -> bool {
        !self.shuts_out && self.mode & self.needs == self.needs && self.group & self.needs == self.needs
    }

    fn is_open_to(&self, gid: u32) -> bool {
        let rights = if self.gid == gid { self.group } else { self.mode };
        !self.shuts_out && rights & self.needs == self.needs
    }
}

fn xattr(path: &Path) -> rustix::io::Result<Option<Acl>> {
    let mut value = vec![0; 64 << 10];
    let len = rustix::fs::lgetxattr(path, ATTRIBUTE, value.as_mut_slice())?;
    Ok(Acl::decode(value.get(..len).unwrap_or_default()))
}

/// The readers of a whole tree. `groups`: those of this process's user.
pub(super) fn of(tree: &Tree, groups: &[u32]) -> Result<Readers, Error> {
    let join = |below: &Path| match below.as_os_str().is_empty() {
        true => tree.root.clone(),
        false => tree.root.join(below),
    };
    let above = tree.root.ancestors().skip(1).map(|path| (path.to_owned(), ENTER));
    let dirs = tree.dirs.iter().map(|dir| (join(&dir.path), READ | ENTER));
    let is_file = |kind: &tidecast_publish::Content| matches!(kind, tidecast_publish::Content::File { .. });
    let files = tree.files.iter().filter(|file| is_file(&file.kind)).map(|file| (join(&file.path), READ));
    let (mut closed, mut gids) = (None::<Inode>, Vec::new());
    let mut open_to_group = true;
    for (path, needs) in above.chain(dirs).chain(files) {
        let inode = Inode::of(path, needs)?;
        if inode.is_open() {
            continue;
        }
        if !gids.contains(&inode.gid) {
            gids.push(inode.gid);
        }
        let is_open = gids.len() == 1 && inode.is_open_to(inode.gid);
        // A file that excludes a group is more informative than one that excludes only others.
        if closed.is_none() || open_to_group && !is_open {
            closed = Some(inode);
        }
        open_to_group &= is_open;
    }
    let Some(closed) = closed else { return Ok(Readers { mode: 0o755, gid: None, narrowed_by: None }) };
    let gid = gids.first().copied().filter(|gid| open_to_group && groups.contains(gid));
    let mode = if gid.is_some() { 0o750 } else { 0o700 };
    Ok(Readers { mode, gid, narrowed_by: Some((closed.path, closed.mode)) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;

    use tidecast_publish::{Progress, ScanOptions, scan};

    use super::*;

    /// A directory readable by all users, with `file` of this mode in `sub` of that mode.
    fn found(dir: u32, file: u32, other: u32) -> (Readers, u32) {
        let base = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let tree = base.path().join("tree");
        fs::create_dir_all(tree.join("sub")).unwrap();
        fs::write(tree.join("sub/file"), "x").unwrap();
        fs::write(tree.join("other"), "x").unwrap();
        for (path, mode) in [("sub/file", file), ("other", other), ("sub", dir), ("", 0o755)] {
            set(&tree.join(path), mode);
        }
        set(base.path(), 0o755);
        let scanned = scan(&tree, &ScanOptions::default(), &Progress::new()).unwrap();
        let gid = fs::metadata(&tree).unwrap().gid();
        (of(&scanned, &[gid]).unwrap(), gid)
    }

    #[test]
    fn whom_an_access_list_shuts_out_reads_no_cache() {
        let base = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let readers = |rights: u16, at: &str| {
            let tree = base.path().join(format!("tree{rights}{at}"));
            fs::create_dir_all(tree.join("sub")).unwrap();
            fs::write(tree.join("sub/file"), "x").unwrap();
            let list = Acl {
                owner: 7,
                users: vec![(4242, rights)],
                group: 5,
                mask: Some(5),
                others: 5,
                ..Acl::default()
            };
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(tree.join(at), ATTRIBUTE, &list.encode(), flags).ok()?;
            let scanned = scan(&tree, &ScanOptions::default(), &Progress::new()).unwrap();
            Some(of(&scanned, &[fs::metadata(&tree).unwrap().gid()]).unwrap().mode)
        };
        let Some(open) = readers(7, "sub/file") else {
            eprintln!("SKIPPED: this file system has no access control lists");
            return;
        };
        let found =
            [Some(open), readers(0, "sub/file"), readers(4, "sub"), readers(5, "sub"), readers(0, "")];
        assert_eq!(found.map(Option::unwrap), [0o755, 0o700, 0o700, 0o755, 0o700]);
    }

    #[test]
    fn the_narrowest_file_or_directory_counts() {
        for (dir, file, other, mode, what) in [
            (0o755, 0o644, 0o755, 0o755, None),
            (0o755, 0o600, 0o644, 0o700, Some("sub/file")),
            (0o755, 0o640, 0o644, 0o750, Some("sub/file")),
            (0o750, 0o644, 0o644, 0o750, Some("sub")),
            (0o700, 0o644, 0o644, 0o700, Some("sub")),
            (0o711, 0o644, 0o644, 0o700, Some("sub")),
            (0o755, 0o640, 0o600, 0o700, Some("other")),
            (0o755, 0o604, 0o644, 0o700, Some("sub/file")),
        ] {
            let (readers, gid) = found(dir, file, other);
            assert_eq!(readers.mode, mode, "{dir:o} {file:o} {other:o}");
            assert_eq!(readers.gid, (mode == 0o750).then_some(gid));
            let by = readers.narrowed_by.map(|(path, _)| path);
            assert_eq!(by.is_some(), what.is_some());
            assert!(by.is_none_or(|by| by.ends_with(what.unwrap())), "{dir:o} {file:o} {other:o}");
        }
    }
}
