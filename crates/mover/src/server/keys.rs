//! The keys of this host's copy servers, each in a file of the state directory that its owner alone can read.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rand::Rng as _;
use tidecast_identity::NodeKey;
use tidecast_text::{escaped, quote};

use crate::end::{Secrets, ServerKey};
use crate::error::Error;

/// Names of the files. The writing key has the name that the only key once had.
const WRITE: &str = "copy-server.key";
const READ: &str = "copy-server-read.key";
/// Longest such file.
const LONGEST: u64 = 1024;

type Secret = [u8; 16];

/// The keys by which a server authenticates itself and its users.
#[derive(Debug)]
pub struct Keys {
    /// The server's identity.
    pub node: NodeKey,
    /// The secrets of its users.
    pub secrets: Secrets,
    /// The file that has the key for writing.
    pub write_file: PathBuf,
    /// The file that has the key for reading.
    pub read_file: PathBuf,
}

impl Keys {
    /// Reads them, and makes them the first time.
    ///
    /// # Errors
    /// They cannot be read or kept, are damaged, or others can read them.
    pub fn load(state: &Path) -> Result<Self, Error> {
        let node = NodeKey::load_or_create(state)?;
        let (write_file, read_file) = (state.join(WRITE), state.join(READ));
        let secrets = Secrets { write: secret(&write_file, &node)?, read: secret(&read_file, &node)? };
        Ok(Self { node, secrets, write_file, read_file })
    }
}

/// The secret of a file, which holds the whole key as text for `TIDECAST_COPY_KEY=@FILE`.
fn secret(path: &Path, node: &NodeKey) -> Result<Secret, Error> {
    let secret = match read(path)? {
        Some((secret, of)) if of.as_ref().is_some_and(|key| key.node == node.id()) => return Ok(secret),
        // Of an earlier release, or of a node whose own key is a new one.
        Some((secret, _)) => secret,
        None => {
            let mut secret = [0; 16];
            rand::rng().fill_bytes(&mut secret);
            if create(path, &secret, node, false)? {
                return Ok(secret);
            }
            // Another server was faster.
            return read(path)?
                .map(|(secret, _)| secret)
                .ok_or_else(|| bad(format!("cannot create key file {}", escaped(path))));
        }
    };
    create(path, &secret, node, true)?;
    Ok(secret)
}

/// Writes a key file; false if there is one that is not to be replaced.
fn create(path: &Path, secret: &Secret, node: &NodeKey, replace: bool) -> Result<bool, Error> {
    let keep = || Error::io("write the key file", path);
    let key = ServerKey { node: node.id(), secret: *secret };
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new("."))).map_err(keep())?;
    writeln!(file, "{key}").map_err(keep())?;
    if replace {
        file.persist(path).map_err(|e| keep()(e.error))?;
        return Ok(true);
    }
    match file.persist_noclobber(path) {
        Ok(_) => Ok(true),
        Err(e) if e.error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(keep()(e.error)),
    }
}

/// The secret, and the key if the file has all of it.
fn read(path: &Path) -> Result<Option<(Secret, Option<ServerKey>)>, Error> {
    let shown = escaped(path);
    let flags = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("read", path)(e)),
    };
    check(&file, path)?;
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    if let Ok(secret) = Secret::try_from(bytes.as_slice()) {
        return Ok(Some((secret, None)));
    }
    let key = std::str::from_utf8(&bytes).ok().and_then(|text| text.trim().parse::<ServerKey>().ok());
    let none = || {
        bad(format!(
            "key file {shown} does not contain the key of a copy-server; remove it to create a new key"
        ))
    };
    let key = key.ok_or_else(none)?;
    Ok(Some((key.secret, Some(key))))
}

fn bad(why: String) -> Error {
    Error::Key(why)
}

/// Refuses a key file that other users can read or change.
fn check(file: &File, path: &Path) -> Result<(), Error> {
    let meta = file.metadata().map_err(Error::io("stat", path))?;
    let word = quote(&path.to_string_lossy());
    if !meta.is_file() {
        return Err(bad(format!("key file {} is not a regular file", escaped(path))));
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        let owner = meta.uid();
        return Err(bad(format!(
            "key file {} belongs to user {owner}; remove it to create a new key",
            escaped(path)
        )));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(bad(format!(
            "key file {} has mode {:04o}, so others have access to the key; run: chmod 600 {word}, or remove the file to \
             create a new key",
            escaped(path),
            meta.mode() & 0o7777
        )));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn keys_stay_are_two_and_are_secret() {
        let state = tempfile::tempdir().unwrap();
        let first = Keys::load(state.path()).unwrap();
        assert_ne!(first.secrets.read, first.secrets.write);
        let again = Keys::load(state.path()).unwrap();
        assert_eq!((first.secrets.read, first.secrets.write), (again.secrets.read, again.secrets.write));
        let text = std::fs::read_to_string(&first.read_file).unwrap();
        assert_eq!(text.trim().parse::<ServerKey>().unwrap().secret, first.secrets.read);
        for file in [&first.read_file, &first.write_file] {
            let set = |mode| std::fs::set_permissions(file, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(std::fs::metadata(file).unwrap().mode() & 0o7777, 0o600);
            for wide in [0o640, 0o604, 0o622] {
                set(wide);
                let said = Keys::load(state.path()).err().unwrap().to_string();
                assert!(said.contains("chmod 600"), "{said}");
            }
            set(0o600);
        }
        std::fs::write(&first.write_file, "nonsense").unwrap();
        assert!(Keys::load(state.path()).is_err());
    }

    #[test]
    fn a_key_of_an_earlier_release_stays() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join(WRITE);
        std::fs::write(&path, [7; 16]).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let keys = Keys::load(state.path()).unwrap();
        assert_eq!(keys.secrets.write, [7; 16]);
        assert_eq!(std::fs::read_to_string(&path).unwrap().trim().len(), 77);
    }
}
