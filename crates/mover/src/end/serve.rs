//! A server: any number of copies below one directory, on one port, for every client that has its key.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use data_encoding::{BASE32_NOPAD, BASE32_NOPAD_NOCASE};
use serde::{Deserialize, Serialize};
use tidecast_admission::Pass;
use tidecast_hash::sha256;
use tidecast_identity::{NodeId, NodeKey, Tls};

use super::channel::Channel;
use super::local::{Receiving, Sending};
use super::remote::{Answer, ConnectMode, End, Request, Role, link, receive_target, report};
use crate::error::Error;
use crate::spec::Accept;
use crate::transfer::connection::Connection;
use crate::transfer::frame::{MAX_MESSAGE, MAX_UNPROVEN, expect_message_within};
use crate::transfer::target::{Proof, Requesting, read_open, request};
use crate::transfer::{Early, EarlyStreams, Guard, Listener, NodeName, Options, SessionId, Target};

/// The key of a server: it admits a user, and proves the server to the user. It consists of the server's node
/// and a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerKey {
    /// The server's node.
    pub node: NodeId,
    /// The secret, known to authorised users only.
    pub secret: [u8; 16],
}

impl fmt::Debug for ServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerKey({})", self.node.short())
    }
}

impl fmt::Display for ServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&self.node.0[..], &self.secret].concat();
        f.write_str(&BASE32_NOPAD.encode(&bytes).to_ascii_lowercase())
    }
}

impl FromStr for ServerKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || {
            Error::Usage(
                "invalid key of a copy-server: a key has 77 letters and digits, as the server prints it"
                    .into(),
            )
        };
        let bytes = BASE32_NOPAD_NOCASE.decode(text.as_bytes()).map_err(|_| bad())?;
        let (node, secret) = bytes.split_first_chunk::<32>().ok_or_else(bad)?;
        Ok(Self { node: NodeId(*node), secret: secret.try_into().map_err(|_| bad())? })
    }
}

/// The value to which a proof is bound, so that it is not valid elsewhere.
#[derive(Clone, Copy, Debug)]
enum Bound {
    /// A question that the server asks once.
    Challenge([u8; 32]),
    /// A TLS session. No server can obtain such a proof by a challenge, which is hashed under another name.
    Session([u8; 32]),
}

/// The proof that one knows the secret, for this question or session and no other.
fn proof(secret: &[u8; 16], bound: &Bound) -> Proof {
    let (name, to) = match bound {
        Bound::Challenge(nonce) => ("tidecast copy-server", nonce),
        Bound::Session(binding) => ("tidecast copy-server session", binding),
    };
    sha256(&[name.as_bytes(), secret, to].concat())
}

/// First on a channel to a server, from the server.
#[derive(Debug, Serialize, Deserialize)]
struct Challenge {
    nonce: [u8; 32],
}

/// The client's answer.
#[derive(Debug, Serialize, Deserialize)]
struct Proved {
    proof: Proof,
}

/// Reads all bytes that an unauthenticated client may send to a server, up to the request. For the fuzzer:
/// returns the number of messages; none is acted on.
#[doc(hidden)]
#[must_use]
pub fn read_opening(mut bytes: &[u8]) -> usize {
    let from = &mut bytes;
    let Ok((true, is_proved)) = read_open(from) else { return 0 };
    if !is_proved && expect_message_within::<Proved>(from, MAX_UNPROVEN).is_err() {
        return 1;
    }
    match expect_message_within::<Request>(from, MAX_MESSAGE) {
        Ok(request) => 2 + usize::from(request.understood().is_ok()),
        Err(_) => 2,
    }
}

/// A channel to a server at one of these addresses, and the connections opened beside it.
///
/// # Errors
/// When it cannot be reached or is not the one whose key that is.
pub fn ask_server(
    addresses: &[SocketAddr],
    key: &ServerKey,
    guard: &Guard,
    beside: EarlyStreams,
) -> Result<(Channel, Option<Early>), Error> {
    let node = matches!(guard, Guard::Tls(_)).then_some(key.node);
    let prove = |binding: &[u8; 32]| proof(&key.secret, &Bound::Session(*binding));
    let Requesting { connection, early, is_proved } = request(addresses, guard, node, beside, &prove)?;
    let mut channel = Channel::net(connection);
    if !is_proved {
        let challenge: Challenge = channel.receive().map_err(|e| match guard {
            Guard::Plain => Error::Remote("no answer; the server may run without --plain".into()),
            Guard::Tls(_) => e,
        })?;
        channel.send(&Proved { proof: proof(&key.secret, &Bound::Challenge(challenge.nonce)) })?;
    }
    Ok((channel, early))
}

