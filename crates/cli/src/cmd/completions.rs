//! `tidecast completions SHELL`: a completion script on standard output.

use clap::CommandFactory;

use crate::cli::Cli;
use crate::failure::Outcome;

/// Print a completion script for a shell
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  tidecast completions bash > ~/.local/share/bash-completion/completions/tidecast"
)]
pub(crate) struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tidecast", &mut script);
    crate::report::say(String::from_utf8_lossy(&script).trim_end());
    Ok(Default::default())
}
