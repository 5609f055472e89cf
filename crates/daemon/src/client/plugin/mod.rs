//! HTCondor's file-transfer plugin for `tidecast://ORIGIN/NAME[@VERSION][/PATH]`.
//!
//! HTCondor runs it as the job's user in the job's directory. HTCondor's handling of failures determines its
//! behaviour: a job runs although its input is missing if the plugin reports "failed" and exits with 0, or
//! reports "done" for a missing file. So every file is checked after it was created, every failure is
//! reported, and temporary failures are retried here.

mod ads;

use std::ffi::OsStr;
use std::fs::File;
use std::future::Future;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::Errno;
use tidecast_classad::{Ad, Expr, Value};
use tidecast_paths::{Access, End, Root, follow, refuse_planted, reopen};

use super::{Client, ClientError, batch_job, materialize};
use crate::model::name::{CacheName, decoded};
use crate::model::types::{CacheInfo, Get, Got};

pub use ads::{Error, SELF, Transfer, Wanted};
use ads::{error, seconds};

/// One request to the daemon may take this long, seconds.
const ASK: u64 = 30;
/// A daemon that does not answer, or whose sources do not, is retried for this long.
const PATIENCE: Duration = Duration::from_secs(120);
/// The limit if there is no socket: a daemon that restarts creates it first of all, long before it has read
/// its store.
const NO_SOCKET: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_secs(2);
/// An answer is padded with blanks up to this length.
const MOST_BLANKS: usize = 16 << 20;
/// A cache that is coming is waited for this long.
const COMING: Duration = Duration::from_secs(6 * 3600);

/// The requests of an input file. `upload`: all of them are uploads. A malformed request is a failed
/// transfer: a caller that reads only the results must not conclude that there was nothing to do.
///
/// # Errors
/// That transfer.
pub fn read(infile: &Path, upload: bool) -> Result<Vec<Wanted>, Box<Transfer>> {
    let text = read_file(infile).map_err(|e| format!("cannot read {}: {e}", infile.display()));
    let wanted = text
        .and_then(|text| ads::wanted(&text).map_err(|e| format!("cannot parse {}: {e}", infile.display())));
    let wanted = wanted.map_err(|why| {
        let nothing = Wanted { upload, ..Wanted::default() };
        Box::new(Transfer::failed(nothing, error("Specification", false, why)))
    })?;
    Ok(wanted.into_iter().map(|one| Wanted { upload, ..one }).collect())
}

