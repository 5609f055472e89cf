//! Access to many names of one directory, one after the other.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use tidecast_paths::{Meta, Root};

use crate::error::{Context, Error};
use crate::layout::Layout;

/// Keeps open the directory that it used last. Each lookup of a path resolves every directory on it again, which
/// costs more than most operations on the name itself.
///
/// The directory is resolved beneath the store's open directory and through no link, and a name is looked up in the open
/// directory alone. If the directory is moved and a link takes its place, the operations stay in the directory.
pub(crate) struct OpenDir<'l> {
    layout: &'l Layout,
    last: Option<(PathBuf, Root)>,
}

impl<'l> OpenDir<'l> {
    pub(crate) fn new(layout: &'l Layout) -> Self {
        OpenDir { layout, last: None }
    }

    /// The directory that holds a path of the store, open, and the name in it.
    pub(crate) fn find<'p>(&mut self, path: &'p Path) -> io::Result<(&Root, &'p OsStr)> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let parent = path.parent().ok_or(Errno::INVAL)?;
        // Bytes, not components: this runs for each name. Two spellings of a path only cost one more lookup.
        let last = self.last.take().filter(|(dir, _)| dir.as_os_str() == parent.as_os_str());
        let last = match last {
            Some(last) => last,
            None => (parent.to_path_buf(), self.layout.dir.sub(self.layout.beneath(parent)?)?),
        };
        let (_, dir) = self.last.insert(last);
        Ok((dir, name))
    }

    /// Opens a regular file, not a link.
    pub(crate) fn open(&mut self, path: &Path) -> io::Result<File> {
        let (dir, name) = self.find(path)?;
        dir.open_file(name)
    }

    /// The metadata of a name; of a link, the link's.
    pub(crate) fn look(&mut self, path: &Path) -> io::Result<Meta> {
        let (dir, name) = self.find(path)?;
        dir.stat(name)
    }

    /// Removes a file; a missing one is no error.
    pub(crate) fn remove_file(&mut self, path: &Path) -> Result<(), Error> {
        match self.find(path).and_then(|(dir, name)| dir.remove_file(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.at("remove", path),
        }
    }

    /// Gives a file another name, which is looked up by `to`.
    pub(crate) fn link(&mut self, from: &Path, to: &mut OpenDir<'_>, path: &Path) -> io::Result<()> {
        let (from, old) = self.find(from)?;
        let (to, new) = to.find(path)?;
        from.link_to(old, to, new)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_in_place_of_the_open_directory_leads_nowhere() {
        let tmp = tempfile::tempdir().unwrap();
        let (store, outside) = (tmp.path().join("store"), tmp.path().join("outside"));
        let (dir, aside) = (store.join("objects"), tmp.path().join("aside"));
        for dir in [&dir, &store.join("caches"), &outside] {
            fs::create_dir_all(dir).unwrap();
            fs::write(dir.join("f"), "file").unwrap();
            fs::write(dir.join("g"), "file").unwrap();
        }
        let layout = Layout::open_root(store.clone()).unwrap();
        let (mut open_dir, mut other) = (OpenDir::new(&layout), OpenDir::new(&layout));
        open_dir.look(&dir.join("f")).unwrap();
        fs::rename(&dir, &aside).unwrap();
        symlink(&outside, &dir).unwrap();
        // It stays in the directory that it opened.
        open_dir.remove_file(&dir.join("f")).unwrap();
        open_dir.link(&dir.join("g"), &mut other, &store.join("caches/new")).unwrap();
        assert!(!aside.join("f").exists() && outside.join("f").exists());
        // After another directory, it meets the link.
        open_dir.look(&store.join("caches/f")).unwrap();
        for refused in [open_dir.look(&dir.join("f")).err(), open_dir.find(&dir.join("f")).err()] {
            assert!(tidecast_paths::is_link(&refused.unwrap()));
        }
        assert!(open_dir.remove_file(&dir.join("f")).is_err() && outside.join("f").exists());
        assert!(open_dir.look(&tmp.path().join("outside/f")).is_err(), "it is not beneath the store");
        open_dir.remove_file(&store.join("none/f")).unwrap();
        open_dir.look(&store.join("caches/f")).unwrap();
    }
}
