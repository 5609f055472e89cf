//! Without root, this user's own files stand for another user's: the checks run as for the next user ID. As root they are given
//! to another user.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;
use tidecast_metainfo::{Manifest, Version};
use tidecast_publish::{Format, HashOptions, Progress, ScanOptions, hash, scan};

use tidecast_paths::Access;

use super::super::found::Owners;
use super::super::{How, Wanted, relink};
use super::*;

const MALLORY: u32 = 61002;
const TMP: u32 = 0o1777;

/// A cache's source `tree`, and a place `to` where another user has put a copy of it.
struct Scene {
    base: TempDir,
    manifest: Manifest,
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// As this user sees a directory of root with this mode.
fn directory(mode: u32) -> Owners {
    let me = rustix::process::geteuid().as_raw();
    Owners { me: if me == 0 { 61001 } else { me + 1 }, dir: Access { owner: 0, mode } }
}

fn all(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    if path.symlink_metadata().unwrap().is_dir() {
        found.extend(fs::read_dir(path).unwrap().flat_map(|entry| all(&entry.unwrap().path())));
    }
    found
}

fn give(path: &Path, uid: u32) {
    if is_root() {
        all(path).iter().for_each(|path| lchown(path, Some(uid), Some(uid)).unwrap());
    }
}

/// With modes, times and owners.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

impl Scene {
    fn new() -> Self {
        let base = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
        let tree = base.path().join("tree");
        fs::create_dir_all(tree.join("in")).unwrap();
        fs::write(tree.join("in/file"), vec![7; 40_000]).unwrap();
        fs::write(tree.join("in/empty"), "").unwrap();
        symlink("in/file", tree.join("link")).unwrap();
        let scanned = scan(&tree, &ScanOptions::default(), &Progress::new()).unwrap();
        let exactly = HashOptions { format: Format::Exactly(Version::V2), ..HashOptions::default() };
        let manifest = hash(&scanned, &exactly, &Progress::new(), |_| {}).unwrap().manifest;
        fs::create_dir(base.path().join("to")).unwrap();
        let scene = Self { base, manifest };
        copy(&scene.source(), &scene.planted());
        give(&scene.planted(), MALLORY);
        scene
    }

    fn source(&self) -> PathBuf {
        self.base.path().join("tree")
    }

    fn planted(&self) -> PathBuf {
        self.base.path().join("to/tree")
    }

