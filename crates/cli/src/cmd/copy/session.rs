//! Brings two ends together, wherever they are, and looks on until they are done.

use std::net::{SocketAddr, ToSocketAddrs};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;
use tidecast_identity::{NodeKey, Tls};
use tidecast_mover::Error;
use tidecast_mover::back::{
    Guard, Link, Listener, Monitor, NodeName, Options, Outcome, Pipes, STREAMS, SessionId, Target,
};
use tidecast_mover::end::{
    Breaker, Channel, Progressed, Receiving, Remote, Request, Role, Sending, VERSION, Way, ask_server,
};
use tidecast_mover::job::Sink as _;
use tidecast_mover::share::{Board, Claimed};
use tidecast_mover::sink::InOrder;
use tidecast_mover::spec::{Offer, ReceiveSpec, SendSpec};
use tidecast_text::{Host, quote_program};

use super::explain::Met;
use super::memory::Shared;
use super::place::Place;
use super::{WayArgs, tell};
use crate::cmd::Context;
use crate::failure::Failure;
use crate::report::{Reporter, object};
use crate::stop::{Stop, block_on};

/// How often the progress is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// A program that ssh has started has so long to end when all is done.
const ENDS: Duration = Duration::from_secs(5);

/// What is to be done.
#[derive(Clone)]
pub(super) struct Job<'a> {
    pub(super) send: SendSpec,
    pub(super) receive: ReceiveSpec,
    pub(super) options: Options,
    pub(super) way: &'a WayArgs,
    pub(super) from: Place,
    pub(super) to: Place,
    /// If it is one of several.
    pub(super) share: Option<Share>,
    /// If it goes to a program.
    pub(super) memory: Option<Shared>,
    /// If it is one file for a pipe or a device.
    pub(super) stream: Option<Arc<InOrder>>,
}

/// The part of one pair of hosts in a copy by several.
#[derive(Clone)]
pub(super) struct Share {
    pub(super) board: Arc<Board>,
    pub(super) pair: usize,
    /// By which the receiver knows it again.
    pub(super) identity: String,
}

/// What came of a copy that may be ended early.
pub(super) enum Ended {
    /// It is done.
    Whole(Box<Outcome>),
    /// It was ended after its time: bytes that the receiver wrote after the first, in so many seconds, and what was met.
    Cut { bytes: u64, seconds: f64, met: Met },
}

/// Copies, and tells of it.
pub(super) fn run(
    job: &Job<'_>,
    shown: tell::Shown,
    context: &Context<'_>,
    reporter: &mut Reporter,
) -> crate::failure::Outcome {
    let (from, to) = (job.from.to_string(), job.to.to_string());
    reporter.started("copy", object(json!({ "from": from, "to": to })));
    match copy(job, None, context, reporter)? {
        Ended::Whole(mut outcome) => {
            if shown.itemize {
                tell::as_rsync(&mut outcome.written.planned, sends(job));
            }
            tell::tell(&outcome, job.receive.dry_run, shown, None, reporter)
        }
        Ended::Cut { .. } => Err(failure(Error::Cancelled)),
    }
}

/// Whether files go from this host to another.
pub(super) fn sends(job: &Job<'_>) -> bool {
    matches!(job.from, Place::Local(_)) && !matches!(job.to, Place::Local(_))
}

