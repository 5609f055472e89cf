//! A cache of this host in a directory of the caller's, by the caller's own rights.

use std::path::{Path, PathBuf};

use super::Client;
use super::bind::bind;
use super::materialize::{Error, How, Made, Wanted, place, sees, symlink};
use crate::model::types::CacheInfo;

/// Ways to hand it out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// A symbolic link; where the store cannot be read from here, a copy.
    #[default]
    Symlink,
    /// As [`How::Hardlink`].
    Hardlink,
    /// As [`How::Reflink`].
    Reflink,
    /// A read-only bind mount, as root or in a mount namespace of one's own.
    Bind,
    /// As [`How::Copy`].
    Copy,
}

/// The created entry.
#[derive(Clone, Debug, Default)]
pub struct HandedOut {
    /// Where.
    pub path: PathBuf,
    /// Of files: how.
    pub made: Option<Made>,
    /// Why it is a copy instead of a symbolic link.
    pub copy_since: Option<String>,
}

/// Creates the cache in `dir`, under its own name. `force`: replace an existing file of that name.
///
/// # Errors
/// As [`place`]; it cannot be mounted.
pub async fn hand_out(
    client: &Client,
    info: &CacheInfo,
    dir: &Path,
    link: Link,
    force: bool,
) -> Result<HandedOut, Error> {
    let nameless = || Error::Malformed("file name missing".into());
    let path = info.path.as_deref().ok_or_else(nameless)?;
    let name = path.file_name().ok_or_else(nameless)?;
    let mut copy_since = None;
    let how = match link {
        Link::Hardlink => How::Hardlink,
        Link::Reflink => How::Reflink,
        Link::Copy => How::Copy,
        Link::Bind => {
            let path = bind(path, &dir.join(name), force)?;
            return Ok(HandedOut { path, ..HandedOut::default() });
        }
        Link::Symlink => match sees(info) {
            Ok(_) => {
                let path = symlink(path, dir, name, force)?;
                return Ok(HandedOut { path, ..HandedOut::default() });
            }
            Err(why) => {
                copy_since = Some(why);
                How::Reflink
            }
        },
    };
    let (name, subpath) = (name.to_owned(), PathBuf::new());
    let made = place(client, info, Wanted { dir: dir.to_owned(), name, subpath, how, force }).await?;
    Ok(HandedOut { path: made.path.clone(), made: Some(made), copy_since })
}
