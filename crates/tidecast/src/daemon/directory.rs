//! The directory that a daemon serves to `tidecast copy`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tidecast_event::{Context as _, Error, Fault as _};
use tidecast_mover::end::ServerOptions;
use tidecast_mover::server::{self, Keys, Served, User};
use tidecast_mover::session::PORT;
use tidecast_mover::spec::Accept;

use crate::mount::Program;
use crate::settings::{Listen, Table};

/// The server answers within this time, and ends within it.
const STARTS: Duration = Duration::from_secs(20);
const ENDS: Duration = Duration::from_secs(5);
/// Longest first line of a server.
const LINE: u64 = 64 << 10;

const ENDED: &str = "the server of the directory has ended";

/// The first event of a server that is a process: where it serves, or why it does not.
#[derive(Deserialize)]
struct ServerEvent {
    url: Option<String>,
    message: Option<String>,
}

/// A server, in this process or, as another user, in one of its own. It runs until this is dropped.
pub(super) enum Directory {
    Here(Box<Served>),
    There(Server),
}

/// A server that is a process of another user.
pub(super) struct Server {
    child: Child,
    url: String,
}

impl Directory {
    /// Serves `root` with the settings of the configuration; the keys are in `dir`.
    pub(super) fn start(root: PathBuf, table: Table, dir: &Path, program: &Program) -> Result<Self, Error> {
        let listen = table.serve_listen.map_or(Listen { ip: None, port: PORT }, |listen| listen.0);
        server::check_user(table.serve_as.as_ref(), table.serve_as_root, ["serve_as", "serve_as_root"])
            .fault()?;
        if let Some(user) = &table.serve_as {
            return Server::start((&root, &table, listen, user), dir, program).map(Self::There);
        }
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let accept = if table.serve_trust_metadata { Accept::All } else { Accept::Restricted };
        let options = ServerOptions { root, read_only: table.serve_read_only, plain: false, accept };
        let keys = Keys::load(dir).fault()?;
        Ok(Self::Here(Box::new(server::start(options, listen.addr(), &keys).fault()?)))
    }

    /// Its URL, with the key.
    pub(super) fn url(&self) -> &str {
        match self {
            Self::Here(served) => &served.url,
            Self::There(server) => &server.url,
        }
    }
}

impl Server {
    fn start(
        (root, table, listen, user): (&Path, &Table, Listen, &User),
        dir: &Path,
        program: &Program,
    ) -> Result<Self, Error> {
        let mut command = program.command()?;
        command.arg("--json").arg("--state-dir").arg(dir).args(["copy-server", "--while-input", "--root"]);
        command.arg(root).args(["--listen", &listen.addr().to_string(), "--as", user.text()]);
        command.args(table.serve_read_only.then_some("--read-only"));
        command.args(table.serve_trust_metadata.then_some("--trust-metadata"));
        // All it has to know is in these words; a confined process cannot read the configuration again.
        command.env("TIDECAST_CONFIG", "/dev/null");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start the server of the directory")?;
        let out = child.stdout.take().context("no pipe")?;
        let mut server = Self { child, url: String::new() };
        let (say, heard) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let mut out = BufReader::new(out);
            let read = (&mut out).take(LINE).read_line(&mut line);
            let _ = say.send(read.map(|_| line));
            // Its later output must not fail because of a closed pipe.
            let _ = std::io::copy(&mut out, &mut std::io::sink());
        });
        let line = heard.recv_timeout(STARTS).context("the server of the directory did not answer")?;
        let said: ServerEvent = serde_json::from_str(&line.fault()?).context(ENDED)?;
        match said.url {
            Some(url) => server.url = url,
            None => return Err(Error::fault(said.message.unwrap_or_else(|| ENDED.to_owned()))),
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let until = Instant::now() + ENDS;
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
