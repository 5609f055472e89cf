//! `tidecast plugin`, also called `tidecast_plugin`: HTCondor's file-transfer plugin for `tidecast://ORIGIN/NAME[@VERSION][/PATH]`.
//!
//! HTCondor runs it as the job's user in the job's directory. What HTCondor makes of failures decides its manners: a job
//! runs although its input is missing if the plugin says "failed" and exits with 0, or says "done" of a file that is not
//! there. So every file is looked at after it was made, every failure ends in a non-zero exit, and what may get better
//! is tried again in here.

mod ads;

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow};
use serde_json::Map;
use tidecast_daemon::api::types::{CacheInfo, Get, Got};
use tidecast_daemon::client::{Client, ClientError};
use tidecast_daemon::materialize;
use tidecast_daemon::name::{CacheName, decoded};

use super::{Context, daemon};
use crate::batch;
use crate::failure::{Failure, Outcome};
use crate::report::{in_full, say};
use crate::stop::{Stop, block_on};
use ads::{Transfer, Wanted};

/// One request to the daemon may take so long, seconds.
const ASK: u64 = 30;
/// A daemon that does not answer, or whose sources do not, is tried again for so long.
const PATIENCE: Duration = Duration::from_secs(120);
/// Where there is not even a socket: one that is started anew makes it first of all, long before it has read its store.
const NO_SOCKET: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_secs(2);
/// An answer is padded with blanks up to this length.
const MOST_BLANKS: usize = 16 << 20;
/// A cache that is coming is waited for so long.
const COMING: Duration = Duration::from_secs(6 * 3600);

/// HTCondor's file-transfer plugin for tidecast:// (run by HTCondor; also as `tidecast_plugin`)
///
/// Jobs name caches in transfer_input_files: tidecast://ORIGIN/NAME[@VERSION][/PATH]. The plugin waits until the host's
/// daemon has the cache, makes a link to it where the job may read the daemon's store, else a copy.
#[derive(clap::Args, Debug)]
#[command(after_help = "Set up:\n  ln -s \"$(command -v tidecast)\" /usr/libexec/condor/tidecast_plugin\n  \
    FILETRANSFER_PLUGINS = $(FILETRANSFER_PLUGINS), /usr/libexec/condor/tidecast_plugin")]
pub(crate) struct Args {
    /// What this plugin is and can do, as a ClassAd
    #[arg(long)]
    classad: bool,
    /// The caches that are here, as attributes of this host's slots (for STARTD_CRON)
    #[arg(long, conflicts_with = "classad")]
    caches: bool,
    /// What to transfer: ClassAds with Url and LocalFileName
    #[arg(long, value_name = "FILE", required_unless_present_any = ["classad", "caches"])]
    infile: Option<PathBuf>,
    /// Where to say how it went
    #[arg(long, value_name = "FILE", required_unless_present_any = ["classad", "caches"])]
    outfile: Option<PathBuf>,
    /// From the job to elsewhere: caches are made by `tidecast cache create`, so this always fails
    #[arg(long)]
    upload: bool,
}

/// The command line of HTCondor, whose flags have one dash, as one of this program; None if this is no plugin's.
pub(crate) fn command_line(args: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let mut args = args.peekable();
    let program = args.next()?;
    let is_plugin = Path::new(&program).file_name()? == "tidecast_plugin";
    if !is_plugin && args.next_if(|word| word == "plugin").is_none() {
        return None;
    }
    let flags = args.map(|arg| match arg.to_str() {
        Some(flag @ ("-classad" | "-caches" | "-infile" | "-outfile" | "-upload")) => {
            OsString::from(format!("-{flag}"))
        }
        _ => arg,
    });
    Some([program, "plugin".into()].into_iter().chain(flags).collect())
}

