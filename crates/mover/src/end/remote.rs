//! The messages of a channel, and both of its ends.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidecast_identity::{NodeId, NodeKey, Tls};

use super::channel::{Breaker, Channel};
use super::home;
use super::local::{Receiving, Sending};
use crate::batches::Claimed;
use crate::error::Error;
use crate::spec::{Offer, ReceiveSpec, SendSpec};
use crate::transfer::{
    Guard, Link, Listener, Monitor, NodeName, Options, Outcome, Pipes, Progress, SessionId, Target,
    congestion,
};

/// A started end waits this long for its instructions: the user may have to log in at the other end first.
const ASKED: Duration = Duration::from_secs(600);
/// Between two words of progress.
const PROGRESS: Duration = Duration::from_millis(250);

/// The role of an end.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// To send this.
    Send(Box<SendSpec>),
    /// To receive into this.
    Receive(Box<ReceiveSpec>),
}

impl Role {
    /// Paths as a shell would read them.
    fn at_home(&mut self) -> Result<(), Error> {
        let paths: Vec<&mut OsString> = match self {
            Self::Send(spec) => spec.sources.iter_mut().chain(&mut spec.dest).collect(),
            Self::Receive(spec) => vec![&mut spec.dest],
        };
        for path in paths {
            *path = home::expand(path)?;
        }
        Ok(())
    }
}

/// How an end gets its connections.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectMode {
    /// It listens, on this port (0: any), for this node (None: without TLS).
    Listen {
        /// The port.
        port: u16,
        /// The node that will dial.
        node: Option<NodeName>,
    },
    /// It will be told where to dial.
    Dial {
        /// Without TLS.
        plain: bool,
    },
    /// The channel itself carries the blocks from then on.
    Channel,
}

/// The version of the protocol and of the block format. Other versions are rejected.
pub const VERSION: u32 = 6;

/// The request to an end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// The role.
    pub role: Role,
    /// How.
    pub options: Options,
    /// The kind of connections.
    pub way: ConnectMode,
}

/// Further questions on the channel.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Question {
    /// Dial this target. A receiver gets the offer with it.
    Go(Target, Offer),
    /// The answer to [`Answer::Claim`].
    Claimed(Claimed),
}

/// The answers of an end.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// It can begin.
    Ready {
        /// A sender's offer.
        offer: Offer,
        /// Of one that listens: where.
        target: Option<Target>,
        /// Its own key.
        node: NodeName,
        /// Of a receiver: whether its destination is empty. A receiver that sends this supports the early
        /// announcement of the last block.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fresh: Option<bool>,
    },
    /// It will not.
    Refused(String),
    /// How far it is.
    Progress(Box<Progress>),
    /// Of one of several senders: a request for this batch; it knows this many taken batches.
    Claim(u64, usize),
    /// It is done.
    Done(Box<Outcome>),
    /// It has failed.
    Failed(String),
}

/// An end that is elsewhere.
#[derive(Debug)]
pub struct Remote {
    channel: Channel,
    /// The offer of a sender.
    pub offer: Offer,
    /// Where it listens, if it does.
    pub target: Option<Target>,
    /// Its key.
    pub node: NodeName,
    /// Whether its destination is empty, if it receives and has reported it.
    pub fresh: Option<bool>,
}

/// The result of waiting for a remote end.
#[derive(Debug)]
pub enum Progressed {
    /// It continues.
    Progress(Box<Progress>),
    /// It asks for a batch, and knows so many that are taken.
    Claim(u64, usize),
    /// It is over.
    Done(Box<Outcome>),
}

impl Remote {
    /// Asks an end to get ready. For its answers, the first and those while it is at work, `start` is added
    /// to the timeout: the user may have to log in, and the end has to find out where it can connect.
    ///
    /// # Errors
    /// The end refuses, cannot be understood, or has disconnected.
    pub fn ask(mut channel: Channel, request: &Request, start: Duration) -> Result<Self, Error> {
        let patience = request.options.timeout.saturating_add(start);
        if matches!(channel, Channel::Pipes(_)) {
            channel.set_patience(Some(patience))?;
        }
        let said = channel.send(request);
        // A shell that starts no program prints the reason, and reads nothing.
        let answer = match (channel.receive_first::<Answer>(), said) {
            (Err(noise @ Error::UnexpectedOutput(_)), _) | (_, Err(noise)) => return Err(noise),
            (answer, Ok(())) => answer?,
        };
        match answer {
            Answer::Ready { offer, target, node, fresh } => {
                channel.set_patience(Some(patience))?;
                Ok(Self { channel, offer, target, node, fresh })
            }
            Answer::Refused(why) => Err(Error::Refused(why)),
            Answer::Failed(why) => Err(Error::Remote(why)),
            Answer::Progress(_) | Answer::Claim(..) | Answer::Done(_) => {
                Err(Error::Damaged("received an answer before its question".into()))
            }
        }
    }

