//! `cache create`: the files are read by this process, with its user's rights, and handed to the daemon.

use std::path::{Path, PathBuf};

use tidecast::event::cache::{CacheInfo, Method};
use tidecast::{NewCache, create_cache};
use tidecast_text::{Size, Span, count};

use crate::cmd::drive;
use crate::failure::Outcome;
use crate::report::{Reporter, fields_of};

/// Make a cache of files, kept by this host's daemon from now on
///
/// The files are copied into its store (or were there already, in another cache of yours); the originals are yours to
/// change. Equal content under the same name is the same version, of which what is said by options changes while no other
/// host has a copy; other content is the next version.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  tidecast cache create nt /data/blast/nt --lease 30d --methods swarm,direct"
)]
pub(super) struct Args {
    /// What to call it
    name: String,
    /// A directory, whose content it will be, or files of one directory
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// How long it is wanted: where room is short, it goes only after what is wanted no more; `pin` keeps it whatever comes
    /// [default: the daemon's, 7d]
    #[arg(long, value_name = "DURATION")]
    lease: Option<Span>,
    /// Wait so long for room that running jobs or transfers take (exit code 3 when there is none) [default: fail at once]
    #[arg(long, value_name = "DURATION")]
    wait: Option<Span>,
    /// How it may travel, preferred first: swarm, direct
    #[arg(long, value_name = "METHOD", value_delimiter = ',')]
    methods: Vec<Method>,
    /// Hosts it is offered to: a ClassAd expression over their ads (TARGET.TotalDisk > 1000000)
    #[arg(long, value_name = "CLASSAD", value_parser = expression)]
    policy: Option<String>,
    /// Hosts that may have it: a ClassAd expression over their ads
    #[arg(long, value_name = "CLASSAD", value_parser = expression)]
    requirements: Option<String>,
    /// Only you may read it, and it leaves this host by DIRECT only
    #[arg(long)]
    private: bool,
    /// Copies to keep on hosts, the one here among them [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    replicas: Option<u32>,
    /// Who may read it: 700, 750 or 755, as of a directory [default: whoever could read all the files]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    mode: Option<u32>,
    /// The group for whom the mode's middle digit is [default: yours]
    #[arg(long)]
    group: Option<String>,
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode & 0o022 != 0 => Err("nobody writes to a cache: write 700, 750 or 755".into()),
        Ok(mode) if mode & !0o777 == 0 && mode & 0o400 != 0 => Ok(mode),
        _ => Err("write it in octal, as of a directory: 700, 750 or 755".into()),
    }
}

/// The text, if it is one that daemons understand: before all is hashed.
fn expression(text: &str) -> Result<String, String> {
    tidecast_classad::Expr::parse(text).map(|_| text.to_owned()).map_err(|e| e.to_string())
}

pub(super) fn run(args: &Args, socket: &Path, reporter: &mut Reporter) -> Outcome {
    let new = NewCache {
        name: args.name.clone(),
        lease: args.lease.map(|lease| lease.0.as_secs()),
        methods: args.methods.clone(),
        policy: args.policy.clone(),
        requirements: args.requirements.clone(),
        private: args.private,
        replicas: args.replicas.unwrap_or(0),
        mode: args.mode,
        group: args.group.clone(),
        found: false,
    };
    let begin = || create_cache(socket, args.paths.clone(), new, args.wait.map(|wait| wait.0));
    let made = drive::run(begin, reporter, |(), _| ())?;
    let info = &made.info;
    reporter.result(&format!(
        "{}: {} in {}, {} of them new here; {}",
        info.name,
        Size(info.bytes),
        count(info.files, "file"),
        Size(made.sent),
        info.path.as_deref().map_or(String::new(), |path| path.display().to_string())
    ));
    if let Some(reason) = &made.mode_reason {
        reporter.note(&format!(
            "readable by {} only: {reason}; --mode 755 opens it to all users",
            readers_of(info)
        ));
    }
    Ok(fields_of(&made))
}

fn readers_of(info: &CacheInfo) -> String {
    match &info.group {
        Some(group) if info.mode & 0o040 != 0 => format!("{} and group {group}", info.owner),
        _ => info.owner.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_cache_can_have_is_refused_before_anything_is_read() {
        for fine in ["700", "750", "755", "0755", "555"] {
            assert!(mode(fine).is_ok(), "{fine}");
        }
        for bad in ["777", "775", "722", "077", "1755", "rwx", ""] {
            assert!(mode(bad).is_err(), "{bad}");
        }
        assert!(expression("TARGET.TotalDisk > 5").is_ok() && expression("1 +").is_err());
    }
}
