//! `--file GLOB`, or `so=` of a magnet link: which files of a manifest are wanted.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use globset::GlobBuilder;
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
/// directory selects all below it.
///
/// # Errors
/// A malformed pattern is a usage error; one that matches nothing, the data's fault.
pub(super) fn select(manifest: &Manifest, patterns: &[String]) -> Result<Select, Error> {
    if patterns.is_empty() {
        return Ok(Select::All);
    }
    let mut chosen = vec![false; manifest.file_count() as usize];
    let name = manifest.name();
    for pattern in patterns {
        let found = mark(manifest, pattern, &mut chosen)?
            || match as_listed(pattern, &name) {
                Some(below) => mark(manifest, &below, &mut chosen)?,
                None => false,
            };
        if !found {
            let shown = "`tidecast show` lists the files";
            return Err(Error::fault(format!("no file of the manifest matches {pattern:?}; {shown}")));
        }
    }
    Ok(Select::Files((0..).zip(chosen).filter_map(|(index, yes)| yes.then_some(index)).collect()))
}

/// The pattern for the path below the directory, of one that begins with the directory's name or with `./`.
fn as_listed(pattern: &str, name: &str) -> Option<String> {
    let bare = pattern.trim_start_matches('/');
    let below = bare.strip_prefix("./").or_else(|| bare.strip_prefix(name)?.strip_prefix('/'))?;
    (!below.is_empty()).then(|| format!("/{below}"))
}

/// Marks the files that the pattern matches. Returns whether it matches any file.
fn mark(manifest: &Manifest, pattern: &str, chosen: &mut [bool]) -> Result<bool, Error> {
    let bad = |e: globset::Error| Error::usage(format!("--file {pattern:?}: {}", e.kind()));
    let glob = GlobBuilder::new(pattern.trim_matches('/')).literal_separator(true).build();
    let glob = glob.map_err(bad)?.compile_matcher();
    let whole_path = pattern.trim_end_matches('/').contains('/');
    let mut found = false;
    for (file, chosen) in manifest.files().zip(chosen) {
        let path = file.path();
        let parts = if manifest.is_single_file() { path.components() } else { path.inner() };
        let parts: Vec<_> = parts.iter().map(|part| String::from_utf8_lossy(part)).collect();
        let fits = if whole_path {
            (1..=parts.len()).any(|n| parts.get(..n).is_some_and(|head| glob.is_match(head.join("/"))))
        } else {
            parts.iter().any(|part| glob.is_match(&**part))
        };
        *chosen |= fits;
        found |= fits;
    }
    Ok(found)
}
