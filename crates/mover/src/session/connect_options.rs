//! How the ends of a copy are reached.

use std::str::FromStr;

use tidecast_text::split;

use super::location::Location;
use crate::end::ServerKey;
use crate::error::Error;
use crate::transfer::congestion;

/// A program and its first words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The program.
    pub program: String,
    /// Its words before the host.
    pub words: Vec<String>,
}

impl FromStr for Launcher {
    type Err = String;

    /// Reads a command as a shell would.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = split(text).map_err(|e| e.to_string())?.into_iter();
        match words.next() {
            Some(program) if !program.is_empty() => Ok(Self { program, words: words.collect() }),
            _ => Err("no program given".into()),
        }
    }
}

/// How the ends are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Data unencrypted; each block is still checked.
    pub plain: bool,
    /// All data through ssh, where nothing else passes.
    pub through_ssh: bool,
    /// The key of copy-servers whose URL has no key; default: `TIDECAST_COPY_KEY`.
    pub key: Option<ServerKey>,
    /// Starts the other end.
    pub ssh: Launcher,
    /// The name of the tidecast program on the remote host.
    pub remote_program: String,
    /// The port on which the other end listens; 0: any.
    pub port: u16,
    /// Addresses of the end that listens, over which the streams go round; `all` alone: those that it has. Empty: the first of its
    /// addresses that answers.
    pub address: Vec<String>,
    /// Congestion control of the streams; None: bbr on long ways, where the system has it.
    pub congestion: Option<String>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            plain: false,
            through_ssh: false,
            key: None,
            ssh: Launcher { program: "ssh".into(), words: Vec::new() },
            remote_program: "tidecast".into(),
            port: 0,
            address: Vec::new(),
            congestion: None,
        }
    }
}

impl ConnectOptions {
    /// The dialing end chooses the congestion control; if that is this one, its availability is checked here.
    /// Else returns the reason why this host lacks it.
    pub(super) fn check_congestion(&self, from: &Location, to: &Location) -> Result<Option<String>, Error> {
        let Some(Err(e)) = self.congestion.as_deref().map(congestion) else { return Ok(None) };
        if from.is_here() {
            return Err(Error::Usage(format!("--congestion: {e}")));
        }
        // It is the other end that sends, and that may have it.
        Ok(to.is_here().then(|| e.to_string()))
    }
}