/// Copies, for at most so long.
pub(super) fn copy(
    job: &Job<'_>,
    most: Option<Duration>,
    context: &Context<'_>,
    reporter: &mut Reporter,
) -> Result<Ended, Failure> {
    let monitor = job.memory.as_ref().map_or_else(Arc::default, |shared| shared.monitor.clone());
    block_on(context.threads(), async {
        let stop = Stop::listen()?;
        let (say, heard) = mpsc::channel::<String>();
        let mut since: Option<(Instant, u64)> = None;
        let mut cut = None;
        let work = std::thread::scope(|scope| {
            let ends = Ends { job, monitor: &monitor, say };
            let working = scope.spawn(move || ends.run());
            // When the ends are through, nobody is left to say anything.
            loop {
                match heard.recv_timeout(LOOK) {
                    Ok(warning) => reporter.warning(&warning),
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                }
                if stop.is_asked() {
                    monitor.cancel();
                }
                if let Some(shared) = job.memory.as_ref().filter(|_| monitor.is_cancelled()) {
                    // The end that receives may hear nothing while it waits for room.
                    shared.memory.stop();
                }
                let progress = monitor.progress();
                let moved = tell::moved(&progress, 0);
                if moved > 0 {
                    let (first, bytes) = *since.get_or_insert((Instant::now(), moved));
                    if cut.is_none() && most.is_some_and(|most| first.elapsed() >= most) {
                        let met = Met { wire: progress.wire, ..Met::from(&progress.walked) };
                        let (bytes, seconds) = (moved.saturating_sub(bytes), first.elapsed().as_secs_f64());
                        cut = Some(Ended::Cut { bytes, seconds, met });
                        monitor.cancel();
                    }
                }
                if job.memory.is_none() {
                    reporter.progress(&tell::snapshot(&progress));
                }
            }
            working.join().unwrap_or(Err(Error::Cancelled))
        });
        match (work, cut) {
            (Ok(outcome), _) => Ok(Ended::Whole(Box::new(outcome))),
            (Err(Error::Cancelled), Some(cut)) if !stop.is_asked() => Ok(cut),
            (Err(e), _) => Err(failure(e)),
        }
    })
}

/// The exit code that an error deserves.
pub(super) fn failure(error: Error) -> Failure {
    match error {
        Error::Cancelled => Failure::cut("cut off; give the command again to go on"),
        Error::Usage(_) => Failure::usage(error),
        Error::Silent(_) => Failure { code: crate::failure::Code::Cut, ..Failure::from(error) },
        other => Failure::from(other),
    }
}

/// Both ends of one copy.
pub(super) struct Ends<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) monitor: &'a Monitor,
    pub(super) say: mpsc::Sender<String>,
}

/// An end that is elsewhere, and what keeps it there.
struct There {
    remote: Remote,
    program: Option<Program>,
}

