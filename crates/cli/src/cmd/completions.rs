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

pub(crate) fn run(args: &Args, program: &clap::Command) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut shown(program), "tidecast", &mut script);
    crate::report::print(String::from_utf8_lossy(&script).trim_end());
    Ok(Default::default())
}

/// The command without what its help does not list: scripts would offer it.
fn shown(command: &clap::Command) -> clap::Command {
    let about = command.get_about().cloned().unwrap_or_default();
    clap::Command::new(command.get_name().to_owned())
        .about(about)
        .args(command.get_arguments().filter(|argument| !argument.is_hide_set()))
        .subcommands(command.get_subcommands().filter(|part| !part.is_hide_set()).map(shown))
}
