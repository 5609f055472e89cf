//! Keys of fields: given, or made the first time and kept.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, Result};
use tidecast_field::key::{BadSecret, Secret};

/// A key on the command line, or `@FILE` that has it.
#[derive(Clone, Debug)]
pub(crate) struct Key(pub(crate) Secret);

impl FromStr for Key {
    /// All of it in one text: of an error that has a cause only the head would be shown.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(file) = text.strip_prefix('@') else {
            return text.parse().map(Self).map_err(|e: BadSecret| e.to_string());
        };
        let text =
            std::fs::read_to_string(file).map_err(|error| format!("cannot read the key {file}: {error}"))?;
        text.parse().map(Self).map_err(|error: BadSecret| format!("{file}: {error}"))
    }
}

/// The key of this host's receivers, made the first time.
pub(super) fn kept(state: &Path) -> Result<Secret> {
    let path = state.join("field.key");
    let read = || match std::fs::read_to_string(&path) {
        Ok(text) => text
            .parse()
            .map(Some)
            .with_context(|| format!("{} is damaged; remove it for a new key", path.display())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_context(|| format!("cannot read {}", path.display())),
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
        let Key(read) = format!("@{}", state.join("field.key").display()).parse().unwrap();
        assert!(read == first);
        std::fs::write(state.join("field.key"), "x").unwrap();
        assert!(kept(&state).is_err());
        let said = |text: &str| text.parse::<Key>().unwrap_err();
        let junk = state.join("field.key").display().to_string();
        assert_eq!(said(&format!("@{junk}")), format!("{junk}: {BadSecret}"));
        assert!(said("@/nowhere").contains("/nowhere: No such file"));
        assert_eq!(said("abc"), BadSecret.to_string());
    }
}
