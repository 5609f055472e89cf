//! `tidecast man DIR`: the manual pages, one for the program and one for each command.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use tidecast_text::count;

use crate::failure::Outcome;
use crate::report::{Reporter, fields_of};

/// Write the manual pages into a directory
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  tidecast man ~/.local/share/man/man1")]
pub(crate) struct Args {
    /// Directory for tidecast.1, tidecast-get.1 and so on; created if it is missing
    dir: PathBuf,
}

/// The pages that were written.
#[derive(Serialize)]
struct Pages {
    pages: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args, mut program: clap::Command, reporter: &mut Reporter) -> Outcome {
    std::fs::create_dir_all(&args.dir).with_context(|| format!("cannot create {}", args.dir.display()))?;
    program.build();
    let mut pages = vec![page(&args.dir, program.clone())?];
    for command in program.get_subcommands().filter(|c| c.get_name() != "help" && !c.is_hide_set()) {
        let name = format!("tidecast-{}", command.get_name());
        // clap needs a static name. The leak is small and ends with the program.
        pages.push(page(&args.dir, command.clone().name(&*name.leak()))?);
    }
    reporter.result(&format!("{} written to {}", count(pages.len() as u64, "page"), args.dir.display()));
    Ok(fields_of(&Pages { pages }))
}

fn page(dir: &Path, command: clap::Command) -> Result<PathBuf> {
    let path = dir.join(format!("{}.1", command.get_name()));
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    tidecast_paths::output(&path, &text, 0o666, &|| true)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