impl Ends<'_> {
    pub(super) fn run(&self) -> Result<Outcome, Error> {
        match (&self.job.from, &self.job.to) {
            (Place::Local(_), Place::Local(_)) => self.here(),
            (Place::Local(_), to) => self.push(to),
            (from, Place::Local(_)) => self.pull(from),
            (from, to) => self.between(from, to),
        }
    }

    /// The options of an end.
    fn options(&self) -> Options {
        self.job.options.clone()
    }

    /// Streams to begin with, unless the user says how many there are to be.
    fn streams(&self, found: usize) -> usize {
        self.job.options.streams.unwrap_or(found)
    }

    /// Both ends in this process.
    fn here(&self) -> Result<Outcome, Error> {
        let sending = self.sending()?;
        let receiving = self.receiving(sending.offer())?;
        let listener = Listener::local()?;
        let session = SessionId::random();
        let accepts = listener.expect(session, None)?;
        let target = Target {
            addresses: vec![listener.address()],
            node: None,
            session,
            spread: false,
            congestion: None,
        };
        let dials = Link::dial(target, Guard::Plain, self.streams(STREAMS));
        let theirs = Monitor::default();
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| receiving.run(&accepts, &self.options(), &theirs));
            let sent = sending.run(&dials, &self.options(), self.monitor);
            if sent.is_err() {
                // It may have ended before it was heard at all.
                theirs.cancel();
            }
            let received = receiver.join().unwrap_or(Err(Error::Cancelled));
            match (sent, received) {
                // Of two errors the receiver's is the cause more often than not.
                (Err(Error::There(_)), Err(e)) | (Err(e), _) => Err(e),
                (Ok(outcome), _) => Ok(outcome),
            }
        })
    }

    fn receive(&self, offer: &Offer) -> ReceiveSpec {
        let mut offer = offer.clone();
        if let Some(share) = &self.job.share {
            offer.identity.clone_from(&share.identity);
        }
        ReceiveSpec { offer, ..self.job.receive.clone() }
    }

    /// The receiving end of this process.
    fn receiving(&self, offer: &Offer) -> Result<Receiving, Error> {
        if let Some(stream) = &self.job.stream {
            if offer.single.is_none() {
                let from = &self.job.from;
                return Err(Error::Usage(format!(
                    "{from} is a directory, or several files: only one regular file can be written to a pipe or device"
                )));
            }
            return Ok(stream.clone().into());
        }
        match &self.job.memory {
            Some(shared) => Ok(shared.memory.clone().into()),
            None => Receiving::new(&self.receive(offer), None),
        }
    }

    fn send(&self) -> SendSpec {
        let job = self.job;
        let on_disk = !job.receive.null && job.memory.is_none() && job.stream.is_none();
        let dest = (on_disk && job.from.same_host(&job.to)).then(|| job.receive.dest.clone());
        SendSpec { dest, ..job.send.clone() }
    }

    /// The sending end of this process.
    fn sending(&self) -> Result<Sending, Error> {
        let sending = Sending::new(&self.send(), None)?;
        if let Some(Share { board, pair, .. }) = self.job.share.clone() {
            sending.share(move |batch, known| Some(board.claim(pair, batch, known)));
        }
        Ok(sending)
    }

    /// Answers a sending end that asks for a batch.
    fn claimed(&self, batch: u64, known: usize) -> Claimed {
        let none = || Claimed { mine: true, ..Claimed::default() };
        self.job.share.as_ref().map_or_else(none, |share| share.board.claim(share.pair, batch, known))
    }

    fn push(&self, to: &Place) -> Result<Outcome, Error> {
        let sending = self.sending()?;
        let role = Role::Receive(self.receive(sending.offer()).into());
        let (there, link) = self.meet(to, &role, true)?;
        self.finish(there, None, || sending.run(&link, &self.options(), self.monitor))
    }

    fn pull(&self, from: &Place) -> Result<Outcome, Error> {
        let role = Role::Send(self.send().into());
        let (there, link) = self.meet(from, &role, false)?;
        let receiving = self.receiving(&there.offer())?;
        self.finish(there, None, || receiving.run(&link, &self.options(), self.monitor))
    }

    /// An end elsewhere that is ready, and the link to it.
    fn meet(&self, place: &Place, role: &Role, sends: bool) -> Result<(Other, Link), Error> {
        let is_ssh = matches!(place, Place::Ssh { .. });
        if !(is_ssh && self.job.way.via == "ssh") {
            let key = Arc::new(Tls::new(&NodeKey::generate()?)?);
            let node = (!self.job.way.plain).then(|| NodeName(key.id().to_string()));
            let guard = if self.job.way.plain { Guard::Plain } else { Guard::Tls(key) };
            let way = Way::Listen { port: self.job.way.port, node };
            let mut there = self.ask(place, role, way, &guard)?;
            let target = there.target(place, self.job.way)?;
            match target.try_reach(&guard) {
                Ok(streams) => {
                    return Ok((Other::apart(there), Link::dial(target, guard, self.streams(streams))));
                }
                // The questions of a sender that takes its share need a channel without blocks.
                Err(e) if is_ssh && self.job.share.is_none() => {
                    let _ = self.say.send(format!("{e}; all data goes through ssh instead"));
                }
                Err(e) => return Err(e),
            }
        }
        let there = self.ask(place, role, Way::Channel, &Guard::Plain)?;
        let offer = there.remote.offer.clone();
        let pipes =
            there.remote.into_pipes().ok_or_else(|| Error::Usage("--via ssh is for host:path".into()))?;
        Ok((Other { offer, remote: None, program: there.program }, Link::pipes(pipes, sends)))
    }

    fn ask(&self, place: &Place, role: &Role, way: Way, guard: &Guard) -> Result<There, Error> {
        let request = Request { version: VERSION, role: role.clone(), options: self.options(), way };
        match place {
            Place::Local(_) => Err(Error::Usage("this end is here".into())),
            Place::Ssh { host, .. } => {
                let (program, pipes) =
                    Program::start(self.job.way, host).map_err(|e| Error::There(format!("{e:#}")))?;
                match Remote::ask(Channel::Pipes(pipes), &request, start()) {
                    Ok(remote) => Ok(There { remote, program: Some(program) }),
                    Err(e) => Err(program.explain(e, host, &self.job.way.remote_program)),
                }
            }
            Place::Server { server, .. } => {
                let usage = |e: anyhow::Error| Error::Usage(format!("{e:#}"));
                let (addresses, key) = (
                    server.addresses().map_err(usage)?,
                    server.key(self.job.way.key.as_ref()).map_err(usage)?,
                );
                let remote = Remote::ask(ask_server(&addresses, &key, guard)?, &request, start())?;
                Ok(There { remote, program: None })
            }
        }
    }

    /// Runs this end; what the other one says meanwhile is listened to, so that it need not wait. When it fails, `other` is cut.
    fn finish(
        &self,
        mut there: Other,
        other: Option<Breaker>,
        run: impl FnOnce() -> Result<Outcome, Error>,
    ) -> Result<Outcome, Error> {
        let Some(mut remote) = there.remote.take() else {
            let outcome = run();
            drop(there);
            return outcome;
        };
        let (is_program, breaker) = (there.program.is_some(), remote.breaker());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let why = loop {
                    match remote.hear() {
                        // What the other end knows and this one does not: how its streams go, if it sends.
                        Ok(Progressed::Progress(there)) if there.wire.streams > 0 => {
                            self.monitor.show_wire(there.wire);
                        }
                        Ok(Progressed::Progress(_)) => {}
                        Ok(Progressed::Claim(batch, known)) => {
                            // If it has gone, that is heard next.
                            let _ = remote.claimed(self.claimed(batch, known));
                        }
                        Ok(Progressed::Done(_)) => return,
                        Err(Error::There(why)) => break why,
                        // The copy itself may go on.
                        Err(Error::Silent(_)) => return,
                        // A server's channel may break and its streams come again; a program has ended with its pipes.
                        Err(_) if is_program => break "it has ended".into(),
                        Err(_) => return,
                    }
                };
                self.monitor.lose(why);
                other.inspect(Breaker::cut);
            });
            let outcome = run();
            // All is said: what the other end still has to say is of no use, and it may have gone without a word.
            drop(there);
            breaker.cut();
            outcome
        })
    }

    /// Both ends elsewhere: the sender dials the receiver, unless the sender alone is a server, which may be easier to reach.
    fn between(&self, from: &Place, to: &Place) -> Result<Outcome, Error> {
        let plain = self.job.way.plain;
        let guard = if plain { Guard::Plain } else { Guard::Tls(Arc::new(Tls::new(&NodeKey::generate()?)?)) };
        let send = Role::Send(self.send().into());
        let listens = |dials: &There| {
            let node = (!plain).then(|| dials.remote.node.clone());
            Way::Listen { port: self.job.way.port, node }
        };
        let (mut sender, receiver) = if from.is_server() && !to.is_server() {
            let receive = Role::Receive(self.receive(&Offer::default()).into());
            let mut receiver = self.ask(to, &receive, Way::Dial { plain }, &guard)?;
            let mut sender = self.ask(from, &send, listens(&receiver), &guard)?;
            receiver.remote.go(sender.target(from, self.job.way)?, sender.remote.offer.clone())?;
            (sender, receiver)
        } else {
            let mut sender = self.ask(from, &send, Way::Dial { plain }, &guard)?;
            let receive = Role::Receive(self.receive(&sender.remote.offer).into());
            let mut receiver = self.ask(to, &receive, listens(&sender), &guard)?;
            sender.remote.go(receiver.target(to, self.job.way)?, Offer::default())?;
            (sender, receiver)
        };
        let (receiver, cut) = (Other::apart(receiver), sender.remote.breaker());
        self.finish(receiver, Some(cut), || {
            loop {
                if let Some(error) = self.monitor.wish() {
                    return Err(error);
                }
                // When the receiver has failed, its reason counts.
                match sender.remote.hear().map_err(|e| self.monitor.wish().unwrap_or(e))? {
                    Progressed::Claim(batch, known) => {
                        sender.remote.claimed(self.claimed(batch, known))?;
                    }
                    Progressed::Done(outcome) => return Ok(*outcome),
                    Progressed::Progress(progress) => self.monitor.show(*progress),
                }
            }
        })
    }
}

