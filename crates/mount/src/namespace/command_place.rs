//! The place of a tree whose manifest names none: the path that the command uses.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use tidecast_metainfo::Manifest;

/// Characters that end a path in a line of shell.
const ENDS: &[u8] = b" \t\n'\"=:,;()<>|&`$*?[]{}";

/// The one absolute path in the command's words that has the tree's name as its last component, or continues
/// into the tree after it.
#[must_use]
pub fn place_of_command(manifest: &Manifest, command: &[OsString]) -> Option<PathBuf> {
    if manifest.is_single_file() {
        return None;
    }
    let of = |path: tidecast_metainfo::TreePath<'_>| path.inner().first().map(|name| name.to_vec());
    let mut top: BTreeSet<Vec<u8>> = manifest.files().filter_map(|file| of(file.path())).collect();
    top.extend(manifest.dirs().filter_map(|dir| of(dir.path())));
    let mut found = BTreeSet::new();
    for word in command.iter().map(|word| word.as_bytes()) {
        let parts = word.split(|b| ENDS.contains(b)).chain(Some(word));
        for path in parts.filter(|part| part.starts_with(b"/")) {
            found.extend(places(path, manifest.name_bytes(), &top));
        }
    }
    let mut found = found.into_iter();
    found.next().filter(|_| found.next().is_none())
}

/// The places of a tree of this name, with these names in it, by which a path may lead into it.
fn places(path: &[u8], name: &[u8], top: &BTreeSet<Vec<u8>>) -> Vec<PathBuf> {
    let parts: Vec<&[u8]> =
        path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    let ends = (0..parts.len()).filter(|at| parts.get(*at) == Some(&name));
    let leads = |at: &usize| parts.get(at + 1).is_none_or(|next| top.contains(*next));
    let place = |at: usize| {
        let above = parts.get(..=at)?;
        let climbs = above.iter().any(|part| *part == b"..");
        (!climbs)
            .then(|| above.iter().fold(PathBuf::from("/"), |path, part| path.join(OsStr::from_bytes(part))))
    };
    ends.filter(leads).filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_into_a_tree_by_its_name_and_what_is_in_it() {
        let top: BTreeSet<Vec<u8>> = [b"bin".to_vec(), b"f".to_vec()].into();
        for (path, place) in [
            ("/opt/env/bin/python", &["/opt/env"][..]),
            ("/opt/env", &["/opt/env"]),
            ("//opt/./env//f", &["/opt/env"]),
            ("/env/env/f", &["/env/env"]),
            ("/opt/env/other", &[]),
            ("/opt/environment/bin", &[]),
            ("/opt/../env/f", &[]),
            ("/f", &[]),
        ] {
            let found = places(path.as_bytes(), b"env", &top);
            assert!(found.iter().eq(place.iter().map(std::path::Path::new)), "{path}: {found:?}");
        }
    }
}
