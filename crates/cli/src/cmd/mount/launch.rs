//! Finding the server of a tree, or starting it, and giving it mounts.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::Value;
use tidecast_mount::{Answer, Ask, How, Packets, Place, mount};

use super::super::source::Given;
use super::{Home, PART};
use crate::failure::{Code, Failure};
use crate::report::Reporter;
use tidecast_secret as secret;

/// A server answers within this, or does not work.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a server that ends is looked at, until another may be started; and one whose peers are about to answer.
const LOOK: Duration = Duration::from_millis(20);

/// A peer that does not answer is known within this (the driver gives a dial 3 s).
const SILENCE: Duration = Duration::from_secs(5);
/// Of several peers that were named another may answer, so long after the first has failed.
const GRACE: Duration = Duration::from_millis(700);

/// A connection to the server of a tree, which is started if there is none, and stays until it has been given the mount
/// that is to come on the connection.
///
/// # Errors
/// What the server says went wrong: no manifest, no room.
pub(crate) fn server(home: &Home, given: &Given, reporter: &Reporter) -> Result<Packets, Failure> {
    if let Found::Stays(server) = find(&home.socket())? {
        return Ok(server);
    }
    let _alone = home.lock()?;
    let until = Instant::now() + PATIENCE;
    loop {
        match find(&home.socket())? {
            Found::Stays(server) => return Ok(server),
            Found::Ends => std::thread::sleep(LOOK),
            Found::Nobody => start(home, given, reporter)?,
        }
        if Instant::now() > until {
            return Err(anyhow!("its server neither serves nor ends; see {}", home.log().display()).into());
        }
    }
}

enum Found {
    /// It has promised to.
    Stays(Packets),
    /// Its last mount is gone, or it dies.
    Ends,
    Nobody,
}

/// A connection to a server that another process of ours has found, and that stays likewise.
///
/// # Errors
/// It has ended meanwhile.
pub(crate) fn join(socket: &Path) -> Result<Packets, Failure> {
    match find(socket)? {
        Found::Stays(server) => Ok(server),
        _ => Err(anyhow!("the server of this tree has ended").into()),
    }
}

fn find(socket: &Path) -> Result<Found, Failure> {
    let Ok(server) = Packets::connect(socket) else { return Ok(Found::Nobody) };
    if server.send(&Ask::Expect, None).is_err() {
        return Ok(Found::Ends);
    }
    match server.receive::<Answer>(Some(PATIENCE)) {
        Ok((Answer::Done, _)) => Ok(Found::Stays(server)),
        Err(late) if late.kind() == ErrorKind::TimedOut => Err(anyhow!("its server does not answer").into()),
        _ => Ok(Found::Ends),
    }
}

/// Starts the keeper, which starts the server, and waits until it serves.
fn start(home: &Home, given: &Given, reporter: &Reporter) -> Result<(), Failure> {
    let log = OpenOptions::new().create(true).append(true).open(home.log());
    let log = log.with_context(|| format!("cannot write {}", home.log().display()))?;
    let mut keeper = Command::new(std::env::current_exe().context("cannot find this program")?);
    keeper.args(std::env::args_os().skip(1)).env(PART, "keeper").env("TIDECAST_JSON", "true");
    keeper.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let passed = match given {
        Given::Text(text) => Some(secret::pass(&mut keeper, text)?),
        Given::Path(_) => None,
    };
    let interrupts = Interrupts::take()?;
    let mut keeper = keeper.spawn().context("cannot start a process")?;
    drop(passed);
    let mut said = BufReader::new(keeper.stdout.take().context("the server cannot be heard")?);
    let mut serves = false;
    // When it serves, it closes its end.
    loop {
        if interrupts.come_before(&said)? {
            // The keeper is no child of the terminal, and the server is in its group: it says why it has nothing.
            let group = Pid::from_raw(keeper.id().try_into().unwrap_or(i32::MAX));
            // Until it leads a group, it has started no server.
            let ended = killpg(group, Signal::SIGTERM).or_else(|_| kill(group, Signal::SIGTERM));
            ended.context("cannot end the server")?;
        }
        let mut line = String::new();
        if said.read_line(&mut line).context("the server cannot be heard")? == 0 {
            break;
        }
        let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
        let text = |key| event.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        match text("event").as_str() {
            "started" => serves = true,
            "warning" if event.get("peer").is_some() => reporter.trouble(&text("peer"), &text("reason")),
            "warning" => reporter.warning(&text("message")),
            "error" => {
                let _ = keeper.wait();
                let code = Code::of_exit(event.get("code").and_then(Value::as_u64).unwrap_or_default());
                return Err(Failure { code, error: anyhow!(text("message")), fields: Default::default() });
            }
            _ => {}
        }
    }
    if serves {
        return Ok(());
    }
    let _ = keeper.wait();
    Err(anyhow!("the server did not start; see {}", home.log().display()).into())
}

