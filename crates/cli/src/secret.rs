//! Tickets and keys that a user gives to a command: by `@FILE`, by `-` (the first line of standard input), by the
//! environment, or as a plain argument, which [`hide`] takes off the command line before anything else happens.
//!
//! Promises: what is read is bounded, in length and in time; no message has any part of a secret.

mod hide;
mod inherit;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use crate::report::complain;

pub(crate) use self::hide::hide;
pub(crate) use self::inherit::{inherited, pass};

/// No ticket, key or magnet link is longer (bytes).
const MAX_LEN: usize = 64 << 10;
/// A pipe, a terminal or a file system that gives nothing is waited for this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Standard input, in place of a secret.
const STDIN: &str = "-";

/// A kind of secret, and the variable that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    /// What messages call it.
    pub(crate) name: &'static str,
    /// The environment variable in which it may be given.
    pub(crate) variable: &'static str,
}

/// A ticket of a swarm.
pub(crate) const TICKET: Kind = Kind { name: "ticket", variable: "TIDECAST_TICKET" };
/// The key of a copy-server.
pub(crate) const COPY_KEY: Kind = Kind { name: "key", variable: "TIDECAST_COPY_KEY" };
/// The key of a field.
pub(crate) const FIELD_KEY: Kind = Kind { name: "key", variable: "TIDECAST_FIELD_KEY" };

impl Kind {
    /// The text that `word` stands for: the content of FILE for `@FILE`, the first line of standard input for `-`, else
    /// the word itself.
    ///
    /// # Errors
    /// The file or standard input cannot be read, has no text, or too much of it.
    pub(crate) fn resolve(self, word: &str) -> Result<String> {
        let text = match word.strip_prefix('@') {
            _ if word == STDIN => bounded(stdin_line).with_context(|| self.cannot_read("standard input"))?,
            Some(file) => match hide::taken(file) {
                Some(text) => text,
                None => self.file(Path::new(file))?,
            },
            None => word.to_owned(),
        };
        match text.trim() {
            "" if word == STDIN => bail!("standard input has no {}", self.name),
            "" => bail!("{} has no {}", word.trim_start_matches('@'), self.name),
            text => Ok(text.to_owned()),
        }
    }

    /// As [`Kind::resolve`]; without a word, of what the environment variable has.
    ///
    /// # Errors
    /// As [`Kind::resolve`]. None if there is neither.
    pub(crate) fn given(self, word: Option<&str>) -> Result<Option<String>> {
        if let Some(word) = word {
            return self.resolve(word).map(Some);
        }
        match std::env::var_os(self.variable) {
            Some(text) if !text.is_empty() => {
                let text = text.to_str().with_context(|| format!("{} is not UTF-8", self.variable))?;
                self.resolve(text).map(Some).context(self.variable)
            }
            _ => Ok(None),
        }
    }

    fn cannot_read(self, from: &str) -> String {
        format!("cannot read the {} from {from}", self.name)
    }

    /// The text of a file that nobody else may read.
    ///
    /// # Errors
    /// As [`Kind::resolve`]; others may read it.
    pub(crate) fn private_file(self, path: &Path) -> Result<String> {
        let shown = path.display();
        let owned = path.to_owned();
        let (text, mode) = bounded(move || read_file(&owned))
            .with_context(|| format!("cannot read the {} {shown}", self.name))?;
        match mode.filter(|mode| mode & 0o077 != 0) {
            Some(mode) => {
                bail!("{shown} may be read by other users (mode {mode:04o}); run: chmod 600 {shown}")
            }
            None => Ok(text),
        }
    }

    /// The text of a file; whoever else may read it is named.
    pub(crate) fn file(self, path: &Path) -> Result<String> {
        let shown = path.display();
        let cannot = || format!("cannot read the {} {shown}", self.name);
        let owned = path.to_owned();
        let (text, mode) = bounded(move || read_file(&owned)).with_context(cannot)?;
        if let Some(mode) = mode.filter(|mode| mode & 0o077 != 0) {
            complain(&format!(
                "tidecast: warning: {shown} has a {} and may be read by other users (mode {mode:04o}); run: chmod 600 {shown}",
                self.name
            ));
        }
        Ok(text)
    }
}

/// What a file holds, and its mode if it is a regular one: a pipe has none that matters.
fn read_file(path: &Path) -> Result<(String, Option<u32>)> {
    let file = File::open(path)?;
    let meta = file.metadata()?;
    if meta.is_dir() || meta.file_type().is_block_device() {
        bail!("it is no file");
    }
    let mode = meta.is_file().then(|| meta.permissions().mode() & 0o7777);
    let mut bytes = Vec::new();
    file.take(MAX_LEN as u64 + 1).read_to_end(&mut bytes)?;
    Ok((text(bytes)?, mode))
}

/// The first line that is not blank, byte by byte: what follows it may be for another program.
fn stdin_line() -> Result<String> {
    let (stdin, mut line) = (std::io::stdin(), Vec::new());
    let mut byte = [0];
    while line.len() <= MAX_LEN && rustix::io::read(&stdin, &mut byte)? == 1 {
        match byte {
            [b'\n'] if line.iter().all(u8::is_ascii_whitespace) => line.clear(),
            [b'\n'] => break,
            [byte] => line.push(byte),
        }
    }
    text(line)
}

fn text(bytes: Vec<u8>) -> Result<String> {
    if bytes.len() > MAX_LEN {
        bail!("it is too long (limit {MAX_LEN} bytes)");
    }
    String::from_utf8(bytes).map_err(|_| anyhow!("it is not text"))
}

/// Reads on another thread, which is left behind if nothing comes.
fn bounded<T: Send + 'static>(read: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let (done, answer) = mpsc::channel();
    std::thread::Builder::new().name("secret".into()).spawn(move || {
        let _ = done.send(read());
    })?;
    match answer.recv_timeout(PATIENCE) {
        Ok(read) => read,
        Err(_) => Err(anyhow!("nothing came within {} s", PATIENCE.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
        assert!(format!("{:#}", TICKET.resolve(&word).unwrap_err()).contains("too long"));
        std::fs::write(&path, b"\xff").unwrap();
        assert!(format!("{:#}", TICKET.resolve(&word).unwrap_err()).contains("not text"));
        let none = format!("{:#}", COPY_KEY.resolve("@/nowhere").unwrap_err());
        assert!(none.contains("cannot read the key /nowhere"), "{none}");
        let folder = format!("@{}", dir.path().display());
        assert!(format!("{:#}", TICKET.resolve(&folder).unwrap_err()).contains("no file"));
    }
}
