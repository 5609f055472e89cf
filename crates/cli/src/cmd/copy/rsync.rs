//! Flags that those who are used to rsync type by habit: what they ask for is done anyway, or they are refused with what to do instead.
//! Every short flag of rsync is one of ours or is here, so that no combination of them is read as something else.

use clap::builder::NonEmptyStringValueParser;
use clap::builder::TypedValueParser as _;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};

/// Nothing is kept of them.
#[derive(Debug)]
pub(crate) struct Rsync;

/// What is done anyway, or has no meaning here.
const DONE: [(&str, Option<char>); 24] = [
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
    ("perms", Some('p')),
    ("executability", Some('E')),
    ("owner", Some('o')),
    ("group", Some('g')),
    ("devices-and-specials", Some('D')),
    ("devices", None),
    ("specials", None),
    ("whole-file", Some('W')),
    ("fuzzy", Some('y')),
    ("secluded-args", Some('s')),
    ("protect-args", None),
    // As sizes always are. Alone it asks for help, as with rsync.
    (HUMAN, Some('h')),
];
const HUMAN: &str = "human-readable";

/// What asks for something else than a copy does.
const REFUSED: [(&str, Option<char>, &str); 21] = [
    (
        "relative",
        Some('R'),
        "paths of sources are not kept; name the directory that holds them, with --include and --exclude",
    ),
    (
        "dirs",
        Some('d'),
        "directories are always copied with their contents; leave these out with --exclude '/*/*'",
    ),
    ("backup", Some('b'), "what is replaced is not kept; make a snapshot of the destination first (cp -al)"),
    ("copy-links", Some('L'), "symbolic links are copied as links"),
    ("copy-dirlinks", Some('k'), "symbolic links are copied as links"),
    ("keep-dirlinks", Some('K'), "a symbolic link in the place of a directory is replaced"),
    ("atimes", Some('U'), "times of access are not copied"),
    ("crtimes", Some('N'), "times of creation are not copied"),
    ("omit-dir-times", Some('O'), "times of directories are always copied"),
    ("omit-link-times", Some('J'), "times of links are always copied"),
    (
        "one-file-system",
        Some('x'),
        "what is mounted below a source is copied, too; leave it out with --exclude",
    ),
    ("ignore-times", Some('I'), "contents are compared with --checksum"),
    (
        "size-only",
        None,
        "files of one size and another time are copied; contents are compared with --checksum",
    ),
    ("prune-empty-dirs", Some('m'), "empty directories are copied, too; leave them out with --exclude"),
    ("cvs-exclude", Some('C'), "there is no list of what is left out by itself; name it with --exclude-from"),
    ("dir-filters", Some('F'), "filter files in directories are not read; name one with --exclude-from"),
    ("from0", Some('0'), "patterns in files are one a line"),
    ("ipv4", Some('4'), "give an address with --address"),
    ("ipv6", Some('6'), "give an address with --address"),
    ("itemize-changes", Some('i'), "--dry-run lists what would change"),
    ("delete-excluded", None, "what a pattern leaves out is kept at the destination; remove it there"),
];

/// The same of flags that have a value.
const OTHERS: [(&str, Option<char>, &str); 7] = [
    ("rsh", Some('e'), "how ssh is called is said by --ssh COMMAND"),
    ("bwlimit", None, "the rate is bounded by --limit RATE, as --limit 100MB/s"),
    ("rsync-path", None, "what tidecast is called there is said by --remote-program PROGRAM"),
    ("filter", Some('f'), "rules are given by --include and --exclude, or in a file by --exclude-from"),
    ("block-size", Some('B'), "blocks have 4 MiB"),
    ("temp-dir", Some('T'), "unfinished files are kept in the destination, in a directory of their own"),
    ("remote-option", Some('M'), "both ends have the same options"),
];

impl clap::Args for Rsync {
    fn augment_args(command: Command) -> Command {
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
        let help = Arg::new("help").long("help").action(ArgAction::Help).help("Print help");
        command.disable_help_flag(true).arg(help).args(done).args(refused).args(others)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Rsync {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        match REFUSED.iter().find(|(long, ..)| matches.get_count(long) > 0) {
            None => Ok(Self),
            Some((long, short, hint)) => {
                let short = short.map_or(String::new(), |short| format!("-{short}, "));
                let what = format!("{short}--{long} is not supported: {hint}\n");
                Err(Error::raw(ErrorKind::UnknownArgument, what))
            }
        }
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), Error> {
        Ok(())
    }
}