/// The end to which a link leads.
struct Other {
    offer: Offer,
    remote: Option<Remote>,
    program: Option<Program>,
}

impl Other {
    fn apart(there: There) -> Self {
        Self { offer: there.remote.offer.clone(), remote: Some(there.remote), program: there.program }
    }

    fn offer(&self) -> Offer {
        self.offer.clone()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        if let Some(program) = self.program.take() {
            program.end();
        }
    }
}

impl There {
    /// Where it listens, seen from here.
    fn target(&mut self, place: &Place, way: &WayArgs) -> Result<Target, Error> {
        let nowhere = || Error::Damaged("an end that should listen does not say where".into());
        let mut target = self.remote.target.take().ok_or_else(nowhere)?;
        target.congestion.clone_from(&way.congestion);
        if let Place::Server { server, .. } = place {
            target.addresses = server.addresses().map_err(|e| Error::Usage(format!("{e:#}")))?;
        }
        target.spread = !way.address.is_empty();
        if target.spread && way.address != ["all"] {
            let port = target.addresses.first().ok_or_else(nowhere)?.port();
            target.addresses = resolve(&way.address, port)?;
        }
        Ok(target)
    }
}

/// The addresses of these names, or addresses as text.
fn resolve(names: &[String], port: u16) -> Result<Vec<SocketAddr>, Error> {
    let mut all = Vec::new();
    for name in names {
        let found = (name.as_str(), port).to_socket_addrs();
        all.extend(found.map_err(|e| Error::Usage(format!("--address {name}: {e}")))?);
    }
    Ok(all)
}