pub(crate) fn run(args: &Args, context: &Context<'_>) -> Outcome {
    if args.classad {
        ads::SELF.iter().for_each(|line| say(line));
        say(&format!("PluginVersion = \"{}\"", env!("CARGO_PKG_VERSION")));
        return Ok(Map::new());
    }
    if args.caches {
        return caches(context);
    }
    let (Some(infile), Some(outfile)) = (&args.infile, &args.outfile) else {
        return Err(Failure::usage(anyhow!("-infile and -outfile are needed")));
    };
    let results = match read(infile) {
        Ok(wanted) => {
            let wanted = wanted.into_iter().map(|one| Wanted { upload: args.upload, ..one }).collect();
            transfer_all(wanted, context)?
        }
        // Whoever looks at the outfile alone must not think that there was nothing to do.
        Err(why) => {
            let nothing = Wanted { upload: args.upload, ..Wanted::default() };
            vec![Transfer::failed(nothing, error("Specification", false, why))]
        }
    };
    write(outfile, &results)?;
    match results.into_iter().find_map(|one| one.error) {
        Some(error) => Err(anyhow!("{}", error.why).into()),
        None => Ok(Map::new()),
    }
}

fn read(infile: &Path) -> Result<Vec<Wanted>, String> {
    let text = std::fs::read(infile).map_err(|e| format!("cannot read {}: {e}", infile.display()))?;
    ads::wanted(&text).map_err(|e| format!("cannot understand {}: {e}", infile.display()))
}

/// One after the other. When this process is told to stop, those that are left have failed.
fn transfer_all(wanted: Vec<Wanted>, context: &Context<'_>) -> Result<Vec<Transfer>, Failure> {
    let socket = match daemon::to_ask(context) {
        Ok(socket) => socket,
        Err(failure) => {
            let why = || error("Contact", false, in_full(&failure.error));
            return Ok(wanted.into_iter().map(|one| Transfer::failed(one, why())).collect());
        }
    };
    block_on(1, async {
        let stop = Stop::listen()?;
        let mut asker = Asker::new(&socket);
        let mut results = Vec::new();
        for one in wanted {
            let stopped =
                Transfer::failed(one.clone(), error("Transfer", true, "the transfer was told to stop"));
            results.push(tokio::select! {
                biased;
                () = stop.wait() => stopped,
                result = transfer(&mut asker, one) => result,
            });
        }
        Ok(results)
    })
}

/// Jobs match on these: `stringListMember("head/nt@1", TidecastCaches)`. Where no daemon answers, there are none.
fn caches(context: &Context<'_>) -> Outcome {
    let client = Client::new(&daemon::to_ask(context)?);
    let here = block_on(1, async { Ok::<_, Failure>(client.get::<Vec<CacheInfo>>("/v1/caches").await) })?;
    let mut here = here.unwrap_or_default();
    here.retain(|info| info.state == "committed");
    let names: Vec<&str> = here.iter().map(|info| info.name.as_str()).collect();
    let mut ad = tidecast_classad::Ad::new();
    let names = tidecast_classad::Value::from(names.join(", ").as_str());
    ad.insert("TidecastCaches", tidecast_classad::Expr::from(names));
    say(ad.to_old().context("names of caches")?.trim_end());
    say("-");
    Ok(Map::new())
}

/// HTCondor has filled the file with blanks, so that there is room for it: it is written over, not cut. What an earlier and
/// longer answer has left (up to 23.3 several transfers have one file) becomes blanks.
fn write(path: &Path, results: &[Transfer]) -> Result<(), Failure> {
    let mut text: String = results.iter().map(|result| format!("{}\n", result.ad())).collect();
    let open = std::fs::OpenOptions::new().create(true).write(true).truncate(false).open(path);
    let written = open.and_then(|mut file| {
        match usize::try_from(file.metadata()?.len()) {
            Ok(len) if len <= MOST_BLANKS => {
                text.extend(std::iter::repeat_n(' ', len.saturating_sub(text.len())));
            }
            _ => file.set_len(text.len() as u64)?,
        }
        file.write_all(text.as_bytes())
    });
    Ok(written.with_context(|| format!("cannot write {}", path.display()))?)
}

/// Why a file did not come, in HTCondor's words.
#[derive(Debug)]
struct Error {
    kind: &'static str,
    retryable: bool,
    why: String,
}

