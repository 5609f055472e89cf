//! `cache create`: this process reads the files, with its user's rights, and sends them to the daemon.

use std::path::{Path, PathBuf};

use tidecast::event::cache::{CacheInfo, Method};
use tidecast::{NewCache, create_cache};
use tidecast_text::{Size, Span, count};

use crate::cmd::run_operation;
use crate::failure::Outcome;
use crate::report::{Reporter, fields_of};

/// Create a cache of files in this host's daemon
///
/// The files are copied into the daemon's store, unless another cache of yours already has them; you may change the
/// originals afterwards. The same content under the same name is the same version, and the options then change its
/// settings while no other host has a copy; different content is the next version.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  tidecast cache create nt /data/blast/nt --lease 30d --methods swarm,direct"
)]
pub(super) struct Args {
    /// Name of the cache
    name: String,
    /// A directory, whose content becomes the cache, or files of one directory
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Set the lease: when space is short, caches with an expired lease are evicted first; `pin` prevents eviction
    /// [default: the daemon's, 7d]
    #[arg(long, value_name = "DURATION")]
    lease: Option<Span>,
    /// Wait at most this long for space that running jobs or transfers occupy (then exit code 3) [default: fail at once]
    #[arg(long, value_name = "DURATION")]
    wait: Option<Span>,
    /// Allow these transfer methods, preferred first: swarm, direct [default: swarm,direct]
    #[arg(long, value_name = "METHOD", value_delimiter = ',')]
    methods: Vec<Method>,
    /// Offer the cache to hosts that match this ClassAd expression over their ads (TARGET.TotalDisk > 1000000)
    #[arg(long, value_name = "CLASSAD", value_parser = expression)]
    policy: Option<String>,
    /// Allow copies only on hosts that match this ClassAd expression over their ads
    #[arg(long, value_name = "CLASSAD", value_parser = expression)]
    requirements: Option<String>,
    /// Let only you read the cache, and transfer it to other hosts by DIRECT only
    #[arg(long)]
    private: bool,
    /// Keep N copies on hosts, including the one here [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    replicas: Option<u32>,
    /// Set the readers by a directory mode: 700, 750 or 755 [default: the users that can read all of the files]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    mode: Option<u32>,
    /// Set the group of the mode's middle digit [default: yours]
    #[arg(long)]
    group: Option<String>,
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode & 0o022 != 0 => Err("a cache is not writable: use 700, 750 or 755".into()),
        Ok(mode) if mode & !0o777 == 0 && mode & 0o400 != 0 => Ok(mode),
        _ => Err("not the octal mode of a directory: use 700, 750 or 755".into()),
    }
}

/// Checks that the text is a valid ClassAd expression, before any file is read.
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
    let made = run_operation::run(begin, reporter, |(), _| ())?;
    let info = &made.info;
    reporter.result(&format!(
        "{}: {} in {}, {} of it new on this host; {}",
        info.name,
        Size(info.bytes),
        count(info.files, "file"),
        Size(made.sent),
        info.path.as_deref().map_or(String::new(), |path| path.display().to_string())
    ));
    args.lease.iter().for_each(|lease| super::list::warn_of_shorter_lease(info, *lease, reporter));
    if let Some(reason) = &made.mode_reason {
        reporter.note(&format!(
            "readable by {} only: {reason}; use --mode 755 to let all users read it",
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
