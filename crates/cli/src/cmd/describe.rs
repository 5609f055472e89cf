//! From a tree on disk to its manifest, with progress and Ctrl-C: what `publish` and `share` have in common.

use std::ffi::OsString;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use data_encoding::HEXLOWER;
use tidecast_identity::ssl_torrent::SslRoot;
use tidecast_metainfo::{Manifest, Version};
use tidecast_publish::{Error, Format, HashOptions, Progress, Published, ScanOptions, hash, scan};

use super::Context;
use crate::failure::Failure;
use crate::report::{Reporter, Snapshot};
use crate::stop::Stop;
use crate::units::Size;

/// How a tree is described.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Describe {
    /// Name to publish under [default: that of PATH]
    #[arg(long, value_name = "N")]
    pub(crate) name: Option<String>,
    /// Manifest version; auto: v2, and v1 beside it where its padding costs at most 5%
    #[arg(long, value_name = "auto|v2|hybrid|v1", value_parser = ["auto", "v2", "hybrid", "v1"], hide_possible_values = true)]
    pub(crate) format: Option<String>,
    /// Bytes in a piece, a power of two from 16KiB [default: by total and file sizes]
    #[arg(long, value_name = "S")]
    pub(crate) piece_size: Option<Size>,
    /// Leave out what matches: a name at any depth, or a path if it has a '/'; one that ends in '/' is for directories only; may be
    /// repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Record PATH as the place that the tree was built for, where `run` shows it [default: its own, if a program in it names that; else
    /// none]
    #[arg(long, value_name = "PATH")]
    pub(crate) built_for: Option<PathBuf>,
    /// Leave out symbolic links that lead out of the tree; default: they are carried as they are
    #[arg(long)]
    pub(crate) skip_outside_links: bool,
    /// Make an SSL torrent (libtorrent's convention): peers need a certificate of this host's root
    #[arg(long)]
    pub(crate) ssl_torrent: bool,
}

/// What goes into the manifest beside the tree.
#[derive(Debug, Default, Clone)]
pub(crate) struct Extras {
    pub(crate) trackers: Vec<String>,
    pub(crate) private: bool,
}

impl Describe {
    fn format(&self, context: &Context<'_>) -> Result<Format, Failure> {
        let asked = self.format.as_deref().or(context.settings.format.as_deref()).unwrap_or("auto");
        Ok(match asked {
            "auto" => Format::Auto,
            "v1" => Format::Exactly(Version::V1),
            "v2" => Format::Exactly(Version::V2),
            "hybrid" => Format::Exactly(Version::Hybrid),
            other => {
                return Err(Failure::usage(anyhow!("format is {other:?}: write auto, v2, hybrid or v1")));
            }
        })
    }

    fn piece_length(&self, context: &Context<'_>) -> Result<Option<u32>, Failure> {
        let Some(size) = self.piece_size.or(context.settings.piece_size) else { return Ok(None) };
        let length =
            u32::try_from(size.0).map_err(|_| Failure::usage(anyhow!("a piece of {size} is too long")))?;
        Ok(Some(length))
    }
}

