//! Incoming connections: one port for all swarms that it serves. The first bytes distinguish TLS, BitTorrent's
//! plain handshake, and the encrypted one (MSE); the handshake names the swarm.
//!
//! `tidecast_admission` limits the cost of a connection before its peer has authenticated.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::server::ClientHello;
use socket2::{Domain, Protocol, Socket, Type};
use tidecast_admission::{Allowance, BACKLOG, Gate, Progress, accept};
use tidecast_identity::NodeId;
use tidecast_identity::ssl_torrent::info_hash_of;
use tidecast_mse::Swarms;
use tidecast_tls::Accepting;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::cpu::Cpu;
use crate::error::{ConnError, Error};
use crate::handshake::{Established, Opening, establish};
use crate::iface::{LocalAddress, Network, local_addresses};
use crate::input::Input;
use crate::intake::Intake;
use crate::report::Notice;
use crate::security::{Security, proven};
use crate::shared::Shared;
use crate::transport::{Booked, Secure, Transport};
use crate::tune::tune;

/// Start of a TLS handshake record. BitTorrent's handshake starts with the length 19, an encrypted one with random
/// bytes: one in 65,536 of those is mistaken for TLS, and its peer tries again with others.
const TLS_HANDSHAKE: [u8; 2] = [0x16, 3];

