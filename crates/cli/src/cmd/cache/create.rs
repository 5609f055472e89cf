//! `cache create`: the files are read by this process, with its user's rights, and handed to the daemon.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use serde_json::json;
use tidecast_daemon::api::types::{CacheInfo, Create, Created, Method};
use tidecast_daemon::client::ClientError;
use tidecast_metainfo::{Manifest, Version, Warning};
use tidecast_publish::{Base, Format, HashOptions, Progress, ScanOptions, Tree};
use tokio::sync::mpsc;

use super::{Ask, failed, readers};
use crate::failure::{Code, Failure, Outcome};
use crate::report::{Reporter, Snapshot, object};
use crate::units::{Size, Span, count};

/// Bytes read at once.
const CHUNK: usize = 1 << 20;
/// Chunks that may wait for the daemon.
const CHUNKS: usize = 4;
/// Room is asked for again after so long.
const AGAIN: Duration = Duration::from_secs(1);
/// The daemon verifies and syncs what it was given: at least so much a second is expected.
const RATE: u64 = 10 << 20;

/// Make a cache of files, kept by this host's daemon from now on
///
/// The files are copied into its store (or were there already, in another cache of yours); the originals are yours to
/// change. Equal content under the same name is the same version, of which what is said by options changes while no other
/// host has a copy; other content is the next version.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  tidecast cache create nt /data/blast/nt --lease 30d --methods swarm,direct"
)]
pub(super) struct Args {
    /// What to call it
    name: String,
    /// A directory, whose content it will be, or files of one directory
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// How long it is wanted: where room is short, it goes only after what is wanted no more; `pin` keeps it whatever comes
    /// [default: the daemon's, 7d]
    #[arg(long, value_name = "DURATION")]
    lease: Option<Span>,
    /// Wait so long for room that running jobs or transfers take (exit code 3 when there is none) [default: fail at once]
    #[arg(long, value_name = "DURATION")]
    wait: Option<Span>,
    /// How it may travel, preferred first: swarm, direct
    #[arg(long, value_name = "METHOD", value_delimiter = ',')]
    methods: Vec<Method>,
    /// Hosts it is offered to: a ClassAd expression over their ads (TARGET.TotalDisk > 1000000)
    #[arg(long, value_name = "CLASSAD", value_parser = expression)]
    policy: Option<String>,
    /// Hosts that may have it: a ClassAd expression over their ads
    #[arg(long, value_name = "CLASSAD", value_parser = expression)]
    requirements: Option<String>,
    /// Only you may read it, and it leaves this host by DIRECT only
    #[arg(long)]
    private: bool,
    /// Copies to keep on hosts, the one here among them [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    replicas: Option<u32>,
    /// Who may read it: 700, 750 or 755, as of a directory [default: whoever could read all the files]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    mode: Option<u32>,
    /// The group for whom the mode's middle digit is [default: yours]
    #[arg(long)]
    group: Option<String>,
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode & 0o022 != 0 => Err("nobody writes to a cache: write 700, 750 or 755".into()),
        Ok(mode) if mode & !0o777 == 0 && mode & 0o400 != 0 => Ok(mode),
        _ => Err("write it in octal, as of a directory: 700, 750 or 755".into()),
    }
}

/// The text, if it is one that daemons understand: before all is hashed.
fn expression(text: &str) -> Result<String, String> {
    tidecast_classad::Expr::parse(text).map(|_| text.to_owned()).map_err(|e| e.to_string())
}

pub(super) async fn run(args: &Args, ask: &Ask, reporter: &mut Reporter) -> Outcome {
    let mut create = Create {
        name: args.name.clone(),
        lease: args.lease.map(|lease| lease.0.as_secs()),
        methods: args.methods.clone(),
        policy: args.policy.clone(),
        requirements: args.requirements.clone(),
        private: args.private,
        replicas: args.replicas.unwrap_or(0),
        mode: args.mode,
        group: args.group.clone(),
        found: false,
    };
    if let Some(why) = create.contradiction() {
        return Err(Failure::usage(anyhow::anyhow!(why)));
    }
    let progress = Arc::new(Progress::new());
    let (paths, name, telling) = (args.paths.clone(), args.name.clone(), progress.clone());
    let hashing = tokio::task::spawn_blocking(move || hash(&paths, &name, &telling));
    let (tree, manifest) = watch(hashing, &progress, reporter).await?;
    tree.warnings.iter().for_each(|warning| reporter.warning(&warning.to_string()));
    let of_links = |w: &Warning| matches!(w, Warning::OutsideLinks { .. } | Warning::LinksToPrefix { .. });
    let of_links = manifest.warnings().into_iter().filter(of_links);
    of_links.for_each(|warning| reporter.warning(&warning.to_string()));
    let narrowed = open_to(&mut create, &tree)?;
    let created = declare(args, ask, &create, &manifest).await?;
    let sent: u64 = created.files.iter().filter_map(|i| Some(manifest.file(*i)?.len())).sum();
    let info = upload(ask, &created, tree, manifest, sent).await?;
    reporter.clear();
    reporter.result(&format!(
        "{}: {} in {}, {} of them new here; {}",
        info.name,
        Size(info.bytes),
        count(info.files, "file"),
        Size(sent),
        info.path.as_deref().map_or(String::new(), |path| path.display().to_string())
    ));
    // A cache that exists keeps its mode and group unless the caller names others.
    let narrowed = narrowed.filter(|_| Some(info.mode) == create.mode);
    let reason = narrowed.map(|(path, mode)| format!("{} has mode {mode:o}", path.display()));
    if let Some(reason) = &reason {
        reporter.note(&format!(
            "readable by {} only: {reason}; --mode 755 opens it to all users",
            readers_of(&info)
        ));
    }
    let mut fields = object(json!(info));
    fields.insert("mode_reason".into(), json!(reason));
    fields.insert("sent".into(), sent.into());
    Ok(fields)
}