/// The secrets of a server: one permits writing and reading, the other reading.
#[derive(Clone)]
pub struct Secrets {
    /// For both.
    pub write: [u8; 16],
    /// For reading.
    pub read: [u8; 16],
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(…)")
    }
}

/// The rights of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    Read,
    Write,
}

/// How a server serves.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Nothing outside of it is read or written.
    pub root: PathBuf,
    /// Nothing is written at all.
    pub read_only: bool,
    /// Without TLS.
    pub plain: bool,
    /// The metadata accepted from writers, beside names and bytes.
    pub accept: Accept,
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: ServerOptions,
    key: ServerKey,
    reading: ServerKey,
    guard: Guard,
    listener: OnceLock<Listener>,
}

impl Server {
    /// Listens at `address` as the node of `key`.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn start(
        address: SocketAddr,
        node: &NodeKey,
        secrets: &Secrets,
        options: ServerOptions,
    ) -> Result<Self, Error> {
        let guard = if options.plain { Guard::Plain } else { Guard::Tls(Arc::new(Tls::new(node)?)) };
        let key = |secret| ServerKey { node: node.id(), secret };
        let (key, reading) = (key(secrets.write), key(secrets.read));
        let listener = OnceLock::new();
        let shared = Arc::new(Shared { options, key, reading, guard: guard.clone(), listener });
        // Weak: the listener is the server's own, and must go with it.
        let server = Arc::downgrade(&shared);
        let asked = Box::new(move |connection, proof, from, pass| {
            if let Some(server) = server.upgrade() {
                server.asked(connection, proof, from, pass);
            }
        });
        let listener = Listener::bind(address, guard, Some(asked))?;
        let _ = shared.listener.set(listener);
        Ok(Self { shared })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.shared.listener.get().map(Listener::address)
    }

    /// The key for users that may write and read.
    #[must_use]
    pub fn key(&self) -> &ServerKey {
        &self.shared.key
    }

    /// The key for users that may read.
    #[must_use]
    pub fn reading_key(&self) -> &ServerKey {
        &self.shared.reading
    }
}

impl Shared {
    fn asked(&self, connection: Connection, proof: Option<Proof>, from: SocketAddr, pass: Pass) {
        if let Err(e) = self.serve(connection, proof, from, pass) {
            tracing::warn!("{from}: {}", e.why());
        }
    }

    fn serve(
        &self,
        connection: Connection,
        proof: Option<Proof>,
        from: SocketAddr,
        pass: Pass,
    ) -> Result<(), Error> {
        let peer = connection.peer;
        // Of a connection without a session of its own no proof counts that was not asked for on it.
        let first = proof.zip(connection.binding().map(Bound::Session));
        let mut channel = Channel::net(connection);
        let (proof, bound) = match first {
            Some(first) => first,
            None => {
                let nonce = rand::random();
                channel.send(&Challenge { nonce })?;
                (channel.receive_within::<Proved>(MAX_UNPROVEN)?.proof, Bound::Challenge(nonce))
            }
        };
        let Some(right) = self.right(&proof, &bound) else {
            channel.send(&Answer::Refused("wrong key".into()))?;
            channel.leave();
            return Err(Error::Refused("wrong key".into()));
        };
        channel.prove()?;
        drop(pass);
        let request: Request = channel.receive()?;
        match self.prepare(&request, right) {
            Ok(end) if matches!(request.way, ConnectMode::Dial { .. }) => {
                self.dial(channel, &request, &end, from)
            }
            Ok(end) => self.listen(channel, &request, &end, peer),
            Err(e) => {
                channel.send(&Answer::Refused(e.why()))?;
                Err(e)
            }
        }
    }

    /// The rights of a client that has proved to know a secret.
    fn right(&self, said: &Proof, bound: &Bound) -> Option<Right> {
        // Of digests of a secret that is tried once per connection no timing tells anything.
        let has = |key: &ServerKey| *said == proof(&key.secret, bound);
        if has(&self.key) { Some(Right::Write) } else { has(&self.reading).then_some(Right::Read) }
    }

