//! A command that sees a tree where it was built: by the program `tidecast`, as a command line for a caller that starts processes
//! in its own way.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tidecast_event::{Context as _, Error, Kind};
use tidecast_mount::launch;
use tidecast_mount::namespace::Reported;

use super::arguments;
use super::options::RunOptions;
use crate::given::given_source;
use crate::settings::Settings;

/// One run of the program `tidecast` that shows a published tree to a command, and to no other process, and then becomes the
/// command. It needs no privilege, and leaves nothing behind.
///
/// The caller starts [`words`](RunCommand::words) with [`environment`](RunCommand::environment) added to that of the command,
/// and lets the process inherit [`descriptors`](RunCommand::descriptors) under the same numbers. The exit status is the command's
/// if [`end`](RunCommand::end) reports no failure.
///
/// ```no_run
/// use std::process::Command;
/// use tidecast::{RunCommand, RunOptions};
///
/// # fn inherit(_: &mut Command, _: &RunCommand) {}
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let run = RunCommand::new("env.torrent", &["/opt/env/bin/blastn".into()], &RunOptions::default())?;
/// let (program, arguments) = run.words().split_first().ok_or("no program")?;
/// let mut command = Command::new(program);
/// command.args(arguments).envs(run.environment());
/// inherit(&mut command, &run); // clears FD_CLOEXEC of run.descriptors() in the child
/// let status = command.status()?;
/// if let Some(error) = run.end(status.code())?.failed {
///     return Err(error.into());
/// }
/// println!("the command ended: {status}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RunCommand {
    words: Vec<OsString>,
    environment: Vec<(String, String)>,
    secret: Option<OwnedFd>,
    reported: Reported,
}

/// How a [`RunCommand`] went, apart from the command.
#[derive(Debug)]
pub struct Ran {
    /// What was wrong while the tree was shown.
    pub warnings: Vec<String>,
    /// Why the command could not be run. None: the exit status is the command's.
    pub failed: Option<Error>,
}

impl RunCommand {
    /// Of the tree that `source` names, as [`given_source`] takes it. Nothing is fetched and no process started yet. Relative paths
    /// are those of this process.
    ///
    /// # Errors
    /// The source is not a ticket, manifest or magnet link, or cannot be read; no command is given; the system gives no descriptor.
    pub fn new(source: &str, command: &[OsString], options: &RunOptions) -> Result<Self, Error> {
        if command.is_empty() {
            return Err(Error::usage("no command given"));
        }
        let (secret, source) = match launch::secret(&given_source(Some(source))?) {
            None => (None, std::path::absolute(source).with_context(|| format!("cannot find {source}"))?),
            Some(secret) => {
                let (file, word) = tidecast_secret::lend(&secret).map_err(Error::fault)?;
                (Some(file), word.into())
            }
        };
        let mut words = vec![options.program.clone().into_os_string()];
        words.extend(arguments::of_run(options, source.as_os_str(), command));
        let reported = Reported::new().context("cannot create a file in memory")?;
        let mut environment = differences(options)?;
        let (name, number) = reported.variable();
        environment.push((name.to_owned(), number));
        Ok(Self { words, environment, secret, reported })
    }

    /// The program and its arguments. No secret is in them.
    #[must_use]
    pub fn words(&self) -> &[OsString] {
        &self.words
    }

    /// Variables that the program needs beside those of the command.
    pub fn environment(&self) -> impl Iterator<Item = (&str, &str)> {
        self.environment.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// What the program inherits, under the same numbers; the command does not. They have `FD_CLOEXEC` here, so that no other process
    /// of the caller's inherits them.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.secret.iter().map(AsFd::as_fd).chain([self.reported.as_fd()])
    }

    /// How it went, to be asked when the process has ended. `code`: its exit code; None where a signal has ended it.
    ///
    /// # Errors
    /// What the program has reported cannot be read.
    pub fn end(&self, code: Option<i32>) -> Result<Ran, Error> {
        let account = self.reported.read().context("cannot read the report of the program tidecast")?;
        let failed = match account.failed {
            Some((kind, message)) => Some(Error::new(kind, message)),
            None if account.has_begun => None,
            None => Some(not_begun(code)),
        };
        Ok(Ran { warnings: account.warnings, failed })
    }
}

/// The program has ended without a word; standard error may have one.
fn not_begun(code: Option<i32>) -> Error {
    let before = "before the command began; standard error may have the reason";
    match code {
        Some(code) => {
            let kind = Kind::of_exit(code.try_into().unwrap_or_default());
            Error::new(kind, format!("the program tidecast ended with code {code} {before}"))
        }
        None => Error::new(Kind::Interrupted, format!("a signal ended the program tidecast {before}")),
    }
}

/// Settings that no flag of the program takes back.
fn differences(options: &RunOptions) -> Result<Vec<(String, String)>, Error> {
    let (swarm, settings) = (&options.serve.swarm, Settings::load(None)?);
    let all = [
        ("TIDECAST_DHT", settings.dht, swarm.dht),
        ("TIDECAST_PLAIN", settings.plain, swarm.plain),
        ("TIDECAST_LSD", settings.lsd, swarm.lsd),
    ];
    let differ = all.into_iter().filter(|(_, set, wanted)| set.is_some_and(|set| set != *wanted));
    Ok(differ.map(|(name, _, wanted)| (name.to_owned(), wanted.to_string())).collect())
}
