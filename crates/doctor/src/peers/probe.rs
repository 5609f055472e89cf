//! The caller of a probe: reachability, times, losses, and the largest packet.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, ip_mtu, ipv6_mtu, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use tidecast_control::ConnectAttempts;
use tidecast_net::{LocalAddress, order_for_dialling};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::message::{Member, Probed};
use super::serve::{COUNT, PING, now};
use super::wire::{Datagram, Key, Kind, NONCE, Purpose, Request, TAG};

/// The time in which an address answers; it covers two attempts of the kernel.
const PATIENCE: Duration = Duration::from_secs(4);
/// Addresses of a member that are tried.
const MAX_ADDRESSES: usize = 8;
/// Exchanges to measure times.
const PINGS: usize = 10;
/// Datagrams to find losses, their length, and the pause after each two. So few small ones fit into any socket buffer,
/// so a busy receiver loses none.
const DATAGRAMS: u32 = 400;
const LENGTH: usize = 100;
const PACE: Duration = Duration::from_millis(2);
/// The wait for answers after the last one.
const QUIET: Duration = Duration::from_millis(300);
/// Sizes of packets that networks have, bytes.
const SIZES: [u32; 14] =
    [65520, 16384, 9000, 8950, 4092, 2044, 1500, 1492, 1480, 1450, 1420, 1400, 1280, 576];
/// Copies of a packet of each size, so that a loss does not count as a limit.
const COPIES: usize = 3;
/// The largest IP packet, bytes; the loopback interface has a larger MTU.
const LARGEST: u32 = 65_535;

/// This agent as a caller.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) key: Key,
    pub(super) me: u32,
    pub(super) local: Vec<LocalAddress>,
}

impl Caller {
    /// Connects to a member, and authenticates it; the address that answered.
    pub(super) async fn connect(
        &self,
        to: &Member,
        request: Request,
    ) -> Result<(TcpStream, SocketAddr), String> {
        let mut addresses = to.addresses.clone();
        addresses.retain(|a| to.here || !a.ip().is_loopback());
        order_for_dialling(&mut addresses, &self.local);
        addresses.truncate(MAX_ADDRESSES);
        let mut attempts = ConnectAttempts::new(addresses, |address| {
            let key = self.key.clone();
            async move { timeout(PATIENCE, call(address, &key, request)).await }
        });
        let mut reason = None;
        while let Some((address, called)) = attempts.next_delayed().await {
            match called {
                Ok(Ok(stream)) => return Ok((stream, address)),
                Ok(Err(error)) => reason = reason.or(Some(format!("{}: {error}", address.ip()))),
                Err(_) => {
                    let seconds = PATIENCE.as_secs();
                    reason = reason.or(Some(format!("{}: no answer within {seconds} s", address.ip())));
                }
            }
        }
        Err(reason.unwrap_or_else(|| "it has no address but loopback".into()))
    }

    pub(super) fn request(&self, purpose: Purpose, task: u32, to: u32) -> Request {
        Request { purpose, task, from: self.me, to, millis: 0, bytes: 0, nonce: rand::random() }
    }

    /// Probes the path to a member.
    pub(super) async fn probe(&self, to: &Member, task: u32, brief: bool) -> Result<Probed, String> {
        let request = self.request(Purpose::Probe, task, to.number);
        let (mut stream, address) = self.connect(to, request).await?;
        let mut probed = Probed { address: Some(address), ..Probed::default() };
        let broken = |error: io::Error| format!("{}: the connection failed: {error}", address.ip());
        ping(&mut stream, &mut probed).await.map_err(broken)?;
        if brief || to.here {
            return Ok(probed);
        }
        let own = stream.local_addr().map_err(broken)?.ip();
        let peer = SocketAddr::new(address.ip(), to.udp);
        // Without UDP the rest of the probe still counts: a firewall may block it.
        if let Err(error) = self.datagrams((own, peer), (task, to.number), &mut stream, &mut probed).await {
            tracing::debug!(%peer, %error, "cannot probe by UDP");
        }
        Ok(probed)
    }