fn error(kind: &'static str, retryable: bool, why: impl ToString) -> Error {
    Error { kind, retryable, why: why.to_string() }
}

async fn transfer(asker: &mut Asker, wanted: Wanted) -> Transfer {
    let start = seconds();
    let got = match wanted.amiss {
        Some(why) => Err(error("Specification", false, why)),
        None if wanted.upload => {
            Err(error("Specification", false, "caches are not made by transfers: use tidecast cache create"))
        }
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
    let mut made = Err(error("Resolution", false, format!("there is no {path} in {}", info.name)));
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
    let view = info.path.as_deref().ok_or_else(|| error("Transfer", true, "the daemon names no path"))?;
    let whole = path.as_os_str().is_empty();
    let source = if whole { view.to_owned() } else { view.join(path) };
    let is_below = path.components().all(|c| matches!(c, std::path::Component::Normal(_)));
    if !is_below {
        return Err(error("Parameter", false, format!("{path:?} is no path in a cache")));
    }
    // What the job's user can read here can be a link; else this process makes a copy.
    match (materialize::sees(info), std::fs::metadata(&source)) {
        (Ok(_), Ok(_)) if !asker.contained => {
            let (dir, name) = parts(to)?;
            materialize::symlink(&source, &dir, name, false).map_err(unmade)?;
        }
        (Ok(_), Err(e)) if e.kind() == std::io::ErrorKind::NotFound => {
            let path = path.display();
            return Err(error("Resolution", false, format!("there is no {path} in {}", info.name)));
        }
        _ => copy(&asker.client, info, path, to).await?,
    }
    let made =
        std::fs::metadata(to).map_err(|e| error("Transfer", true, format!("{}: {e}", to.display())))?;
    Ok(if whole || made.is_dir() { info.bytes } else { made.len() })
}

/// Where the job's file is to be. Of a URL that ends with a slash HTCondor makes the name of a directory that is there: what is
/// wanted has its own name in it, as without the slash.
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
        let contained = batch::condor_ad().is_some_and(|ad| batch::is_contained(&ad));
        let client = Client::new(socket);
        Self { client, heard: Instant::now(), answered: false, job: batch::job(), contained }
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
    fn hopes(&self, failed: &ClientError, since: Instant) -> bool {
        match failed {
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
        let judged = judged(&failed);
        if !judged.retryable || !asker.hopes(&failed, since) {
            return Err(judged);
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// The daemon's word in HTCondor's.
fn judged(failed: &ClientError) -> Error {
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
    materialize::place(client, info, wanted).await.map(|_| ()).map_err(unmade)
}

/// The directory and the name of what is to be made.
fn parts(to: &Path) -> Result<(PathBuf, &OsStr), Error> {
    let dir = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = to.file_name().ok_or_else(|| error("Parameter", false, format!("{to:?} has no name")))?;
    Ok((dir.to_owned(), name))
}

fn unmade(failed: materialize::Error) -> Error {
    match &failed {
        materialize::Error::Client(client) => judged(client),
        materialize::Error::Absent(_) => error("Resolution", false, failed),
        materialize::Error::Malformed(_) => error("Transfer", true, failed),
        _ => error("Transfer", false, failed),
    }
}

fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> Option<String> {
        let line = command_line(words.iter().map(OsString::from))?;
        Some(line.join(&OsString::from(" ")).to_string_lossy().into_owned())
    }

    #[test]
    fn flags_of_one_dash_are_understood_by_either_name_and_of_no_other_command() {
        let said = |line: Option<String>| line.unwrap_or_default();
        assert_eq!(said(line(&["/x/tidecast_plugin", "-classad"])), "/x/tidecast_plugin plugin --classad");
        assert_eq!(said(line(&["tidecast", "plugin", "-infile", "-x"])), "tidecast plugin --infile -x");
        assert_eq!(line(&["tidecast", "copy", "plugin", "-upload"]), None);
        assert_eq!(line(&["tidecast"]), None);
    }

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
