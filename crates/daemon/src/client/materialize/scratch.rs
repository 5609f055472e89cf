//! The name under which something is made before it takes its own. A lock beside it is held meanwhile: what a killed process has left is
//! told by that, and removed by the next process that makes something there.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use tidecast_paths::{Lock, Root};

const PREFIX: &str = ".tidecast-get-";
const LOCK: &str = ".lock";

/// See the head of this file.
pub(super) struct Scratch {
    pub(super) name: OsString,
    /// None on a file system without locks: what is left there stays.
    lock: Option<Lock>,
}

impl Scratch {
    /// Chooses a name, and removes what is left of others.
    pub(super) fn new(root: &Root) -> Self {
        remove_left(root);
        let name = OsString::from(format!("{PREFIX}{:016x}", rand::random::<u64>()));
        let lock = root.lock(lock_of(&name)).ok().flatten();
        Self { name, lock }
    }

    /// Removes what still has the name.
    pub(super) fn remove(self, root: &Root) {
        remove(root, &self.name);
        // Held until the name is gone.
        drop(self.lock);
    }
}

fn lock_of(name: &OsStr) -> OsString {
    let mut lock = name.to_owned();
    lock.push(LOCK);
    lock
}

/// What cannot be removed now is left for the next process.
fn remove(root: &Root, name: &OsStr) {
    let gone = match root.look(name) {
        Ok(Some(_)) => root.remove_all(name).is_ok(),
        other => other.is_ok(),
    };
    if gone {
        let _ = root.remove_file(lock_of(name));
    }
}

/// Removes what killed processes of this user have left.
fn remove_left(root: &Root) {
    let me = rustix::process::geteuid().as_raw();
    for lock in root.list("").unwrap_or_default() {
        let name = lock.as_bytes().strip_suffix(LOCK.as_bytes()).unwrap_or_default();
        let number = name.strip_prefix(PREFIX.as_bytes()).unwrap_or_default();
        let is_one = number.len() == 16 && number.iter().all(u8::is_ascii_hexdigit);
        if !is_one || !matches!(root.look(&lock), Ok(Some(meta)) if meta.uid == me) {
            continue;
        }
        if let Ok(Some(held)) = root.lock(&lock) {
            remove(root, OsStr::from_bytes(name));
            drop(held);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_goes_and_what_is_in_use_stays() {
        let at = tempfile::tempdir().unwrap();
        let root = Root::open(at.path()).unwrap();
        let used = Scratch::new(&root);
        root.make_dir(&used.name, 0o700).unwrap();
        let left = ".tidecast-get-00112233aabbccdd";
        std::fs::create_dir_all(at.path().join(left).join("below")).unwrap();
        std::fs::write(at.path().join(left).join("below/file"), "data").unwrap();
        std::fs::write(at.path().join(format!("{left}.lock")), "").unwrap();
        // One without a lock may be of a file system without locks, and others are no such names.
        let others = [".tidecast-get-0011223344556677", ".tidecast-get-thesis.lock"];
        others.iter().for_each(|name| std::fs::create_dir(at.path().join(name)).unwrap());
        let another = Scratch::new(&root);
        assert!(!at.path().join(left).exists() && at.path().join(&used.name).exists());
        another.remove(&root);
        used.remove(&root);
        let mut names: Vec<_> =
            std::fs::read_dir(at.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, others);
    }
}