    async fn datagrams(
        &self,
        (own, peer): (IpAddr, SocketAddr),
        (task, to): (u32, u32),
        stream: &mut TcpStream,
        probed: &mut Probed,
    ) -> io::Result<()> {
        let socket = UdpSocket::bind((own, 0)).await?;
        socket.connect(peer).await?;
        match peer.is_ipv4() {
            true => set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?,
            false => set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?,
        }
        let rtt =
            Duration::from_nanos(probed.rtts.iter().copied().max().unwrap_or(0)).min(Duration::from_secs(1));
        let link = Link {
            socket,
            key: &self.key,
            datagram: Datagram { kind: Kind::Loss, task, from: self.me, to, number: 0 },
            rtt,
        };
        probed.answered = link.losses().await;
        probed.datagrams = DATAGRAMS;
        probed.arrived = arrived(stream, DATAGRAMS).await?;
        let mtu = |socket: &UdpSocket| if peer.is_ipv4() { ip_mtu(socket) } else { ipv6_mtu(socket) };
        let first = mtu(&link.socket).unwrap_or(0);
        probed.interface_mtu = self.interface_mtu(own).unwrap_or(first).min(LARGEST);
        if probed.answered > 0 && probed.interface_mtu > 0 {
            let overhead = if peer.is_ipv4() { 28 } else { 48 };
            probed.mtu = link.largest(probed.interface_mtu, overhead).await;
            probed.learned = mtu(&link.socket).is_ok_and(|known| known < probed.interface_mtu);
        }
        Ok(())
    }

    /// The MTU of the interface with this address.
    fn interface_mtu(&self, own: IpAddr) -> Option<u32> {
        let interface = self.local.iter().find(|a| a.ip == own.to_canonical())?;
        // Names of interfaces have no slash; a hostile one must not lead elsewhere.
        let name = Some(&interface.interface).filter(|name| !name.contains('/') && !name.starts_with('.'))?;
        std::fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok()?.trim().parse().ok()
    }
}

/// Connects to one address; the callee must be of this run.
async fn call(address: SocketAddr, key: &Key, request: Request) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut nonce = [0; NONCE];
    stream.read_exact(&mut nonce).await?;
    stream.write_all(&[&request.encode()[..], &key.of_caller(&request, &nonce)].concat()).await?;
    let mut tag = [0; TAG];
    stream.read_exact(&mut tag).await?;
    match key.is_callee(&request, &nonce, &tag) {
        true => Ok(stream),
        false => Err(io::Error::other("another program answers")),
    }
}

/// Round-trip times, and the difference of the clocks by the quickest exchange.
async fn ping(stream: &mut TcpStream, probed: &mut Probed) -> io::Result<()> {
    let mut best = u64::MAX;
    for _ in 0..PINGS {
        let (sent, began) = (now(), Instant::now());
        let mut answer = [0; 16];
        timeout(PATIENCE, async {
            stream.write_all(&[PING]).await?;
            stream.read_exact(&mut answer).await
        })
        .await??;
        let (rtt, back) = (u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX), now());
        let (came, left) = answer.split_at(8);
        let read = |bytes: &[u8]| i64::from_be_bytes(bytes.try_into().unwrap_or_default());
        let (came, left) = (read(came), read(left));
        probed.rtts.push(rtt.saturating_sub(u64::try_from(left.saturating_sub(came)).unwrap_or(0)));
        if rtt < best {
            best = rtt;
            // The mean of both directions; clocks may be anything, so no overflow.
            probed.clock = came.saturating_sub(sent) / 2 + left.saturating_sub(back) / 2;
        }
    }
    Ok(())
}

