//! `--include`, `--exclude` and `--filter`: rules in the order in which they are given.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, PathBufValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};
use tidecast_mover::filter::Rule;
use tidecast_mover::session::{Given, Reading, malformed, read_rules};
use tidecast_text::escaped;

use crate::report::Reporter;

/// The filter flags, in the order of the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter(Vec<Given>);

/// A flag: its name, whether it includes, and its help.
type Flag = (&'static str, bool, &'static str);
const PATTERNS: [Flag; 2] = [
    (
        "exclude",
        false,
        "Skip files that match PATTERN, and protect them from --delete. A PATTERN is a name at any depth; with a / inside, the \
         end of a path; with a / in front, a path from the top of the copy; with a / at the end, directories only. * and ? \
         match within a name, ** across slashes",
    ),
    (
        "include",
        true,
        "Copy files that match PATTERN even if a later --exclude matches them: the first matching rule decides",
    ),
];
const RULE: &str = "filter";
const FILES: [Flag; 2] = [
    (
        "exclude-from",
        false,
        "Read --exclude patterns from FILE, one per line (- is standard input); \"+ \" in front makes a pattern an --include, \
         \"- \" an --exclude; lines that begin with # or ; are comments",
    ),
    ("include-from", true, "Read --include patterns from FILE, in the same format"),
];

impl Filter {
    /// The rules of the sender and of the receiver.
    pub(super) fn rules(
        &self,
        reading: Reading,
        reporter: &Reporter,
    ) -> Result<[Vec<Rule>; 2], tidecast_mover::Error> {
        let all = read_rules(&self.0, reading)?;
        for rule in malformed(&all) {
            let pattern = escaped(&rule.pattern);
            reporter.warning(&format!(
                "pattern {pattern} matches no file: [ is not closed, or its class is unknown; write \\[ for a bracket"
            ));
        }
        Ok(all)
    }
}

impl clap::Args for Filter {
    fn augment_args(command: Command) -> Command {
        let arg = |&(name, _, help): &Flag| {
            // A pattern may begin with a hyphen, as "- *.o".
            let arg = Arg::new(name).long(name).action(ArgAction::Append).allow_hyphen_values(true);
            arg.help(help)
        };
        let patterns = PATTERNS
            .iter()
            .map(|flag| arg(flag).value_name("PATTERN").value_parser(OsStringValueParser::new()));
        let files =
            FILES.iter().map(|flag| arg(flag).value_name("FILE").value_parser(PathBufValueParser::new()));
        let rule = Arg::new(RULE).long(RULE).short('f').action(ArgAction::Append).allow_hyphen_values(true);
        let help = "Add a rule in the syntax of rsync's --filter: '- PATTERN', '+ PATTERN', 'P PATTERN' (protect from --delete), '. FILE' (the rules of a file), ...";
        let rule = rule.value_name("RULE").value_parser(OsStringValueParser::new()).help(help);
        command.args(patterns).args(files).arg(rule)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Filter {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut all = Vec::new();
        let mut add = |name: &str, given: Vec<Given>| {
            let places = matches.indices_of(name).into_iter().flatten();
            all.extend(places.zip(given));
        };
        for &(name, include, _) in &PATTERNS {
            let given = matches.get_many::<OsString>(name).into_iter().flatten().cloned();
            add(name, given.map(|pattern| Given::Pattern { include, pattern }).collect());
        }
        for &(name, include, _) in &FILES {
            let given = matches.get_many::<PathBuf>(name).into_iter().flatten().cloned();
            add(name, given.map(|path| Given::File { include, path }).collect());
        }
        let given = matches.get_many::<OsString>(RULE).into_iter().flatten().cloned();
        add(RULE, given.map(Given::Rule).collect());
        all.sort_by_key(|(at, _)| *at);
        Ok(Self(all.into_iter().map(|(_, rule)| rule).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
