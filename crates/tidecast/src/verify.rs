//! `verify`: compares a file or directory with its manifest.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidecast_event::verify::{Done, Started};
use tidecast_event::{Error, PartialResult, Stage};
use tidecast_publish::{Problem, Progress, Report};
use tidecast_text::count;

use crate::describe::watch;
use crate::operation::{Operation, Work, start};

/// The operation of [`verify`].
pub type Verify = Operation<Started, Done>;

/// How to compare.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// Threads to work with. Default: one for each core.
    pub threads: Option<usize>,
}

/// Compares the file or directory `path` with a manifest file. Every byte is read and hashed.
///
/// Where anything is damaged, missing or extra it fails, and the error has the list:
///
/// ```
/// use tidecast::{PublishOptions, PartialResult, VerifyOptions, publish, verify};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let (data, torrent) = (dir.path().join("data"), dir.path().join("data.torrent"));
/// # std::fs::create_dir(&data)?;
/// # std::fs::write(data.join("a"), "as published")?;
/// # let state_dir = Some(dir.path().join("state"));
/// let options = PublishOptions { output: Some(torrent.clone()), state_dir, ..Default::default() };
/// publish(&data, options).wait_blocking()?;
/// verify(&torrent, &data, VerifyOptions::default()).wait_blocking()?;
///
/// std::fs::write(data.join("a"), "as PUBLISHED")?;
/// let error = verify(&torrent, &data, VerifyOptions::default()).wait_blocking().unwrap_err();
/// let Some(PartialResult::Verify(found)) = error.partial_result() else { panic!("{error}") };
/// assert_eq!(found.damaged, ["a"]);
/// # Ok(())
/// # }
/// ```
pub fn verify(manifest: impl AsRef<Path>, path: impl AsRef<Path>, options: VerifyOptions) -> Verify {
    let (manifest, path) = (manifest.as_ref().to_owned(), path.as_ref().to_owned());
    start(options.threads.unwrap_or(0), async move |work| run(manifest, path, &options, work).await)
}

async fn run(
    from: PathBuf,
    path: PathBuf,
    options: &VerifyOptions,
    work: &Work<Started, Done>,
) -> Result<Done, Error> {
    let manifest = Arc::new(work.manifest(&from).await?);
    let threads = options.threads.and_then(NonZero::new);
    work.started(Started { command: "verify", manifest: from, path: path.clone() });
    let counters = Arc::new(Progress::new());
    let (counted, tree) = (counters.clone(), path.clone());
    let compare = move || tidecast_publish::verify(&manifest, &tree, threads, &counted);
    let report = watch(Stage::Verify, &counters, work, compare).await?;
    let done = done(&report, work.seconds());
    if report.is_good() {
        return Ok(done);
    }
    let (shown, problems) = (path.display(), count(report.problems.len() as u64 + report.more, "problem"));
    // An unreadable file may be intact.
    let unknown = |p: &Problem| matches!(p.what.word(), "unreadable" | "unchecked");
    let error = match report.problems.iter().all(unknown) {
        true => format!("cannot compare all of {shown} with the manifest: {problems}"),
        false => format!("{shown} does not match the manifest: {problems}"),
    };
    Err(Error::fault(error).with(PartialResult::Verify(Box::new(done))))
}

fn done(report: &Report, seconds: f64) -> Done {
    let of_kind = |word: &str| {
        let those = report.problems.iter().filter(|p| p.what.word() == word);
        those.map(|p| p.path.to_string_lossy().into_owned()).collect()
    };
    let more = (report.more > 0).then(|| format!("and {}", count(report.more, "more problem")));
    Done {
        seconds,
        bytes: report.bytes,
        file_count: report.files,
        damaged: of_kind("damaged"),
        missing: of_kind("missing"),
        extra: of_kind("extra"),
        unreadable: of_kind("unreadable"),
        unchecked: of_kind("unchecked"),
        left_out: report.left_out.clone(),
        problems: report.problems.iter().map(ToString::to_string).chain(more).collect(),
    }
}
