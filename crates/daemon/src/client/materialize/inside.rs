//! Paths inside a cache, through the links in it.
//!
//! A part of a cache that is made somewhere else has no neighbours there: a link that leads to one of them would lead to
//! whatever has that name in the directory of the caller.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use tidecast_metainfo::Manifest;
use tidecast_publish::leads_out;

use super::error::Error;

/// Links followed on the way to one file, as by the kernel.
const LINKS: usize = 40;

/// Entries by their path, with their index in the manifest.
pub(super) type Entries = BTreeMap<PathBuf, u32>;

/// Everything in a cache.
pub(super) struct Inside<'a> {
    manifest: &'a Manifest,
    files: Entries,
    dirs: Entries,
}

impl<'a> Inside<'a> {
    pub(super) fn new(manifest: &'a Manifest) -> Self {
        let files = manifest.files().map(|f| (f.path().below(Path::new("")), f.index())).collect();
        let dirs = manifest.dirs().map(|d| (d.path().below(Path::new("")), d.index())).collect();
        Self { manifest, files, dirs }
    }

    /// The files and directories of the part at a path, by their paths below it.
    ///
    /// # Errors
    /// [`Error::Absent`]; [`Error::Outside`].
    pub(super) fn part(self, path: &Path) -> Result<(Entries, Entries), Error> {
        if path.as_os_str().is_empty() {
            return Ok((self.files, self.dirs));
        }
        let top = self.resolve(path).ok_or_else(|| Error::Outside(path.to_owned()))?;
        let (mut files, mut dirs) = (below(&self.files, &top), below(&self.dirs, &top));
        if files.is_empty() && dirs.is_empty() {
            return Err(Error::Absent(path.to_owned()));
        }
        if !top.as_os_str().is_empty() {
            self.bring_neighbours(&top, &mut files, &mut dirs)?;
        }
        Ok((files, dirs))
    }

    /// The path of a file or directory without links.
    ///
    /// # Errors
    /// [`Error::Absent`]; [`Error::Outside`].
    pub(super) fn real(&self, path: &Path) -> Result<PathBuf, Error> {
        let real = self.resolve(path).ok_or_else(|| Error::Outside(path.to_owned()))?;
        let there = |entries: &Entries| entries.keys().any(|entry| entry.starts_with(&real));
        if there(&self.files) || there(&self.dirs) { Ok(real) } else { Err(Error::Absent(path.to_owned())) }
    }

    /// Puts what links of the part lead to in their places, where that is in the cache and not in the part.
    fn bring_neighbours(&self, top: &Path, files: &mut Entries, dirs: &mut Entries) -> Result<(), Error> {
        let links: Vec<(PathBuf, PathBuf)> =
            files.keys().filter_map(|link| Some((link.clone(), self.neighbour(top, link)?))).collect();
        for (link, to) in links {
            if let Some(index) = self.files.get(&to) {
                files.insert(link, *index);
                continue;
            }
            files.remove(&link);
            for (path, index) in below(&self.files, &to) {
                // It would have to be followed in turn, and may lead round in a circle.
                if self.target(index).is_some_and(|target| leads_out(&path, &target)) {
                    return Err(Error::Outside(join(top, &join(&link, &path))));
                }
                files.insert(join(&link, &path), index);
            }
            dirs.extend(below(&self.dirs, &to).into_iter().map(|(path, index)| (join(&link, &path), index)));
        }
        Ok(())
    }

    /// The file or directory of the cache to which a link of a part leads that leaves the part.
    fn neighbour(&self, top: &Path, link: &Path) -> Option<PathBuf> {
        let path = join(top, link);
        let target = self.target(*self.files.get(&path)?)?;
        if !leads_out(link, &target) {
            return None;
        }
        let to = self.resolve(&path)?;
        (self.files.contains_key(&to) || self.dirs.contains_key(&to)).then_some(to)
    }

    fn target(&self, file: u32) -> Option<PathBuf> {
        let target = self.manifest.file(file)?.symlink()?;
        Some(PathBuf::from(OsStr::from_bytes(&target)))
    }

    /// A path without links; `None` if it leads out of the cache, or round in a circle.
    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        let (mut at, mut links) = (PathBuf::new(), 0);
        let mut left: VecDeque<OsString> = parts(path)?;
        while let Some(name) = left.pop_front() {
            if name == ".." {
                if !at.pop() {
                    return None;
                }
                continue;
            }
            let next = at.join(&name);
            let Some(target) = self.files.get(&next).and_then(|file| self.target(*file)) else {
                at = next;
                continue;
            };
            links += 1;
            if links > LINKS {
                return None;
            }
            for part in parts(&target)?.into_iter().rev() {
                left.push_front(part);
            }
        }
        Some(at)
    }
}

