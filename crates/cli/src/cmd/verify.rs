//! `tidecast verify MANIFEST PATH`: lists each damaged, missing or extra file.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use serde_json::{Map, Value, json};
use tidecast_publish::{Progress, Report, verify};

use super::describe::watch;
use super::{Context, read_manifest};
use crate::failure::{Failure, Outcome};
use crate::names;
use crate::report::{Reporter, object};
use crate::stop::{Stop, block_on};
use crate::units::{Size, Span, count};

/// Compare a file or directory with its manifest
///
/// Every byte is read and hashed. Each damaged, missing or extra file is listed; exit code 1 if there is any. What `publish` was
/// told to leave out, and sockets, devices and pipes, which it always does, are not extra.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  tidecast verify genomes.torrent /scratch/genomes")]
pub(crate) struct Args {
    /// The manifest (.torrent)
    manifest: PathBuf,
    /// The published file, or the directory itself
    path: PathBuf,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let manifest = Arc::new(read_manifest(&args.manifest)?);
    let threads = NonZero::new(context.threads());
    let path = args.path.clone();
    let report = block_on(context.threads(), async {
        let stop = Stop::listen()?;
        reporter.started(
            "verify",
            object(json!({ "manifest": names::json(&args.manifest), "path": names::json(&args.path) })),
        );
        let progress = Arc::new(Progress::new());
        let counters = progress.clone();
        let work = move || verify(&manifest, &path, threads, &counters);
        watch("verify", &progress, reporter, &stop, work).await
    })?;
    reporter.clear();
    for problem in &report.problems {
        reporter.result(&problem.to_string());
    }
    if !report.left_out.is_empty() {
        let all = count(report.left_out.len() as u64, "entry");
        let first = report.left_out.first().map(|path| path.display().to_string()).unwrap_or_default();
        reporter.note(&format!("{all} not compared: left out when this was published, such as {first}"));
    }
    let fields = fields(&report);
    let shown = args.path.display();
    if !report.is_good() {
        let problems = count(report.problems.len() as u64, "problem");
        // What cannot be read may be all right.
        let unknown = |p: &tidecast_publish::Problem| matches!(p.what.word(), "unreadable" | "unchecked");
        let error = match report.problems.iter().all(unknown) {
            true => anyhow!("{shown} cannot be compared with the manifest as a whole: {problems}"),
            false => anyhow!("{shown} is not what the manifest says: {problems}"),
        };
        return Err(Failure::from(error).with(fields));
    }
    let seconds = Span(std::time::Duration::from_secs_f64(reporter.seconds()));
    let files = count(report.files.into(), "file");
    reporter.result(&format!(
        "{shown} is what the manifest says: {}, {files}, verified in {seconds}",
        Size(report.bytes)
    ));
    Ok(fields)
}

/// `damaged`, `missing`, `extra` and so on, each a list of paths; what was left out; and all problems with their details.
fn fields(report: &Report) -> Map<String, Value> {
    let mut all = object(json!({ "bytes": report.bytes, "file_count": report.files }));
    for word in ["damaged", "missing", "extra", "unreadable", "unchecked"] {
        let of_kind = report.problems.iter().filter(|p| p.what.word() == word);
        let paths: Vec<Value> = of_kind.map(|p| p.path.to_string_lossy().into()).collect();
        all.insert(word.to_owned(), paths.into());
    }
    let left_out = report.left_out.iter().map(|path| names::json(path)).collect();
    all.insert("left_out".to_owned(), left_out);
    let problems = report.problems.iter().map(|p| Value::from(p.to_string())).collect();
    all.insert("problems".to_owned(), problems);
    all
}
