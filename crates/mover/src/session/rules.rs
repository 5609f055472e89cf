//! Rules as a user gives them, in their order: patterns, files of patterns, and rsync's `--filter`.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tidecast_text::escaped;

use crate::error::Error;
use crate::filter::Rule;

/// The end to which a rule applies: hiding is for the sender, protection from deletion for the receiver.
const BOTH: [bool; 2] = [true, true];
const SENDER: [bool; 2] = [true, false];
const RECEIVER: [bool; 2] = [false, true];

/// A rule, or several, as given.
#[derive(Clone, Debug)]
pub enum Given {
    /// A pattern: matching names are copied (`include`), or left out and protected from deletion.
    Pattern {
        /// Whether matching names are copied.
        include: bool,
        /// The pattern.
        pattern: OsString,
    },
    /// A file of such, one a line; `-` is standard input.
    File {
        /// The meaning of a line without a prefix.
        include: bool,
        /// Its path.
        path: PathBuf,
    },
    /// As rsync's `--filter` has it.
    Rule(String),
}

/// How rules are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Names that are left out are not protected from deletion.
    pub exposed: bool,
    /// Lines of files end with a NUL.
    pub nul: bool,
}

/// The rules of the sender and of the receiver, those of files among them.
///
/// # Errors
/// A file cannot be read, or a rule is not valid.
pub fn read_rules(all_given: &[Given], reading: Reading) -> Result<[Vec<Rule>; 2], Error> {
    let Reading { exposed, nul } = reading;
    let mut all = [Vec::new(), Vec::new()];
    let usual = if exposed { SENDER } else { BOTH };
    for given in all_given {
        match given {
            Given::Pattern { include, pattern } => add(&mut all, usual, pattern.as_bytes(), *include)
                .map_err(|e| Error::Usage(format!("pattern {}: {e}", escaped(pattern))))?,
            Given::File { include, path } => add_file(&mut all, usual, path, *include, nul)?,
            Given::Rule(text) => match rule(text) {
                Some(Word::Rule(ends, include, pattern)) => {
                    let prefix: &[u8] = if include { b"+ " } else { b"- " };
                    let ends = if ends == BOTH { usual } else { ends };
                    add(&mut all, ends, &[prefix, pattern.as_bytes()].concat(), include)?;
                }
                Some(Word::Clear) => all.iter_mut().for_each(Vec::clear),
                Some(Word::Merge(file)) => add_file(&mut all, usual, Path::new(file), false, nul)?,
                None => return Err(Error::Usage(format!("invalid filter rule {}: {RULES}", escaped(text)))),
            },
        }
    }
    Ok(all)
}

/// Those of the rules of both ends that no name can match, each once.
pub fn malformed([sends, receives]: &[Vec<Rule>; 2]) -> impl Iterator<Item = &Rule> {
    let every = sends.iter().chain(receives.iter().filter(|rule| !sends.contains(rule)));
    every.filter(|rule| rule.is_malformed())
}

/// The valid rules of `--filter`.
const RULES: &str = "write '- PATTERN' or '+ PATTERN', H or S (hide, show) for the sender only, P or R (protect, risk) for the receiver \
                     only, '. FILE' for a file of rules, or '!'; per-directory files (: or dir-merge) and modifiers are not supported";

/// A rule of `--filter`, read.
enum Word<'t> {
    Rule([bool; 2], bool, &'t str),
    Clear,
    Merge(&'t str),
}

fn rule(text: &str) -> Option<Word<'_>> {
    if matches!(text, "!" | "clear") {
        return Some(Word::Clear);
    }
    let (word, rest) = text.split_once([' ', '_']).filter(|(_, rest)| !rest.is_empty())?;
    Some(match word {
        "-" | "exclude" => Word::Rule(BOTH, false, rest),
        "+" | "include" => Word::Rule(BOTH, true, rest),
        "H" | "hide" => Word::Rule(SENDER, false, rest),
        "S" | "show" => Word::Rule(SENDER, true, rest),
        "P" | "protect" => Word::Rule(RECEIVER, false, rest),
        "R" | "risk" => Word::Rule(RECEIVER, true, rest),
        "." | "merge" => Word::Merge(rest),
        _ => return None,
    })
}

fn add(all: &mut [Vec<Rule>; 2], ends: [bool; 2], text: &[u8], include: bool) -> Result<(), Error> {
    // A rule that clears the list does so at both ends.
    let anew = text == b"!";
    for (rules, _) in all.iter_mut().zip(ends).filter(|(_, is_for)| *is_for || anew) {
        Rule::add(rules, text, include)?;
    }
    Ok(())
}

fn add_file(
    all: &mut [Vec<Rule>; 2],
    ends: [bool; 2],
    file: &Path,
    include: bool,
    nul: bool,
) -> Result<(), Error> {
    let shown = escaped(file);
    let text = read(file).map_err(|e| Error::Usage(format!("cannot read patterns from {shown}: {e}")))?;
    for (rules, _) in all.iter_mut().zip(ends).filter(|(_, is_for)| *is_for) {
        Rule::add_lines(rules, &text, include, nul).map_err(|e| Error::Usage(format!("{shown}: {e}")))?;
    }
    Ok(())
}

/// The contents of a file; `-` is standard input.
pub(super) fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    if file != Path::new("-") {
        return std::fs::read(file);
    }
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text)?;
    Ok(text)
}