    fn stands(&self, owners: Owners, view: Option<&Path>, subpath: &str, force: bool) -> Result<bool, Error> {
        let dir = self.planted().join(subpath).parent().unwrap().to_owned();
        let name = self.planted().join(subpath).file_name().unwrap().to_owned();
        let wanted = Wanted { dir, name, subpath: subpath.into(), how: How::Copy, force };
        let mut making = Making::new(&self.manifest, &wanted, view)?;
        making.owners = owners;
        making.stands()
    }
}

fn refused(stands: Result<bool, Error>) -> PathBuf {
    match stands {
        Err(Error::Foreign { path, why }) if why.contains("belongs to another user") => path,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tree_or_file_of_another_user_does_not_count_where_all_create_names() {
    let scene = Scene::new();
    for mode in [TMP, 0o777, 0o1770] {
        for subpath in ["", "in", "in/file", "in/empty", "link"] {
            let path = refused(scene.stands(directory(mode), None, subpath, false));
            assert_eq!(path, join(&scene.planted(), Path::new(subpath)));
        }
    }
    refused(scene.stands(directory(TMP), None, "", true));
    assert!(!scene.stands(directory(0o777), None, "", true).unwrap(), "it can be replaced");
    for mode in [0o755, 0o2775] {
        assert!(scene.stands(directory(mode), None, "", false).unwrap(), "a group works together");
    }
}

#[test]
fn ones_own_tree_counts_as_long_as_it_is_the_same() {
    let scene = Scene::new();
    let mut owners = directory(TMP);
    give(&scene.planted(), owners.me);
    owners.me = fs::symlink_metadata(scene.planted()).unwrap().uid();
    for subpath in ["", "in", "in/file", "in/empty"] {
        assert!(scene.stands(owners, None, subpath, false).unwrap(), "{subpath}");
    }
    fs::write(scene.planted().join("more"), "x").unwrap();
    assert!(matches!(scene.stands(owners, None, "", false), Err(Error::Exists(_))));
    fs::remove_file(scene.planted().join("more")).unwrap();
    fs::remove_file(scene.planted().join("link")).unwrap();
    assert!(matches!(scene.stands(owners, None, "", false), Err(Error::Exists(_))));
    assert!(!scene.stands(owners, None, "", true).unwrap());
    fs::remove_file(scene.planted().join("in/empty")).unwrap();
    fs::remove_file(scene.planted().join("in/file")).unwrap();
    fs::remove_dir(scene.planted().join("in")).unwrap();
    symlink(scene.source().join("in"), scene.planted().join("in")).unwrap();
    assert!(matches!(scene.stands(owners, None, "", false), Err(Error::Exists(_))));
}

#[test]
fn each_file_directory_and_link_of_ones_own_tree_is_ones_own() {
    if !is_root() {
        return;
    }
    let (scene, owners) = (Scene::new(), directory(TMP));
    for one in ["in", "in/file", "in/empty", "link"] {
        give(&scene.planted(), owners.me);
        lchown(scene.planted().join(one), Some(MALLORY), None).unwrap();
        for mode in [TMP, 0o755] {
            assert_eq!(refused(scene.stands(directory(mode), None, "", false)), scene.planted().join(one));
        }
        assert!(!scene.stands(owners, None, "", true).unwrap());
    }
    give(&scene.planted(), 0);
    assert!(scene.stands(owners, None, "", false).unwrap(), "root is trusted");
}

#[test]
fn a_hard_link_to_the_store_counts_and_a_directory_of_its_owner_does_not() {
    let scene = Scene::new();
    let (view, file) = (scene.source(), scene.planted().join("in/file"));
    give(&view, 61003);
    fs::remove_file(&file).unwrap();
    fs::hard_link(view.join("in/file"), &file).unwrap();
    assert!(scene.stands(directory(TMP), Some(&view), "in/file", false).unwrap());
    refused(scene.stands(directory(TMP), None, "in/file", false));
    if is_root() {
        let owners = directory(TMP);
        for path in all(&scene.planted()).iter().filter(|path| **path != file) {
            lchown(path, Some(owners.me), None).unwrap();
        }
        assert!(scene.stands(owners, Some(&view), "", false).unwrap());
        // An earlier file of the same store.
        fs::remove_file(&file).unwrap();
        copy(&view.join("in/file"), &file);
        assert!(scene.stands(owners, Some(&view), "", false).unwrap());
        lchown(scene.planted().join("in"), Some(61003), None).unwrap();
        refused(scene.stands(owners, Some(&view), "", false));
    }
}

#[test]
fn a_link_of_another_user_does_not_count_wherever_it_leads() {
    let base = tempfile::tempdir().unwrap();
    fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (root, path) = (Root::open(base.path()).unwrap(), base.path().join("ct"));
    let target = Path::new("/var/lib/tidecast/caches/00000000000000ff/tree/ct");
    for there in [target, Path::new("/d/caches/00000000000000fe/tree/ct"), Path::new("/tmp/evil")] {
        symlink(there, &path).unwrap();
        give(&path, MALLORY);
        refused(relink(target, &root, directory(TMP), &path, false).map(|_| true));
        refused(relink(target, &root, directory(TMP), &path, true).map(|_| true));
        refused(relink(target, &root, directory(0o777), &path, false).map(|_| true));
        assert_eq!(fs::read_link(&path).unwrap(), there);
        assert_eq!(relink(target, &root, directory(0o777), &path, true).unwrap(), path);
        assert_eq!(fs::read_link(&path).unwrap(), target);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 1, "nothing is left beside it");
        fs::remove_file(&path).unwrap();
    }
}
