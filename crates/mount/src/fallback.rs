//! The last resort: the same tree on a shared file system. Data read there is verified as if a peer had sent
//! it, and served to peers, so that few nodes have to read it there.

use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidecast_metainfo::Manifest;
use tidecast_net::Demand;
use tidecast_paths::Root;

use crate::waits::Waits;

/// How long peers have to supply data that a reader waits for; shorter if there is no peer.
const PATIENCE: Duration = Duration::from_secs(3);
const ALONE: Duration = Duration::from_millis(250);
/// The interval at which waiting readers are checked.
const LOOK: Duration = Duration::from_millis(50);
/// Pieces read in one go.
const BATCH: usize = 64;

/// The directory to read data from that no peer supplies.
pub struct Fallback {
    /// The published directory, or the directory that holds the published file.
    pub dir: PathBuf,
    /// Whether no peer is connected.
    pub alone: Box<dyn Fn() -> bool + Send>,
}

impl Fallback {
    /// Reads awaited data, on a thread of its own: a shared file system may hang.
    pub(crate) fn start(self, manifest: Arc<Manifest>, waits: &Arc<Waits>, demand: Demand) -> io::Result<()> {
        let waits = Arc::downgrade(waits);
        let mut told = 0;
        let run = move || {
            while let Some(waits) = waits.upgrade().filter(|w| !w.is_stopped()) {
                let patience = if (self.alone)() { ALONE } else { PATIENCE };
                for piece in waits.overdue(patience, BATCH) {
                    let Err(why) = self.bring(&manifest, piece, &demand) else { continue };
                    // Not once for each piece of a tree that is not there.
                    if told < 10 {
                        tracing::warn!(piece, why, "cannot read a missing piece from {}", self.dir.display());
                        told += 1;
                    }
                }
                drop(waits);
                std::thread::sleep(LOOK);
            }
        };
        std::thread::Builder::new().name("fallback".into()).spawn(run).map(drop)
    }

    fn bring(&self, manifest: &Manifest, piece: u32, demand: &Demand) -> Result<(), String> {
        let bytes = self.read(manifest, piece).map_err(|e| e.to_string())?;
        match demand.supply(piece, &bytes) {
            Ok(true) => Ok(()),
            Ok(false) => Err("its content differs from the manifest".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn read(&self, manifest: &Manifest, piece: u32) -> io::Result<Vec<u8>> {
        let len = manifest.piece_len(piece);
        let mut bytes = vec![0; len as usize];
        let root = Root::open(&self.dir)?;
        let mut rest = bytes.as_mut_slice();
        for span in manifest.spans(piece, 0, len) {
            let (part, after) = rest.split_at_mut_checked(span.len as usize).ok_or(ErrorKind::InvalidData)?;
            rest = after;
            if span.pad {
                continue;
            }
            let file = manifest.file(span.file).ok_or(ErrorKind::InvalidData)?;
            let path = match manifest.is_single_file() {
                true => file.path().under(Path::new("")),
                false => file.path().below(Path::new("")),
            };
            let named =
                |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", root.full(&path).display()));
            root.open_file(&path).and_then(|f| f.read_exact_at(part, span.offset)).map_err(named)?;
        }
        Ok(bytes)
    }
}