    /// Tells it where to dial, and if it receives, the offer.
    ///
    /// # Errors
    /// The end has disconnected.
    pub fn go(&mut self, target: Target, offer: Offer) -> Result<(), Error> {
        self.channel.send(&Question::Go(target, offer))
    }

    /// Answers [`Progressed::Claim`].
    ///
    /// # Errors
    /// The end has disconnected.
    pub fn claimed(&mut self, claimed: Claimed) -> Result<(), Error> {
        self.channel.send(&Question::Claimed(claimed))
    }

    /// Ends the wait of another thread in [`Remote::receive`].
    #[must_use]
    pub fn breaker(&self) -> Breaker {
        self.channel.breaker()
    }

    /// The channel itself, if blocks go by it.
    #[must_use]
    pub fn into_pipes(self) -> Option<Pipes> {
        match self.channel {
            Channel::Pipes(pipes) => Some(pipes),
            Channel::Connection(_) => None,
        }
    }

    /// Its next message.
    ///
    /// # Errors
    /// Its own errors, or a disconnection.
    pub fn receive(&mut self) -> Result<Progressed, Error> {
        match self.channel.receive::<Answer>()? {
            Answer::Progress(progress) => Ok(Progressed::Progress(progress)),
            Answer::Claim(batch, known) => Ok(Progressed::Claim(batch, known)),
            Answer::Done(outcome) => Ok(Progressed::Done(outcome)),
            Answer::Failed(why) | Answer::Refused(why) => Err(Error::Remote(why)),
            Answer::Ready { .. } => Err(Error::Damaged("received an answer without a question".into())),
        }
    }
}

/// An end that has been made and waits for its link.
pub(super) enum End {
    Send(Sending),
    Receive(Receiving),
}

impl End {
    pub(super) fn offer(&self) -> Offer {
        match self {
            Self::Send(sending) => sending.offer().clone(),
            Self::Receive(_) => Offer::default(),
        }
    }

    /// Of one that receives: whether it has nothing yet.
    pub(super) fn fresh(&self) -> Option<bool> {
        match self {
            Self::Send(_) => None,
            Self::Receive(receiving) => Some(receiving.fresh()),
        }
    }

    pub(super) fn run(&self, link: &Link, options: &Options, monitor: &Monitor) -> Result<Outcome, Error> {
        match self {
            Self::Send(sending) => sending.run(link, options, monitor),
            Self::Receive(receiving) => receiving.run(link, options, monitor),
        }
    }

    pub(super) fn sends(&self) -> bool {
        matches!(self, Self::Send(_))
    }
}

/// Runs an end for the peer at the other side of the pipes (`tidecast copy-end`, which ssh starts). Errors
/// are reported over the pipes.
///
/// # Errors
/// The channel broke before an error could be reported.
pub fn answer(pipes: Pipes) -> Result<(), Error> {
    let mut channel = Channel::Pipes(pipes);
    channel.set_patience(Some(ASKED))?;
    let mut request: Request = channel.receive()?;
    let understood = request.understood().and_then(|()| request.role.at_home());
    let tls = understood.and_then(|()| Ok(Arc::new(Tls::new(&NodeKey::generate()?)?)));
    match tls.and_then(|tls| begin(&request, tls)) {
        Ok(begun) => serve(channel, &request, begun),
        Err(e) => channel.send(&Answer::Refused(e.why())),
    }
}

impl Request {
    /// Whether it is understood here.
    pub(super) fn understood(&self) -> Result<(), Error> {
        if self.version == VERSION {
            return Ok(());
        }
        let (theirs, ours) = (self.version, VERSION);
        Err(Error::Refused(format!(
            "protocol mismatch: one end has version {theirs} and the other {ours}; install the same release of tidecast on both"
        )))
    }
}