/// A file that no other user has planted; a pipe would let a job wait for ever.
fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let found = match follow(path, &mut refuse_planted)? {
        End::Dir(found) | End::Other(found) => found,
        End::Missing(_) => return Err(Errno::NOENT.into()),
    };
    if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::RegularFile {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::from(reopen(found, OFlags::RDONLY)?).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// All transfers failed, as there is no daemon.
#[must_use]
pub fn without_daemon(wanted: Vec<Wanted>, why: &str) -> Vec<Transfer> {
    wanted.into_iter().map(|one| Transfer::failed(one, error("Contact", false, why))).collect()
}

/// Runs the transfers one after the other, by the daemon at `socket`. After `stop`, the remaining ones fail.
pub async fn transfer_all(
    socket: &Path,
    wanted: Vec<Wanted>,
    stop: impl Future<Output = ()>,
) -> Vec<Transfer> {
    let mut stop = std::pin::pin!(stop);
    let (mut asker, mut results, mut is_stopped) = (Asker::new(socket), Vec::new(), false);
    for one in wanted {
        let why = error("Transfer", true, "the transfer was interrupted");
        let stopped = Transfer::failed(one.clone(), why);
        if !is_stopped {
            tokio::select! {
                biased;
                () = &mut stop => is_stopped = true,
                result = transfer(&mut asker, one) => {
                    results.push(result);
                    continue;
                }
            }
        }
        results.push(stopped);
    }
    results
}

/// The caches on this host, as attributes of a host's slots. Jobs match on these:
/// `stringListMember("head/nt@1", TidecastCaches)`. If no daemon answers, the list is empty. None: they
/// cannot be written as an ad.
pub async fn caches(client: &Client) -> Option<String> {
    let mut here = client.get::<Vec<CacheInfo>>("/v1/caches").await.unwrap_or_default();
    here.retain(|info| info.state == "committed");
    let names: Vec<&str> = here.iter().map(|info| info.name.as_str()).collect();
    let mut ad = Ad::new();
    ad.insert("TidecastCaches", Expr::from(Value::from(names.join(", ").as_str())));
    ad.to_old().ok().map(|text| text.trim_end().to_owned())
}

/// HTCondor has filled the file with blanks to reserve its space: it is overwritten, not truncated. The rest
/// of an earlier and longer answer (up to 23.3 several transfers share one file) becomes blanks.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, results: &[Transfer]) -> std::io::Result<()> {
    let mut text: String = results.iter().map(|result| format!("{}\n", result.ad())).collect();
    // A link or a pipe that another user has put there is not written to.
    let name = path.file_name().ok_or(std::io::ErrorKind::InvalidInput)?;
    follow(path, &mut refuse_planted)?;
    let dir = Root::open(path.parent().unwrap_or(Path::new("")))?;
    let mut file = dir.open_or_create(name, 0o666)?;
    // Nor a file that has come after that look.
    let (above, me) = (dir.stat("")?, rustix::process::geteuid().as_raw());
    if (Access { owner: above.uid, mode: above.mode }).lets_plant(file.metadata()?.uid(), me) {
        return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    match usize::try_from(file.metadata()?.len()) {
        Ok(len) if len <= MOST_BLANKS => {
            text.extend(std::iter::repeat_n(' ', len.saturating_sub(text.len())));
        }
        _ => file.set_len(text.len() as u64)?,
    }
    file.write_all(text.as_bytes())
}

async fn transfer(asker: &mut Asker, wanted: Wanted) -> Transfer {
    let start = seconds();
    let got = match wanted.amiss {
        Some(why) => Err(error("Specification", false, why)),
        None if wanted.upload => Err(error(
            "Specification",
            false,
            "file transfers cannot create caches: use tidecast cache create",
        )),
        None => bring(asker, &wanted).await,
    };
    match got {
        Ok(bytes) => Transfer { wanted, bytes, start, end: seconds(), error: None },
        Err(error) => Transfer { start, ..Transfer::failed(wanted, error) },
    }
}

/// Has the cache here, and makes the job's file of it; its bytes.
async fn bring(asker: &mut Asker, wanted: &Wanted) -> Result<u64, Error> {
    let (name, path) = CacheName::of_url(&wanted.url).map_err(|e| error("Parameter", false, e))?;
    let to = &place(&wanted.local, &name, path);
    let info = ready(asker, &name).await?;
    let mut made = Err(error("Resolution", false, format!("no {path} in {}", info.name)));
    for path in decoded(path) {
        made = make(asker, &info, &path, to).await;
        match &made {
            Err(error) if error.kind == "Resolution" => {}
            _ => break,
        }
    }
    made
}

/// Makes the job's file of a cache that is here; its bytes.
async fn make(asker: &Asker, info: &CacheInfo, path: &Path, to: &Path) -> Result<u64, Error> {
    let view = info.path.as_deref().ok_or_else(|| error("Transfer", true, "the daemon reported no path"))?;
    let whole = path.as_os_str().is_empty();
    let is_below = path.components().all(|c| matches!(c, std::path::Component::Normal(_)));
    if !is_below {
        return Err(error("Parameter", false, format!("{path:?} is not a path inside a cache")));
    }
    let real = match whole {
        true => view.to_owned(),
        false => match materialize::real_path(&asker.client, info, path).await {
            Ok(real) => view.join(real),
            Err(materialize::Error::Absent(path)) => {
                let path = path.display();
                return Err(error("Resolution", false, format!("no {path} in {}", info.name)));
            }
            Err(failed) => return Err(create_error(failed)),
        },
    };
    // If the job's user can read the store here, a link suffices; else this process makes a copy.
    if !asker.contained && materialize::sees(info).is_ok() && std::fs::metadata(&real).is_ok() {
        let (dir, name) = parts(to)?;
        materialize::symlink(&real, &dir, name, false).map_err(create_error)?;
    } else {
        copy(&asker.client, info, path, to).await?;
    }
    let made =
        std::fs::metadata(to).map_err(|e| error("Transfer", true, format!("{}: {e}", to.display())))?;
    match made.is_dir() {
        _ if whole => Ok(info.bytes),
        true => materialize::bytes(&asker.client, info, path).await.map_err(create_error),
        false => Ok(made.len()),
    }
}

/// The place of the job's file. If a URL ends with a slash, HTCondor passes the name of an existing
/// directory: the file gets its own name in it, as without the slash.
fn place(local: &str, name: &CacheName, path: &str) -> PathBuf {
    let own = path.rsplit('/').next().filter(|own| !own.is_empty()).unwrap_or(&name.name);
    if local.ends_with('/') { Path::new(local).join(own) } else { local.into() }
}

/// The daemon, and when it answered last; and the job.
struct Asker {
    client: Client,
    heard: Instant,
    answered: bool,
    job: Option<String>,
    /// The job sees its scratch directory only: a link out of it leads nowhere.
    contained: bool,
}

impl Asker {
    fn new(socket: &Path) -> Self {
        let contained = batch_job::condor_ad().is_some_and(|ad| batch_job::is_contained(&ad));
        let client = Client::new(socket);
        Self { client, heard: Instant::now(), answered: false, job: batch_job::job(), contained }
    }

    async fn get(&mut self, name: &CacheName) -> Result<Got, ClientError> {
        let get = Get { name: name.to_string(), wait: ASK, job: self.job.clone(), ..Get::default() };
        let got = self.client.post::<Got>("/v1/get", &get, Duration::from_secs(ASK)).await;
        if matches!(got, Ok(_) | Err(ClientError::Refused { .. })) {
            (self.heard, self.answered) = (Instant::now(), true);
        }
        got
    }

    /// Whether it is to be tried again that has failed; `since`: the daemon has been saying no since then.
    fn may_retry(&self, failed: &ClientError, since: Instant) -> bool {
        match failed {
            ClientError::Planted(_) => false,
            ClientError::Refused { .. } => since.elapsed() < PATIENCE,
            ClientError::NoDaemon { source, .. }
                if source.kind() == std::io::ErrorKind::NotFound && !self.answered =>
            {
                self.heard.elapsed() < NO_SOCKET
            }
            _ => self.heard.elapsed() < PATIENCE,
        }
    }
}

/// Waits until the cache is here.
async fn ready(asker: &mut Asker, name: &CacheName) -> Result<CacheInfo, Error> {
    let began = Instant::now();
    let mut since = began;
    loop {
        let failed = match asker.get(name).await {
            Ok(Got::Ready { info, .. }) => return Ok(*info),
            Ok(Got::Wait { .. }) if began.elapsed() < COMING => {
                since = Instant::now();
                continue;
            }
            Ok(Got::Wait { why, .. }) => return Err(error("Transfer", true, why)),
            Err(failed) => failed,
        };
        let explained = explained(&failed);
        if !explained.retryable || !asker.may_retry(&failed, since) {
            return Err(explained);
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// The error of the daemon as one of HTCondor's.
fn explained(failed: &ClientError) -> Error {
    match failed {
        ClientError::Refused { kind, why, .. } => match kind.as_str() {
            "absent" | "invalid" => error("Resolution", false, why),
            "forbidden" | "rejected" | "taken" => error("Authorization", false, why),
            "malformed" => error("Parameter", false, why),
            "denied" => error("Specification", true, why),
            _ => error("Transfer", true, why),
        },
        other => error("Contact", true, other),
    }
}

async fn copy(client: &Client, info: &CacheInfo, path: &Path, to: &Path) -> Result<(), Error> {
    let (dir, name) = parts(to)?;
    let how = materialize::How::Reflink;
    let wanted = materialize::Wanted { dir, name: name.to_owned(), subpath: path.into(), how, force: false };
    materialize::place(client, info, wanted).await.map(|_| ()).map_err(create_error)
}

/// The directory and the name of the target.
fn parts(to: &Path) -> Result<(PathBuf, &OsStr), Error> {
    let dir = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = to
        .file_name()
        .ok_or_else(|| error("Parameter", false, format!("{to:?} does not end in a file name")))?;
    Ok((dir.to_owned(), name))
}

fn create_error(failed: materialize::Error) -> Error {
    match &failed {
        materialize::Error::Client(client) => explained(client),
        materialize::Error::Absent(_) | materialize::Error::Outside(_) => error("Resolution", false, failed),
        materialize::Error::Malformed(_) => error("Transfer", true, failed),
        materialize::Error::Exists(path) => {
            error("Transfer", false, format!("{} exists and differs from the cache", path.display()))
        }
        _ => error("Transfer", false, failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_at_the_end_changes_nothing() {
        let placed = |local: &str, url: &str| {
            let (name, path) = CacheName::of_url(url).unwrap_or_else(|error| panic!("{error}"));
            place(local, &name, path)
        };
        for (local, url, at) in [
            ("/s/nt", "tidecast://h/nt", "/s/nt"),
            ("/s/nt", "tidecast://h/nt/", "/s/nt"),
            ("/s/", "tidecast://h/nt/", "/s/nt"),
            ("/s/", "tidecast://h/nt@2/db/x/", "/s/x"),
        ] {
            assert_eq!(placed(local, url), Path::new(at), "{url}");
        }
    }
}
