//! The command line: all commands, and the text of `--help`.

use std::ffi::{OsStr, OsString};
use std::sync::LazyLock;

use clap::builder::Resettable;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::args::Global;
use crate::cmd;

/// Put the same bytes on every node of a cluster, at the speed of the network card.
///
/// `publish` describes a file or directory in a manifest (a standard .torrent file), `seed` serves its data, and `get`
/// fetches it on any number of nodes, which also send it to each other. `share` publishes and seeds privately and prints
/// a ticket; any node that has the ticket may `get`. `bcast` starts a worker on each host and delivers the data to all of
/// them. `mount` makes a tree visible at once and fetches files when they are opened. Every piece is verified, and an
/// interrupted transfer resumes where it stopped.
#[derive(Parser, Debug)]
#[command(name = "tidecast", version, long_version = VERSION.as_str(), propagate_version = true, after_help = include_str!("../help/examples.txt").trim_end(), after_long_help = AFTER, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// The command line that these words are, the name of the program first.
    pub(crate) fn parsed(words: Vec<OsString>) -> Result<Self, clap::Error> {
        let matches = without_empty_variables(Self::command()).try_get_matches_from(words)?;
        Self::from_arg_matches(&matches)
    }
}

/// The command where an empty environment variable counts as one that is not set.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let without = |argument: clap::Arg| match argument.get_env().is_some_and(is_empty) {
        true => argument.env(Resettable::Reset),
        false => argument,
    };
    command.mut_args(without).mut_subcommands(without_empty_variables)
}

/// What `--version` prints: the build in full, for reports of faults. `-V` prints the version alone.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    // scripts/dist sets it: a build by hand need not run again for each commit.
    let commit =
        option_env!("TIDECAST_COMMIT").filter(|c| !c.is_empty()).unwrap_or("unknown (built by hand)");
    let libc = if cfg!(target_env = "musl") { "musl" } else { "glibc" };
    let checks = if cfg!(debug_assertions) { "on" } else { "off" };
    let (version, arch, os) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS);
    format!("{version}\ncommit: {commit}\ntarget: {arch} {os} {libc}\nassertions: {checks}")
});

const AFTER: &str = include_str!("../help/tidecast.txt");

/// The commands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Publish(cmd::publish::Args),
    Show(cmd::show::Args),
    Verify(cmd::verify::Args),
    Seed(cmd::seed::Args),
    Share(cmd::share::Args),
    Get(cmd::get::Args),
    Bcast(cmd::bcast::Args),
    Worker(cmd::worker::Args),
    Mount(cmd::mount::Args),
    Run(cmd::run::Args),
    Umount(cmd::mount::UmountArgs),
    Status(cmd::mount::StatusArgs),
    Daemon(cmd::daemon::Args),
    Cache(cmd::cache::Args),
    Admin(cmd::admin::Args),
    Plugin(cmd::plugin::Args),
    Copy(Box<cmd::copy::Args>),
    CopyServer(cmd::copy_server::Args),
    /// Run one end of a copy (started by `copy` through ssh)
    #[command(hide = true)]
    CopyEnd,
    Field(cmd::field::Args),
    Tracker(cmd::tracker::Args),
    Revoke(cmd::revoke::Args),
    Ca(cmd::ca::Args),
    Sim(cmd::sim::Args),
    Classad(cmd::classad::Args),
    Doctor(cmd::doctor::Args),
    Completions(cmd::completions::Args),
    Man(cmd::man::Args),
}

impl Command {
    /// Whether a program reads standard output: then JSON is the default.
    pub(crate) fn is_for_a_program(&self) -> bool {
        matches!(self, Self::Copy(args) if args.is_for_a_program())
    }

