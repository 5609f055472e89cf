//! `tidecast doctor --peers HOSTS`: hosts and the paths between them.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use tidecast::{
    Launch, PeersOptions, choose_hosts, doctor_peers, estimate_peers,
    event::peers::{Done, News},
    peers_topology,
};
use tidecast_text::{Size, Span, count};

use crate::ask::is_agreed;
use crate::cmd::run_operation;
use crate::failure::{Failure, Outcome, reached};
use crate::output::{FOR_ALL, Output};
use crate::report::{Reporter, fields_of};
use crate::stop::{Stop, block_on};

/// Flags for `--peers`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Check these hosts and the paths between them, not this host: node[001-064], USER@HOST:PORT, NAME=ADDR, or @FILE
    #[arg(long, value_name = "LIST|@FILE", group = "asks", conflicts_with_all = ["purposes", "link", "rtt", "dirs", "measure", "undo"])]
    pub(crate) peers: Option<String>,
    /// Start agents on the hosts by auto, ssh, srun, mpirun, or a command with {host} and {command} [default: auto]
    #[arg(long, value_name = "HOW", requires = "peers")]
    launch: Option<String>,
    /// Run this program on the hosts [default: the path of tidecast on this host]
    #[arg(long, value_name = "PATH", requires = "peers")]
    program: Option<PathBuf>,
    /// Write the groups of hosts to FILE, for `bcast --topology` and `sim`; - is standard output
    #[arg(long, value_name = "FILE", requires = "peers")]
    topology: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, list: &str, yes: bool, reporter: &mut Reporter) -> Outcome {
    let hosts = choose_hosts(Some(list), None).map_err(Failure::usage)?;
    let launch = args.launch.as_deref().unwrap_or("auto").parse::<Launch>();
    let launch = launch.map_err(|e| Failure::usage(anyhow!("--launch: {e}")))?;
    let output = args.topology.as_deref().map(|path| Output::of(path, reporter)).transpose()?;
    let own = std::env::current_exe().context("cannot find the path of this program");
    let rates = yes || agreed(hosts.len(), reporter);
    let options =
        PeersOptions { hosts, launch, program: args.program.clone().map_or_else(|| own, Ok)?, rates };
    let ended = run_operation::run_with_news(|| doctor_peers(options), reporter, |_, _| (), show);
    if let Some(done) = reached(&ended) {
        done.lines().iter().for_each(|line| reporter.result(line));
        output
            .map_or(Ok(()), |output| write(&output, done, reporter))
            .map_err(|e| e.with(fields_of(done)))?;
    }
    Ok(fields_of(&ended?))
}

/// Writes the topology; a signal ends the wait for the reader of a pipe.
fn write(output: &Output, done: &Done, reporter: &mut Reporter) -> Result<(), Failure> {
    if done.groups.is_empty() {
        reporter.warning(&format!("{output} is not written: no host was measured"));
        return Ok(());
    }
    let text = peers_topology(done);
    block_on(1, async { output.write(text.as_bytes(), FOR_ALL, Some(&Stop::listen()?)) })
}

/// Whether the user agrees to transfers that fill links; not asked if there is no terminal.
fn agreed(hosts: usize, reporter: &Reporter) -> bool {
    if reporter.is_json() || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        reporter.warning(
            "rates are not measured, because that fills links for moments; add --yes to measure them",
        );
        return false;
    }
    let ((time, bytes), hosts) = (estimate_peers(hosts), count(hosts as u64, "host"));
    is_agreed(&format!(
        "Measure rates? It fills the links of {hosts} for moments, {} at most, up to {} in all",
        Span(time),
        Size(bytes)
    ))
}

fn show(news: News, reporter: &mut Reporter) {
    match (&news, news.line()) {
        (News::Path(path), _) if reporter.is_json() => reporter.happened("path", fields_of(path)),
        (_, Some(line)) => reporter.note(&line),
        _ => {}
    }
}
