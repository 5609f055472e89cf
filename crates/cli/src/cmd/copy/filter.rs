//! `--include` and `--exclude`, from the command line and from files: rules in the order in which they are given.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::builder::{OsStringValueParser, PathBufValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};
use tidecast_mover::filter::Rule;
use tidecast_text::escaped;

use crate::report::Reporter;

/// What the flags say, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter(Vec<(bool, Given)>);

#[derive(Clone, Debug)]
enum Given {
    Pattern(OsString),
    File(PathBuf),
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
    /// The rules, those of files among them.
    pub(super) fn rules(&self, reporter: &Reporter) -> anyhow::Result<Vec<Rule>> {
        let mut rules = Vec::new();
        for (include, given) in &self.0 {
            match given {
                Given::Pattern(text) => Rule::add(&mut rules, text.as_bytes(), *include)
                    .with_context(|| format!("pattern {}", escaped(text)))?,
                Given::File(file) => {
                    let shown = escaped(file);
                    let text = read(file).with_context(|| format!("cannot read patterns from {shown}"))?;
                    Rule::add_lines(&mut rules, &text, *include).with_context(|| shown.to_string())?;
                }
            }
        }
        for rule in rules.iter().filter(|rule| rule.is_malformed()) {
            let pattern = escaped(&rule.pattern);
            reporter.warning(&format!(
                "pattern {pattern} matches nothing: its [ ] is not closed, or names no class; write \\[ for a bracket"
            ));
        }
        Ok(rules)
    }
}

fn read(file: &Path) -> std::io::Result<Vec<u8>> {
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
        command.args(patterns).args(files)
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
        all.sort_by_key(|(at, _)| *at);
        Ok(Self(all.into_iter().map(|(_, rule)| rule).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
