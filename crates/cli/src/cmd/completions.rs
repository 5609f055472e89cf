//! `tidecast completions SHELL`: a completion script on standard output.

use crate::failure::Outcome;

/// Print a completion script for a shell
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  tidecast completions bash > ~/.local/share/bash-completion/completions/tidecast"
)]
pub(crate) struct Args {
    /// Shell of the script
    shell: clap_complete::Shell,
}

pub(crate) fn run(args: &Args, mut program: clap::Command) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "tidecast", &mut script);
    crate::report::print(String::from_utf8_lossy(&script).trim_end());
    Ok(Default::default())
}
