//! `--file GLOB`: which files of a manifest are wanted.

use anyhow::anyhow;
use globset::GlobBuilder;
use tidecast_metainfo::Manifest;
use tidecast_store::Select;

use crate::failure::Failure;

/// The files that match any of the patterns. A pattern with a `/` is compared with the path below the published
/// directory, one without with the name at any depth; one that matches a directory selects all below it.
///
/// # Errors
/// A malformed pattern is a usage error; one that matches nothing, the data's fault.
pub(crate) fn select(manifest: &Manifest, patterns: &[String]) -> Result<Select, Failure> {
    if patterns.is_empty() {
        return Ok(Select::All);
    }
    let mut chosen = vec![false; manifest.file_count() as usize];
    for pattern in patterns {
        let bare = pattern.trim_matches('/');
        let glob = GlobBuilder::new(bare).literal_separator(true).build();
        let glob =
            glob.map_err(|e| Failure::usage(anyhow!("--file {pattern:?}: {}", e.kind())))?.compile_matcher();
        let whole_path = pattern.trim_end_matches('/').contains('/');
        let mut found = false;
        for (file, chosen) in manifest.files().zip(&mut chosen) {
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
        if !found {
            let shown = "`tidecast show` lists the files";
            return Err(anyhow!("no file of the manifest matches {pattern:?}; {shown}").into());
        }
    }
    Ok(Select::Files((0..).zip(chosen).filter_map(|(index, yes)| yes.then_some(index)).collect()))
}
