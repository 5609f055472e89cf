//! Tickets and keys that a user gives: by `@FILE`, by `-` (the first line of standard input), by the
//! environment, or as a plain argument, which [`hide`] takes off the command line before anything else happens.
//!
//! Promises: reading is bounded in length and in time; no message contains any part of a secret.

mod command_line;
mod error;
mod inherit;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use tidecast_paths::open_not_planted;

pub use self::command_line::{hide, shown, words};
pub use self::error::{Error, Unreadable};
pub use self::inherit::{InheritedFile, inherited, lend, pass, pass_as_stdin};

/// Where warnings go: of a file that others may read, of a secret on the command line.
static WARN: OnceLock<fn(&str)> = OnceLock::new();

/// Sends warnings to `warn`, from now on; without it they are dropped. The first caller decides.
pub fn warn_by(warn: fn(&str)) {
    let _ = WARN.set(warn);
}

fn warn(text: &str) {
    if let Some(warn) = WARN.get() {
        warn(text);
    }
}

/// No ticket, key or magnet link is longer (bytes).
const MAX_LEN: usize = 64 << 10;
/// A pipe, a terminal or a file system that gives nothing is waited for this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Standard input, in place of a secret.
const STDIN: &str = "-";

/// A kind of secret, and the variable that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// The name used in messages.
    pub name: &'static str,
    /// The environment variable in which it may be given.
    pub variable: &'static str,
}

/// A ticket of a swarm.
pub const TICKET: Kind = Kind { name: "ticket", variable: "TIDECAST_TICKET" };
/// The key of a copy-server.
pub const COPY_KEY: Kind = Kind { name: "key", variable: "TIDECAST_COPY_KEY" };
/// The key of a field.
pub const FIELD_KEY: Kind = Kind { name: "key", variable: "TIDECAST_FIELD_KEY" };

/// The URL of a tracker, which may have a user's passkey.
pub const TRACKER: Kind = Kind { name: "tracker URL", variable: "TIDECAST_TRACKER" };
/// A magnet link, of which a tracker's URL may have one.
const MAGNET: Kind = Kind { name: "magnet link", variable: TICKET.variable };

impl Kind {
    /// The text that `word` stands for: the content of FILE for `@FILE`, the first line of standard input for `-`, else
    /// the word itself.
    ///
    /// # Errors
    /// The file or standard input cannot be read, has no text, or too much of it.
    pub fn resolve(self, word: &str) -> Result<String, Error> {
        let text = match word.strip_prefix('@') {
            _ if word == STDIN => {
                bounded(stdin_line).map_err(|why| self.cannot_read("from standard input", why))?
            }
            Some(file) => match command_line::taken(file) {
                Some(text) => text,
                None => self.file(Path::new(file))?,
            },
            None => word.to_owned(),
        };
        match text.trim() {
            "" if word == STDIN => Err(Error::None { place: "standard input".into(), name: self.name }),
            "" => Err(Error::None { place: word.trim_start_matches('@').into(), name: self.name }),
            text => Ok(text.to_owned()),
        }
    }

    /// As [`Kind::resolve`]; without a word, of the value of the environment variable.
    ///
    /// # Errors
    /// As [`Kind::resolve`]. None if there is neither.
    pub fn given(self, word: Option<&str>) -> Result<Option<String>, Error> {
        if let Some(word) = word {
            return self.resolve(word).map(Some);
        }
        match std::env::var_os(self.variable) {
            Some(text) if !text.is_empty() => {
                let text = text.to_str().ok_or(Error::NotUtf8(self.variable))?;
                let within = |why| Error::Variable { variable: self.variable, why: Box::new(why) };
                self.resolve(text).map(Some).map_err(within)
            }
            _ => Ok(None),
        }
    }

    fn cannot_read(self, place: impl Into<String>, why: Unreadable) -> Error {
        Error::Unreadable { name: self.name, place: place.into(), why }
    }

    /// The text of a file that only its user may read, and that no other user may have planted.
    ///
    /// # Errors
    /// As [`Kind::resolve`]; others may read it, or may have planted it.
    pub fn private_file(self, path: &Path) -> Result<String, Error> {
        let (text, mode) = self.read(path, open_not_planted)?;
        match mode.filter(|mode| mode & 0o077 != 0) {
            Some(mode) => Err(Error::Exposed { path: path.to_owned(), mode }),
            None => Ok(text),
        }
    }

