//! `tidecast verify MANIFEST PATH`: lists each damaged, missing or extra file.

use std::path::PathBuf;
use std::time::Duration;

use tidecast::VerifyOptions;
use tidecast::event::verify::Done;
use tidecast_text::{Size, Span, count};

use super::{Context, run_operation};
use crate::failure::{Outcome, reached};
use crate::report::{Reporter, fields_of};

/// Compare a file or directory with its manifest
///
/// Every byte is read and hashed. Each damaged, missing or extra file is listed; the exit code is 1 if there is any. Files
/// that `publish` was told to skip do not count as extra, nor do sockets, devices and pipes, which it always skips.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  tidecast verify genomes.torrent /scratch/genomes")]
pub(crate) struct Args {
    /// Manifest (.torrent)
    manifest: PathBuf,
    /// The published file, or the published directory itself
    path: PathBuf,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let options = VerifyOptions { threads: context.threads_for_operation() };
    let begin = || tidecast::verify(&args.manifest, &args.path, options);
    let ended = run_operation::run(begin, reporter, |_, _| ());
    reached(&ended).iter().for_each(|done| report(done, reporter));
    let done = ended?;
    let seconds = Span(Duration::from_secs_f64(done.seconds));
    let files = count(done.file_count.into(), "file");
    let shown = args.path.display();
    reporter.result(&format!(
        "{shown} matches the manifest: {}, {files}, verified in {seconds}",
        Size(done.bytes)
    ));
    Ok(fields_of(&done))
}

/// Prints the problems, and the number of entries that were not compared.
fn report(done: &Done, reporter: &Reporter) {
    done.problems.iter().for_each(|problem| reporter.result(problem));
    if let Some(first) = done.left_out.first() {
        let (all, first) = (count(done.left_out.len() as u64, "entry"), first.display());
        reporter.note(&format!("not compared: {all} that publish skipped, such as {first}"));
    }
}
