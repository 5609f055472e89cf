//! What the program that runs a command tells the one that has started it, apart from standard error: how the command ends is
//! the command's, and what fails before it is the program's.
//!
//! Both have one anonymous file. The program appends to it, a line of JSON for each thing; the caller reads it when the program
//! has ended. The command does not inherit it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::process::Command;

use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};
use tidecast_event::Kind;
use tidecast_node::{Message, MessageSink};

use super::error::{Error, failed};

/// Where the program finds the number of the file.
const VARIABLE: &str = "TIDECAST_RUN_REPORT";
/// More is not read (bytes).
const MOST: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    Started,
    Warning { message: String },
    Error { code: u8, message: String },
}

/// The program's end.
#[derive(Debug)]
pub struct Report(File);

impl Report {
    /// What the program that started this one has given it. To be called once: processes that are started later do not
    /// inherit it.
    #[must_use]
    pub fn of_environment() -> Option<Self> {
        let number: i32 = std::env::var(VARIABLE).ok()?.parse().ok()?;
        let link = std::fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
        if !link.to_string_lossy().contains(VARIABLE) {
            return None;
        }
        let file = OpenOptions::new().append(true).open(format!("/proc/self/fd/{number}")).ok();
        let _ = nix::unistd::close(number);
        file.map(Self)
    }

    /// Lets a process that this one starts report, too: it becomes the command. No other process is to be started from then on.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn lend(&self, command: &mut Command) -> Result<(), Error> {
        let inherits = fcntl_setfd(&self.0, FdFlags::empty());
        inherits.map_err(failed("cannot hand over the report"))?;
        command.env(VARIABLE, self.0.as_raw_fd().to_string());
        Ok(())
    }

    /// The command is not to see what was only for this program.
    pub fn forget(command: &mut Command) -> &mut Command {
        command.env_remove(VARIABLE)
    }

    /// The next thing is the command, unless an error follows.
    pub fn begins(&self) {
        self.append(&Line::Started);
    }

    /// This program has failed.
    pub fn failed(&self, kind: Kind, message: String) {
        self.append(&Line::Error { code: kind as u8, message });
    }

    /// Where it cannot be written, the caller sees that nothing is there.
    fn append(&self, line: &Line) {
        if let Ok(mut line) = serde_json::to_vec(line) {
            line.push(b'\n');
            let _ = (&self.0).write_all(&line);
        }
    }
}

impl MessageSink for Report {
    fn send(&self, message: Message) {
        if let Message::Warning(warning) = message {
            self.append(&Line::Warning { message: warning.message });
        }
    }
}

/// The caller's end.
#[derive(Debug)]
pub struct Reported(File);

/// What the program has told.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Account {
    /// The command has been executed.
    pub has_begun: bool,
    /// What was wrong while the tree was shown.
    pub warnings: Vec<String>,
    /// Why the program has failed.
    pub failed: Option<(Kind, String)>,
}

impl Reported {
    /// For one program that is yet to be started.
    ///
    /// # Errors
    /// The system gives no memory or descriptor.
    pub fn new() -> io::Result<Self> {
        let file = memfd_create(VARIABLE, MemfdFlags::CLOEXEC)?;
        fchmod(&file, Mode::from_raw_mode(0o600))?;
        Ok(Self(file.into()))
    }

    /// The variable that the program needs in its environment. It inherits [the file](AsFd) under the same number.
    #[must_use]
    pub fn variable(&self) -> (&'static str, String) {
        (VARIABLE, self.0.as_raw_fd().to_string())
    }

    /// What has been told so far.
    ///
    /// # Errors
    /// What the system reports.
    pub fn read(&self) -> io::Result<Account> {
        let mut account = Account::default();
        let mut file = &self.0;
        file.rewind()?;
        for line in BufReader::new(file.take(MOST)).split(b'\n') {
            match serde_json::from_slice(&line?) {
                Ok(Line::Started) => account.has_begun = true,
                Ok(Line::Warning { message }) => account.warnings.push(message),
                Ok(Line::Error { code, message }) => {
                    account.failed = Some((Kind::of_exit(code.into()), message));
                }
                // A line that was cut off.
                Err(_) => {}
            }
        }
        Ok(account)
    }
}

impl AsFd for Reported {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_one_end_tells_the_other_reads() {
        let caller = Reported::new().unwrap();
        assert_eq!(caller.read().unwrap(), Account::default());
        let path = format!("/proc/self/fd/{}", caller.variable().1);
        let report = Report(OpenOptions::new().append(true).open(path).unwrap());
        report.send(Message::Warning(tidecast_event::Warning::new("slow\nlink")));
        report.begins();
        let begun = Account { has_begun: true, warnings: vec!["slow\nlink".into()], failed: None };
        assert_eq!(caller.read().unwrap(), begun);
        report.failed(Kind::Usage, "no such file".into());
        (&report.0).write_all(b"{\"event\":").unwrap();
        assert_eq!(caller.read().unwrap().failed, Some((Kind::Usage, "no such file".into())));
    }
}
