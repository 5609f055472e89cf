//! `--include` and `--exclude`, from the command line and from files: rules in the order in which they are given.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::builder::{NonEmptyStringValueParser, OsStringValueParser, PathBufValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};
use tidecast_mover::filter::Rule;
use tidecast_text::escaped;

use crate::report::Reporter;

/// What the flags say, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter(Vec<(bool, Given)>);

/// Which end goes by a rule: what hides is for the sender, what protects from deletion for the receiver.
const BOTH: [bool; 2] = [true, true];
const SENDER: [bool; 2] = [true, false];
const RECEIVER: [bool; 2] = [false, true];

#[derive(Clone, Debug)]
enum Given {
    Pattern(OsString),
    File(PathBuf),
    /// As rsync's `--filter` has it.
    Rule(String),
}

/// A flag: its name, whether what it names is copied, and its help.
type Flag = (&'static str, bool, &'static str);
const PATTERNS: [Flag; 2] = [
    (
        "exclude",
        false,
        "Leave out what matches PATTERN, and keep it from --delete: a name at any depth; with a / inside the end of a path, \
         with one in front a path from the top of the copy, with one at the end directories only. * and ? match within a name, \
         ** across slashes",
    ),
    (
        "include",
        true,
        "Copy what matches PATTERN though a later --exclude leaves it out: the first rule that matches decides",
    ),
];
const RULE: &str = "filter";
const FILES: [Flag; 2] = [
    (
        "exclude-from",
        false,
        "Read --exclude patterns from FILE, one a line (- is standard input); \"+ \" in front makes one an --include, \"- \" an \
         --exclude; lines that begin with # or ; are comments",
    ),
    ("include-from", true, "Read --include patterns from FILE, likewise"),
];

impl Filter {
    /// The rules of the sender and of the receiver, those of files among them. `exposed`: what is left out is not kept from deletion;
    /// `nul`: lines of files end with a NUL.
    pub(super) fn rules(
        &self,
        exposed: bool,
        nul: bool,
        reporter: &Reporter,
    ) -> anyhow::Result<[Vec<Rule>; 2]> {
        let mut all = [Vec::new(), Vec::new()];
        let usual = if exposed { SENDER } else { BOTH };
        for (include, given) in &self.0 {
            match given {
                Given::Pattern(text) => add(&mut all, usual, text.as_bytes(), *include)
                    .with_context(|| format!("pattern {}", escaped(text)))?,
                Given::File(file) => add_file(&mut all, usual, file, *include, nul)?,
                Given::Rule(text) => match rule(text) {
                    Some(Word::Rule(ends, include, pattern)) => {
                        let prefix: &[u8] = if include { b"+ " } else { b"- " };
                        let ends = if ends == BOTH { usual } else { ends };
                        add(&mut all, ends, &[prefix, pattern.as_bytes()].concat(), include)?;
                    }
                    Some(Word::Clear) => all.iter_mut().for_each(Vec::clear),
                    Some(Word::Merge(file)) => add_file(&mut all, usual, Path::new(file), false, nul)?,
                    None => bail!("filter rule {}: {RULES}", escaped(text)),
                },
            }
        }
        let [sends, receives] = &all;
        let every = sends.iter().chain(receives.iter().filter(|rule| !sends.contains(rule)));
        for rule in every.filter(|rule| rule.is_malformed()) {
            let pattern = escaped(&rule.pattern);
            reporter.warning(&format!(
                "pattern {pattern} matches nothing: its [ ] is not closed, or names no class; write \\[ for a bracket"
            ));
        }
        Ok(all)
    }
}

/// What a rule of `--filter` may be.
const RULES: &str = "write '- PATTERN' or '+ PATTERN', H or S (hide, show) for the sender alone, P or R (protect, risk) for the receiver \
                     alone, '. FILE' for a file of rules, or '!'; files in directories (: or dir-merge) and modifiers are not read";

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

fn add(all: &mut [Vec<Rule>; 2], ends: [bool; 2], text: &[u8], include: bool) -> anyhow::Result<()> {
    // A list that begins anew does so at both ends.
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
) -> anyhow::Result<()> {
    let shown = escaped(file);
    let text = read(file).with_context(|| format!("cannot read patterns from {shown}"))?;
    for (rules, _) in all.iter_mut().zip(ends).filter(|(_, is_for)| *is_for) {
        Rule::add_lines(rules, &text, include, nul).with_context(|| shown.to_string())?;
    }
    Ok(())
}

pub(super) fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    if file != Path::new("-") {
        return std::fs::read(file);
    }
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text)?;
    Ok(text)
}

impl clap::Args for Filter {
    fn augment_args(command: Command) -> Command {
        let arg = |&(name, _, help): &Flag| {
            // "- *.o" is a pattern, too.
            let arg = Arg::new(name).long(name).action(ArgAction::Append).allow_hyphen_values(true);
            arg.help(help)
        };
        let patterns = PATTERNS
            .iter()
            .map(|flag| arg(flag).value_name("PATTERN").value_parser(OsStringValueParser::new()));
        let files =
            FILES.iter().map(|flag| arg(flag).value_name("FILE").value_parser(PathBufValueParser::new()));
        let rule = Arg::new(RULE).long(RULE).short('f').action(ArgAction::Append).allow_hyphen_values(true);
        let help = "Add a rule as rsync's --filter has it: '- PATTERN', '+ PATTERN', 'P PATTERN' (kept from --delete), ...";
        let rule = rule.value_name("RULE").value_parser(NonEmptyStringValueParser::new()).help(help);
        command.args(patterns).args(files).arg(rule)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Filter {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut all = Vec::new();
        let mut add = |(name, include, _): &Flag, given: Vec<Given>| {
            let places = matches.indices_of(name).into_iter().flatten();
            all.extend(places.zip(given).map(|(at, given)| (at, (*include, given))));
        };
        for flag in &PATTERNS {
            let given = matches.get_many::<OsString>(flag.0).into_iter().flatten();
            add(flag, given.cloned().map(Given::Pattern).collect());
        }
        for flag in &FILES {
            let given = matches.get_many::<PathBuf>(flag.0).into_iter().flatten();
            add(flag, given.cloned().map(Given::File).collect());
        }
        let rules = matches.get_many::<String>(RULE).into_iter().flatten();
        let places = matches.indices_of(RULE).into_iter().flatten();
        all.extend(places.zip(rules).map(|(at, text)| (at, (false, Given::Rule(text.clone())))));
        all.sort_by_key(|(at, _)| *at);
        Ok(Self(all.into_iter().map(|(_, rule)| rule).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
