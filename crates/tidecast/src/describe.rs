//! From a tree on disk to its manifest: the common part of `publish` and `share`; and the progress of work of
//! the crate `publish`, also for `verify`.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use tidecast_event::{Context as _, Error, Fault as _, Progress, Stage};
use tidecast_identity::ssl_torrent::SslRoot;
use tidecast_node::{MessageSender, plain};
use tidecast_publish::{
    Error as Failed, Format, HashOptions, Progress as Counters, Published, ScanOptions, hash, own_name, scan,
};

use crate::operation::Work;

/// How a file or directory is described. The default is right for most.
#[derive(Debug, Clone, Default)]
pub struct TreeOptions {
    /// The name to publish under. Default: that of the path.
    pub name: Option<String>,
    /// Version of the manifest. Default: v2, and v1 beside it where its padding costs at most 5%.
    pub format: Format,
    /// Bytes in a piece, a power of two from 16 KiB. Default: by total and file sizes.
    pub piece_length: Option<u32>,
    /// Leave out matching entries: a name at any depth, or a path if it has a `/`; one that ends in `/` is
    /// for directories only.
    pub exclude: Vec<String>,
    /// The place that the tree was built for. Default: its own, if a program in it names that.
    pub built_for: Option<PathBuf>,
    /// Leave out symbolic links that lead out of the tree. Default: they are carried as they are.
    pub skip_outside_links: bool,
    /// Make an SSL torrent (libtorrent's convention): peers need a certificate of this node's root.
    pub ssl_torrent: bool,
}

/// Content of the manifest besides the tree, and the resources to make it.
pub(crate) struct Means<'a> {
    pub(crate) trackers: &'a [String],
    pub(crate) private: bool,
    pub(crate) state_dir: &'a Path,
    pub(crate) threads: Option<usize>,
    /// The file to which the hash of every leaf goes.
    pub(crate) leaves: Option<&'a Path>,
}

impl TreeOptions {
    /// The name under which `path` is published; none for the root directory without a name.
    #[must_use]
    pub fn name_of(&self, path: &Path) -> Option<String> {
        let own = || Some(own_name(path, &path.canonicalize().ok()?)?.to_string_lossy().into_owned());
        self.name.clone().or_else(own)
    }

    /// Excludes a file that is to be written, if it is in the tree: its old content would be published, and replaced.
    pub fn leave_out(&mut self, path: &Path, output: &Path) {
        let above =
            output.parent().map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above });
        let (Ok(root), Some(Ok(above)), Some(name)) =
            (path.canonicalize(), above.map(Path::canonicalize), output.file_name())
        else {
            return;
        };
        // An entry whose name is not Unicode cannot be excluded; it is published, as any other.
        if let Ok(below) = above.join(name).strip_prefix(&root)
            && let Some(below) = below.to_str().filter(|below| !below.is_empty())
        {
            self.exclude.push(format!("/{}", globset::escape(below)));
        }
    }
}

/// Walks and hashes `path`; warns of unusual properties.
///
/// # Errors
/// Bad options are usage errors; unreadable files are errors of the data; it was stopped.
pub(crate) async fn describe<S: Clone, D: Clone>(
    path: &Path,
    how: &TreeOptions,
    means: Means<'_>,
    work: &Work<S, D>,
    messages: &MessageSender<'_>,
) -> Result<Published, Error> {
    let is_component = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('/');
    if let Some(name) = how.name.as_deref().filter(|name| !is_component(name)) {
        return Err(Error::usage(format!("the name {:?}: a name is one component of a path", plain(name))));
    }
    let scanning = ScanOptions {
        exclude: how.exclude.clone(),
        skip_outside_links: how.skip_outside_links,
        built_for: how.built_for.as_deref().map(built_for).transpose()?,
        name: how.name.clone().map(OsString::from),
        ..ScanOptions::default()
    };
    let hashing = HashOptions {
        format: how.format,
        piece_length: how.piece_length,
        threads: means.threads.and_then(NonZero::new),
        state: Some(state_file(path, means.state_dir)?),
        leaves: means.leaves.map(Path::to_owned),
    };
    let root = if how.ssl_torrent { Some(SslRoot::load_or_create(means.state_dir).fault()?) } else { None };
    let counters = Arc::new(Counters::new());
    let (counted, path) = (counters.clone(), path.to_owned());
    let tree = watch(Stage::Scan, &counters, work, move || scan(&path, &scanning, &counted)).await?;
    tree.warnings.iter().for_each(|warning| messages.warning(warning.to_string()));
    let (counted, trackers, private) = (counters.clone(), means.trackers.to_vec(), means.private);
    let hashed = move || {
        hash(&tree, &hashing, &counted, |builder| {
            builder.trackers = trackers.into_iter().map(|url| vec![url]).collect();
            builder.private = private;
            builder.ssl_cert = root.map(|root| root.cert_pem().as_bytes().to_vec());
            builder.created_by = Some(format!("Tidecast {}", env!("CARGO_PKG_VERSION")));
        })
    };
    let published = watch(Stage::Hash, &counters, work, hashed).await?;
    published.manifest.warnings().iter().for_each(|warning| messages.warning(warning.to_string()));
    Ok(published)
}

/// A place as a manifest records it: absolute, without `..`.
fn built_for(path: &Path) -> Result<PathBuf, Error> {
    let climbs = path.components().any(|part| part == Component::ParentDir);
    let whole = std::path::absolute(path).ok().filter(|_| !climbs);
    whole.ok_or_else(|| {
        Error::usage(format!("--built-for {} must be an absolute path without `..`", path.display()))
    })
}

/// Runs work of the crate `publish` on another thread, saying how far it is; to be stopped ends it.
///
/// # Errors
/// Those of the work.
pub(crate) async fn watch<T: Send + 'static, S: Clone, D: Clone>(
    stage: Stage,
    counters: &Arc<Counters>,
    work: &Work<S, D>,
    task: impl FnOnce() -> Result<T, Failed> + Send + 'static,
) -> Result<T, Error> {
    let mut task = tokio::task::spawn_blocking(task);
    loop {
        tokio::select! {
            done = &mut task => return done.context("a thread of Tidecast failed")?.map_err(failed),
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
        if work.stop.is_asked() {
            counters.cancel();
        }
        let (bytes, total) = (counters.bytes(), counters.total());
        if total > 0 {
            work.progress(Progress { stage, bytes, total, ..Progress::default() });
        }
    }
}

fn failed(error: Failed) -> Error {
    match error {
        Failed::Cancelled => Error::interrupted("interrupted; run the same command again to resume"),
        error if error.is_exhausted() => Error::fault(format!(
            "{error}; the limit of open files (ulimit -n) is reached, or the host is short of memory; the data itself may be sound"
        )),
        Failed::Glob { .. } | Failed::PieceLength(_) | Failed::NoName(_) => Error::usage(error),
        other => Error::fault(other),
    }
}

/// Where the hashes of an interrupted run are kept: one file for each published path.
fn state_file(path: &Path, state_dir: &Path) -> Result<PathBuf, Error> {
    let dir = state_dir.join("publish");
    let mut make = DirBuilder::new();
    make.recursive(true)
        .mode(0o700)
        .create(&dir)
        .with_context(|| format!("cannot create {}", dir.display()))?;
    let whole = std::fs::canonicalize(path).with_context(|| format!("cannot find {}", path.display()))?;
    let id = tidecast_hash::sha256(whole.as_os_str().as_bytes());
    Ok(dir.join(HEXLOWER.encode(id.get(..16).unwrap_or(&id))))
}