/// The names of a relative path, `..` among them.
fn parts(path: &Path) -> Option<VecDeque<OsString>> {
    let mut parts = VecDeque::new();
    for part in path.components() {
        match part {
            Component::Normal(_) | Component::ParentDir => parts.push_back(part.as_os_str().to_owned()),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts)
}

fn below(entries: &Entries, top: &Path) -> Entries {
    let below = |(path, index): (&PathBuf, &u32)| Some((path.strip_prefix(top).ok()?.to_owned(), *index));
    entries.iter().filter_map(below).collect()
}

/// `""` joined would add a slash.
pub(super) fn join(path: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { path.to_owned() } else { path.join(below) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::os::unix::fs::symlink;

    use tidecast_metainfo::Version;
    use tidecast_publish::{Format, HashOptions, Progress, ScanOptions, hash, scan};

    use super::*;

    fn manifest() -> Manifest {
        let base = tempfile::tempdir().unwrap();
        let tree = base.path().join("tree");
        fs::create_dir_all(tree.join("sub/deep")).unwrap();
        fs::create_dir(tree.join("round")).unwrap();
        for file in ["v2", "sub/own", "sub/deep/file"] {
            fs::write(tree.join(file), file).unwrap();
        }
        for (to, link) in [
            ("v2", "current"),
            ("../current", "sub/db"),
            ("own", "sub/same"),
            ("../sub/own", "sub/by-its-name"),
            ("sub", "linked"),
            ("../sub/deep", "round/deep"),
            ("/etc/hostname", "host"),
            ("../beside", "above"),
            ("loop", "loop"),
        ] {
            symlink(to, tree.join(link)).unwrap();
        }
        let scanned = scan(&tree, &ScanOptions::default(), &Progress::new()).unwrap();
        let exactly = HashOptions { format: Format::Exactly(Version::V2), ..HashOptions::default() };
        hash(&scanned, &exactly, &Progress::new(), |_| {}).unwrap().manifest
    }

    /// What is made for a path: names, and the published paths of the files that they get.
    fn made(manifest: &Manifest, path: &str) -> Result<Vec<(String, String)>, Error> {
        let (files, _) = Inside::new(manifest).part(Path::new(path))?;
        let text = |path: &Path| path.display().to_string();
        let of = |file: u32| text(&manifest.file(file).unwrap().path().below(Path::new("")));
        Ok(files.iter().map(|(name, file)| (text(name), of(*file))).collect())
    }

    #[test]
    fn links_to_neighbours_become_what_they_lead_to() {
        let manifest = manifest();
        let pairs = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            all.iter().map(|(name, of)| ((*name).into(), (*of).into())).collect()
        };
        assert_eq!(made(&manifest, "current").unwrap(), pairs(&[("", "v2")]));
        assert_eq!(made(&manifest, "sub/db").unwrap(), pairs(&[("", "v2")]));
        assert_eq!(made(&manifest, "linked/own").unwrap(), pairs(&[("", "sub/own")]));
        let sub = pairs(&[
            ("by-its-name", "sub/own"),
            ("db", "v2"),
            ("deep/file", "sub/deep/file"),
            ("own", "sub/own"),
            ("same", "sub/same"),
        ]);
        assert_eq!(made(&manifest, "sub").unwrap(), sub);
        assert_eq!(made(&manifest, "linked").unwrap(), sub);
        assert_eq!(made(&manifest, "round").unwrap(), pairs(&[("deep/file", "sub/deep/file")]));
        let (_, dirs) = Inside::new(&manifest).part(Path::new("round")).unwrap();
        assert!(dirs.contains_key(Path::new("deep")) && dirs.contains_key(Path::new("")));
        assert_eq!(made(&manifest, "").unwrap().len(), 12, "the whole is as it was published");
    }

    #[test]
    fn what_is_not_in_the_cache_is_refused() {
        let manifest = manifest();
        let real = |path: &str| Inside::new(&manifest).real(Path::new(path));
        for out in ["host", "host/below", "above", "above/below", "loop", "linked/../../above/x"] {
            assert!(matches!(made(&manifest, out), Err(Error::Outside(_))), "{out}");
            assert!(matches!(real(out), Err(Error::Outside(_))), "{out}");
        }
        for absent in ["none", "current/none", "v2/none", "linked/none"] {
            assert!(matches!(made(&manifest, absent), Err(Error::Absent(_))), "{absent}");
            assert!(matches!(real(absent), Err(Error::Absent(_))), "{absent}");
        }
        for (path, to) in [
            ("current", "v2"),
            ("linked/deep/file", "sub/deep/file"),
            ("round/deep", "sub/deep"),
            ("sub", "sub"),
        ] {
            assert_eq!(real(path).unwrap(), Path::new(to), "{path}");
        }
    }
}