/// The signals that end a server which is being started.
pub(super) fn interrupts() -> SigSet {
    SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM])
}

/// Ctrl-C and SIGTERM while a server starts: they end the server too, which no terminal reaches.
struct Interrupts {
    signals: SignalFd,
    before: SigSet,
}

impl Interrupts {
    fn take() -> Result<Self, Failure> {
        let set = interrupts();
        let before = SigSet::thread_get_mask().context("cannot read which signals are blocked")?;
        set.thread_block().context("cannot block signals")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&set, flags).context("cannot wait for signals")?;
        Ok(Self { signals, before })
    }

    /// Waits until there is a line, or the end; whether a signal came before it.
    fn come_before(&self, said: &BufReader<ChildStdout>) -> Result<bool, Failure> {
        if !said.buffer().is_empty() {
            return Ok(false);
        }
        let mut both =
            [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(said.get_ref(), PollFlags::IN)];
        match poll(&mut both, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(anyhow!(error).context("cannot wait for the server").into()),
        }
        Ok(matches!(self.signals.read_signal(), Ok(Some(_))))
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        let _ = self.before.thread_set_mask();
    }
}

/// Mounts, and has the server serve it. `made`: the directory is removed after the mount.
///
/// # Errors
/// It cannot be mounted; the server is gone.
pub(crate) fn attach(server: &Packets, place: &Place, how: &How, made: bool) -> Result<(), Failure> {
    let device = mount(place, how)?;
    let ask = Ask::Serve { at: place.path().to_owned(), made };
    server.send(&ask, Some(device.as_fd())).context("the server is gone")?;
    drop(device);
    answer(server).map(drop)
}

/// Asks the server behind a mount.
///
/// # Errors
/// It is gone, does not answer, or cannot do it.
pub(crate) fn ask(socket: &Path, what: &Ask) -> Result<Answer, Failure> {
    let server = Packets::connect(socket).context("nobody serves it any more: its server has ended")?;
    server.send(what, None).context("its server is gone")?;
    answer(&server)
}

/// What the server of a mount says of itself.
///
/// # Errors
/// As [`ask`].
pub(crate) fn status(socket: &Path) -> Result<Value, Failure> {
    match ask(socket, &Ask::Status)? {
        Answer::Status(status) => Ok(*status),
        _ => Err(anyhow!("its server speaks of something else").into()),
    }
}

/// Says why no peer answers, where data is missing and none does: who reads waits for it, and would not know why. Whoever
/// has named no peer has trackers or others looked for, which takes as long as it takes.
pub(crate) fn tell_silence(socket: &Path, reporter: &Reporter) {
    let (until, mut failed) = (Instant::now() + SILENCE, None);
    while Instant::now() < until {
        let Ok(status) = status(socket) else { return };
        let number = |key| status.get(key).and_then(Value::as_u64).unwrap_or_default();
        let is_met = status.get("peers").and_then(Value::as_array).is_some_and(|peers| !peers.is_empty());
        let is_named = status.get("has_origin").and_then(Value::as_bool).unwrap_or_default();
        if is_met || !is_named || number("pieces_missing") == 0 {
            return;
        }
        if let Some(why) = status.get("heard").and_then(Value::as_str)
            && failed.get_or_insert_with(Instant::now).elapsed() > GRACE
        {
            reporter.warning(&format!("no peer answers, so reads wait until one does: {why}"));
            return;
        }
        std::thread::sleep(LOOK);
    }
}

fn answer(server: &Packets) -> Result<Answer, Failure> {
    let (answer, _) = server.receive::<Answer>(Some(PATIENCE)).context("its server does not answer")?;
    match answer {
        Answer::Failed(why) => Err(anyhow!(why).into()),
        Answer::Ending => Err(anyhow!("its server ends").into()),
        answer => Ok(answer),
    }
}
