//! Rules as a user gives them, in their order: patterns, files of patterns, and rsync's `--filter`.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tidecast_text::escaped;

use crate::error::Error;
use crate::filter::{Rule, lines};

/// The end to which a rule applies: hiding is for the sender, protection from deletion for the receiver.
const BOTH: [bool; 2] = [true, true];
const SENDER: [bool; 2] = [true, false];
const RECEIVER: [bool; 2] = [false, true];

/// Most files of rules that merge one another.
const DEPTH: usize = 16;

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
    Rule(OsString),
}

/// How rules are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Names that are left out are not protected from deletion.
    pub exposed: bool,
    /// Lines of files end with a NUL.
    pub nul: bool,
}

impl Reading {
    /// The ends to which a rule for both applies.
    fn usual(self) -> [bool; 2] {
        if self.exposed { SENDER } else { BOTH }
    }
}

/// The rules of the sender and of the receiver, those of files among them.
///
/// # Errors
/// A file cannot be read, or a rule is not valid.
pub fn read_rules(all_given: &[Given], reading: Reading) -> Result<[Vec<Rule>; 2], Error> {
    let mut all = [Vec::new(), Vec::new()];
    let usual = reading.usual();
    for given in all_given {
        match given {
            Given::Pattern { include, pattern } => add(&mut all, usual, pattern.as_bytes(), *include)
                .map_err(|e| Error::Usage(format!("pattern {}: {e}", escaped(pattern))))?,
            Given::File { include, path } => add_file(&mut all, path, *include, reading)?,
            Given::Rule(text) => add_rule(&mut all, text.as_bytes(), reading, 0)?,
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
    Rule([bool; 2], bool, &'t [u8]),
    Clear,
    Merge(&'t Path),
}

fn rule(text: &[u8]) -> Option<Word<'_>> {
    if matches!(text, b"!" | b"clear") {
        return Some(Word::Clear);
    }
    let mut parts = text.splitn(2, |byte| matches!(byte, b' ' | b'_'));
    let (word, rest) = (parts.next()?, parts.next().filter(|rest| !rest.is_empty())?);
    Some(match word {
        b"-" | b"exclude" => Word::Rule(BOTH, false, rest),
        b"+" | b"include" => Word::Rule(BOTH, true, rest),
        b"H" | b"hide" => Word::Rule(SENDER, false, rest),
        b"S" | b"show" => Word::Rule(SENDER, true, rest),
        b"P" | b"protect" => Word::Rule(RECEIVER, false, rest),
        b"R" | b"risk" => Word::Rule(RECEIVER, true, rest),
        b"." | b"merge" => Word::Merge(Path::new(OsStr::from_bytes(rest))),
        _ => return None,
    })
}

/// `depth`: the files of rules that lead to this one.
fn add_rule(all: &mut [Vec<Rule>; 2], text: &[u8], reading: Reading, depth: usize) -> Result<(), Error> {
    match rule(text) {
        Some(Word::Rule(ends, include, pattern)) => {
            let prefix: &[u8] = if include { b"+ " } else { b"- " };
            let ends = if ends == BOTH { reading.usual() } else { ends };
            add(all, ends, &[prefix, pattern].concat(), include)
        }
        Some(Word::Clear) => {
            all.iter_mut().for_each(Vec::clear);
            Ok(())
        }
        Some(Word::Merge(file)) => merge(all, file, reading, depth),
        None => {
            Err(Error::Usage(format!("invalid filter rule {}: {RULES}", escaped(OsStr::from_bytes(text)))))
        }
    }
}

/// The rules of a file, one a line; those that begin with `#` or `;` are comments.
fn merge(all: &mut [Vec<Rule>; 2], file: &Path, reading: Reading, depth: usize) -> Result<(), Error> {
    let shown = escaped(file);
    if depth == DEPTH {
        return Err(Error::Usage(format!("filter file {shown}: more than {DEPTH} files merge each other")));
    }
    let text = read(file).map_err(|e| Error::Usage(format!("cannot read filter rules from {shown}: {e}")))?;
    for line in lines(&text, reading.nul).filter(|line| !matches!(line.first(), None | Some(b'#' | b';'))) {
        add_rule(all, line, reading, depth + 1).map_err(|e| Error::Usage(format!("{shown}: {e}")))?;
    }
    Ok(())
}

fn add(all: &mut [Vec<Rule>; 2], ends: [bool; 2], text: &[u8], include: bool) -> Result<(), Error> {
    // A rule that clears the list does so at both ends.
    let anew = text == b"!";
    for (rules, _) in all.iter_mut().zip(ends).filter(|(_, is_for)| *is_for || anew) {
        Rule::add(rules, text, include)?;
    }
    Ok(())
}

fn add_file(all: &mut [Vec<Rule>; 2], file: &Path, include: bool, reading: Reading) -> Result<(), Error> {
    let shown = escaped(file);
    let text = read(file).map_err(|e| Error::Usage(format!("cannot read patterns from {shown}: {e}")))?;
    for (rules, _) in all.iter_mut().zip(reading.usual()).filter(|(_, is_for)| *is_for) {
        Rule::add_lines(rules, &text, include, reading.nul)
            .map_err(|e| Error::Usage(format!("{shown}: {e}")))?;
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
