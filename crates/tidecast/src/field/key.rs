//! Keys of fields: given, or made the first time and kept.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tidecast_event::{Context as _, Error, Fault as _};
use tidecast_field::key::{BadSecret, Secret};
use tidecast_identity::read_private;
use tidecast_secret::FIELD_KEY;

use crate::state;

/// A key as a user gives it: `@FILE` that has it, `-` for standard input, or the key itself.
#[derive(Clone, Debug)]
pub struct Key {
    /// The key.
    pub secret: Secret,
    /// Where it is, if that has a name.
    pub file: Option<PathBuf>,
}

impl FromStr for Key {
    /// All of it in one text: of an error that has a cause some show the head only.
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
const KEPT: &str = "field.key";

/// The key of this host's receivers, in a state directory ([`default_state_dir`](crate::default_state_dir) if none is named).
/// It is made the first time.
///
/// # Errors
/// It cannot be read or made, or others may read it.
pub fn kept_key(state_dir: Option<&Path>) -> Result<Key, Error> {
    let state = state::own(state_dir)?;
    let path = state.join(KEPT);
    let damaged = || format!("{} is damaged; remove it to create a new key", path.display());
    let read = || match read_private(&path) {
        Ok(bytes) => {
            let text = String::from_utf8(bytes).with_context(damaged)?;
            text.parse().map(Some).with_context(damaged)
        }
        Err(tidecast_identity::Error::File { source, .. }) if source.kind() == ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(error).fault(),
    };
    let key = |secret| Key { secret, file: Some(path.clone()) };
    if let Some(secret) = read()? {
        return Ok(key(secret));
    }
    let secret = Secret::random();
    // Readable by its owner only, as a temporary file is.
    let mut file = tempfile::NamedTempFile::new_in(&state).context("cannot save the key")?;
    writeln!(file, "{secret}").context("cannot save the key")?;
    match file.persist_noclobber(&path) {
        Ok(_) => Ok(key(secret)),
        // Another receiver was quicker.
        Err(_) => read()?.map(key).with_context(|| format!("cannot save {}", path.display())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_kept_and_read_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let first = kept_key(Some(&state)).unwrap();
        assert!(kept_key(Some(&state)).unwrap().secret == first.secret);
        let file = state.join(KEPT);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o077, 0);
        let read: Key = format!("@{}", file.display()).parse().unwrap();
        assert!(read.secret == first.secret && read.file == Some(file.clone()) && first.file == read.file);
        std::fs::write(&file, "x").unwrap();
        assert!(kept_key(Some(&state)).is_err());
        let said = |text: &str| text.parse::<Key>().unwrap_err();
        let junk = file.display().to_string();
        assert_eq!(said(&format!("@{junk}")), format!("{junk}: {BadSecret}"));
        assert!(said("@/nowhere").contains("/nowhere: No such file"), "{}", said("@/nowhere"));
        assert_eq!(said("abc"), BadSecret.to_string());
    }
}
