//! `tidecast cache`: users' commands to the daemon of their host.

mod create;
mod failed;
mod get;
mod list;

use failed::failed;

use std::time::Duration;

use clap::Subcommand;
use serde_json::Map;
use tidecast::event::cache::{CacheInfo, History, Holders, Replicated};
use tidecast::{CacheName, Caches};
use tidecast_text::Span;

use super::{Context, daemon};
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};
use crate::stop::{block_on, or_cut};

/// Keep data on the hosts where jobs run: create, get and manage caches
///
/// A cache is an immutable, named set of files, stored by the daemon of each host that has a copy (`tidecast daemon`).
/// Its full name is ORIGIN/NAME@VERSION: the host that created it, its name there, and a version that grows with each
/// change of content. NAME alone is the newest version on this host, else on any host.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

const EXAMPLES: &str = "\
Examples:
  tidecast cache create nt /data/blast/nt --lease 30d
  tidecast cache ls
  tidecast cache get head/nt --to . --wait 10m      # in a job, on any host
  tidecast cache replicate nt --to node07 node08";

#[derive(Subcommand, Debug)]
enum What {
    Create(create::Args),
    #[command(alias = "list")]
    Ls(list::LsArgs),
    Show(list::ShowArgs),
    Extend(ExtendArgs),
    /// Never evict a cache until it is unpinned
    Pin(NameArgs),
    /// Allow a cache to be evicted again when its lease has expired
    Unpin(NameArgs),
    /// Remove a cache from this host; other hosts keep their copies
    Rm(NameArgs),
    Replicate(ReplicateArgs),
    Get(get::Args),
    /// List the hosts that have a cache
    Where(NameArgs),
    History(HistoryArgs),
}

/// Extend the lease of a cache, to at least LEASE from now
#[derive(clap::Args, Debug)]
struct ExtendArgs {
    /// [ORIGIN/]NAME[@VERSION]
    name: CacheName,
    /// Duration from now; the daemon may limit it
    lease: Span,
}

#[derive(clap::Args, Debug)]
struct NameArgs {
    /// [ORIGIN/]NAME[@VERSION]
    name: CacheName,
}

/// Replicate a cache to other hosts
#[derive(clap::Args, Debug)]
struct ReplicateArgs {
    /// [ORIGIN/]NAME[@VERSION]
    name: CacheName,
    /// Replicate to these hosts: names, or lists like node[07-12] [default: as many as its --replicas, where its --policy
    /// allows]
    #[arg(long, value_name = "HOST", num_args = 1..)]
    to: Vec<String>,
}

/// Show the history of caches: user, action and outcome
#[derive(clap::Args, Debug)]
struct HistoryArgs {
    /// [ORIGIN/]NAME[@VERSION] [default: all caches that you may see]
    name: Option<CacheName>,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let socket = daemon::to_ask_or_start(context)?;
    match &args.what {
        // These two report progress while they wait.
        What::Create(args) => return create::run(args, &socket, reporter),
        What::Get(args) => return get::run(args, &socket, reporter),
        _ => {}
    }
    let work = answer(&args.what, Caches::new(&socket), reporter);
    block_on(context.threads(), or_cut(work))
}

async fn answer(what: &What, caches: Caches, reporter: &Reporter) -> Outcome {
    match what {
        What::Ls(args) => list::ls(args, &caches, reporter).await,
        What::Show(args) => list::show(args, &caches, reporter).await,
        What::Extend(args) => {
            let info = caches.extend(&args.name, args.lease.0.as_secs()).await.map_err(failed)?;
            list::warn_of_shorter_lease(&info, args.lease, reporter);
            told(&info, &format!("kept for {} from now", list::left(&info)), reporter)
        }
        What::Pin(args) => {
            let info = caches.pin(&args.name).await.map_err(failed)?;
            told(&info, "kept until it is unpinned", reporter)
        }
        What::Unpin(args) => {
            let info = caches.unpin(&args.name).await.map_err(failed)?;
            told(&info, &format!("kept for {} from now", list::left(&info)), reporter)
        }
        What::Rm(args) => {
            let info = caches.remove(&args.name).await.map_err(failed)?;
            told(&info, "removed from this host", reporter)
        }
        What::Replicate(args) => replicate(args, &caches, reporter).await,
        What::Where(args) => holders(args, &caches, reporter).await,
        What::History(args) => history(args, &caches, reporter).await,
        What::Create(_) | What::Get(_) => Ok(Map::new()),
    }
}

fn told(info: &CacheInfo, what: &str, reporter: &Reporter) -> Outcome {
    reporter.result(&format!("{}: {what}", info.name));
    Ok(fields_of(info))
}

async fn replicate(args: &ReplicateArgs, caches: &Caches, reporter: &Reporter) -> Outcome {
    let lists = args.to.iter().map(|list| tidecast_text::hostlist::items(list));
    let to =
        lists.collect::<Result<Vec<_>, _>>().map_err(|e| Failure::usage(anyhow::anyhow!("--to: {e}")))?;
    let offered = caches.replicate(&args.name, to.concat()).await.map_err(failed)?;
    for one in &offered {
        let why = one.why.as_ref().map_or(String::new(), |why| format!(": {why}"));
        reporter.result(&format!("{} {}{why}", one.host, one.answer));
    }
    let refused = offered.iter().filter(|one| !matches!(one.answer.as_str(), "ok" | "wait")).count();
    let all = offered.len();
    let fields = fields_of(&Replicated { name: args.name.to_string(), offered });
    if refused > 0 || all == 0 {
        let error = match all {
            0 => anyhow::anyhow!("no known host accepts {}", args.name),
            all => anyhow::anyhow!("{refused} of {all} hosts rejected {}", args.name),
        };
        return Err(Failure::from(error).with(fields));
    }
    Ok(fields)
}

async fn holders(args: &NameArgs, caches: &Caches, reporter: &Reporter) -> Outcome {
    let holders = caches.holders(&args.name).await.map_err(failed)?;
    for holder in &holders {
        let role = match (holder.origin, holder.here) {
            (true, _) => " (origin)",
            (_, true) => " (this host)",
            _ => "",
        };
        reporter.result(&format!("{}{role}", holder.host));
    }
    Ok(fields_of(&Holders { name: args.name.to_string(), holders }))
}

async fn history(args: &HistoryArgs, caches: &Caches, reporter: &Reporter) -> Outcome {
    let events = caches.history(args.name.as_ref()).await.map_err(failed)?;
    let now = super::now();
    for event in &events {
        let ago = Span(Duration::from_secs(now.saturating_sub(event.at)));
        reporter
            .result(&format!("{ago} ago  {}  {}  {}  {}", event.who, event.what, event.cache, event.outcome));
    }
    Ok(fields_of(&History { events }))
}