/// How many datagrams have arrived there: asked until all have, or the number stays.
async fn arrived(stream: &mut TcpStream, sent: u32) -> io::Result<u32> {
    let mut last = None;
    for _ in 0..10 {
        let mut answer = [0; 8];
        timeout(PATIENCE, async {
            stream.write_all(&[COUNT]).await?;
            stream.read_exact(&mut answer).await
        })
        .await??;
        let count = u32::from_be_bytes([answer[0], answer[1], answer[2], answer[3]]).min(sent);
        if count == sent || last == Some(count) {
            return Ok(count);
        }
        last = Some(count);
        sleep(Duration::from_millis(100)).await;
    }
    Ok(last.unwrap_or(0))
}

/// Datagrams to one member.
struct Link<'a> {
    socket: UdpSocket,
    key: &'a Key,
    datagram: Datagram,
    rtt: Duration,
}

impl Link<'_> {
    /// Sends datagrams; the number of answers.
    async fn losses(&self) -> u32 {
        let mut seen = BTreeSet::new();
        for number in 0..DATAGRAMS {
            let datagram = Datagram { number, ..self.datagram };
            let _ = self.socket.send(&datagram.encode(LENGTH, self.key)).await;
            if number % 2 == 1 {
                self.collect(Instant::now() + PACE, &mut seen, usize::MAX).await;
            }
        }
        while seen.len() < DATAGRAMS as usize {
            let before = seen.len();
            self.collect(Instant::now() + QUIET + self.rtt, &mut seen, before + 1).await;
            if seen.len() == before {
                break;
            }
        }
        u32::try_from(seen.len()).unwrap_or(0)
    }

    /// Receives answers until then, or until there are so many.
    async fn collect(&self, until: Instant, seen: &mut BTreeSet<u32>, enough: usize) {
        let mut buffer = [0; 2048];
        while seen.len() < enough
            && let Ok(received) = timeout_at(until, self.socket.recv(&mut buffer)).await
        {
            // An error is a report of ICMP about an earlier datagram.
            let Ok(length) = received else {
                tokio::task::yield_now().await;
                continue;
            };
            let answer = Datagram::decode(buffer.get(..length).unwrap_or_default(), self.key);
            let ours = |d: &Datagram| {
                (d.kind, d.task, d.from) == (Kind::Answer, self.datagram.task, self.datagram.to)
            };
            seen.extend(answer.filter(ours).map(|d| d.number));
        }
    }

    /// The largest packet that arrives with fragmentation forbidden, bytes; `top`: the MTU of the interface.
    async fn largest(&self, top: u32, overhead: u32) -> u32 {
        let sizes: Vec<u32> =
            std::iter::once(top).chain(SIZES.into_iter().filter(|size| *size < top)).collect();
        let best = self.try_sizes(&sizes, overhead, COPIES).await;
        if best == 0 || best == top {
            return best;
        }
        // A second attempt, because losses may come in bursts.
        let again = self.try_sizes(&[top], overhead, 2 * COPIES).await;
        if again == top {
            return top;
        }
        let mut low = best;
        let mut high = sizes.iter().copied().filter(|size| *size > best).min().unwrap_or(top);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.try_sizes(&[middle], overhead, COPIES).await {
                0 => high = middle,
                _ => low = middle,
            }
        }
        low
    }

    /// Sends packets of these sizes, the largest first; the largest that was answered.
    async fn try_sizes(&self, sizes: &[u32], overhead: u32, copies: usize) -> u32 {
        let mut seen = BTreeSet::new();
        for _ in 0..copies {
            for size in sizes {
                let datagram = Datagram { kind: Kind::Size, number: *size, ..self.datagram };
                let length = size.saturating_sub(overhead) as usize;
                // The kernel refuses what is longer than the interface allows.
                let _ = self.socket.send(&datagram.encode(length, self.key)).await;
            }
            self.collect(Instant::now() + PACE, &mut seen, usize::MAX).await;
        }
        let top = sizes.first().copied().unwrap_or(0);
        let until = Instant::now() + QUIET + self.rtt;
        while !seen.contains(&top) && Instant::now() < until {
            let more = seen.len() + 1;
            self.collect(until, &mut seen, more).await;
        }
        seen.iter().copied().filter(|size| sizes.contains(size)).max().unwrap_or(0)
    }
}
