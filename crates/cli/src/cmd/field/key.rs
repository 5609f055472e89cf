//! Keys of fields: given, or made the first time and kept.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result};
use tidecast_field::key::{BadSecret, Secret};
use tidecast_identity::{Error, read_private};

use tidecast_secret::FIELD_KEY;

/// A key: `@FILE` that has it, `-` for standard input, or the key itself.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) secret: Secret,
    /// Where it is, if that has a name.
    pub(super) file: Option<PathBuf>,
}

impl FromStr for Key {
    /// All of it in one text: of an error that has a cause only the head would be shown.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = FIELD_KEY.resolve(text).map_err(|error| tidecast_text::with_causes(&error))?;
        // Handed over by an earlier self, it has no name that means anything.
        let file = text.strip_prefix('@').filter(|file| !file.starts_with("/proc/self/fd/"));
        let secret = found.parse().map_err(|error: BadSecret| match file {
            Some(file) => format!("{file}: {error}"),
            None => error.to_string(),
        })?;
        Ok(Self { secret, file: file.map(PathBuf::from) })
    }
}

/// File name of the kept key in the state directory.
pub(super) const KEPT: &str = "field.key";

/// The key of this host's receivers, made the first time.
pub(super) fn kept(state: &Path) -> Result<Secret> {
    let path = state.join(KEPT);
    let damaged = || format!("{} is damaged; remove it for a new key", path.display());
    let read = || match read_private(&path) {
        Ok(bytes) => String::from_utf8(bytes).with_context(damaged)?.parse().map(Some).with_context(damaged),
        Err(Error::File { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    };
    if let Some(secret) = read()? {
        return Ok(secret);
    }
    std::fs::create_dir_all(state).with_context(|| format!("cannot make {}", state.display()))?;
    let secret = Secret::random();
    // Readable by its owner only, as a temporary file is.
    let file = tempfile::NamedTempFile::new_in(state).context("cannot keep the key")?;
    debug_assert_eq!(file.as_file().metadata()?.permissions().mode() & 0o077, 0);
    std::fs::write(file.path(), format!("{secret}\n")).context("cannot keep the key")?;
    match file.persist_noclobber(&path) {
        Ok(_) => Ok(secret),
        // Another receiver was quicker.
        Err(_) => read()?.with_context(|| format!("cannot keep {}", path.display())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_kept_and_read_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let first = kept(&state).unwrap();
        assert!(kept(&state).unwrap() == first);
        let read: Key = format!("@{}", state.join("field.key").display()).parse().unwrap();
        assert!(read.secret == first && read.file == Some(state.join("field.key")));
        std::fs::write(state.join("field.key"), "x").unwrap();
        assert!(kept(&state).is_err());
        let said = |text: &str| text.parse::<Key>().unwrap_err();
        let junk = state.join("field.key").display().to_string();
        assert_eq!(said(&format!("@{junk}")), format!("{junk}: {BadSecret}"));
        assert!(said("@/nowhere").contains("/nowhere: No such file"), "{}", said("@/nowhere"));
        assert_eq!(said("abc"), BadSecret.to_string());
    }
}