/// The requested end, as far as it can be made before the first answer.
enum Prepared {
    Listens {
        end: End,
        target: Target,
        link: Link,
        node: NodeName,
        _listener: Listener,
    },
    /// A receiver that gets its offer only with its target.
    Dials {
        end: Option<End>,
        tls: Arc<Tls>,
        guard: Guard,
    },
    Channel {
        end: End,
        node: NodeName,
    },
}

fn begin(request: &Request, tls: Arc<Tls>) -> Result<Prepared, Error> {
    let node = NodeName(tls.id().to_string());
    let guard = |plain: bool| if plain { Guard::Plain } else { Guard::Tls(tls.clone()) };
    let end = || match &request.role {
        Role::Send(spec) => Ok(End::Send(Sending::new(spec, None)?)),
        Role::Receive(spec) => Ok::<_, Error>(End::Receive(Receiving::new(spec, None)?)),
    };
    Ok(match &request.way {
        ConnectMode::Listen { port, node: dials } => {
            let dials: Option<NodeId> = dials.as_ref().map(NodeName::id).transpose()?;
            let listener = Listener::bind(any(*port), guard(dials.is_none()), None)?;
            let session = SessionId::random();
            let link = listener.expect(session, dials)?;
            let addresses = addresses(listener.address().port());
            let named = dials.is_some().then(|| node.clone());
            let target = Target { addresses, node: named, session, spread: false, congestion: None };
            Prepared::Listens { end: end()?, target, link, node, _listener: listener }
        }
        ConnectMode::Dial { plain } => {
            let sends = matches!(request.role, Role::Send(_));
            Prepared::Dials { end: sends.then(end).transpose()?, guard: guard(*plain), tls }
        }
        ConnectMode::Channel => Prepared::Channel { end: end()?, node },
    })
}

fn serve(mut channel: Channel, request: &Request, begun: Prepared) -> Result<(), Error> {
    let ready = |end: Option<&End>, target: Option<Target>, node: NodeName| Answer::Ready {
        offer: end.map(End::offer).unwrap_or_default(),
        target,
        node,
        fresh: end.and_then(End::fresh),
    };
    match begun {
        Prepared::Listens { end, target, link, node, _listener } => {
            channel.send(&ready(Some(&end), Some(target), node))?;
            drop(report(channel, &end, &link, &request.options));
        }
        Prepared::Dials { end, tls, guard } => {
            channel.send(&ready(end.as_ref(), None, NodeName(tls.id().to_string())))?;
            let (target, offer) = receive_target(&mut channel)?;
            match dial(request, end, target, &guard, offer) {
                Ok((end, link)) => drop(report(channel, &end, &link, &request.options)),
                Err(e) => channel.send(&Answer::Failed(e.why()))?,
            }
        }
        Prepared::Channel { end, node } => {
            channel.send(&ready(Some(&end), None, node))?;
            let Channel::Pipes(pipes) = channel else {
                return Err(Error::Usage("only an ssh channel can carry blocks".into()));
            };
            let link = Link::pipes(pipes, end.sends());
            drop(end.run(&link, &request.options, &Monitor::default()));
        }
    }
    Ok(())
}

/// The end that dials, and its link.
fn dial(
    request: &Request,
    end: Option<End>,
    target: Target,
    guard: &Guard,
    offer: Offer,
) -> Result<(End, Link), Error> {
    let end = match (end, &request.role) {
        (Some(end), _) => end,
        (None, Role::Receive(spec)) => {
            // Several pairs have identities of their own.
            let identity = Some(spec.offer.identity.clone()).filter(|identity| !identity.is_empty());
            let identity = identity.unwrap_or(offer.identity);
            let spec = ReceiveSpec { offer: Offer { identity, ..offer }, ..spec.as_ref().clone() };
            End::Receive(Receiving::new(&spec, None)?)
        }
        (None, Role::Send(spec)) => End::Send(Sending::new(spec, None)?),
    };
    Ok((end, link(target, guard, &request.options)?))
}

