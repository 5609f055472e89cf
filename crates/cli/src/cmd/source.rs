//! What a user gives as source: in an argument, a file or the environment.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use tidecast::Source;

use super::read_manifest;
use crate::failure::Failure;
use tidecast_secret::TICKET;

/// What a user has given as source, before it is understood.
#[derive(Debug, Clone)]
pub(crate) enum Given {
    /// A ticket or a magnet link.
    Text(String),
    /// The file of a manifest.
    Path(PathBuf),
}

impl Given {
    /// From an argument, which may also be the file of a ticket, or from the environment.
    ///
    /// # Errors
    /// Usage errors: there is none, or it cannot be read.
    pub(crate) fn read(word: Option<&str>) -> Result<Self, Failure> {
        let is_place = |word: &str| word == "-" || word.starts_with('@');
        if let Some(word) = word.filter(|word| !is_place(word)) {
            // A file may have any name: what is there is meant.
            let path = Path::new(word);
            let is_file = path.exists();
            return match (begins(word, "tidecast1") || begins(word, "magnet:")) && !is_file {
                true => Ok(Self::Text(word.to_owned())),
                false if is_file && is_ticket_file(path) => {
                    Ok(Self::Text(TICKET.file(path).map_err(Failure::usage)?))
                }
                false => Ok(Self::Path(path.to_owned())),
            };
        }
        let text = TICKET.given(word).map_err(Failure::usage)?;
        let text = text.ok_or_else(|| {
            Failure::usage(anyhow!(
                "no ticket, manifest or magnet link given; name one, or set {}",
                TICKET.variable
            ))
        })?;
        Ok(Self::Text(text))
    }

    /// # Errors
    /// A damaged ticket or magnet link is a usage error; an unreadable manifest, the data's fault.
    pub(crate) fn parse(&self) -> Result<Source, Failure> {
        Ok(match self {
            Self::Path(path) => read_manifest(path)?.into(),
            Self::Text(text) => text.parse()?,
        })
    }
}

/// The source of an argument or the environment.
///
/// # Errors
/// Those of [`Given::read`] and [`Given::parse`].
pub(crate) fn read(word: Option<&str>) -> Result<Source, Failure> {
    Given::read(word)?.parse()
}

fn begins(text: &str, with: &str) -> bool {
    text.trim_start().get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with))
}

/// A regular file that begins as tickets do.
fn is_ticket_file(path: &Path) -> bool {
    let mut head = [0; 64];
    let read = || {
        let file =
            std::fs::File::open(path).ok().filter(|f| f.metadata().is_ok_and(|meta| meta.is_file()))?;
        std::io::Read::read(&mut &file, &mut head).ok()
    };
    let length = { read }().unwrap_or(0);
    String::from_utf8_lossy(head.get(..length).unwrap_or_default()).trim_start().starts_with("tidecast1")
}