    fn prepare(&self, request: &Request, right: Right) -> Result<End, Error> {
        request.understood()?;
        match (&request.way, &request.role) {
            (ConnectMode::Listen { .. }, _) => {}
            (ConnectMode::Dial { plain }, Role::Send(_)) if *plain == self.options.plain => {}
            (ConnectMode::Dial { .. } | ConnectMode::Channel, _) => {
                return Err(Error::Refused(
                    "a copy-server can only listen, or send to an end that listens".into(),
                ));
            }
        }
        let root = Some(self.options.root.as_path());
        match &request.role {
            Role::Send(spec) if spec.remove && (self.options.read_only || right == Right::Read) => {
                Err(Error::Refused(
                    "the files of the server are read-only; leave out --remove-source-files".into(),
                ))
            }
            Role::Send(spec) => Ok(End::Send(Sending::new(spec, root)?)),
            Role::Receive(spec) if self.options.read_only && !spec.null => {
                Err(Error::Refused("the server is read-only".into()))
            }
            Role::Receive(spec) if right == Right::Read && !spec.null => {
                Err(Error::Refused("this key allows reading only; use the writing key of the server".into()))
            }
            Role::Receive(spec) => Ok(End::Receive(Receiving::accepting(spec, root, self.options.accept)?)),
        }
    }

    fn listen(
        &self,
        mut channel: Channel,
        request: &Request,
        end: &End,
        peer: Option<NodeId>,
    ) -> Result<(), Error> {
        let listener = self.listener.get().ok_or(Error::Cancelled)?;
        let session = SessionId::random();
        // The client is not the dialer when both ends are elsewhere, but it has proved that it may name the
        // dialer.
        let dials = match &request.way {
            ConnectMode::Listen { node: Some(node), .. } if peer.is_some() => Some(node.id()?),
            _ => peer,
        };
        let link = listener.expect(session, dials)?;
        let node = NodeName(self.key.node.to_string());
        let named = peer.is_some().then(|| node.clone());
        let target = Target { addresses: Vec::new(), node: named, session, spread: false, congestion: None };
        let fresh = end.fresh();
        channel.send(&Answer::Ready { offer: end.offer(), target: Some(target), node, fresh })?;
        report(channel, end, &link, &bounded(&request.options)).map(drop)
    }

    /// Sends to another server. The client, at `from`, names its address; by its key no other server can pose as it.
    fn dial(
        &self,
        mut channel: Channel,
        request: &Request,
        end: &End,
        from: SocketAddr,
    ) -> Result<(), Error> {
        let node = NodeName(self.key.node.to_string());
        channel.send(&Answer::Ready { offer: end.offer(), target: None, node, fresh: None })?;
        let (mut target, _) = receive_target(&mut channel)?;
        target.addresses = permitted(target.addresses, from.ip());
        let options = bounded(&request.options);
        let link = if target.addresses.is_empty() {
            let why = "the addresses of the other server are not reached from the host of this copy-server";
            Err(Error::Refused(why.into()))
        } else if self.options.plain || target.node.is_some() {
            link(target, &self.guard, &options)
        } else {
            Err(Error::Refused("a copy-server sends only to a receiver whose key it knows".into()))
        };
        match link {
            Ok(link) => report(channel, end, &link, &options).map(drop),
            Err(e) => {
                channel.send(&Answer::Failed(e.why()))?;
                Err(e)
            }
        }
    }
}

/// Most blocks that a server gives to one copy: 1 GiB.
const MAX_POOL: usize = 256;
/// Most threads of a front that it gives.
const MAX_FRONTS: usize = 32;
/// Most addresses of another server that it tries.
const MAX_ADDRESSES: usize = 32;
/// Most patience that it has.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// The request, within the server's limits.
fn bounded(options: &Options) -> Options {
    Options {
        pool: options.pool.map(|n| n.min(MAX_POOL)),
        fronts: options.fronts.map(|n| n.clamp(1, MAX_FRONTS)),
        timeout: options.timeout.min(MAX_TIMEOUT),
        ..options.clone()
    }
}

