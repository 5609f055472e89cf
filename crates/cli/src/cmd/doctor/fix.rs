//! `doctor --fix` and `--undo`: shows what changes, asks, and says what became of it.

use std::io::IsTerminal as _;

use anyhow::anyhow;
use tidecast::event::doctor::{Done, Fix};
use tidecast::{DoctorOptions, DoctorWork};
use tidecast_text::count;

use crate::ask::is_agreed;
use crate::cmd::run_operation;
use crate::failure::{Failure, Outcome, reached};
use crate::report::{Reporter, fields_of};

/// How `--fix` is meant.
#[derive(Clone, Copy)]
pub(super) struct How {
    /// Print a script, and change nothing.
    pub(super) dry_run: bool,
    /// Do not ask.
    pub(super) yes: bool,
}

/// Shows the changes and makes them.
pub(super) fn fix(how: How, options: DoctorOptions, reporter: &mut Reporter) -> Outcome {
    let planned = tidecast::doctor(DoctorOptions { work: DoctorWork::Plan, ..options.clone() });
    let planned = planned.wait_blocking()?;
    let plan = planned.fix.clone().unwrap_or_default();
    let is_root = rustix::process::geteuid().is_root();
    if how.dry_run || !is_root {
        plan.script.lines().for_each(|line| reporter.result(line));
        if !how.dry_run && !plan.commands.is_empty() {
            let error =
                anyhow!("changing settings needs root: run the script above as root, or this command");
            return Err(Failure::new(tidecast::Kind::Fault, error).with(fields_of(&planned)));
        }
        return Ok(fields_of(&planned));
    }
    plan.lines().iter().for_each(|line| reporter.result(line));
    if plan.commands.is_empty() {
        reporter.result("nothing to change");
        return Ok(fields_of(&planned));
    }
    if !how.yes && !asked(&plan)? {
        reporter.result("nothing was changed");
        return Ok(fields_of(&planned));
    }
    run(DoctorOptions { work: DoctorWork::Fix { shown: plan.commands }, ..options }, reporter)
}

/// Takes all changes back.
pub(super) fn undo(options: DoctorOptions, reporter: &mut Reporter) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::usage(anyhow!("--undo restores settings of the host and needs root")));
    }
    run(DoctorOptions { work: DoctorWork::Undo, ..options }, reporter)
}

fn run(options: DoctorOptions, reporter: &mut Reporter) -> Outcome {
    let done = run_operation::run(|| tidecast::doctor(options), reporter, |_, _| {});
    let reached = reached(&done);
    let settings = reached.into_iter().flat_map(Done::settings);
    settings.for_each(|setting| reporter.result(&setting.line()));
    if reached.is_some_and(|done| done.undone.as_ref().is_some_and(Vec::is_empty)) {
        reporter.result("nothing to undo");
    }
    Ok(fields_of(&done?))
}

/// Asks on the terminal.
fn asked(plan: &Fix) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(anyhow!(
            "cannot ask before settings are changed: standard input is not a terminal; use --yes"
        )));
    }
    Ok(is_agreed(&format!("apply {}", count(plan.commands.len() as u64, "change"))))
}