    /// The name under which `tidecast status` shows this process from its start. Not a mount, which its server process
    /// announces; not a copy, which first has to choose its cores, because only threads that start later inherit them.
    pub(crate) fn shown_by_status(&self) -> Option<&'static str> {
        Some(match self {
            Self::Get(_) => "get",
            Self::Share(_) => "share",
            Self::Seed(_) => "seed",
            Self::Bcast(_) => "bcast",
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_commands_of_the_documentation_parse() {
        for line in [
            "publish P -o F --name N --format hybrid --private --piece-size 1MiB --tracker http://a/b --tracker udp://c:1 --exclude *.o --json",
            "publish P --ssl-torrent",
            "show M --json",
            "verify M P --json",
            "seed M P --listen 10.0.0.1:6881 --tracker http://a/b --peer a:1 --plain --json",
            "share P --plain",
            "seed M N --data D --data E",
            "seed M P --upload-limit 5MB/s --download-limit 100mbit",
            "get T --to D --peer a:1 --file *.fa --seed-for 1h --timeout 30s --plain --json",
            "get T --to D --durable none --net ib0",
            "get --to D",
            "mount D",
            "run -- D",
            "show @T",
            "revoke -",
            "share P --expires 12h --uses 3",
            "seed M P --expires 7d --uses 1",
            "copy a tidecast://h/b",
            "bcast S --to D --hosts node[001-064,100] --launch srun --algorithm swarm --net ib0 --plain --json",
            "bcast S --to D --hosts @F --durable batched --link-rate 10gbit --program /opt/tidecast",
            "bcast S --to D --algorithm chain --topology F --origin n0",
            "mount T /opt/env --mode file --prefetch L --record F --cache D --peer a:1 --plain --timeout 10m --fallback D --foreground",
            "mount T --mode file D --plain",
            "mount --mode file T D",
            "mount --mode bulk D",
            "mount T D --allow-other --prefetch-exe bin/python3 --mode bulk --group",
            "umount D --lazy",
            "status D --json",
            "run T --at /opt/env -- /opt/env/bin/python3 -c 1",
            "field recv --listen :7500 --streams 4 --name N --volume steps --missing nan --complete --steps 5 --cpus 0-1 --json",
            "field recv --plain --packing xyz --shape 8,8,8",
            "field send a.raw b.raw --to a:1,b:2 --streams 32 --rate 10gbit --packing xyz --order morton --fec 5% --loop --steps 3:9 --shape 8,8,8 --plain --sync 0.0.0.0:7600 --cpus 0-1 --json",
            "field send demo:nbody:64 --to a:1 --plain",
            "field sync --to a:1,b:2 --every 1.4s --steps 0:9 --plain",
            "tracker --listen :6969",
            "revoke T",
            "sim single:8@1gbit --size 1GiB --algorithm chain,nfs --fault crash:3@1s --seed 7 --plot o.svg --json",
            "sim F --nodes 4000 --origin-rate 25gbit --size 1GB --piece-size 1MiB --segment 64KiB --exact",
            "sim fattree:8@100gbit --print-topology",
            "sim --seeds 1..1000 --for 2h",
            "classad eval --my F --target [] 1+2 -1 --json -- -x",
            "classad eval --stdin",
            "classad match A B",
            "ca init D --name N",
            "ca issue D host:n1 --node aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa -o F --lifetime 30d",
            "ca revoke D host:n1 --json",
            "ca show",
            "doctor --for copy --for field --link 100gbit --rtt 80ms --dir D --json",
            "doctor --peers n[1-4] --launch ssh --program P --topology T --yes --json",
            "completions bash",
            "man D",
        ] {
            let words = std::iter::once("tidecast").chain(line.split(' '));
            Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{line}: {e}"));
        }
    }

    #[test]
    fn mistakes_are_usage_errors() {
        for line in [
            "",
            "get T",
            "get",
            "bcast S",
            "mount",
            "mount T D --mode some",
            "mount T D E",
            "run T",
            "status --restart",
            "bcast --to D",
            "publish",
            "seed",
            "publish P --format v3",
            "get T --to D --timeout soon",
            "publish P --piece-size 10M",
            "sim",
            "sim single:8",
            "sim single:8 --size 1GiB --fault explode:3",
            "ca issue D node01",
            "sim --seeds 9..1",
            "sim single:8 --size 1GiB --for 2h",
            "classad",
            "classad eval",
            "classad match A",
            "field",
            "field recv --packing xyz",
            "field recv --plain --key aaaa",
            "field recv --shape 8,8,8",
            "field send --to a:1 --plain",
            "field send a.raw --to a:1 --rate fast",
            "field send a.raw --to a:1 --fec 5",
            "field sync --plain",
        ] {
            let words = std::iter::once("tidecast").chain(line.split(' ').filter(|w| !w.is_empty()));
            assert_eq!(Cli::try_parse_from(words).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
