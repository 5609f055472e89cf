//! A cache of files: they are read by this process, with its user's rights, and handed to the daemon.

mod error;
mod readers;

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidecast_metainfo::{Manifest, Version, Warning};
use tidecast_publish::{Base, Format, HashOptions, Progress, ScanOptions, Tree};
use tokio::sync::mpsc;

use super::{Client, ClientError};
use crate::model::types::{CacheInfo, Create, Created};

pub use error::Error;

/// Bytes read at once.
const CHUNK: usize = 1 << 20;
/// Chunks that may wait for the daemon.
const CHUNKS: usize = 4;
/// Room is asked for again after this long.
const AGAIN: Duration = Duration::from_secs(1);
/// The daemon verifies and syncs the data: it is expected to reach at least this rate, bytes a second.
const RATE: u64 = 10 << 20;

/// Files that are to become a cache, hashed.
#[derive(Debug)]
pub struct Prepared {
    tree: Tree,
    manifest: Manifest,
}

/// A cache that was made.
#[derive(Debug)]
pub struct MadeCache {
    /// The cache.
    pub info: CacheInfo,
    /// Bytes that were new to the daemon.
    pub sent: u64,
    /// The file that restricts its readers, with its mode.
    pub narrowed_by: Option<(PathBuf, u32)>,
}

impl Prepared {
    /// Walks and hashes a directory, or files of one directory, as the content of the cache. Blocks.
    ///
    /// # Errors
    /// A file cannot be read, or the files are in several directories.
    pub fn of(paths: &[PathBuf], name: &str, progress: &Progress) -> Result<Self, Error> {
        hash(paths, name, progress).map(|(tree, manifest)| Self { tree, manifest })
    }

    /// Warnings about the files.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let of_links =
            |w: &Warning| matches!(w, Warning::OutsideLinks { .. } | Warning::LinksToPrefix { .. });
        let of_links = self.manifest.warnings().into_iter().filter(of_links);
        self.tree.warnings.iter().map(ToString::to_string).chain(of_links.map(|w| w.to_string())).collect()
    }

    /// Has the daemon make it. `wait`: how long room is waited for.
    ///
    /// # Errors
    /// The daemon refuses; a file has changed; there is no room.
    pub async fn make(
        self,
        client: &Client,
        mut create: Create,
        wait: Option<Duration>,
    ) -> Result<MadeCache, Error> {
        let Self { tree, manifest } = self;
        let narrowed = open_to(&mut create, &tree)?;
        let created = declare(client, &create, wait, &manifest).await?;
        let sent: u64 = created.files.iter().filter_map(|i| Some(manifest.file(*i)?.len())).sum();
        let info = upload(client, &created, tree, manifest, sent).await?;
        // A cache that exists keeps its mode and group unless the caller names others.
        let narrowed_by = narrowed.filter(|_| Some(info.mode) == create.mode);
        Ok(MadeCache { info, sent, narrowed_by })
    }
}

/// Makes it known, with room for it: as soon as there is some, if the caller waits.
async fn declare(
    client: &Client,
    create: &Create,
    wait: Option<Duration>,
    manifest: &Manifest,
) -> Result<Created, Error> {
    let (began, bytes) = (Instant::now(), manifest.to_bytes());
    let longer = Duration::from_millis(manifest.file_count().into());
    loop {
        let refused = match client.create(create, bytes.clone(), longer).await {
            Err(ClientError::Refused { kind, why, .. }) if kind == "wait" => why,
            other => return Ok(other?),
        };
        let Some(wait) = wait else { return Err(Error::NoRoom(refused)) };
        let after = began.elapsed();
        if after >= wait {
            return Err(Error::Late { name: create.name.clone(), after, why: refused });
        }
        tokio::time::sleep(AGAIN.min(wait.saturating_sub(after))).await;
    }
}

