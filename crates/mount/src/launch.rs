//! Finding the server of a tree, or starting it, and giving it mounts.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::Value;
use tidecast_event::Kind;
use tidecast_event::mount::{State, Status};
use tidecast_node::{MessageSender, Source};

use crate::error::{Error, home, system};
use crate::home::Home;
use crate::messages::{Answer, Ask, Role};
use crate::mountpoint::{How, Mounted, mount, unmount};
use crate::packets::Packets;
use crate::place::Place;

/// A server answers within this, or does not work.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a server that ends is looked at, until another may be started; and one whose peers are about to answer.
const LOOK: Duration = Duration::from_millis(20);

/// A peer that does not answer is known within this (the driver gives a dial 3 s).
const SILENCE: Duration = Duration::from_secs(5);
/// Of several peers that were named another may answer, this long after the first has failed.
const GRACE: Duration = Duration::from_millis(700);
/// A server that was interrupted while it starts ends within this, or is killed.
const ENDING: Duration = Duration::from_secs(10);
const UNHEARD: &str = "cannot read from the server";
const WAIT: &str = "cannot wait for the server";

/// How to start the server of a tree, if none runs: a program that calls [`keep`](crate::keeper::keep) and
/// [`serve`](crate::server::serve) where its environment gives it that [`Role`].
pub struct Start<'a> {
    /// The program; one without a directory is looked for in `PATH`.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The ticket or magnet link, which is not on the command line.
    pub secret: Option<String>,
    /// Readable when the start is to be broken off: the first time asks the server to end, the second kills it.
    pub interrupts: Box<dyn AsFd + 'a>,
    /// Receives the server's messages until it serves.
    pub messages: &'a MessageSender<'a>,
}

impl<'a> Start<'a> {
    /// This program with its own arguments, as the program `tidecast` starts servers.
    ///
    /// # Errors
    /// The system does not tell where the program is.
    pub fn again(
        source: &Source,
        interrupts: Box<dyn AsFd + 'a>,
        messages: &'a MessageSender<'a>,
    ) -> Result<Self, Error> {
        let program = std::env::current_exe().map_err(system("cannot find this program"))?;
        let arguments = tidecast_secret::words().into_iter().skip(1).collect();
        Ok(Self { program, arguments, secret: secret(source), interrupts, messages })
    }
}

/// The text of a ticket or magnet link, which must not appear on a command line.
#[must_use]
pub fn secret(source: &Source) -> Option<String> {
    match source {
        Source::Ticket(ticket) => Some(ticket.to_string()),
        Source::Magnet(magnet) => Some(magnet.to_string()),
        Source::File(_) => None,
    }
}

/// A connection to the server of the tree of `source`, which is started if none runs. The server stays until it has
/// received the mount of this connection. `start` is called only if no server runs.
///
/// # Errors
/// An error of the server: no manifest, no room.
pub fn server<'a>(
    of: &Home,
    source: &Source,
    start: impl FnOnce() -> Result<Start<'a>, Error>,
) -> Result<Packets, Error> {
    let server = found_or_started(of, start)?;
    // For when that of an earlier mount is accepted no longer.
    if let Source::Ticket(ticket) = source
        && let Err(error) = ask(&of.socket(), own(), &Ask::Ticket(ticket.to_string()))
    {
        tracing::warn!(%error, "the server of the tree does not take the ticket");
    }
    Ok(server)
}

fn found_or_started<'a>(
    of: &Home,
    start: impl FnOnce() -> Result<Start<'a>, Error>,
) -> Result<Packets, Error> {
    if let Found::Stays(server) = find(&of.socket())? {
        return Ok(server);
    }
    let _alone = of.lock()?;
    of.verify()?;
    let until = Instant::now() + PATIENCE;
    let mut how = Err(start);
    loop {
        match find(&of.socket())? {
            Found::Stays(server) => return Ok(server),
            Found::Ends => std::thread::sleep(LOOK),
            Found::Nobody => {
                let start = match how {
                    Ok(start) => start,
                    Err(start) => start()?,
                };
                launch(of, &start)?;
                how = Ok(start);
            }
        }
        if Instant::now() > until {
            return Err(Error::Stuck(of.log()));
        }
    }
}

/// The user of this process.
fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

enum Found {
    /// It has promised to.
    Stays(Packets),
    /// Its last mount was removed, or it has ended.
    Ends,
    Nobody,
}

/// A connection to a server that another process of ours has found, and that stays likewise.
///
/// # Errors
/// It has ended meanwhile.
pub fn join(socket: &Path) -> Result<Packets, Error> {
    match find(socket)? {
        Found::Stays(server) => Ok(server),
        _ => Err(Error::Ended),
    }
}

fn find(socket: &Path) -> Result<Found, Error> {
    let server = match Packets::connect(socket, own()) {
        Ok(server) => server,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(Error::Foreign(socket.to_owned()));
        }
        Err(_) => return Ok(Found::Nobody),
    };
    if server.send(&Ask::Expect, None).is_err() {
        return Ok(Found::Ends);
    }
    match server.receive::<Answer>(Some(PATIENCE)) {
        Ok((Answer::Done, _)) => Ok(Found::Stays(server)),
        Err(late) if late.kind() == ErrorKind::TimedOut => Err(Error::Silent),
        _ => Ok(Found::Ends),
    }
}