/// Opens a listening socket; an unspecified IPv6 address serves IPv4 too.
///
/// # Errors
/// [`Error::Listen`]: the address is taken, or not of this host.
pub fn listen(addr: SocketAddr) -> Result<std::net::TcpListener, Error> {
    let open = || {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        if addr.is_ipv6() && addr.ip().is_unspecified() {
            socket.set_only_v6(false)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&addr.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    open().map_err(|source| Error::Listen { addr, source })
}

/// The sockets that listen already, and one for each address.
pub(crate) fn open_all(
    mut sockets: Vec<std::net::TcpListener>,
    addrs: &[SocketAddr],
) -> Result<Vec<TcpListener>, Error> {
    for addr in addrs {
        sockets.push(listen(*addr)?);
    }
    let adopt = |socket| TcpListener::from_std(socket);
    let adopted = sockets.into_iter().map(adopt).collect::<Result<_, _>>();
    adopted.map_err(|source| Error::System { what: "use a listening socket", source })
}

/// This host's addresses on the network that the user named.
pub(crate) fn chosen(network: &Network) -> Result<Vec<LocalAddress>, Error> {
    let all =
        local_addresses().map_err(|source| Error::System { what: "list this host's networks", source })?;
    let on: Vec<LocalAddress> = all.iter().filter(|a| network.holds(a)).cloned().collect();
    if on.is_empty() {
        let have = all.iter().map(|a| format!("{} {}/{}", a.interface, a.ip, a.prefix));
        let have = have.collect::<Vec<_>>().join(", ");
        return Err(Error::NoNetwork { network: network.to_string(), have });
    }
    Ok(on)
}

/// An unspecified listening address becomes the addresses of the chosen network.
pub(crate) fn on_network(listen: &[SocketAddr], chosen: &[LocalAddress]) -> Vec<SocketAddr> {
    if chosen.is_empty() {
        return listen.to_vec();
    }
    let bound = |addr: &SocketAddr| -> Vec<SocketAddr> {
        if addr.ip().is_unspecified() {
            chosen.iter().map(|l| SocketAddr::new(l.ip, addr.port())).collect()
        } else {
            vec![*addr]
        }
    };
    listen.iter().flat_map(bound).collect()
}

/// A port, and the swarms that it serves.
#[derive(Default)]
pub struct Port {
    addrs: Vec<SocketAddr>,
    served: RwLock<Served>,
    /// Connections that have proved nothing yet.
    unproven: Gate,
    pub(crate) cpu: Arc<Cpu>,
}

#[derive(Default)]
struct Served {
    swarms: HashMap<[u8; 20], Weak<Shared>>,
    /// Swarms whose peers may use encryption (MSE).
    open: Arc<Swarms>,
}

/// The state of a connection's authentication before the handshake.
enum Right {
    Nothing,
    Node(NodeId),
    /// A certificate of this SSL torrent.
    Ssl(Arc<Shared>),
}

impl Port {
    /// Listens on these addresses, until the tasks are ended.
    ///
    /// # Errors
    /// The network does not exist, or an address cannot be used.
    pub fn open(listen: &[SocketAddr], network: Option<&Network>) -> Result<(Arc<Port>, JoinSet<()>), Error> {
        let sources = network.map_or(Ok(Vec::new()), chosen)?;
        let listeners = open_all(Vec::new(), &on_network(listen, &sources))?;
        let addrs = listeners.iter().filter_map(|l| l.local_addr().ok()).collect();
        let port = Arc::new(Port { addrs, ..Port::default() });
        let mut tasks = JoinSet::new();
        for listener in listeners {
            tasks.spawn(port.clone().run(listener));
        }
        Ok((port, tasks))
    }

    /// Where it listens.
    #[must_use]
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// From now on peers of this swarm are let in to it, until it ends.
    pub(crate) fn serve(&self, swarm: &Arc<Shared>) {
        let mut served = self.served.write();
        served.swarms.retain(|_, swarm| swarm.strong_count() > 0);
        for hash in swarm.manifest.swarm_hashes() {
            served.swarms.insert(hash, Arc::downgrade(swarm));
        }
        let is_open = |swarm: &Weak<Shared>| swarm.upgrade().is_some_and(|s| !s.security.is_encrypted());
        let open = served.swarms.iter().filter(|(_, swarm)| is_open(swarm)).map(|(hash, _)| *hash);
        served.open = Arc::new(Swarms::new(open));
    }

    /// Accepts until the task is ended.
    pub(crate) async fn run(self: Arc<Self>, listener: TcpListener) {
        loop {
            let (stream, addr, mut admitted) = accept(&listener, &self.unproven).await;
            let port = self.clone();
            tokio::spawn(async move {
                let (allowance, progress) = (admitted.allowance(), admitted.progress());
                let welcome = port.welcome(stream, addr, (allowance, &progress));
                match admitted.run(welcome).await.unwrap_or_else(|cut| Err(cut.into())) {
                    Ok((swarm, established)) => {
                        admitted.prove();
                        crate::conn::run(swarm, established, addr, None).await;
                    }
                    Err(why) => tracing::debug!(%addr, %why, "rejected an incoming connection"),
                }
            });
        }
    }

    async fn welcome(
        &self,
        stream: TcpStream,
        addr: SocketAddr,
        (allowance, progress): (Allowance, &Progress),
    ) -> Result<(Arc<Shared>, Established), ConnError> {
        tune(&stream);
        let mut first = [0; TLS_HANDSHAKE.len()];
        let seen = match stream.peek(&mut first).await? {
            0 => return Err(ConnError::Closed),
            seen => &first[..seen],
        };
        let open = self.served.read().open.clone();
        let (transport, right) = match TLS_HANDSHAKE.starts_with(seen) {
            true => self.secure(stream, (allowance, progress)).await?,
            false if open.is_empty() => {
                return Err(ConnError::Protocol("no TLS, but the swarm requires it"));
            }
            false => (Transport::Plain(stream, allowance), Right::Nothing),
        };
        let opening = Opening::answer(transport, &open, &self.cpu).await?;
        progress.advance();
        let swarm = self.find(&opening.swarm()).ok_or(ConnError::OtherSwarm)?;
        let node = match (&swarm.security, right) {
            (Security::Open, Right::Nothing) => None,
            (Security::Private(_) | Security::Known(_), Right::Node(node)) => Some(node),
            (Security::Ssl(_), Right::Ssl(proved)) if Arc::ptr_eq(&proved, &swarm) => None,
            (Security::Open, _) => return Err(ConnError::Protocol("TLS, but the swarm is open")),
            _ => return Err(ConnError::Protocol("no TLS, but the swarm requires it")),
        };
        let established = establish(&swarm.local(), &swarm.security, opening, node).await;
        if let Err(ConnError::NotMember(why)) = &established
            && swarm.security.is_owner()
        {
            // If the driver's queue is full the notice is dropped: strangers can cause any number of them.
            let _ = swarm.inbox.try_send(Input::Notice(Notice::Rejected { addr, why: why.clone() }));
        }
        established.map(|established| (swarm, established))
    }

    fn find(&self, hash: &[u8; 20]) -> Option<Arc<Shared>> {
        self.served.read().swarms.get(hash).and_then(Weak::upgrade)
    }

    async fn secure(
        &self,
        stream: TcpStream,
        before: (Allowance, &Progress),
    ) -> Result<(Transport, Right), ConnError> {
        let mut ssl = None;
        let choose = |hello: &ClientHello<'_>| {
            let (config, named) = self.identity(hello.server_name())?;
            ssl = named;
            Ok(config)
        };
        let stream = encrypt(choose, stream, &self.cpu, before).await?;
        let right = match ssl {
            Some(swarm) => Right::Ssl(swarm),
            None => Right::Node(proven(stream.session().agreed().peer_certificates())?),
        };
        Ok((Transport::Tls(Box::new(stream)), right))
    }

    /// The identity to answer with: that of the named SSL torrent, else this node's key, else any SSL torrent's.
    fn identity(&self, name: Option<&str>) -> Result<(Arc<ServerConfig>, Option<Arc<Shared>>), ConnError> {
        let of = |swarm: Arc<Shared>| match &swarm.security {
            Security::Open => None,
            Security::Private(membership) => Some((membership.tls.server(), None)),
            Security::Known(known) => Some((known.tls.server(), None)),
            Security::Ssl(ssl) => Some((ssl.server(), Some(swarm.clone()))),
        };
        if let Some(named @ (_, Some(_))) =
            name.and_then(info_hash_of).and_then(|h| self.find(&h)).and_then(of)
        {
            return Ok(named);
        }
        let swarms: Vec<Arc<Shared>> = self.served.read().swarms.values().filter_map(Weak::upgrade).collect();
        let all: Vec<_> = swarms.into_iter().filter_map(of).collect();
        let node = all.iter().find(|(_, ssl)| ssl.is_none());
        let none = ConnError::Protocol("TLS, but the swarm is open");
        node.or(all.first()).cloned().ok_or(none)
    }
}

/// The server's side of the TLS handshake; the configuration is chosen by the ClientHello. No keys are computed
/// before a whole ClientHello has come.
pub(crate) async fn encrypt(
    choose: impl FnOnce(&ClientHello<'_>) -> Result<Arc<ServerConfig>, ConnError>,
    stream: TcpStream,
    cpu: &Arc<Cpu>,
    (allowance, progress): (Allowance, &Progress),
) -> Result<Secure, ConnError> {
    let failed = |e: std::io::Error| ConnError::Tls(e.to_string());
    let intake = Intake::below_tls(Booked::socket(stream, cpu), allowance);
    let hello = Accepting::read(intake).await.map_err(failed)?;
    progress.advance();
    let config = choose(&hello.client_hello())?;
    hello.answer(config).await.map_err(failed)
}
