//! Flags that those who are used to rsync type by habit: what they ask for is done anyway, or another flag of ours does it.

use clap::builder::NonEmptyStringValueParser;
use clap::builder::TypedValueParser as _;
use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};

/// Nothing is kept of them.
#[derive(Debug)]
pub(crate) struct Rsync;

/// What is done anyway, or has no meaning here.
const DONE: [(&str, Option<char>); 12] = [
    ("archive", Some('a')),
    ("recursive", Some('r')),
    ("hard-links", Some('H')),
    ("acls", Some('A')),
    ("xattrs", Some('X')),
    ("sparse", Some('S')),
    ("partial", None),
    ("progress", None),
    ("partial-and-progress", Some('P')),
    ("compress", Some('z')),
    ("links", Some('l')),
    ("times", Some('t')),
];

/// What has another name here, or none.
const OTHERS: [(&str, Option<char>, &str); 4] = [
    ("rsh", Some('e'), "how ssh is called is said by --ssh COMMAND"),
    ("bwlimit", None, "the rate is bounded by --limit RATE, as --limit 100MB/s"),
    ("rsync-path", None, "what tidecast is called there is said by --remote-program PROGRAM"),
    ("include", None, "there are no exceptions to --exclude: name what is wanted, by a pattern in SRC"),
];

impl clap::Args for Rsync {
    fn augment_args(command: Command) -> Command {
        let done = DONE.iter().map(|(long, short)| {
            Arg::new(*long).long(*long).short(*short).action(ArgAction::Count).hide(true)
        });
        let others = OTHERS.iter().map(|(long, short, hint)| {
            let refuse = |_: String| Err::<String, String>((*hint).to_owned());
            let parser = NonEmptyStringValueParser::new().try_map(refuse);
            Arg::new(*long).long(*long).short(*short).value_name("VALUE").hide(true).value_parser(parser)
        });
        command.args(done).args(others)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Rsync {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, Error> {
        Ok(Self)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), Error> {
        Ok(())
    }
}
