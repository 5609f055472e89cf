//! `publish`: makes a manifest of a file or directory.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tidecast_discovery::TrackerUrl;
use tidecast_event::publish::{Done, Started};
use tidecast_event::{Context as _, Error};
use tidecast_metainfo::clean_web_seed;
use tidecast_node::{MessageSender, access, check_trackers, plain, summary};

use crate::describe::{Means, TreeOptions, describe};
use crate::operation::{Operation, Work, start};
use crate::state;

/// The operation of [`publish`].
pub type Publish = Operation<Started, Done>;

/// How to describe a file or directory. The default is right for most.
#[derive(Debug, Clone, Default)]
pub struct PublishOptions {
    /// Write the manifest to this file, which is replaced. It is in [`Done::torrent`] too.
    pub output: Option<PathBuf>,
    /// How the tree is described.
    pub tree: TreeOptions,
    /// Only for nodes with a ticket, which [`seed`](crate::seed()) makes.
    pub private: bool,
    /// URLs of trackers to name in the manifest.
    pub trackers: Vec<String>,
    /// URLs from which clients may fetch beside peers: of the directory around the path, ending in `/`, or of the file
    /// (BEP 19).
    pub web_seeds: Vec<String>,
    /// Where this node keeps its key and unfinished work. Default: [`default_state_dir`](crate::default_state_dir).
    pub state_dir: Option<PathBuf>,
    /// Threads to work with. Default: one for each core.
    pub threads: Option<usize>,
}

/// Makes a manifest of a file or directory.
///
/// Each byte is read once, on all cores; the same call resumes an interrupted one.
///
/// ```
/// use tidecast::{Manifest, PublishOptions, TreeOptions, publish};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let data = dir.path().join("genomes");
/// # std::fs::create_dir(&data)?;
/// # std::fs::write(data.join("a.fa"), "ACGT")?;
/// # let state_dir = Some(dir.path().join("state"));
/// let tree = TreeOptions { exclude: vec!["*.tmp".into()], ..Default::default() };
/// let options = PublishOptions { tree, state_dir, ..Default::default() };
/// let done = publish(&data, options).wait_blocking()?;
/// assert_eq!((done.summary.name.as_str(), done.summary.bytes), ("genomes", 4));
/// let manifest = Manifest::parse(&done.torrent)?;
/// assert_eq!(manifest.file_count(), 1);
/// # Ok(())
/// # }
/// ```
pub fn publish(path: impl AsRef<Path>, options: PublishOptions) -> Publish {
    let path = path.as_ref().to_owned();
    start(options.threads.unwrap_or(0), async move |work| run(&path, &options, work).await)
}

async fn run(path: &Path, options: &PublishOptions, work: &Work<Started, Done>) -> Result<Done, Error> {
    check_trackers(&options.trackers)?;
    let web_seeds: Vec<String> =
        options.web_seeds.iter().map(|url| web_seed(url)).collect::<Result<_, _>>()?;
    work.started(Started { command: "publish", path: path.to_owned() });
    let state_dir = state::own(options.state_dir.as_deref())?;
    let means = Means {
        trackers: &options.trackers,
        private: options.private,
        state_dir: &state_dir,
        threads: options.threads,
        leaves: None,
    };
    let mut tree = options.tree.clone();
    if let Some(output) = &options.output {
        tree.leave_out(path, output);
    }
    let published = describe(path, &tree, means, work, &MessageSender::new(work)).await?;
    let manifest = published.manifest.with_web_seeds(&web_seeds);
    let torrent = manifest.to_bytes();
    if let Some(output) = &options.output {
        // That of a private swarm, whose names and hashes are for ticket holders, is for its owner alone.
        let mode = if access::needs_ticket(&manifest) { 0o600 } else { 0o666 };
        let is_over = || work.stop.is_asked();
        match tidecast_paths::output(output, &torrent, mode, &is_over) {
            Err(e) if e.kind() == ErrorKind::Interrupted && is_over() => {
                return Err(Error::interrupted("interrupted"));
            }
            written => written.with_context(|| format!("cannot write {}", output.display()))?,
        }
    }
    let seconds = work.seconds();
    Ok(Done {
        seconds,
        summary: summary(&manifest),
        manifest: options.output.clone(),
        why: published.why,
        rate: (manifest.total_len() as f64 / seconds.max(0.001)).round() as u64,
        torrent,
    })
}

/// A web seed, checked.
fn web_seed(text: &str) -> Result<String, Error> {
    let bad = |why: String| Error::usage(format!("--web-seed {}: {why}", plain(text)));
    let url = clean_web_seed(text.as_bytes());
    let url = url.ok_or_else(|| bad("not an http:// or https:// URL of at most 2048 bytes".into()))?;
    TrackerUrl::parse(&url).map_err(|error| match error {
        // The URL is named already.
        tidecast_discovery::Error::Url { why, .. } => bad(why.into()),
        other => bad(other.to_string()),
    })?;
    Ok(url)
}
