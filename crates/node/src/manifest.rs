//! Manifests: reading files, and identifiers and summaries.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use data_encoding::HEXLOWER;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use tidecast_event::publish::Summary;
use tidecast_event::{Context as _, Error};
use tidecast_identity::ManifestId;
use tidecast_metainfo::{MAX_LEN, Magnet, Manifest};

/// A pipe without data for this time is not waited for any longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads a manifest file, of bounded size; or a pipe, whose data is waited for at most a minute.
///
/// # Errors
/// It cannot be read, is too long, or is not a manifest.
pub fn read_manifest(path: &Path) -> Result<Manifest, Error> {
    let shown = path.display();
    let cannot = || format!("cannot read the manifest {shown}");
    let size = std::fs::metadata(path).with_context(cannot)?.len();
    if size > MAX_LEN as u64 {
        let text = format!("{shown} has {size} bytes: too long to be a manifest (limit {MAX_LEN})");
        return Err(Error::fault(text));
    }
    // Files without a size of their own, such as pipes, are limited too.
    let bytes = read(path, PATIENCE).with_context(cannot)?;
    Manifest::parse(&bytes).with_context(|| format!("{shown} is not a valid manifest"))
}

fn read(path: &Path, patience: Duration) -> io::Result<Vec<u8>> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let mut file = File::options().read(true).custom_flags(flags).open(path)?;
    let mut bytes = Vec::new();
    if file.metadata()?.is_file() {
        file.take(MAX_LEN as u64 + 1).read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    let wait = Timespec::try_from(patience).map_err(io::Error::other)?;
    let mut some = vec![0; 1 << 16];
    while bytes.len() <= MAX_LEN {
        match poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&wait)) {
            Ok(0) => return Err(ErrorKind::TimedOut.into()),
            Err(Errno::INTR) => continue,
            ready => ready?,
        };
        match file.read(&mut some) {
            Ok(0) => break,
            Ok(length) => bytes.extend_from_slice(some.get(..length).unwrap_or_default()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// The manifest's v2 hash, or its v1 hash where it has no other.
///
/// # Errors
/// It has neither.
pub fn manifest_id(manifest: &Manifest) -> Result<ManifestId, Error> {
    let v2 = manifest.hash_v2().map(ManifestId::V2);
    v2.or(manifest.hash_v1().map(ManifestId::V1)).context("the manifest has no hash")
}

/// The identifier of a tree: the hash of its manifest, of version 2 if it has one.
#[must_use]
pub fn id_bytes(manifest: &Manifest) -> Vec<u8> {
    match (manifest.hash_v2(), manifest.hash_v1()) {
        (Some(hash), _) => hash.to_vec(),
        (None, hash) => hash.map_or(Vec::new(), |hash| hash.to_vec()),
    }
}

/// The magnet link of a manifest.
#[must_use]
pub fn magnet(manifest: &Manifest) -> String {
    Magnet {
        v1: manifest.hash_v1(),
        v2: manifest.hash_v2(),
        name: Some(manifest.name().into_owned()),
        trackers: manifest.trackers().iter().flatten().cloned().collect(),
        web_seeds: manifest.web_seeds().to_vec(),
        ..Magnet::default()
    }
    .to_string()
}

/// A summary of a manifest, without its files.
#[must_use]
pub fn summary(manifest: &Manifest) -> Summary {
    let hex = |hash: Option<&[u8]>| hash.map(|hash| HEXLOWER.encode(hash));
    Summary {
        name: manifest.name().into_owned(),
        version: manifest.version().to_string(),
        hash_v1: hex(manifest.hash_v1().as_ref().map(|hash| &hash[..])),
        hash_v2: hex(manifest.hash_v2().as_ref().map(|hash| &hash[..])),
        magnet: magnet(manifest),
        private: manifest.private(),
        ssl: manifest.ssl_cert().is_some(),
        trackers: manifest.trackers().to_vec(),
        web_seeds: manifest.web_seeds().to_vec(),
        bytes: manifest.total_len(),
        unique_bytes: manifest.unique_len(),
        file_count: manifest.file_count(),
        piece_length: manifest.piece_length(),
        pieces: manifest.piece_count(),
        info_bytes: manifest.info_bytes().len(),
        created_by: manifest.created_by().map(str::to_owned),
        creation_date: manifest.creation_date(),
        comment: manifest.comment().map(str::to_owned),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_pipe_is_read_to_its_end_and_waited_for_no_longer_than_that() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let late = read(&pipe, Duration::from_millis(10)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        let to = pipe.clone();
        let writer = std::thread::spawn(move || {
            let mut pipe = File::options().write(true).open(to).unwrap();
            (0..3u8).for_each(|part| pipe.write_all(&vec![part; 50_000]).unwrap());
        });
        let bytes = read(&pipe, PATIENCE).unwrap();
        writer.join().unwrap();
        assert_eq!(bytes.len(), 150_000);
    }
}
