//! `tidecast man DIR`: the manual pages, one for the program and one for each of its commands and their subcommands.

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

pub(crate) fn run(args: &Args, program: clap::Command, reporter: &mut Reporter) -> Outcome {
    std::fs::create_dir_all(&args.dir).with_context(|| format!("cannot create {}", args.dir.display()))?;
    // Pages name the pages of their subcommands, and `help` has none.
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let mut pages = Vec::new();
    write_pages(&args.dir, &program, &mut pages)?;
    reporter.result(&format!("{} written to {}", count(pages.len() as u64, "page"), args.dir.display()));
    Ok(fields_of(&Pages { pages }))
}

/// Writes the page of a command, then those of its subcommands but the internal ones, whose help is hidden.
fn write_pages(dir: &Path, command: &clap::Command, pages: &mut Vec<PathBuf>) -> Result<()> {
    pages.push(write_page(dir, command.clone())?);
    for subcommand in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        write_pages(dir, subcommand, pages)?;
    }
    Ok(())
}

fn write_page(dir: &Path, command: clap::Command) -> Result<PathBuf> {
    let man = clap_mangen::Man::new(command);
    let path = dir.join(man.get_filename());
    let mut text = Vec::new();
    man.render(&mut text)?;
    tidecast_paths::output(&path, &text, 0o666, &|| true)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