/// Starts the keeper, which starts the server, and waits until it serves.
fn launch(of: &Home, start: &Start<'_>) -> Result<(), Error> {
    let mut keeper = Command::new(&start.program);
    Role::Keeper.give(keeper.args(&start.arguments)).env("TIDECAST_JSON", "true");
    keeper.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(of.open_log()?);
    // Threads of a caller of the library may start processes of their own.
    start.secret.iter().try_for_each(|secret| tidecast_secret::pass_as_stdin(&mut keeper, secret))?;
    let mut keeper = keeper.spawn().map_err(home("start", &start.program))?;
    let output = keeper.stdout.take().ok_or(ErrorKind::BrokenPipe).map_err(system(UNHEARD))?;
    let mut output = Output::new(output);
    let mut serves = false;
    let mut until = None;
    // When it serves, it closes its end.
    loop {
        match output.next(start.interrupts.as_fd(), until)? {
            Next::Line(line) => match hear(&line, start.messages) {
                Heard::Serves => serves = true,
                Heard::Failed(error) => {
                    let _ = keeper.wait();
                    return Err(error);
                }
                Heard::Other => {}
            },
            Next::End => break,
            Next::Interrupt if until.is_none() => {
                end(&keeper, Signal::SIGTERM).map_err(system("cannot end the server"))?;
                until = Some(Instant::now() + ENDING);
            }
            // It waits for something that no signal ends.
            Next::Interrupt | Next::Late => {
                let _ = end(&keeper, Signal::SIGKILL);
                let _ = keeper.wait();
                return Err(Error::Interrupted);
            }
        }
    }
    match (serves, until) {
        (true, None) => return Ok(()),
        // It serves, and ends: another one must not be started.
        (true, Some(_)) => return Err(Error::Interrupted),
        (false, _) => {}
    }
    let _ = keeper.wait();
    Err(if until.is_some() { Error::Interrupted } else { Error::NotStarted(of.log()) })
}

/// Sends a signal to the keeper and its server. The keeper is not a child of the terminal, and the server is in its process
/// group: the server reports its own errors.
fn end(keeper: &Child, signal: Signal) -> nix::Result<()> {
    let group = Pid::from_raw(keeper.id().try_into().unwrap_or(i32::MAX));
    // Until it leads a group, it has started no server.
    killpg(group, signal).or_else(|_| kill(group, signal))
}

/// The meaning of a line of a server that starts.
enum Heard {
    Serves,
    Failed(Error),
    Other,
}

/// Passes on a warning.
fn hear(line: &[u8], messages: &MessageSender<'_>) -> Heard {
    let Ok(event) = serde_json::from_slice::<Value>(line) else { return Heard::Other };
    let text = |key| event.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    match text("event").as_str() {
        "started" => return Heard::Serves,
        "warning" if event.get("peer").is_some() => messages.unanswered(&text("peer"), &text("reason")),
        "warning" => messages.warning(text("message")),
        "error" => {
            let kind = Kind::of_exit(event.get("code").and_then(Value::as_u64).unwrap_or_default());
            return Heard::Failed(Error::Start { kind, message: text("message") });
        }
        _ => {}
    }
    Heard::Other
}

/// What comes first while a server starts.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// A line of its output.
    Line(Vec<u8>),
    /// The end of its output.
    End,
    Interrupt,
    /// The time is over.
    Late,
}

/// The output of a server that starts. A part of a line never keeps an interrupt from being seen.
struct Output<P> {
    pipe: P,
    bytes: Vec<u8>,
}

impl<P: AsFd> Output<P> {
    fn new(pipe: P) -> Self {
        Self { pipe, bytes: Vec::new() }
    }

    /// Waits for a line, the end, or an interrupt; until a time, if there is one.
    fn next(&mut self, interrupts: BorrowedFd<'_>, until: Option<Instant>) -> Result<Next, Error> {
        let mut has_interrupts = true;
        loop {
            if let Some(end) = self.bytes.iter().position(|&byte| byte == b'\n') {
                return Ok(Next::Line(self.bytes.drain(..=end).collect()));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(Next::Late);
            }
            let left = left.map(Timespec::try_from).transpose().map_err(|_| ErrorKind::InvalidInput);
            let left = left.map_err(system(WAIT))?;
            let mut both = [PollFd::new(&self.pipe, PollFlags::IN), PollFd::new(&interrupts, PollFlags::IN)];
            let watched = if has_interrupts { &mut both[..] } else { &mut both[..1] };
            match poll(watched, left.as_ref()) {
                Err(Errno::INTR) | Ok(0) => continue,
                other => other.map_err(system(WAIT))?,
            };
            let [output, interrupt] = both.map(|one| one.revents());
            if interrupt.contains(PollFlags::IN) {
                if rustix::io::read(interrupts, &mut [0; 512]).is_ok_and(|length| length > 0) {
                    return Ok(Next::Interrupt);
                }
            } else if !interrupt.is_empty() {
                // Its other end is closed: nothing interrupts any more.
                has_interrupts = false;
            }
            if !output.is_empty() && self.read()? == 0 {
                return Ok(Next::End);
            }
        }
    }

