//! `show`, `show_ticket`: the content of a manifest, the properties of a ticket.

mod lines;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use data_encoding::HEXLOWER;
use tidecast_event::show::{File, Shown, Ticket as ShownTicket};
use tidecast_identity::{Access, Authority, NodeKey, Ticket, TokenId};
use tidecast_metainfo::{FileRef, Manifest};

pub use self::lines::{manifest_lines, ticket_lines};
use crate::state::named;

/// The whole content of a manifest.
///
/// ```
/// use tidecast::{Manifest, PublishOptions, publish, show};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let file = dir.path().join("a");
/// # std::fs::write(&file, "ACGT")?;
/// # let state_dir = Some(dir.path().join("state"));
/// let done = publish(&file, PublishOptions { state_dir, ..Default::default() }).wait_blocking()?;
/// let shown = show(&Manifest::parse(&done.torrent)?);
/// assert_eq!((shown.files.len(), shown.files[0].bytes), (1, 4));
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn show(manifest: &Manifest) -> Shown {
    let mut files: Vec<File> = manifest.files().map(file).collect();
    for (number, listed) in manifest.listed().into_iter().enumerate() {
        if let Some(file) = listed.and_then(|listed| files.get_mut(listed as usize)) {
            file.index = Some(number);
        }
    }
    Shown {
        summary: tidecast_node::summary(manifest),
        files,
        directories: manifest.dirs().map(|dir| dir.path().to_string()).collect(),
        warnings: manifest.warnings().iter().map(ToString::to_string).collect(),
    }
}

fn file(file: FileRef<'_>) -> File {
    File {
        path: file.path().to_string(),
        bytes: file.len(),
        executable: file.is_executable(),
        hidden: file.is_hidden(),
        symlink: file.symlink().map(|target| OsString::from_vec(target.into_owned()).into()),
        pieces_root: file.pieces_root().map(|root| HEXLOWER.encode(&root)),
        mode: file.mode().map(|mode| format!("{mode:04o}")),
        hard_link: file.hard_link(),
        index: None,
    }
}

/// All properties of a ticket except its secret. If it was issued from this state directory, they include the
/// number of nodes that have used it.
#[must_use]
pub fn show_ticket(ticket: &Ticket, state_dir: Option<&Path>) -> ShownTicket {
    let Ticket { manifest, access, terms, name, addrs, .. } = ticket;
    let (owner, number) = match access {
        Access::Open => (None, None),
        Access::Private { authority, token } => (Some(authority.to_string()), Some(token.id)),
    };
    ShownTicket {
        manifest: manifest.to_string(),
        name: name.clone(),
        private: owner.is_some(),
        owner,
        ticket: number.map(|number| number.to_string()),
        expires: terms.expires,
        uses: terms.uses,
        used: number.and_then(|number| used(number, state_dir)),
        addresses: addrs.iter().map(ToString::to_string).collect(),
    }
}

/// Nodes that have used a ticket, if this state directory has issued it.
fn used(number: TokenId, state_dir: Option<&Path>) -> Option<usize> {
    let dir = named(state_dir).ok()?;
    if !dir.join(Authority::FILE).exists() {
        return None;
    }
    let authority = Authority::open(&dir, &NodeKey::load_or_create(&dir).ok()?).ok()?;
    authority.tokens().iter().find(|token| token.id == number).map(|token| token.used)
}