/// Walks and hashes `path`; says what is odd about it. The hash of every leaf goes to the file `leaves`.
///
/// # Errors
/// Bad options are usage errors; what cannot be read, the data's fault; Ctrl-C cuts it off.
pub(crate) async fn describe(
    path: &Path,
    how: &Describe,
    extras: Extras,
    leaves: Option<&Path>,
    context: &Context<'_>,
    reporter: &mut Reporter,
    stop: &Stop,
) -> Result<Published, Failure> {
    let exclude = if how.exclude.is_empty() { &context.settings.exclude } else { &how.exclude };
    let scanning = ScanOptions {
        exclude: exclude.clone(),
        skip_outside_links: how.skip_outside_links,
        built_for: how.built_for.as_deref().map(built_for).transpose()?,
        name: how.name.clone().map(OsString::from),
        ..ScanOptions::default()
    };
    let state = state_file(path, context)?;
    let hashing = HashOptions {
        format: how.format(context)?,
        piece_length: how.piece_length(context)?,
        threads: NonZero::new(context.threads()),
        state: Some(state),
        leaves: leaves.map(Path::to_owned),
    };
    let root = if how.ssl_torrent { Some(SslRoot::load_or_create(&context.own_state_dir()?)?) } else { None };
    let progress = Arc::new(Progress::new());
    let (counters, path) = (progress.clone(), path.to_owned());
    let tree = watch("scan", &progress, reporter, stop, move || scan(&path, &scanning, &counters)).await?;
    for warning in &tree.warnings {
        reporter.warning(&warning.to_string());
    }
    let counters = progress.clone();
    let work = move || {
        hash(&tree, &hashing, &counters, |builder| {
            builder.trackers = extras.trackers.into_iter().map(|url| vec![url]).collect();
            builder.private = extras.private;
            builder.ssl_cert = root.map(|r| r.cert_pem().as_bytes().to_vec());
            builder.created_by = Some(format!("Tidecast {}", env!("CARGO_PKG_VERSION")));
        })
    };
    let published = watch("hash", &progress, reporter, stop, work).await?;
    for warning in published.manifest.warnings() {
        reporter.warning(&warning.to_string());
    }
    Ok(published)
}

/// A place as a manifest records it: absolute, without `..`.
fn built_for(path: &Path) -> Result<PathBuf, Failure> {
    let climbs = path.components().any(|part| part == std::path::Component::ParentDir);
    let whole = std::path::absolute(path).ok().filter(|_| !climbs);
    whole.ok_or_else(|| Failure::usage(anyhow!("--built-for {}: an absolute path is needed", path.display())))
}

/// Runs work of the crate `publish` on another thread, showing how far it is; Ctrl-C stops it.
///
/// # Errors
/// Those of the work.
pub(crate) async fn watch<T: Send + 'static>(
    stage: &'static str,
    progress: &Arc<Progress>,
    reporter: &mut Reporter,
    stop: &Stop,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Failure> {
    let mut task = tokio::task::spawn_blocking(work);
    loop {
        tokio::select! {
            done = &mut task => return done.context("a thread of Tidecast failed")?.map_err(failure),
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
        if stop.is_asked() {
            progress.cancel();
        }
        let (bytes, total) = (progress.bytes(), progress.total());
        if total > 0 {
            reporter.progress(&Snapshot { stage, bytes, total, ..Snapshot::default() });
        }
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Cancelled => Failure::cut("interrupted; the same command goes on from here"),
        error if error.is_exhausted() => {
            anyhow!("{error}; this process may open no more (ulimit -n), or the host is short of memory: that says nothing about the data").into()
        }
        Error::Glob { .. } | Error::PieceLength(_) | Error::NoName(_) => Failure::usage(error),
        other => other.into(),
    }
}

/// Where the hashes of an interrupted run are kept: one file for each published path.
fn state_file(path: &Path, context: &Context<'_>) -> Result<PathBuf, Failure> {
    let dir = context.own_state_dir()?.join("publish");
    let mut make = std::fs::DirBuilder::new();
    make.recursive(true)
        .mode(0o700)
        .create(&dir)
        .with_context(|| format!("cannot make {}", dir.display()))?;
    let whole = std::fs::canonicalize(path).with_context(|| format!("cannot find {}", path.display()))?;
    let id = tidecast_hash::sha256(whole.as_os_str().as_bytes());
    Ok(dir.join(HEXLOWER.encode(id.get(..16).unwrap_or(&id))))
}

/// Says so in a line when a manifest is open BitTorrent and nobody stated that this is meant.
pub(crate) fn open_notice(manifest: &Manifest, plain: bool, reporter: &Reporter) {
    if !plain && !manifest.private() && manifest.ssl_cert().is_none() {
        reporter.note(
            "this is open BitTorrent: anyone who knows the manifest may join, and nothing is encrypted \
             (--plain: it is meant; `share` or --private: only for ticket holders)",
        );
    }
}
