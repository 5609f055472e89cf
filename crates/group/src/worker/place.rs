//! The destination on this host.
//!
//! Several workers may have the same destination (a file system that several hosts share): the store's lock lets one of
//! them write; the others wait and then find the complete copy.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidecast_metainfo::Manifest;
use tidecast_store::{Base, DownloadOptions, Durability, Error as StoreError, Opened, Replace, Store};

use super::Connection;
use crate::control::message::News;
use crate::error::Error;

/// How often a destination that another process is writing is checked.
const LOOK: Duration = Duration::from_millis(200);

/// The directory and the name in it of a path.
pub(super) fn split(dest: &Path) -> Result<(PathBuf, OsString), Error> {
    let wrong = || Error::Dest(dest.to_owned());
    let name = dest.file_name().ok_or_else(wrong)?.to_owned();
    let dir = dest.parent().filter(|_| dest.is_absolute()).ok_or_else(wrong)?;
    Ok((dir.to_owned(), name))
}

/// Options of the destination.
pub(super) struct How {
    pub(super) durable: bool,
    pub(super) replace: Replace,
    /// Older versions, on hosts that have them.
    pub(super) bases: Vec<Base>,
}

/// Opens the destination, after other processes have finished with it.
pub(super) async fn open(
    manifest: &Arc<Manifest>,
    dest: &Path,
    how: How,
    connection: &mut Connection,
    aside: &mut Vec<News>,
) -> Result<Opened, Error> {
    let (dir, name) = split(dest)?;
    let How { durable, replace, bases } = how;
    let durability = if durable { Durability::Batched } else { Durability::None };
    let options = DownloadOptions { durability, name: Some(name), replace, bases, ..Default::default() };
    loop {
        let (manifest, dir, options) = (manifest.clone(), dir.clone(), options.clone());
        let checked = connection.checked.clone();
        // Existing data is known before any peer sends data.
        let opening = tokio::task::spawn_blocking(move || {
            let mut opened = Store::download(manifest, &dir, &options)?;
            opened.check(&checked)?;
            Ok(opened)
        });
        let opened = connection.during(opening, aside).await?;
        let opened = opened.map_err(|e| Error::Coordinator(format!("a thread of the worker failed: {e}")))?;
        connection.progress.waiting = matches!(opened, Err(StoreError::Busy { .. }));
        match opened {
            Err(StoreError::Busy { .. }) => connection.during(tokio::time::sleep(LOOK), aside).await?,
            other => return other.map_err(Error::Place),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_destination_is_a_directory_and_a_name() {
        assert_eq!(split(Path::new("/a/b")).unwrap(), ("/a".into(), "b".into()));
        for bad in ["/", "a/b", "/a/..", ""] {
            assert!(split(Path::new(bad)).is_err(), "{bad}");
        }
    }
}
