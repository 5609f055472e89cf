//! Brings two ends together, wherever they are.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, mpsc};

use tidecast_identity::{NodeKey, Tls};

use super::connect_options::ConnectOptions;
use super::event::{Event, Warning};
use super::job::{Job, LOOK, Share};
use super::location::Location;
use super::program::{Program, patience};
use crate::batches::Claimed;
use crate::end::{
    Breaker, Channel, ConnectMode, Progressed, Receiving, Remote, Request, Role, Sending, VERSION, ask_server,
};
use crate::error::Error;
use crate::spec::{Offer, ReceiveSpec, SendSpec};
use crate::transfer::{
    Early, EarlyStreams, Guard, Link, Listener, Monitor, NodeName, Options, Outcome, STREAMS, SessionId,
    Target,
};

/// Both ends of one copy.
pub(super) struct Ends<'a> {
    pub(super) job: &'a Job,
    pub(super) monitor: &'a Monitor,
    pub(super) say: mpsc::Sender<Event>,
}

/// A remote end, and the program or connection that keeps it running.
struct RemoteEnd {
    remote: Remote,
    program: Option<Program>,
    /// Connections to it that are open already.
    early: Option<Early>,
}

impl Ends<'_> {
    pub(super) fn run(&self) -> Result<Outcome, Error> {
        match (&self.job.from, &self.job.to) {
            (Location::Local(_), Location::Local(_)) => self.here(),
            (Location::Local(_), to) => self.push(to),
            (from, Location::Local(_)) => self.pull(from),
            (from, to) => self.between(from, to),
        }
    }

    /// The options of an end.
    fn options(&self) -> Options {
        self.job.options.clone()
    }

    /// The initial number of streams, unless the user sets it.
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
                // It may have ended before its first message arrived.
                theirs.cancel();
            }
            let received = receiver.join().unwrap_or(Err(Error::Cancelled));
            match (sent, received) {
                // Of two errors the receiver's is the cause more often than not.
                (Err(Error::Remote(_)), Err(e)) | (Err(e), _) => Err(e),
                (Ok(outcome), _) => Ok(outcome),
            }
        })
    }

    fn receive(&self, offer: &Offer) -> ReceiveSpec {
        let mut offer = offer.clone();
        if let Some(share) = &self.job.share {
            offer.identity.clone_from(&share.identity);
        }
        let pulled = !matches!(self.job.from, Location::Local(_));
        ReceiveSpec { offer, pulled, ..self.job.receive.clone() }
    }

    /// The receiving end of this process.
    fn receiving(&self, offer: &Offer) -> Result<Receiving, Error> {
        if let Some(stream) = &self.job.stream {
            if offer.single.is_none() {
                let from = &self.job.from;
                return Err(Error::Usage(format!(
                    "{from} is not one regular file; only one regular file can be written to a pipe or device"
                )));
            }
            return Ok(stream.clone().into());
        }
        match &self.job.memory {
            Some(held) => Ok(held.memory.clone().into()),
            None => Receiving::new(&self.receive(offer), None),
        }
    }

    fn send(&self) -> SendSpec {
        let job = self.job;
        let on_disk = !job.receive.null && job.memory.is_none() && job.stream.is_none();
        let dest = (on_disk && job.from.same_host(&job.to)).then(|| job.receive.dest.clone());
        let mut send = SendSpec { dest, ..job.send.clone() };
        // A further name would be linked to a file that stays as it is, and that the sender does not have.
        send.keep.hard_links &= !job.receive.may_spare();
        send
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

    fn push(&self, to: &Location) -> Result<Outcome, Error> {
        let sending = self.sending()?;
        let role = Role::Receive(self.receive(sending.offer()).into());
        let (there, link) = self.open_end(to, &role, true)?;
        self.finish(there, None, || sending.run(&link, &self.options(), self.monitor))
    }

    fn pull(&self, from: &Location) -> Result<Outcome, Error> {
        let role = Role::Send(self.send().into());
        let (there, link) = self.open_end(from, &role, false)?;
        let receiving = self.receiving(&there.offer())?;
        self.finish(there, None, || receiving.run(&link, &self.options(), self.monitor))
    }

    /// An end elsewhere that is ready, and the link to it.
    fn open_end(&self, place: &Location, role: &Role, sends: bool) -> Result<(Other, Link), Error> {
        let is_ssh = matches!(place, Location::Ssh { .. });
        if !(is_ssh && self.job.reach.through_ssh) {
            let key = Arc::new(Tls::new(&NodeKey::generate()?)?);
            let node = (!self.job.reach.plain).then(|| NodeName(key.id().to_string()));
            let guard = if self.job.reach.plain { Guard::Plain } else { Guard::Tls(key) };
            let way = ConnectMode::Listen { port: self.job.reach.port, node };
            let mut there = self.ask(place, role, way, &guard)?;
            let target = there.target(place, &self.job.reach)?;
            let early = there.early.take();
            let reached =
                early.as_ref().map_or_else(|| target.try_reach(&guard), |early| Ok(early.streams()));
            match reached {
                Ok(streams) => {
                    let link = Link::dial_on(target, guard, self.streams(streams), early);
                    let fresh = there.remote.fresh;
                    return Ok((Other::apart(there), link.with_fresh(fresh)));
                }
                // The questions of a sender that takes its share need a channel without blocks.
                Err(e) if is_ssh && self.job.share.is_none() => {
                    let _ = self.say.send(Event::Warning(Warning::ThroughSsh(e)));
                }
                Err(e) => return Err(e),
            }
        }
        let there = self.ask(place, role, ConnectMode::Channel, &Guard::Plain)?;
        let offer = there.remote.offer.clone();
        let pipes = there
            .remote
            .into_pipes()
            .ok_or_else(|| Error::Usage("--via ssh needs a remote path of the form host:path".into()))?;
        Ok((Other { offer, remote: None, program: there.program }, Link::pipes(pipes, sends)))
    }

    fn ask(
        &self,
        place: &Location,
        role: &Role,
        way: ConnectMode,
        guard: &Guard,
    ) -> Result<RemoteEnd, Error> {
        let request = Request { version: VERSION, role: role.clone(), options: self.options(), way };
        match place {
            Location::Local(_) => Err(Error::Usage("this end runs in this process".into())),
            Location::Ssh { host, .. } => {
                let (program, pipes) = Program::start(&self.job.reach, host)?;
                match self.ask_on(Channel::Pipes(pipes), &request) {
                    Ok(remote) => Ok(RemoteEnd { remote, program: Some(program), early: None }),
                    Err(e) => Err(program.explain(e, host, &self.job.reach.remote_program)),
                }
            }
            Location::Server { server, .. } => {
                let (addresses, key) = (server.addresses()?, server.key(self.job.reach.key.as_ref())?);
                let (channel, early) = ask_server(&addresses, &key, guard, self.beside(&request.way))?;
                let remote = self.ask_on(channel, &request)?;
                Ok(RemoteEnd { remote, program: None, early })
            }
        }
    }

    /// Asks the other end. A copy that is stopped does not wait for the answer.
    fn ask_on(&self, channel: Channel, request: &Request) -> Result<Remote, Error> {
        let breaker = channel.breaker();
        let (asking, over) = mpsc::channel::<()>();
        let answer = std::thread::scope(|scope| {
            scope.spawn(move || {
                while over.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
                    if self.monitor.is_cancelled() {
                        return breaker.cut();
                    }
                }
            });
            let answer = Remote::ask(channel, request, patience());
            drop(asking);
            answer
        });
        answer.map_err(|e| if self.monitor.is_cancelled() { Error::Cancelled } else { e })
    }

    /// The connections to open beside a request to a server: if this end dials it, at the address of the
    /// request.
    fn beside(&self, way: &ConnectMode) -> EarlyStreams {
        let here = self.job.from.is_here() || self.job.to.is_here();
        match way {
            ConnectMode::Listen { .. } if here && self.job.reach.address.is_empty() => {
                EarlyStreams::Streams(self.job.options.streams)
            }
            _ => EarlyStreams::Nothing,
        }
    }

    /// Runs this end, and reads the other end's messages meanwhile, so that it never blocks. When it fails,
    /// `other` is cut.
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
                    match remote.receive() {
                        // Information that only the other end has: the state of its streams, if it sends.
                        Ok(Progressed::Progress(there)) if there.wire.streams > 0 => {
                            self.monitor.show_wire(there.wire);
                        }
                        Ok(Progressed::Progress(_)) => {}
                        Ok(Progressed::Claim(batch, known)) => {
                            // If it has disconnected, the next read reports it.
                            let _ = remote.claimed(self.claimed(batch, known));
                        }
                        Ok(Progressed::Done(_)) => return,
                        Err(Error::Remote(why)) => break why,
                        // The copy itself may go on.
                        Err(Error::Timeout(_)) => return,
                        // A server's channel may break and its streams come again; a program has ended with its pipes.
                        Err(_) if is_program => break "its program has ended".into(),
                        Err(_) => return,
                    }
                };
                self.monitor.lose(why);
                other.inspect(Breaker::cut);
            });
            let outcome = run();
            // Everything is done: further messages of the other end are of no use, and it may have ended
            // without one.
            drop(there);
            breaker.cut();
            outcome
        })
    }

    /// Both ends elsewhere: the sender dials the receiver, unless the sender alone is a server, which may be easier to reach.
    fn between(&self, from: &Location, to: &Location) -> Result<Outcome, Error> {
        let plain = self.job.reach.plain;
        let guard = if plain { Guard::Plain } else { Guard::Tls(Arc::new(Tls::new(&NodeKey::generate()?)?)) };
        let send = Role::Send(self.send().into());
        let listens = |dials: &RemoteEnd| {
            let node = (!plain).then(|| dials.remote.node.clone());
            ConnectMode::Listen { port: self.job.reach.port, node }
        };
        let (mut sender, receiver) = if from.is_server() && !to.is_server() {
            let receive = Role::Receive(self.receive(&Offer::default()).into());
            let mut receiver = self.ask(to, &receive, ConnectMode::Dial { plain }, &guard)?;
            let mut sender = self.ask(from, &send, listens(&receiver), &guard)?;
            receiver.remote.go(sender.target(from, &self.job.reach)?, sender.remote.offer.clone())?;
            (sender, receiver)
        } else {
            let mut sender = self.ask(from, &send, ConnectMode::Dial { plain }, &guard)?;
            let receive = Role::Receive(self.receive(&sender.remote.offer).into());
            let mut receiver = self.ask(to, &receive, listens(&sender), &guard)?;
            sender.remote.go(receiver.target(to, &self.job.reach)?, Offer::default())?;
            (sender, receiver)
        };
        let (receiver, cut) = (Other::apart(receiver), sender.remote.breaker());
        self.finish(receiver, Some(cut), || {
            loop {
                if let Some(error) = self.monitor.end_reason() {
                    return Err(error);
                }
                // When the receiver has failed, its reason counts.
                match sender.remote.receive().map_err(|e| self.monitor.end_reason().unwrap_or(e))? {
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
    fn apart(there: RemoteEnd) -> Self {
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

impl RemoteEnd {
    /// Where it listens, seen from here.
    fn target(&mut self, place: &Location, reach: &ConnectOptions) -> Result<Target, Error> {
        let nowhere = || Error::Damaged("missing address of the end that listens".into());
        let mut target = self.remote.target.take().ok_or_else(nowhere)?;
        target.congestion.clone_from(&reach.congestion);
        if let Location::Server { server, .. } = place {
            target.addresses = server.addresses()?;
            if let Some(early) = &self.early {
                // The first that answers is known.
                target.addresses.sort_by_key(|address| *address != early.to());
            }
        }
        target.spread = !reach.address.is_empty();
        if target.spread && reach.address != ["all"] {
            let port = target.addresses.first().ok_or_else(nowhere)?.port();
            target.addresses = resolve(&reach.address, port)?;
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
