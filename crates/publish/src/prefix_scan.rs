//! Whether a tree names the place where it is: a software environment does, in the first lines of its scripts, in the library
//! paths of its programs and in files of its tools. Only then does its manifest record the place, for `run` to show it there.
//! Other trees are the same wherever they lie, and so are their manifests.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes looked at of a script, and of a file of a tool.
const SCRIPT: u64 = 4 << 10;
const FILE: u64 = 64 << 10;
/// Bytes looked at from the start and from the end of a program: where linkers, and tools that change paths later, put them.
const PROGRAM: u64 = 1 << 20;
/// Bytes looked at of a whole tree. A tree that has named its place nowhere by then needs it for little.
const BUDGET: u64 = 64 << 20;
/// The first bytes of an ELF file.
const ELF: &[u8] = b"\x7fELF";
/// Names and suffixes of files other than programs into which tools write the path of a tree.
const NAMES: &[&str] = &["pyvenv.cfg", "activate", "activate.csh", "activate.fish", "orte-info.txt"];
const SUFFIXES: &[&str] = &[".pc", ".la", ".cmake", ".pth", ".prl", ".lua"];

/// The search for a tree's own place in its files.
#[derive(Debug)]
pub(crate) struct PrefixScan {
    /// As the user wrote it, and without links.
    places: Vec<PathBuf>,
    left: u64,
    found: Option<PathBuf>,
}

impl PrefixScan {
    pub(crate) fn new(given: &Path, root: &Path) -> Self {
        let mut places = vec![root.to_path_buf()];
        places.extend(std::path::absolute(given).ok().filter(|path| path != root));
        Self { places, left: BUDGET, found: None }
    }

    /// The place that the tree names, if it does.
    pub(crate) fn found(self) -> Option<PathBuf> {
        self.found
    }

    /// Searches a file, if it is of a kind that may name the path. Read errors are left to hashing.
    pub(crate) fn look(&mut self, name: &OsStr, mode: u32, file: &File, len: u64) {
        let text = name.to_str().unwrap_or_default();
        let kind = NAMES.contains(&text) || SUFFIXES.iter().any(|suffix| text.ends_with(suffix));
        if self.found.is_some() || self.left == 0 || len == 0 || !(kind || mode & 0o111 != 0) {
            return;
        }
        let head = self.read(file, 0, len.min(if kind { FILE } else { SCRIPT }));
        if !head.starts_with(ELF) {
            return self.search(&head);
        }
        let start = self.read(file, 0, len.min(PROGRAM));
        self.search(&start);
        if self.found.is_none() && len > PROGRAM {
            let from = PROGRAM.max(len - PROGRAM.min(len));
            let end = self.read(file, from, len - from);
            self.search(&end);
        }
    }

    /// Looks at the text of a link.
    pub(crate) fn look_at_link(&mut self, target: &Path) {
        if self.found.is_none() {
            self.found = self.places.iter().find(|place| target.starts_with(place)).cloned();
        }
    }

    fn read(&mut self, file: &File, from: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(len.min(self.left)).unwrap_or(0)];
        self.left -= bytes.len() as u64;
        match file.read_exact_at(&mut bytes, from) {
            Ok(()) => bytes,
            Err(_) => Vec::new(),
        }
    }

    fn search(&mut self, bytes: &[u8]) {
        self.found = self.places.iter().find(|place| names(bytes, place.as_os_str().as_bytes())).cloned();
    }
}

/// Whether a path stands in `bytes`, and not as a part of another one.
fn names(bytes: &[u8], path: &[u8]) -> bool {
    let of_name = |b: u8| b.is_ascii_alphanumeric() || b >= 0x80 || matches!(b, b'.' | b'_' | b'-' | b'+');
    memchr::memmem::find_iter(bytes, path).any(|at| {
        let (before, after) = (bytes.get(..at).unwrap_or_default(), bytes.get(at + path.len()));
        // -L/opt/env/lib, and then any byte that cannot continue a path.
        let flag = matches!(before, [.., b'-', letter] if letter.is_ascii_alphabetic());
        let apart = before.last().is_none_or(|b| flag || !of_name(*b) && *b != b'/');
        apart && after.is_none_or(|b| !of_name(*b))
    })
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_path_is_found_as_a_whole_only() {
        for text in [
            "#!/opt/env/bin/python3 -E",
            "/opt/env",
            "home=\"/opt/env\"",
            "-L/opt/env/lib",
            "a:/opt/env:b",
            "x\0/opt/env/lib\0",
        ] {
            assert!(names(text.as_bytes(), b"/opt/env"), "{text}");
        }
        for text in
            ["", "/opt/en", "/opt/env2/bin", "/opt/env-old", "/mnt/opt/env/bin", "../opt/env/x", "//opt/env"]
        {
            assert!(!names(text.as_bytes(), b"/opt/env"), "{text}");
        }
        assert!(!names(b"lib/data/x", b"/data"));
    }
}
