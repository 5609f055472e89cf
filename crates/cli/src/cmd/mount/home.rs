//! Where a tree is at home on this host: the socket of its server, its log, its manifest, and its data.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use data_encoding::HEXLOWER;
use rustix::fs::statvfs;
use tidecast_metainfo::Manifest;
use tidecast_node::{Source, id_bytes};

use super::super::{Context, read_manifest};
use super::TreeArgs;
use crate::failure::Failure;

const RAM: &str = "/dev/shm";
/// A tree is kept in RAM if it takes at most one part in so many of what is free there.
const SHARE: u64 = 4;

/// See the head of the file.
pub(crate) struct Home {
    dir: PathBuf,
    /// The user has said where data is to be kept.
    told: bool,
    id: String,
}

impl Home {
    /// Of the tree that a command is about; made if need be.
    ///
    /// # Errors
    /// The directory cannot be made, or belongs to somebody else.
    pub(crate) fn of(source: &Source, args: &TreeArgs, context: &Context<'_>) -> Result<Home, Failure> {
        let id = HEXLOWER.encode(&source.id());
        let cache = args.cache.clone().or_else(|| context.settings.cache.clone());
        let base = match &cache {
            Some(dir) => {
                fs::create_dir_all(dir)
                    .with_context(|| format!("cannot make the cache {}", dir.display()))?;
                dir.canonicalize().with_context(|| format!("cannot use the cache {}", dir.display()))?
            }
            None => own(&std::env::temp_dir())?,
        };
        let dir = base.join(id.get(..16).unwrap_or(&id));
        private(&dir)?;
        Ok(Home { dir, told: cache.is_some(), id })
    }

    /// Where all of this is.
    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    /// Where the server listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    /// What servers say of themselves.
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// An empty directory for whatever purpose.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn scratch(&self) -> Result<PathBuf, Failure> {
        let dir = self.dir.join("empty");
        private(&dir)?;
        Ok(dir)
    }

    fn manifest_path(&self) -> PathBuf {
        self.dir.join("manifest")
    }

    /// Held by who starts a server; others wait.
    ///
    /// # Errors
    /// What the system reports.
    pub(crate) fn lock(&self) -> Result<File, Failure> {
        let path = self.dir.join("starting");
        let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
            .with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(file)
    }

    /// The manifest, if it was fetched before.
    pub(crate) fn manifest(&self) -> Option<Manifest> {
        let path = self.manifest_path();
        if !path.exists() {
            return None;
        }
        let manifest = read_manifest(&path).ok()?;
        (HEXLOWER.encode(&id_bytes(&manifest)) == self.id).then_some(manifest)
    }

    /// Keeps the manifest for the next process.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn keep(&self, manifest: &Manifest) -> Result<(), Failure> {
        let path = self.manifest_path();
        let mut file = tempfile::NamedTempFile::new_in(&self.dir)
            .with_context(|| format!("cannot write into {}", self.dir.display()))?;
        std::io::Write::write_all(&mut file, &manifest.to_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
        file.persist(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(())
    }

    /// Where the data goes: where it is already, else into RAM if there is plenty, unless the user said otherwise.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub(crate) fn data(&self, manifest: &Manifest) -> Result<PathBuf, Failure> {
        let here = self.dir.join("data");
        if self.told || here.exists() {
            return Ok(here);
        }
        let free = statvfs(RAM).map_or(0, |room| room.f_bavail.saturating_mul(room.f_frsize));
        if manifest.total_len() > free / SHARE {
            return Ok(here);
        }
        let dir = own(Path::new(RAM))?.join(self.id.get(..16).unwrap_or(&self.id));
        private(&dir)?;
        Ok(dir.join("data"))
    }
}

/// This user's own directory below one that all may write to.
fn own(below: &Path) -> Result<PathBuf, Failure> {
    let dir = below.join(format!("tidecast-{}", rustix::process::geteuid().as_raw()));
    private(&dir)?;
    Ok(dir)
}

/// Makes a directory that is ours alone. What somebody else has put in its place is not used.
fn private(dir: &Path) -> Result<(), Failure> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(anyhow!(e).context(format!("cannot make {}", dir.display())).into());
        }
        _ => {}
    }
    let meta = fs::symlink_metadata(dir).with_context(|| format!("cannot use {}", dir.display()))?;
    let ours = meta.uid() == rustix::process::geteuid().as_raw();
    if !meta.is_dir() || !ours || meta.mode() & 0o022 != 0 {
        let why = anyhow!(
            "{} is not a directory of this user's alone: remove it, or name another with --cache",
            dir.display()
        );
        return Err(why.into());
    }
    Ok(())
}