    /// The text of a file; a warning names it if other users may read it.
    ///
    /// # Errors
    /// As [`Kind::resolve`].
    pub fn file(self, path: &Path) -> Result<String, Error> {
        let (text, mode) = self.read(path, |path| File::open(path))?;
        if let Some(mode) = mode.filter(|mode| mode & 0o077 != 0) {
            warn(&format!(
                "{shown} contains a {} and is readable by other users (mode {mode:04o}); run: chmod 600 {shown}",
                self.name,
                shown = path.display()
            ));
        }
        Ok(text)
    }

    fn read(self, path: &Path, open: fn(&Path) -> io::Result<File>) -> Result<(String, Option<u32>), Error> {
        let owned = path.to_owned();
        bounded(move || read_file(open(&owned)?))
            .map_err(|why| self.cannot_read(path.display().to_string(), why))
    }
}

/// The contents of a file, and its mode if it is a regular one: that of a pipe does not matter.
fn read_file(file: File) -> Result<(String, Option<u32>), Unreadable> {
    let meta = file.metadata()?;
    if meta.is_dir() || meta.file_type().is_block_device() {
        return Err(Unreadable::NoFile);
    }
    let mode = meta.is_file().then(|| meta.permissions().mode() & 0o7777);
    let mut bytes = Vec::new();
    file.take(MAX_LEN as u64 + 1).read_to_end(&mut bytes)?;
    Ok((text(bytes)?, mode))
}

/// The first line that is not blank, byte by byte: the following data may be for another program.
fn stdin_line() -> Result<String, Unreadable> {
    let (stdin, mut line) = (std::io::stdin(), Vec::new());
    let mut byte = [0];
    while line.len() <= MAX_LEN && rustix::io::read(&stdin, &mut byte).map_err(std::io::Error::from)? == 1 {
        match byte {
            [b'\n'] if line.iter().all(u8::is_ascii_whitespace) => line.clear(),
            [b'\n'] => break,
            [byte] => line.push(byte),
        }
    }
    text(line)
}

fn text(bytes: Vec<u8>) -> Result<String, Unreadable> {
    if bytes.len() > MAX_LEN {
        return Err(Unreadable::TooLong(MAX_LEN));
    }
    String::from_utf8(bytes).map_err(|_| Unreadable::NoText)
}

/// Reads on another thread, which is left behind if nothing comes.
fn bounded<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, Unreadable> + Send + 'static,
) -> Result<T, Unreadable> {
    let (done, answer) = mpsc::channel();
    std::thread::Builder::new().name("secret".into()).spawn(move || {
        let _ = done.send(read());
    })?;
    match answer.recv_timeout(PATIENCE) {
        Ok(read) => read,
        Err(_) => Err(Unreadable::Silent(PATIENCE)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tidecast_text::with_causes;

    #[test]
    fn a_private_file_is_none_that_another_user_may_have_planted() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can make another user's files");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "known to another user").unwrap();
        let set =
            |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        set(&path, 0o600);
        set(dir.path(), 0o1777);
        assert!(COPY_KEY.private_file(&path).is_ok());
        std::os::unix::fs::chown(&path, Some(61001), None).unwrap();
        let refused = with_causes(&COPY_KEY.private_file(&path).unwrap_err());
        assert!(refused.contains("belongs to another user (61001)"), "{refused}");
        set(dir.path(), 0o755);
        assert!(COPY_KEY.private_file(&path).is_ok(), "its owner alone cannot have put it there");
    }

    #[test]
    fn a_word_may_name_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ticket");
        std::fs::write(&path, " tidecast1abc \n").unwrap();
        let word = format!("@{}", path.display());
        assert_eq!(TICKET.resolve(&word).unwrap(), "tidecast1abc");
        assert_eq!(TICKET.resolve("tidecast1abc").unwrap(), "tidecast1abc");
        std::fs::write(&path, "\n").unwrap();
        assert!(TICKET.resolve(&word).unwrap_err().to_string().ends_with("has no ticket"));
        std::fs::write(&path, vec![b'a'; MAX_LEN + 1]).unwrap();
        assert!(with_causes(&TICKET.resolve(&word).unwrap_err()).contains("too long"));
        std::fs::write(&path, b"\xff").unwrap();
        assert!(with_causes(&TICKET.resolve(&word).unwrap_err()).contains("not text"));
        let none = with_causes(&COPY_KEY.resolve("@/nowhere").unwrap_err());
        assert!(none.contains("cannot read the key /nowhere"), "{none}");
        let folder = format!("@{}", dir.path().display());
        assert!(with_causes(&TICKET.resolve(&folder).unwrap_err()).contains("not a regular file"));
    }
}
