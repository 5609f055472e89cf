//! Flags of rsync on our command line; [`tidecast_mover::rsync`] has their meaning. Flags for things that are always
//! done are accepted, unsupported flags are rejected with a hint.

use std::ffi::OsString;

use clap::builder::{NonEmptyStringValueParser, OsStringValueParser, TypedValueParser as _};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};
use tidecast_mover::rsync::other_flags::{DONE, DONE_VALUED, OTHERS, REFUSED};
use tidecast_mover::rsync::table::{ALIASES, KEPT, NAMED, SWITCHES, VALUED};
use tidecast_mover::rsync::{Flags, GivenFlag};

/// The options that the flags set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rsync(pub(super) Flags);

const HEADING: &str = "As with rsync";

impl clap::Args for Rsync {
    fn augment_args(command: Command) -> Command {
        let switch = |name: &'static str| Arg::new(name).long(name).action(ArgAction::Count);
        let kept = KEPT.iter().map(|kept| switch(kept.name).short(kept.letter).hide(true));
        let no = KEPT.iter().map(|kept| switch(kept.no).aliases(kept.no_letter).hide(true));
        let switches = SWITCHES.iter().map(|(name, letter, help, _)| {
            let alias = ALIASES.iter().find(|(other, _)| other == name).map(|(_, alias)| *alias);
            let arg = switch(name).short(*letter).help(*help).hide(help.is_empty());
            arg.aliases(alias).help_heading(HEADING)
        });
        let valued = VALUED.iter().map(|(name, letter, value, help, apply)| {
            let check = |text: String| apply(&mut Flags::default(), &text).map(|()| text);
            let parser = NonEmptyStringValueParser::new().try_map(check);
            let arg = Arg::new(*name).long(*name).short(*letter).value_name(*value).help(*help);
            let arg = arg.allow_hyphen_values(true).hide(help.is_empty()).help_heading(HEADING);
            arg.action(ArgAction::Append).value_parser(parser)
        });
        let named = NAMED.iter().map(|(name, value, help, _)| {
            let arg = Arg::new(*name).long(*name).value_name(*value).help(*help).help_heading(HEADING);
            let parser = OsStringValueParser::new()
                .try_map(|path: OsString| if path.is_empty() { Err("the path is empty") } else { Ok(path) });
            arg.allow_hyphen_values(true).action(ArgAction::Append).value_parser(parser)
        });
        foreign(command.args(kept).args(no).args(switches).args(valued).args(named))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Adds the flags that have no effect, and those that are rejected.
fn foreign(command: Command) -> Command {
    let flag = |long: &'static str, short: Option<char>| {
        Arg::new(long).long(long).short(short).action(ArgAction::Count).hide(true)
    };
    let done = DONE.iter().map(|(long, short)| flag(long, *short));
    let refused = REFUSED.iter().map(|(long, short, _)| flag(long, *short));
    let others = OTHERS.iter().map(|(long, short, hint)| {
        let refuse = |_: String| Err::<String, String>((*hint).to_owned());
        let parser = NonEmptyStringValueParser::new().try_map(refuse);
        let arg = Arg::new(*long).long(*long).short(*short).value_name("VALUE").hide(true);
        arg.allow_hyphen_values(true).value_parser(parser)
    });
    let valued = DONE_VALUED.iter().map(|long| Arg::new(*long).long(*long).value_name("VALUE").hide(true));
    let help = Arg::new("help").long("help").action(ArgAction::Help).help("Print help");
    command.disable_help_flag(true).arg(help).args(done).args(valued).args(refused).args(others)
}

/// The last position of a flag without a value, if it was given.
fn place(matches: &ArgMatches, name: &str) -> Option<usize> {
    (matches.get_count(name) > 0).then(|| matches.indices_of(name).and_then(Iterator::last).unwrap_or(0))
}

impl FromArgMatches for Rsync {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        if let Some((long, short, hint)) = REFUSED.iter().find(|(long, ..)| matches.get_count(long) > 0) {
            let short = short.map_or(String::new(), |short| format!("-{short}, "));
            let what = format!("{short}--{long} is not supported: {hint}\n");
            return Err(Error::raw(ErrorKind::UnknownArgument, what));
        }
        let mut said: Vec<(usize, GivenFlag<'_>)> = Vec::new();
        for kept in &KEPT {
            for (name, on) in [(kept.name, true), (kept.no, false)] {
                said.extend(place(matches, name).map(|at| (at, GivenFlag::Keep(kept, on))));
            }
        }
        for switch in &SWITCHES {
            let times = matches.get_count(switch.0);
            said.extend(place(matches, switch.0).map(|at| (at, GivenFlag::Switch(switch, times))));
        }
        for valued in &VALUED {
            let places = matches.indices_of(valued.0).into_iter().flatten();
            let texts = matches.get_many::<String>(valued.0).into_iter().flatten();
            said.extend(places.zip(texts).map(|(at, text)| (at, GivenFlag::Value(valued, text))));
        }
        for named in &NAMED {
            let places = matches.indices_of(named.0).into_iter().flatten();
            let paths = matches.get_many::<OsString>(named.0).into_iter().flatten();
            said.extend(places.zip(paths).map(|(at, path)| (at, GivenFlag::Name(named, path))));
        }
        said.sort_by_key(|(at, _)| *at);
        let said: Vec<GivenFlag<'_>> = said.into_iter().map(|(_, said)| said).collect();
        // Values were validated by their parsers before.
        Flags::of(&said).map(Self).map_err(|why| Error::raw(ErrorKind::ValueValidation, why))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
