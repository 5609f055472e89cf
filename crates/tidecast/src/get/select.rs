//! `--file GLOB`, or `so=` of a magnet link: which files of a manifest are wanted.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;

use globset::{GlobBuilder, GlobMatcher};
use tidecast_event::Error;
use tidecast_metainfo::Manifest;
use tidecast_store::Select;

/// The files with these numbers, as a magnet link gives them (BEP 53); none for all. Numbers that the manifest does not have, and
/// those of padding, select nothing.
///
/// # Errors
/// Nothing is selected.
pub(super) fn by_number(manifest: &Manifest, numbers: &[RangeInclusive<u32>]) -> Result<Select, Error> {
    if numbers.is_empty() {
        return Ok(Select::All);
    }
    let listed = manifest.listed();
    let last = u32::try_from(listed.len().saturating_sub(1)).unwrap_or(u32::MAX);
    let mut files = BTreeSet::new();
    for range in numbers {
        let part = *range.start() as usize..=(*range.end()).min(last) as usize;
        files.extend(listed.get(part).unwrap_or_default().iter().flatten());
    }
    if files.is_empty() {
        let why =
            "so= of the magnet link selects no file: `tidecast show --json` lists their numbers (index)";
        return Err(Error::fault(format!("{why}; the last is {last}")));
    }
    Ok(Select::Files(files.into_iter().collect()))
}

/// The files that match any of the patterns. A pattern with a `/` is compared with the path below the published
/// directory, which may be named before it, as `show` lists it; one without with the name at any depth; one that matches a
/// directory selects all below it. A name that exists is taken as it is, whatever it would mean as a glob.
///
/// # Errors
/// A malformed pattern is a usage error; one that matches nothing, the data's fault.
pub(super) fn select(manifest: &Manifest, patterns: &[OsString]) -> Result<Select, Error> {
    let mut chosen = vec![false; manifest.file_count() as usize];
    let top = manifest.name_bytes();
    for pattern in patterns {
        let given = pattern.as_bytes();
        let below = below_top(given, top);
        let forms = [Some(given), below.as_deref()];
        let mut found = false;
        for form in forms.into_iter().flatten() {
            found = found || mark(manifest, form, &mut chosen, &|path| path == trimmed(form));
        }
        for form in forms.into_iter().flatten() {
            // A name that is there need not be a glob.
            if found {
                break;
            }
            let glob = glob(form)?;
            found = mark(manifest, form, &mut chosen, &|path| glob.is_match(OsStr::from_bytes(path)));
        }
        if !found {
            let shown = "`tidecast show` lists the files";
            return Err(Error::fault(format!("no file of the manifest matches {pattern:?}; {shown}")));
        }
    }
    Ok(Select::Files((0..).zip(chosen).filter_map(|(index, yes)| yes.then_some(index)).collect()))
}

/// The pattern for the path below the directory, of one that begins with the directory's name or with `./`.
fn below_top(pattern: &[u8], top: &[u8]) -> Option<Vec<u8>> {
    let slashes = pattern.iter().take_while(|byte| **byte == b'/').count();
    let bare = pattern.get(slashes..)?;
    let below = bare.strip_prefix(b"./").or_else(|| bare.strip_prefix(top)?.strip_prefix(b"/"))?;
    (!below.is_empty()).then(|| [b"/", below].concat())
}

fn trimmed(mut pattern: &[u8]) -> &[u8] {
    while let [b'/', rest @ ..] | [rest @ .., b'/'] = pattern {
        pattern = rest;
    }
    pattern
}

fn glob(pattern: &[u8]) -> Result<GlobMatcher, Error> {
    let text = String::from_utf8_lossy(trimmed(pattern));
    let glob = GlobBuilder::new(&text).literal_separator(true).build();
    let bad = |e: globset::Error| Error::usage(format!("--file {text:?}: {}", e.kind()));
    Ok(glob.map_err(bad)?.compile_matcher())
}

/// Marks the files whose path, or a directory of it, `fits`. Returns whether there are any.
fn mark(manifest: &Manifest, pattern: &[u8], chosen: &mut [bool], fits: &dyn Fn(&[u8]) -> bool) -> bool {
    let end = pattern.iter().rposition(|byte| *byte != b'/').unwrap_or(0);
    let is_path = pattern.get(..end).is_some_and(|before| before.contains(&b'/'));
    let mut found = false;
    for (file, chosen) in manifest.files().zip(chosen) {
        let path = file.path();
        let parts = if manifest.is_single_file() { path.components() } else { path.inner() };
        let fits = match is_path {
            true => (1..=parts.len()).any(|n| fits(&parts.get(..n).unwrap_or_default().join(&b'/'))),
            false => parts.iter().any(|part| fits(part)),
        };
        *chosen |= fits;
        found |= fits;
    }
    found
}