/// What is added to the timeout while the other end starts: to log in, and where there is a terminal, to ask for a password, for which
/// sshd waits so long too.
fn start() -> Duration {
    let asks = std::fs::File::open("/dev/tty").is_ok();
    Duration::from_secs(if asks { 120 } else { 20 })
}

/// A program at the other end of ssh.
struct Program(Child);

impl Program {
    fn start(way: &WayArgs, host: &Host) -> anyhow::Result<(Self, Pipes)> {
        let (ssh, words) = (&way.ssh.program, &way.ssh.words);
        let mut command = Command::new(ssh);
        // The words behind the host are for the shell of the other end, which ssh hands them as one line.
        command.args(words).arg(host.ssh()).arg("--").arg(quote_program(&way.remote_program)).arg("copy-end");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {ssh}"))?;
        let outgoing = child.stdin.take().context("no pipe")?;
        let incoming = child.stdout.take().context("no pipe")?;
        let file = |fd: std::os::fd::OwnedFd| std::fs::File::from(fd);
        let pipes = Pipes::new(file(incoming.into()), file(outgoing.into())).context("no pipe")?;
        Ok((Self(child), pipes))
    }

    /// Why there was no answer.
    fn explain(mut self, error: Error, host: &Host, program: &str) -> Error {
        let noise = match &error {
            Error::Network { .. } => None,
            Error::Noise(line) => Some(line.clone()),
            _ => {
                self.end();
                return error;
            }
        };
        let status = self.wait(ENDS).and_then(|status| status.code());
        if let Some(line) = noise.filter(|_| !matches!(status, Some(127 | 255))) {
            return Error::There(format!(
                "{host} printed \"{line}\" where the answer of tidecast belongs: start-up files of the shell there (.bashrc) must print \
                 nothing when no terminal is attached"
            ));
        }
        Error::There(match status {
            Some(255) => format!("ssh does not reach {host}"),
            Some(127) => format!(
                "there is no {program} on {host}: install it there, or --remote-program says where it is"
            ),
            _ => format!("{program} on {host} ended without an answer; is it of this version?"),
        })
    }

    /// Waits for its end, for a while.
    fn end(mut self) {
        let _ = self.wait(ENDS);
    }

    /// How it ended, which it must in that time.
    fn wait(&mut self, most: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + most;
        while Instant::now() < until {
            match self.0.try_wait() {
                Ok(None) => std::thread::sleep(LOOK / 10),
                ended => return ended.ok().flatten(),
            }
        }
        let _ = self.0.kill();
        self.0.wait().ok()
    }
}
