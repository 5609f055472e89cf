//! Which files of a tree are left out.

use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::Error;

/// Compiled patterns. One with a `/` is matched against the path below the published directory, one without
/// against the bare name at any depth; a directory that matches is left out with all below it.
#[derive(Debug, Clone, Default)]
pub struct Exclude {
    names: GlobSet,
    paths: GlobSet,
}

impl Exclude {
    /// Compiles patterns.
    ///
    /// # Errors
    /// When one is malformed.
    pub fn new(globs: &[String]) -> Result<Self, Error> {
        let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for glob in globs {
            let wrong = |e: globset::Error| Error::Glob { glob: glob.clone(), why: e.kind().to_string() };
            // A leading slash anchors, a trailing one says directory: both mean what they say without the slash.
            let bare = glob.trim_matches('/');
            let compiled = GlobBuilder::new(bare).literal_separator(true).build().map_err(wrong)?;
            let anchored = glob.trim_end_matches('/').contains('/');
            if anchored { &mut paths } else { &mut names }.add(compiled);
        }
        let build = |set: GlobSetBuilder| {
            set.build().map_err(|e| Error::Glob { glob: globs.join(" "), why: e.kind().to_string() })
        };
        Ok(Self { names: build(names)?, paths: build(paths)? })
    }

    /// Whether the entry at `path`, relative to the published directory, is left out.
    #[must_use]
    pub fn matches(&self, path: &Path) -> bool {
        self.paths.is_match(path) || path.file_name().is_some_and(|name| self.names.is_match(name))
    }
}