/// Makes it known, with room for it: as soon as there is some, if the caller waits.
async fn declare(args: &Args, ask: &Ask, create: &Create, manifest: &Manifest) -> Result<Created, Failure> {
    let (began, bytes) = (Instant::now(), manifest.to_bytes());
    let longer = Duration::from_millis(manifest.file_count().into());
    loop {
        let refused = match ask.client.create(create, bytes.clone(), longer).await {
            Err(ClientError::Refused { kind, why, .. }) if kind == "wait" => why,
            other => return other.map_err(failed),
        };
        let Some(Span(wait)) = args.wait else {
            let error = anyhow::anyhow!("{refused}; --wait DURATION waits for room");
            return Err(Failure::from(error).with(object(json!({ "reason": "wait" }))));
        };
        if began.elapsed() >= wait {
            let error =
                anyhow::anyhow!("{} is not made after {}: {refused}", args.name, Span(began.elapsed()));
            return Err(Failure::new(Code::Cut, error).with(object(json!({ "reason": "wait" }))));
        }
        tokio::time::sleep(AGAIN.min(wait.saturating_sub(began.elapsed()))).await;
    }
}

/// Sets the mode and group that the files allow, unless the caller names others. Gives the path and mode that narrow them.
fn open_to(create: &mut Create, tree: &Tree) -> Result<Option<(PathBuf, u32)>, Failure> {
    if create.private || create.mode.is_some() {
        return Ok(None);
    }
    let groups = nix::unistd::getgroups().map_err(std::io::Error::from)?;
    let mut groups: Vec<u32> = groups.into_iter().map(nix::unistd::Gid::as_raw).collect();
    groups.push(nix::unistd::getegid().as_raw());
    let readers = readers::of(tree, &groups)?;
    create.mode = Some(readers.mode);
    if create.group.is_some() {
        // Whom they named may read.
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

fn readers_of(info: &CacheInfo) -> String {
    match &info.group {
        Some(group) if info.mode & 0o040 != 0 => format!("{} and group {group}", info.owner),
        _ => info.owner.clone(),
    }
}

/// Walks and hashes what is given.
fn hash(paths: &[PathBuf], name: &str, progress: &Progress) -> anyhow::Result<(Tree, Manifest)> {
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
fn several_files(paths: &[PathBuf], name: &str, progress: &Progress) -> anyhow::Result<Tree> {
    let mut root: Option<PathBuf> = None;
    let mut only = Vec::new();
    for path in paths {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let parent = parent.canonicalize().with_context(|| format!("cannot find {}", parent.display()))?;
        let root = root.get_or_insert_with(|| parent.clone());
        if *root != parent {
            bail!("{} does not lie in {}: give one directory", path.display(), root.display());
        }
        let own = path.file_name().with_context(|| format!("{} has no name of its own", path.display()))?;
        path.symlink_metadata().with_context(|| format!("cannot find {}", path.display()))?;
        only.push(own.to_owned());
    }
    let options = ScanOptions { only, name: Some(name.into()), ..ScanOptions::default() };
    Ok(tidecast_publish::scan(&root.unwrap_or_default(), &options, progress)?)
}

async fn watch<T: Send + 'static>(
    work: tokio::task::JoinHandle<anyhow::Result<T>>,
    progress: &Progress,
    reporter: &mut Reporter,
) -> Result<T, Failure> {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return Ok(done.context("a thread of Tidecast failed")??),
            () = tokio::time::sleep(Duration::from_millis(100)) => {
                let (bytes, total) = (progress.bytes(), progress.total());
                reporter.progress(&Snapshot { stage: "hash", bytes, total, ..Snapshot::default() });
            }
        }
    }
}

async fn upload(
    ask: &Ask,
    created: &Created,
    tree: Tree,
    manifest: Manifest,
    bytes: u64,
) -> Result<CacheInfo, Failure> {
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
    let sent = ask.client.upload(&created.cache, queue, wait).await;
    // What could not be read is the cause, whatever became of the connection.
    if let Ok(Some(error)) = reading.join() {
        return Err(anyhow::Error::from(error).into());
    }
    sent.map_err(failed)
}

/// Sends what the files hold, one after the other. One that has changed since it was hashed ends it: the daemon verifies.
fn read(
    tree: &Tree,
    manifest: &Manifest,
    files: &[u32],
    chunks: &mpsc::Sender<std::io::Result<Bytes>>,
) -> std::io::Result<()> {
    let base = Base::of(&tree.root)?;
    for index in files {
        let Some(file) = manifest.file(*index) else { continue };
        let path = if tree.is_single() { tree.root.clone() } else { file.path().below(&tree.root) };
        let named = |e: std::io::Error| std::io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let mut from = base.open(&path).map_err(std::io::Error::other)?.take(file.len());
        let mut left = file.len();
        while left > 0 {
            let mut chunk = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
            from.read_exact(&mut chunk).map_err(|e| match e.kind() {
                std::io::ErrorKind::UnexpectedEof => named(std::io::Error::new(
                    std::io::ErrorKind::UnexpectedEof,
                    "the file has become shorter since it was hashed; create the cache again when it no longer changes",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_cache_can_have_is_refused_before_anything_is_read() {
        for fine in ["700", "750", "755", "0755", "555"] {
            assert!(mode(fine).is_ok(), "{fine}");
        }
        for bad in ["777", "775", "722", "077", "1755", "rwx", ""] {
            assert!(mode(bad).is_err(), "{bad}");
        }
        assert!(expression("TARGET.TotalDisk > 5").is_ok() && expression("1 +").is_err());
    }
}
