//! Files that change during a copy: the sent data is of one state of the file, or the file is not sent.

use std::fs::{self, File, OpenOptions, hard_link, rename};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::tests::{filled, spec, walked};
use super::*;

const OLD: u8 = 1;
const NEW: u8 = 2;

fn time() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000)
}

fn make(path: &Path, len: usize, byte: u8) {
    fs::write(path, vec![byte; len]).unwrap();
    File::options().write(true).open(path).unwrap().set_modified(time()).unwrap();
}

/// Writes into a file, and sets its time back as some programs do.
fn rewrite(path: &Path, offset: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[NEW; 100], offset).unwrap();
    file.set_modified(time()).unwrap();
}

struct Scene {
    dir: tempfile::TempDir,
    file: PathBuf,
    tree: Tree,
    jobs: Vec<Job>,
}

/// A file that was walked.
fn scene(len: usize) -> Scene {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("source/file");
    fs::create_dir(dir.path().join("source")).unwrap();
    make(&file, len, OLD);
    begun(dir, file)
}

fn begun(dir: tempfile::TempDir, file: PathBuf) -> Scene {
    let tree = Tree::new(&spec(&[dir.path().join("source/").to_str().unwrap()]), None).unwrap();
    let jobs = walked(&tree, true);
    Scene { dir, file, tree, jobs }
}

impl Scene {
    /// Another file of equal length and time takes its name.
    fn replace(&self) {
        let other = self.dir.path().join("other");
        make(&other, fs::metadata(&self.file).unwrap().len() as usize, NEW);
        rename(other, &self.file).unwrap();
    }

    /// The result for the file when `change` happens after the first of its parts; `None` if it has no root.
    fn changed(&self, change: impl FnOnce(&Self)) -> Option<Vec<u8>> {
        let is_cut = |job: &&Job| !matches!(job.0, Work::Gather(_));
        let first = self.jobs.iter().position(|job| is_cut(&job)).unwrap();
        let mut built = filled(&self.tree, &self.jobs[..=first]);
        change(self);
        let rest = filled(&self.tree, &self.jobs[first + 1..]);
        let root = built.roots.contains_key("file") || rest.roots.contains_key("file");
        let (_, mut bytes) = built.entries.remove("file").unwrap();
        let rest = rest.entries.get("file").map_or(&[][..], |(_, bytes)| bytes);
        bytes.iter_mut().zip(rest).for_each(|(to, from)| *to = (*to).max(*from));
        root.then_some(bytes)
    }

    fn is_told(&self) -> bool {
        let walked = self.tree.walked();
        let told = walked.problems.iter().any(|p| p.path.ends_with("/file") && p.what.contains("changed"));
        assert_eq!((told, walked.failed), (!walked.complete, u64::from(told)), "{walked:?}");
        told
    }
}

#[test]
fn one_that_is_replaced_is_sent_as_it_was() {
    let scene = scene(3 * BLOCK);
    assert!(scene.changed(Scene::replace).unwrap() == vec![OLD; 3 * BLOCK]);
    assert!(!scene.is_told());
}

#[test]
fn one_that_is_rewritten_is_told_although_its_time_was_set_back() {
    // Also where it was read already, at the very end, and when it is cut or grows.
    let changes: [fn(&Scene); 5] = [
        |scene| rewrite(&scene.file, 0),
        |scene| rewrite(&scene.file, 3 * BLOCK as u64 - 100),
        |scene| rewrite(&scene.file, 3 * BLOCK as u64),
        |scene| OpenOptions::new().write(true).open(&scene.file).unwrap().set_len(BLOCK as u64).unwrap(),
        |scene| make(&scene.file, 3 * BLOCK, NEW),
    ];
    for (n, change) in changes.iter().enumerate() {
        let scene = scene(3 * BLOCK);
        assert!(scene.changed(change).is_none() || n == 1, "{n}");
        assert!(scene.is_told() || n == 1, "{n}");
    }
}

#[test]
fn one_whose_name_or_mode_changes_is_the_same() {
    let scene = scene(3 * BLOCK);
    let all = scene.changed(|scene| {
        hard_link(&scene.file, scene.dir.path().join("second")).unwrap();
        fs::set_permissions(&scene.file, PermissionsExt::from_mode(0o600)).unwrap();
        rename(&scene.file, scene.dir.path().join("elsewhere")).unwrap();
    });
    assert!(all.unwrap() == vec![OLD; 3 * BLOCK] && !scene.is_told());
}

#[test]
fn a_part_that_is_read_once_more_must_be_the_same() {
    for replaced in [false, true] {
        let scene = scene(2 * BLOCK);
        filled(&scene.tree, &scene.jobs);
        if replaced {
            scene.replace();
        }
        // A stream broke.
        let again = filled(&scene.tree, &scene.jobs);
        assert_eq!((again.entries.contains_key("file"), scene.is_told()), (!replaced, replaced));
    }
}

#[test]
fn small_ones_are_sent_as_they_are_when_they_are_read() {
    let scene = scene(1000);
    scene.replace();
    fs::set_permissions(&scene.file, PermissionsExt::from_mode(0o400)).unwrap();
    let built = filled(&scene.tree, &scene.jobs);
    let (entry, bytes) = &built.entries["file"];
    assert!(*bytes == [NEW; 1000] && entry.attributes.mode == 0o400 && !scene.is_told());
}

#[test]
fn another_file_is_no_hard_link() {
    for len in [1000, 2 * BLOCK] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("source/file");
        fs::create_dir(dir.path().join("source")).unwrap();
        make(&file, len, OLD);
        hard_link(&file, dir.path().join("again")).unwrap();
        let scene = begun(dir, file);
        scene.replace();
        let built = filled(&scene.tree, &scene.jobs);
        assert!(!built.entries.contains_key("file") && scene.is_told());
    }
}

#[test]
fn a_hole_that_was_filled_is_no_hole() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("source/file");
    fs::create_dir(dir.path().join("source")).unwrap();
    let sparse = File::create(&file).unwrap();
    sparse.set_len(8 * BLOCK as u64).unwrap();
    sparse.write_all_at(&[OLD; 10], 0).unwrap();
    sparse.set_modified(time()).unwrap();
    let scene = begun(dir, file);
    assert!(scene.jobs.iter().any(|job| matches!(job.0, Work::Hole { .. })));
    // Running work continues unchanged.
    let all = scene.changed(|scene| rewrite(&scene.file, 5 * BLOCK as u64)).unwrap();
    assert!(all[..10] == [OLD; 10] && all[10..].iter().all(|byte| *byte == 0) && !scene.is_told());
    let scene = begun(scene.dir, scene.file);
    assert!(scene.jobs.iter().any(|job| matches!(job.0, Work::Hole { .. })));
    rewrite(&scene.file, 3 * BLOCK as u64);
    assert!(!filled(&scene.tree, &scene.jobs).roots.contains_key("file") && scene.is_told());
}