/// The addresses that a client at `from` may have this host connect to.
fn permitted(mut addresses: Vec<SocketAddr>, from: IpAddr) -> Vec<SocketAddr> {
    addresses.retain(|to| !is_this_host(to.ip()) || is_this_host(from));
    addresses.truncate(MAX_ADDRESSES);
    addresses
}

/// An address of the host itself. Services there may trust whoever reaches them: they are not for clients of other hosts.
fn is_this_host(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || address.is_unspecified()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::end::VERSION;
    use crate::spec::SendSpec;
    use crate::transfer::frame::{expect_message, write_message};

    const SECRETS: Secrets = Secrets { write: [1; 16], read: [2; 16] };

    #[test]
    fn a_server_connects_to_its_own_host_for_clients_there_only() {
        let all = ["127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1"];
        let all: Vec<SocketAddr> = all.iter().map(|address| address.parse().unwrap()).collect();
        assert_eq!(permitted(all.clone(), "10.0.0.9".parse().unwrap()), all[5..]);
        assert_eq!(permitted(all.clone(), "::1".parse().unwrap()), all);
        assert_eq!(permitted([all[5]; 100].into(), "10.0.0.9".parse().unwrap()).len(), MAX_ADDRESSES);
    }

    fn server(root: &std::path::Path, plain: bool) -> Server {
        let options =
            ServerOptions { root: root.into(), read_only: false, plain, accept: Accept::Restricted };
        let node = NodeKey::generate().unwrap();
        Server::start("127.0.0.1:0".parse().unwrap(), &node, &SECRETS, options).unwrap()
    }

    fn connection(to: &Server) -> Connection {
        let plain = to.shared.options.plain;
        let tls = || Guard::Tls(Arc::new(Tls::new(&NodeKey::generate().unwrap()).unwrap()));
        let guard = if plain { Guard::Plain } else { tls() };
        let node = (!plain).then_some(to.key().node);
        Connection::dial(to.address().unwrap(), None, &guard, node, Duration::from_secs(5)).unwrap()
    }

    fn open(connection: &mut Connection, proof: Option<Proof>) {
        let first = json!({"version": 1, "session": null, "purpose": "request", "proof": proof});
        write_message(connection, &first).unwrap();
    }

    /// Sends a request that is rejected for its version, if not before.
    fn ask(connection: &mut Connection) -> String {
        let request = Request {
            version: VERSION + 1,
            role: Role::Send(SendSpec::default().into()),
            options: Options::default(),
            way: ConnectMode::Listen { port: 0, node: None },
        };
        write_message(connection, &request).unwrap();
        match expect_message::<Answer>(connection).unwrap() {
            Answer::Refused(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_proof_counts_on_its_session_only() {
        let root = tempfile::tempdir().unwrap();
        let server = server(root.path(), false);
        let proved = |on: &Connection, secret| Some(proof(secret, &Bound::Session(on.binding().unwrap())));
        let (mut first, mut second) = (connection(&server), connection(&server));
        open(&mut second, proved(&first, &SECRETS.write));
        assert_eq!(ask(&mut second), "wrong key");
        let right = proved(&first, &SECRETS.write);
        open(&mut first, right);
        assert!(ask(&mut first).contains("version"));
        let mut guess = connection(&server);
        let wrong = proved(&guess, &[3; 16]);
        open(&mut guess, wrong);
        assert_eq!(ask(&mut guess), "wrong key");
        // An answer to a challenge is not a proof for a session.
        let mut relayed = connection(&server);
        let bound = Bound::Challenge(relayed.binding().unwrap());
        open(&mut relayed, Some(proof(&SECRETS.write, &bound)));
        assert_eq!(ask(&mut relayed), "wrong key");
    }

    #[test]
    fn without_a_proof_or_a_session_the_server_asks_for_one() {
        let root = tempfile::tempdir().unwrap();
        for (plain, first) in [(false, None), (true, None), (true, Some([0; 32]))] {
            let server = server(root.path(), plain);
            let mut connection = connection(&server);
            open(&mut connection, first);
            let Challenge { nonce } = expect_message(&mut connection).unwrap();
            let proof = proof(&SECRETS.read, &Bound::Challenge(nonce));
            write_message(&mut connection, &Proved { proof }).unwrap();
            assert!(ask(&mut connection).contains("version"));
        }
    }
}
