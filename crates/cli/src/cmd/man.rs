//! `tidecast man DIR`: the manual pages, one for the program and one for each of its commands and their subcommands.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::builder::Resettable;
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
    tidecast_paths::Root::make(&args.dir).with_context(|| format!("cannot create {}", args.dir.display()))?;
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
    let after = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
    let command = command.after_help(Resettable::Reset).after_long_help(Resettable::Reset);
    let man = clap_mangen::Man::new(command);
    let path = dir.join(man.get_filename());
    let mut text = Vec::new();
    man.render(&mut text)?;
    text.extend(sections(&after.unwrap_or_default()).into_bytes());
    tidecast_paths::output(&path, &text, 0o666, &|| true)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The text behind the options as sections of roff(7): a line such as `Examples:` before an indented one begins
/// one, indented lines stay as they are, others are filled.
fn sections(text: &str) -> String {
    let (mut page, mut is_filled) = (String::new(), true);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let heading = line.strip_suffix(':').filter(|_| !line.starts_with(' '));
        if let Some(name) = heading.filter(|_| lines.peek().is_some_and(|next| next.starts_with(' '))) {
            let name = name.split([',', '(']).next().unwrap_or(name).trim_end().to_uppercase();
            page.push_str(&format!("{}.SH {}\n", if is_filled { "" } else { ".fi\n" }, roff(&name)));
            is_filled = true;
            continue;
        }
        if line.is_empty() {
            page.push_str(if is_filled { ".PP\n" } else { "\n" });
            continue;
        }
        let fills = !line.starts_with(' ');
        if fills != is_filled {
            page.push_str(if fills { ".fi\n" } else { ".nf\n" });
            is_filled = fills;
        }
        page.push_str(&roff(line));
        page.push('\n');
    }
    page
}

/// A line of text that roff does not take for a request.
fn roff(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_options_becomes_sections() {
        let text = "Examples:\n  # One\n  tidecast get a \\\n      --to b\n\nProse of\nlines.\n\nKeys, by name (all):\n  .dir, 'x'";
        assert_eq!(
            sections(text),
            ".SH EXAMPLES\n.nf\n  # One\n  tidecast get a \\e\n      \\-\\-to b\n\n.fi\nProse of\nlines.\n.PP\n\
             .SH KEYS\n.nf\n  .dir, 'x'\n"
        );
        assert_eq!(roff(".x"), "\\&.x");
    }
}
