//! Which files of a tree are left out.

use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::Error;

/// Compiled patterns. One with a `/` is matched against the path below the published directory, one without
/// against the bare name at any depth; one that ends in a `/` matches directories only. A directory that matches is left out
/// with all below it.
#[derive(Debug, Clone, Default)]
pub struct Exclude {
    all: Patterns,
    dirs: Patterns,
}

#[derive(Debug, Clone, Default)]
struct Patterns {
    names: GlobSet,
    paths: GlobSet,
}

impl Patterns {
    fn match_it(&self, path: &Path) -> bool {
        self.paths.is_match(path) || path.file_name().is_some_and(|name| self.names.is_match(name))
    }
}

impl Exclude {
    /// Compiles patterns.
    ///
    /// # Errors
    /// When one is malformed.
    pub fn new(globs: &[String]) -> Result<Self, Error> {
        let is_of_dirs = |glob: &&String| glob.ends_with('/');
        Ok(Self {
            all: Self::compile(globs.iter().filter(|glob| !is_of_dirs(glob)))?,
            dirs: Self::compile(globs.iter().filter(is_of_dirs))?,
        })
    }

    fn compile<'g>(globs: impl Iterator<Item = &'g String>) -> Result<Patterns, Error> {
        let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for glob in globs {
            let wrong = |e: globset::Error| Error::Glob { glob: glob.clone(), why: e.kind().to_string() };
            // A leading slash anchors, a trailing one marks a directory: the rest is the pattern.
            let bare = glob.trim_matches('/');
            let compiled = GlobBuilder::new(bare).literal_separator(true).build().map_err(wrong)?;
            let anchored = glob.trim_end_matches('/').contains('/');
            if anchored { &mut paths } else { &mut names }.add(compiled);
        }
        let build = |set: GlobSetBuilder| {
            set.build().map_err(|e| Error::Glob {
                glob: "(all patterns together)".into(),
                why: e.kind().to_string(),
            })
        };
        Ok(Patterns { names: build(names)?, paths: build(paths)? })
    }

    /// What `glob` should have been, if its path begins above the directory at `root`: with the directory's name, its whole
    /// path, or `./`.
    pub(crate) fn meant<'g>(glob: &'g str, root: &Path) -> Option<&'g str> {
        let after = |above: &Path| glob.strip_prefix(above.to_str()?)?.strip_prefix('/');
        let named =
            || after(Path::new(root.file_name()?)).or_else(|| after(&Path::new("/").join(root.file_name()?)));
        let meant = after(root).or_else(named).or_else(|| glob.strip_prefix("./"))?.trim_start_matches('/');
        (!meant.is_empty()).then_some(meant)
    }

    /// Whether the entry at `path`, relative to the published directory, is left out.
    #[must_use]
    pub fn matches(&self, path: &Path, is_dir: bool) -> bool {
        self.all.match_it(path) || is_dir && self.dirs.match_it(path)
    }
}