    fn read(&mut self) -> Result<usize, Error> {
        let mut some = [0; 8192];
        match rustix::io::read(&self.pipe, &mut some) {
            Ok(length) => {
                self.bytes.extend_from_slice(some.get(..length).unwrap_or_default());
                Ok(length)
            }
            // No end: it is tried again.
            Err(Errno::INTR) => Ok(1),
            Err(error) => Err(system(UNHEARD)(error)),
        }
    }
}

/// The signals that end a server which is being started.
pub(crate) fn interrupts() -> SigSet {
    SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM])
}

/// Catches Ctrl-C and SIGTERM of a program with one thread until it is dropped; for [`Start::interrupts`].
#[derive(Debug)]
pub struct Interrupts {
    signals: SignalFd,
    before: SigSet,
}

impl Interrupts {
    /// Catches them from now on.
    ///
    /// # Errors
    /// An error of the system.
    pub fn take() -> Result<Self, Error> {
        let set = interrupts();
        let before = SigSet::thread_get_mask().map_err(system("cannot read which signals are blocked"))?;
        set.thread_block().map_err(system("cannot block signals"))?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&set, flags).map_err(system("cannot wait for signals"))?;
        Ok(Self { signals, before })
    }
}

impl AsFd for Interrupts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        let _ = self.before.thread_set_mask();
    }
}

/// Mounts, and hands the mount to the server. `hold`: the directory may be one that another process removes, or that is to be
/// removed after the mount; the server sees to both.
///
/// # Errors
/// The mount fails; the server has ended.
pub fn attach(server: &Packets, place: &Place, how: &How, hold: bool) -> Result<(), Error> {
    if place.path().to_str().is_none() {
        let why = "names above a mount must be UTF-8".to_owned();
        return Err(Error::Mount { at: place.path().into(), why });
    }
    let device = mount(place, how)?;
    let ask = Ask::Serve { at: place.path().to_owned(), hold };
    if let Err(e) = server.send(&ask, Some(device.as_fd())) {
        // No process serves it.
        let _ = unmount(place.path(), true);
        return Err(system("the server has ended")(e));
    }
    drop(device);
    answer(server).map(drop)
}

/// Asks the server behind a mount of user `owner`.
///
/// # Errors
/// It has ended, does not answer, or cannot do it.
pub fn ask(socket: &Path, owner: u32, what: &Ask) -> Result<Answer, Error> {
    let server = Packets::connect(socket, owner);
    let server = server.map_err(system("no process serves this mount: its server has ended"))?;
    server.send(what, None).map_err(system("the server of this mount has ended"))?;
    answer(&server)
}

/// The status of the server of a mount of user `owner`.
///
/// # Errors
/// As [`ask`].
pub fn status(socket: &Path, owner: u32) -> Result<Status, Error> {
    match ask(socket, owner, &Ask::Status)? {
        Answer::Status(status) => Ok(*status),
        _ => Err(Error::Astray),
    }
}

impl Mounted {
    /// The status of its server, or why no process serves it.
    #[must_use]
    pub fn state(&self) -> State {
        let (status, dead) = match status(&self.source, self.user) {
            Ok(status) => (Some(status), None),
            Err(error) => (None, Some(error.to_string())),
        };
        State { path: self.at.clone(), status, dead }
    }

    /// Replaces the process that serves it, and all mounts of the same tree, by a new one of the program as it is installed
    /// now; the mounts stay.
    ///
    /// # Errors
    /// As [`ask`].
    pub fn restart(&self) -> Result<(), Error> {
        ask(&self.source, self.user, &Ask::Restart).map(drop)
    }
}

/// Why no peer answers, if data is missing and no peer does: a reading process would wait without knowing the
/// reason. If the user has named no peer, peers are searched by trackers or other means, without a time
/// limit. Waits until the reason is known, or `stop` returns true.
pub fn silence(socket: &Path, stop: impl Fn() -> bool) -> Option<String> {
    let (until, mut failed) = (Instant::now() + SILENCE, None);
    while Instant::now() < until && !stop() {
        let status = status(socket, own()).ok()?;
        if !status.peers.is_empty() || !status.has_origin || status.pieces_missing == 0 {
            return None;
        }
        if let Some(why) = status.heard
            && failed.get_or_insert_with(Instant::now).elapsed() > GRACE
        {
            return Some(format!("no peer answers; reads wait until one does: {why}"));
        }
        std::thread::sleep(LOOK);
    }
    None
}

fn answer(server: &Packets) -> Result<Answer, Error> {
    let (answer, _) = server
        .receive::<Answer>(Some(PATIENCE))
        .map_err(system("the server of this mount did not answer"))?;
    match answer {
        Answer::Failed(why) => Err(Error::Refused(why)),
        Answer::Ending => Err(Error::Ending),
        answer => Ok(answer),
    }
}

#[cfg(test)]
#[path = "launch_tests.rs"]
#[allow(clippy::unwrap_used)]
mod tests;
