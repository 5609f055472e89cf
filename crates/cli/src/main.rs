//! The `tidecast` program: reads the command line, runs one command, and ends with its exit code.

mod cli;
mod cmd;
mod failure;
mod logging;
mod report;
mod settings;
mod stop;
mod units;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::failure::{Failure, Outcome};
use crate::report::Reporter;
use crate::settings::Settings;

fn main() -> ExitCode {
    // HTCondor calls a plugin by its name, with flags of its own kind.
    let cli = match cmd::plugin::command_line(std::env::args_os()) {
        Some(line) => Cli::parse_from(line),
        None => Cli::parse(),
    };
    let settings = Settings::load(cli.global.config.as_deref());
    let json = cli.global.json
        || cli.command.is_for_a_program()
        || settings.as_ref().is_ok_and(|s| s.json == Some(true));
    let mut reporter = Reporter::new(json, cli.global.quiet);
    let outcome = match settings {
        Ok(settings) => run(&cli, &settings, &mut reporter),
        Err(error) => Err(Failure::usage(error)),
    };
    ExitCode::from(reporter.finish(outcome))
}

fn run(cli: &Cli, settings: &Settings, reporter: &mut Reporter) -> Outcome {
    logging::start(&cli.global, settings).map_err(Failure::usage)?;
    let context = cmd::Context { global: &cli.global, settings };
    match &cli.command {
        Command::Publish(args) => cmd::publish::run(args, &context, reporter),
        Command::Show(args) => cmd::show::run(args, reporter),
        Command::Verify(args) => cmd::verify::run(args, &context, reporter),
        Command::Seed(args) => cmd::seed::run(args, &context, reporter),
        Command::Share(args) => cmd::share::run(args, &context, reporter),
        Command::Bcast(args) => cmd::bcast::run(args, &context, reporter),
        Command::Worker(args) => cmd::worker::run(args, &context, reporter),
        Command::Get(args) => cmd::get::run(args, &context, reporter),
        Command::Mount(args) => cmd::mount::run(args, &context, reporter),
        Command::Run(args) => cmd::run::run(args, &context, reporter),
        Command::Umount(args) => cmd::mount::umount(args, reporter),
        Command::Status(args) => cmd::mount::status(args, reporter),
        Command::Daemon(args) => cmd::daemon::run(args, &context, reporter),
        Command::Cache(args) => cmd::cache::run(args, &context, reporter),
        Command::Admin(args) => cmd::admin::run(args, &context, reporter),
        Command::Plugin(args) => cmd::plugin::run(args, &context),
        Command::Copy(args) => cmd::copy::run(args, &context, reporter),
        Command::CopyServer(args) => cmd::copy_server::run(args, &context, reporter),
        Command::CopyEnd => cmd::copy_server::end(),
        Command::Field(args) => cmd::field::run(args, &context, reporter),
        Command::Tracker(args) => cmd::tracker::run(args, &context, reporter),
        Command::Revoke(args) => cmd::revoke::run(args, &context, reporter),
        Command::Ca(args) => cmd::ca::run(args, &context, reporter),
        Command::Sim(args) => cmd::sim::run(args, &context, reporter),
        Command::Classad(args) => cmd::classad::run(args, reporter),
        Command::Completions(args) => cmd::completions::run(args),
        Command::Man(args) => cmd::man::run(args, reporter),
    }
}