/// Sets the mode and group that the files allow, unless the caller names others. Gives the path and mode that narrow them.
fn open_to(create: &mut Create, tree: &Tree) -> Result<Option<(PathBuf, u32)>, Error> {
    if create.private || create.mode.is_some() {
        return Ok(None);
    }
    let groups = nix::unistd::getgroups().map_err(|e| Error::Groups(e.into()))?;
    let mut groups: Vec<u32> = groups.into_iter().map(nix::unistd::Gid::as_raw).collect();
    groups.push(nix::unistd::getegid().as_raw());
    let readers = readers::of(tree, &groups)?;
    create.mode = Some(readers.mode);
    if create.group.is_some() {
        // The named group may read.
        create.mode = Some(readers.mode | 0o050);
        return Ok(None);
    }
    create.found = true;
    if let Some(gid) = readers.gid {
        let named = nix::unistd::Group::from_gid(nix::unistd::Gid::from_raw(gid)).ok().flatten();
        create.group = named.map(|group| group.name);
        if create.group.is_none() {
            // The daemon knows groups by their names.
            create.mode = Some(0o700);
        }
    }
    Ok(readers.narrowed_by)
}

/// Walks and hashes the paths.
fn hash(paths: &[PathBuf], name: &str, progress: &Progress) -> Result<(Tree, Manifest), Error> {
    let options = |name: Option<OsString>| ScanOptions { name, ..ScanOptions::default() };
    let tree = match paths {
        [one] if one.is_dir() => tidecast_publish::scan(one, &options(Some(name.into())), progress)?,
        [one] => tidecast_publish::scan(one, &options(None), progress)?,
        several => several_files(several, name, progress)?,
    };
    let exactly = HashOptions { format: Format::Exactly(Version::V2), ..HashOptions::default() };
    let manifest = tidecast_publish::hash(&tree, &exactly, progress, |_| {})?.manifest;
    Ok((tree, manifest))
}

/// Files and directories that lie in one directory, as a tree of that name.
fn several_files(paths: &[PathBuf], name: &str, progress: &Progress) -> Result<Tree, Error> {
    let mut root: Option<PathBuf> = None;
    let mut only = Vec::new();
    for path in paths {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let parent = parent.canonicalize().map_err(Error::io("find", parent))?;
        let root = root.get_or_insert_with(|| parent.clone());
        if *root != parent {
            return Err(Error::Apart { path: path.clone(), root: root.clone() });
        }
        let own = path.file_name().ok_or_else(|| Error::Nameless(path.clone()))?;
        path.symlink_metadata().map_err(Error::io("find", path))?;
        only.push(own.to_owned());
    }
    let options = ScanOptions { only, name: Some(name.into()), ..ScanOptions::default() };
    Ok(tidecast_publish::scan(&root.unwrap_or_default(), &options, progress)?)
}

async fn upload(
    client: &Client,
    created: &Created,
    tree: Tree,
    manifest: Manifest,
    bytes: u64,
) -> Result<CacheInfo, Error> {
    let (chunks, queue) = mpsc::channel(CHUNKS);
    let files = created.files.clone();
    let reading = std::thread::spawn(move || {
        let failed = read(&tree, &manifest, &files, &chunks).err();
        if let Some(error) = &failed {
            let _ = chunks.blocking_send(Err(error.kind().into()));
        }
        failed
    });
    let wait = Duration::from_secs(3600 + bytes / RATE);
    let sent = client.upload(&created.cache, queue, wait).await;
    // A file that cannot be read is the cause, whatever happened to the connection.
    if let Ok(Some(error)) = reading.join() {
        return Err(Error::Reading(error));
    }
    Ok(sent?)
}

/// Sends the content of the files, one after the other. A file that has changed since it was hashed ends it:
/// the daemon verifies.
fn read(
    tree: &Tree,
    manifest: &Manifest,
    files: &[u32],
    chunks: &mpsc::Sender<io::Result<Bytes>>,
) -> io::Result<()> {
    let base = Base::of(&tree.root)?;
    for index in files {
        let Some(file) = manifest.file(*index) else { continue };
        let path = if tree.is_single() { tree.root.clone() } else { file.path().below(&tree.root) };
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let mut from = base.open(&path).map_err(io::Error::other)?.take(file.len());
        let mut left = file.len();
        while left > 0 {
            let mut chunk = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
            from.read_exact(&mut chunk).map_err(|e| match e.kind() {
                io::ErrorKind::UnexpectedEof => named(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the file was truncated after it was hashed; create the cache again when the file no longer changes",
                )),
                _ => named(e),
            })?;
            left -= chunk.len() as u64;
            if chunks.blocking_send(Ok(chunk.into())).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