/// The target of an end that has reported that it is ready, and the offer.
pub(super) fn receive_target(channel: &mut Channel) -> Result<(Target, Offer), Error> {
    match channel.receive()? {
        Question::Go(target, offer) => Ok((target, offer)),
        Question::Claimed(_) => Err(Error::Damaged("received an answer before its question".into())),
    }
}

/// The link of an end that dials.
pub(super) fn link(target: Target, guard: &Guard, options: &Options) -> Result<Link, Error> {
    target.congestion.as_deref().map(congestion).transpose()?;
    let streams = target.try_reach(guard)?;
    Ok(Link::dial(target, guard.clone(), options.streams.unwrap_or(streams)))
}

/// Where this host may be reached: first as ssh came, then at all its addresses.
fn addresses(port: u16) -> Vec<SocketAddr> {
    let ssh = std::env::var("SSH_CONNECTION").unwrap_or_default();
    let came = ssh.split(' ').nth(2).and_then(|ip| ip.parse::<IpAddr>().ok());
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten().filter_map(|interface| {
        let address = interface.address?;
        let ip = address.as_sockaddr_in().map(|a| IpAddr::from(a.ip()));
        ip.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::from(a.ip())))
    });
    let mut all: Vec<IpAddr> = Vec::new();
    for ip in came.into_iter().chain(interfaces) {
        // A link-local address is not usable without its interface.
        let local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        if !local && !all.contains(&ip) && all.len() < MAX_ADDRESSES {
            all.push(ip);
        }
    }
    if came.is_some() {
        all.retain(|ip| !ip.is_loopback() || came == Some(*ip));
    }
    all.into_iter().map(|ip| (ip, port).into()).collect()
}

/// Most addresses in an offer.
const MAX_ADDRESSES: usize = 16;

fn any(port: u16) -> SocketAddr {
    (std::net::Ipv6Addr::UNSPECIFIED, port).into()
}

/// Runs an end and reports its progress on the channel. When the channel has broken, it ends.
pub(super) fn report(
    mut channel: Channel,
    end: &End,
    link: &Link,
    options: &Options,
) -> Result<Outcome, Error> {
    // The asking process may be stopped while the copy continues: the link detects failures of the copy.
    channel.set_patience(Some(options.timeout))?;
    let channel = Arc::new(Mutex::new(channel));
    if let End::Send(sending) = end {
        let channel = channel.clone();
        sending.share(move |batch, known| {
            // Locked until it is answered: nothing else is ever answered here.
            let mut channel = channel.lock();
            channel.send(&Answer::Claim(batch, known)).ok()?;
            match channel.receive().ok()? {
                Question::Claimed(claimed) => Some(claimed),
                Question::Go(..) => None,
            }
        });
    }
    let (monitor, over) = (Monitor::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let saying = scope.spawn(|| {
            while !over.load(SeqCst) {
                std::thread::park_timeout(PROGRESS);
                let progress = Answer::Progress(Box::new(monitor.progress()));
                if over.load(SeqCst) {
                    break;
                }
                match channel.lock().send(&progress) {
                    Ok(()) => {}
                    // A partial message cannot be followed by another one.
                    Err(Error::Network { error, .. }) if is_timeout(&error) => return false,
                    Err(_) => {
                        monitor.cancel();
                        return false;
                    }
                }
            }
            true
        });
        let outcome = end.run(link, options, &monitor);
        over.store(true, SeqCst);
        saying.thread().unpark();
        let last = match &outcome {
            Ok(outcome) => Answer::Done(Box::new(outcome.clone())),
            Err(e) => Answer::Failed(e.why()),
        };
        // If the message cannot be sent, there is no other way to report it.
        if saying.join().unwrap_or(false) {
            let _ = channel.lock().send(&last);
        }
        outcome
    })
}

/// A write that waited too long; of a socket the system calls it otherwise.
fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_versions_are_told_so() {
        let mut request = Request {
            version: VERSION,
            role: Role::Send(SendSpec::default().into()),
            options: Options::default(),
            way: ConnectMode::Channel,
        };
        assert!(request.understood().is_ok());
        for other in [0, VERSION - 1, VERSION + 1] {
            request.version = other;
            let said = request.understood().err().map(|e| e.to_string()).unwrap_or_default();
            assert!(said.contains(&format!("has version {other} and")), "{said}");
        }
    }
}
