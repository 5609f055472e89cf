//! The source that a user names: by an argument, a file or the environment.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use tidecast_event::Error;
use tidecast_node::Source;
use tidecast_secret::TICKET;

/// The source that a word of a command line stands for: as [`Source::read`] has it, or `@FILE` that has a ticket, `-` for standard
/// input, the file of a ticket by its name. Without a word the environment has it, as `TIDECAST_TICKET`.
///
/// ```
/// use tidecast::{Source, given_source};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let magnet = "magnet:?xt=urn:btih:0123456789abcdef0123456789abcdef01234567";
/// assert!(matches!(given_source(Some(magnet))?, Source::Magnet(_)));
/// # let file = tempfile::NamedTempFile::new()?;
/// # std::fs::write(file.path(), format!("{magnet}\n"))?;
/// # let path = file.path().display();
/// assert!(matches!(given_source(Some(&format!("@{path}")))?, Source::Magnet(_)));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// No source is given, it cannot be read, or it is damaged: of kind [`Kind::Usage`](crate::Kind::Usage). An
/// unreadable manifest is the data's fault.
pub fn given_source(word: Option<&str>) -> Result<Source, Error> {
    let is_place = |word: &str| word == "-" || word.starts_with('@');
    if let Some(word) = word.filter(|word| !is_place(word)) {
        let path = Path::new(word);
        return match is_ticket_file(path) {
            true => TICKET.file(path).map_err(Error::usage)?.parse(),
            false => Source::read(word),
        };
    }
    let text = TICKET.given(word).map_err(Error::usage)?;
    let none = || format!("no ticket, manifest or magnet link given; give one, or set {}", TICKET.variable);
    text.ok_or_else(|| Error::usage(none()))?.parse()
}

/// A regular file that begins as tickets do.
fn is_ticket_file(path: &Path) -> bool {
    let mut head = [0; 64];
    // Of a pipe it takes nothing, and does not wait for its writer.
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path);
    let file = file.ok().filter(|file| file.metadata().is_ok_and(|meta| meta.is_file()));
    let length = file.and_then(|mut file| file.read(&mut head).ok()).unwrap_or(0);
    String::from_utf8_lossy(head.get(..length).unwrap_or_default()).trim_start().starts_with("tidecast1")
}
