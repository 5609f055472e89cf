//! The UDP side of the tracker client (BEP 15): connect, then announce, each sent again with doubled
//! patience a bounded number of times. Packets of strangers, or with another transaction id, do not count.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use crate::error::printable;
use crate::peers::is_near;
use crate::tracker::{Announce, Options, Response, dedup, interval};
use crate::udp_packet::{
    ANNOUNCE, CONNECT, ERROR, MAGIC, add_url, announce as announce_packet, head, u32_at, u64_at,
};
use crate::{Error, compact, socket};

/// Buffer for one answer; a longer one is truncated, and its complete peers are still read.
const ANSWER: usize = 16 * 1024;
/// How long a connection id may be used (BEP 15).
const CONNECTION_LIFE: Duration = Duration::from_secs(60);

/// One announce to the tracker at `to`, sent from `local`; `target` is the part of its URL after the host.
pub(crate) async fn announce(
    to: SocketAddr,
    local: SocketAddr,
    (ask, target): (&Announce, &str),
    options: &Options,
) -> Result<Response, Error> {
    let near = if is_near(&to) { Duration::from_secs(1) } else { Duration::from_secs(15) };
    let mut talk = Talk {
        socket: socket::udp(to, local).await?,
        to,
        wait: options.udp_first_wait.unwrap_or(near),
        sends_left: options.udp_attempts.clamp(1, 9),
        buf: vec![0; ANSWER],
    };
    loop {
        let connection = talk.connect().await?;
        let got_at = Instant::now();
        // An answer that comes only after the id has run out needs another id.
        if let Some(response) = talk.announce(connection, (ask, target), got_at + CONNECTION_LIFE).await? {
            return Ok(response);
        }
    }
}

/// One exchange with one tracker; waits and sends are counted over all of it.
struct Talk {
    socket: UdpSocket,
    to: SocketAddr,
    wait: Duration,
    sends_left: u32,
    buf: Vec<u8>,
}

impl Talk {
    async fn connect(&mut self) -> Result<u64, Error> {
        loop {
            let transaction = rand::random();
            let packet = head(MAGIC, CONNECT, transaction);
            if let Some(answer) = self.ask(&packet, CONNECT, transaction).await? {
                return u64_at(answer, 8).ok_or_else(|| self.bad("connect reply too short"));
            }
        }
    }

    async fn announce(
        &mut self,
        connection: u64,
        (ask, target): (&Announce, &str),
        until: Instant,
    ) -> Result<Option<Response>, Error> {
        while Instant::now() < until {
            let transaction = rand::random();
            let mut packet = announce_packet(connection, transaction, ask);
            add_url(&mut packet, target);
            let v4 = self.to.is_ipv4();
            if let Some(answer) = self.ask(&packet, ANNOUNCE, transaction).await? {
                return read(answer, v4).map(Some).ok_or_else(|| self.bad("announce reply too short"));
            }
        }
        Ok(None)
    }

    /// Sends `packet` once and waits for its answer; `None` when none came in time and sends are left.
    async fn ask(&mut self, packet: &[u8], action: u32, transaction: u32) -> Result<Option<&[u8]>, Error> {
        let Some(left) = self.sends_left.checked_sub(1) else {
            return Err(Error::Timeout { what: format!("udp://{}", self.to), after: self.wait });
        };
        self.sends_left = left;
        let addr = self.to;
        let io = |source| Error::Io { addr, source };
        self.socket.send(packet).await.map_err(io)?;
        let deadline = Instant::now() + self.wait;
        loop {
            let Ok(received) = timeout_at(deadline, self.socket.recv(&mut self.buf)).await else {
                self.wait = self.wait.saturating_mul(2);
                return Ok(None);
            };
            let len = received.map_err(io)?;
            let answer = self.buf.get(..len).unwrap_or_default();
            if u32_at(answer, 4) != Some(transaction) {
                continue;
            }
            match u32_at(answer, 0) {
                Some(ERROR) => {
                    let reason = printable(answer.get(8..).unwrap_or_default());
                    return Err(Error::Refused { from: format!("udp://{addr}"), reason });
                }
                Some(got) if got == action => break Ok(self.buf.get(..len)),
                _ => {}
            }
        }
    }

    fn bad(&self, why: &'static str) -> Error {
        Error::Malformed { from: format!("udp://{}", self.to), why }
    }
}

/// Reads an announce answer; peers are of the family the packet travelled by.
fn read(answer: &[u8], v4: bool) -> Option<Response> {
    let list = answer.get(20..)?;
    let mut peers = if v4 { compact::v4(list) } else { compact::v6(list) };
    dedup(&mut peers);
    Some(Response {
        interval: interval(u32_at(answer, 8)?.into()),
        leechers: u32_at(answer, 12),
        seeders: u32_at(answer, 16),
        peers,
        ..Response::default()
    })
}
