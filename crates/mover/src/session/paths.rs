//! Which sources keep their paths, as with rsync's `-R` and `--files-from`.

use std::ffi::OsString;
use std::path::Path;

use tidecast_text::{escaped, escaped_bytes};

use super::rules::read;
use crate::error::Error;
use crate::filter::lines;
use crate::spec::{Names, Relative};

/// The user's flags. A list has rsync's rules: comments begin with `#` or `;`, and directories are copied
/// with their contents only if that is requested.
#[derive(Clone, Debug, Default)]
pub struct KeepPaths {
    /// A list of names below the only source; `-` is standard input.
    pub files_from: Option<OsString>,
    /// Sources keep their paths, if given.
    pub relative: Option<bool>,
    /// Directories of a list are copied with their contents.
    pub recursive: bool,
    /// Directories above sources are not copied.
    pub no_implied: bool,
    /// Names of the list end with a NUL, not with the line.
    pub nul: bool,
}

impl KeepPaths {
    /// The request to the sender of this many sources.
    ///
    /// # Errors
    /// It does not go together, or the list cannot be read.
    pub fn relative(&self, sources: usize) -> Result<Option<Relative>, Error> {
        let Some(file) = &self.files_from else {
            let relative = Relative { no_implied: self.no_implied, ..Relative::default() };
            return Ok(self.relative.unwrap_or(false).then_some(relative));
        };
        let shown = escaped(file);
        let usage = |why: String| Err(Error::Usage(why));
        if self.relative == Some(false) {
            return usage(
                "--files-from cannot be combined with --no-relative; name the files on the command line"
                    .into(),
            );
        }
        if sources != 1 {
            return usage(format!("--files-from needs exactly one source, but {sources} are given"));
        }
        if file.as_encoded_bytes().starts_with(b":") {
            return usage(format!(
                "--files-from {shown}: the list must be on this host; read it by: ssh HOST cat FILE | tidecast copy --files-from=-"
            ));
        }
        let text = read(Path::new(file))
            .map_err(|e| Error::Usage(format!("cannot read names from {shown}: {e}")))?;
        if text.len() > Names::MOST {
            let most = Names::MOST >> 20;
            return usage(format!("--files-from {shown}: the list has more than {most} MiB; split it"));
        }
        let names = lines(&text, self.nul).filter(|name| !matches!(name.first(), None | Some(b'#' | b';')));
        if let Some(name) = names.clone().find(|name| name.contains(&0)) {
            return usage(format!("--files-from {shown}: {} contains a NUL; use -0", escaped_bytes(name)));
        }
        let names = Names(names.collect::<Vec<_>>().join(&0));
        Ok(Some(Relative { names: Some(names), recursive: self.recursive, no_implied: self.no_implied }))
    }
}
