//! The `tidecast` program: reads the command line, runs one command, and ends with its exit code.

mod args;
mod ask;
mod cli;
mod cmd;
mod context;
mod failure;
mod fields;
mod help;
mod names;
mod open_files;
mod output;
mod report;
mod stop;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory as _;
use tidecast::Kind;
use tidecast_secret as secret;

use crate::cli::{Cli, Command};
use crate::failure::{Failure, Outcome};
use crate::report::Reporter;
use tidecast::settings::Settings;

fn main() -> ExitCode {
    secret::warn_by(|text| report::print_error(&format!("tidecast: warning: {text}")));
    secret::hide();
    stop::outlive_file_size_limit();
    // HTCondor calls a plugin by its name, with flags of its own kind.
    let line = cmd::plugin::command_line(std::env::args_os());
    let cli = match Cli::parsed(line.unwrap_or_else(|| std::env::args_os().collect())) {
        Ok(cli) => cli,
        Err(error) => return usage_error(&help::instead(error, std::env::args_os())),
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
    tidecast::log::finish();
    ExitCode::from(reporter.finish(outcome))
}

/// Prints the help that was asked for, or a usage error: as text, or with `--json` as the event `error`.
fn usage_error(error: &clap::Error) -> ExitCode {
    let asked = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    let json = asked || Settings::load(None).is_ok_and(|settings| settings.json == Some(true));
    let rendered = error.render().to_string();
    let text = secret::shown(&rendered);
    if !(json && error.use_stderr()) {
        // An argument may be a file name with control characters: escape it before it reaches a terminal.
        let escaped = |word: OsString| OsString::from(tidecast_text::escaped(&word).to_string());
        if !error.use_stderr() {
            report::written(error.print());
            return ExitCode::SUCCESS;
        }
        report::begin_error();
        let is_clean = std::env::args_os().all(|word| escaped(word.clone()) == word);
        if is_clean && text == rendered {
            error.exit();
        }
        let again = Cli::parsed(std::env::args_os().map(escaped).collect()).err().filter(|_| !is_clean);
        let text = again.map_or(text, |error| secret::shown(&error.render().to_string()));
        text.trim_end().split('\n').for_each(report::print_error);
        return ExitCode::from(Kind::Usage as u8);
    }
    // The usage that follows the error is for people only.
    let what = text.split("\n\nUsage:").next().unwrap_or_default().split("\n\nFor more information").next();
    let what = what.unwrap_or_default().trim_start_matches("error: ");
    let words = what.split_whitespace().collect::<Vec<_>>().join(" ");
    ExitCode::from(Reporter::new(true, false).finish(Err(Failure::usage(anyhow::Error::msg(words)))))
}

fn run(cli: &Cli, settings: &Settings, reporter: &mut Reporter) -> Outcome {
    tidecast::log::start(cli.global.log_filter(settings.log.as_deref()))?;
    let context = cmd::Context { global: &cli.global, settings };
    if let Some(name) = cli.command.shown_by_status() {
        reporter.go_live(name);
    }
    match &cli.command {
        Command::Publish(args) => cmd::publish::run(args, &context, reporter),
        Command::Show(args) => cmd::show::run(args, &context, reporter),
        Command::Verify(args) => cmd::verify::run(args, &context, reporter),
        Command::Seed(args) => cmd::seed::run(args, &context, reporter),
        Command::Share(args) => cmd::share::run(args, &context, reporter),
        Command::Bcast(args) => cmd::bcast::run(args, &context, reporter),
        Command::Worker(args) => cmd::worker::run(args, &context, reporter),
        Command::Get(args) => cmd::get::run(args, &context, reporter),
        Command::Mount(args) => cmd::mount::run(args, &context, reporter),
        Command::Run(args) => cmd::run::run(args, &context, reporter),
        Command::Umount(args) => cmd::mount::umount(args, reporter),
        Command::Status(args) => cmd::mount::status(args, &context, reporter),
        Command::Daemon(args) => cmd::daemon::run(args, &context, reporter),
        Command::Cache(args) => cmd::cache::run(args, &context, reporter),
        Command::Admin(args) => cmd::admin::run(args, &context, reporter),
        Command::Plugin(args) => cmd::plugin::run(args, &context),
        Command::Copy(args) => cmd::copy::run(args, reporter),
        Command::CopyServer(args) => cmd::copy_server::run(args, &context, reporter),
        Command::CopyEnd => cmd::copy_server::end(),
        Command::Field(args) => cmd::field::run(args, &context, reporter),
        Command::Tracker(args) => cmd::tracker::run(args, &context, reporter),
        Command::Revoke(args) => cmd::revoke::run(args, &context, reporter),
        Command::Ca(args) => cmd::ca::run(args, &context, reporter),
        Command::Sim(args) => cmd::sim::run(args, &context, reporter),
        Command::Classad(args) => cmd::classad::run(args, reporter),
        Command::Doctor(args) => cmd::doctor::run(args, cli.global.verbose > 0, reporter),
        Command::Completions(args) => cmd::completions::run(args, &Cli::command()),
        Command::Man(args) => cmd::man::run(args, Cli::command(), reporter),
    }
}
