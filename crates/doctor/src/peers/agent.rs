//! An agent: the process on a host that the coordinator started. It obeys the orders of its coordinator, answers the
//! probes of the others, and ends with its coordinator, or after [`LIFE`].

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use tidecast_group::Error;
use tidecast_group::agents::{AgentTicket, Reports, attend};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::message::{Member, Order, PROTOCOL, Report};
use super::probe::Caller;
use super::send::{meet, send};
use super::serve::Server;
use super::wire::Key;

/// The longest life of an agent.
const LIFE: Duration = Duration::from_secs(1800);
/// Tasks of this agent at the same time.
const TASKS: usize = 16;

/// Runs an agent until its coordinator needs it no more. `host`: the coordinator's name of this host.
///
/// # Errors
/// The coordinator cannot be reached, or no socket can be opened.
pub async fn agent(
    ticket: &AgentTicket,
    host: Option<String>,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    tokio::select! {
        done = obey(ticket, host) => done,
        () = stop => Err(Error::Stopped),
        () = tokio::time::sleep(LIFE) => {
            Err(Error::Coordinator(format!("the agent ends after {} minutes", LIFE.as_secs() / 60)))
        }
    }
}

async fn obey(ticket: &AgentTicket, host: Option<String>) -> Result<(), Error> {
    let listen = |source| Error::System { what: "listen", source };
    let (tcp, udp) = sockets().await.map_err(listen)?;
    let ready = Report::Ready {
        protocol: PROTOCOL,
        tcp: tcp.local_addr().map_err(listen)?.port(),
        udp: udp.local_addr().map_err(listen)?.port(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: String::from_utf8_lossy(rustix::system::uname().release().to_bytes()).into_owned(),
    };
    let mut attendance = attend::<Order, Report>(ticket, host).await?;
    attendance.reports.send(ready).await;
    let mut sockets = Some((tcp, udp));
    let (meet, mut met) = mpsc::channel(TASKS);
    // Dropped with this function: no task outlives the connection to the coordinator.
    let mut tasks = JoinSet::new();
    let mut run: Option<Run> = None;
    loop {
        let order = tokio::select! {
            order = attendance.orders.recv() => order,
            Some(report) = met.recv() => {
                attendance.reports.send(report).await;
                continue;
            }
        };
        while tasks.try_join_next().is_some() {}
        match order {
            None | Some(Order::Finish) => break,
            Some(Order::Begin { me, key, members }) => {
                let Some((tcp, udp)) = sockets.take() else { continue };
                let key = Key::new(&key);
                let server = Arc::new(Server::new(key.clone(), me, meet.clone()));
                tasks.spawn(server.clone().accept(tcp));
                tasks.spawn(server.answer(udp));
                let members = members.into_iter().map(|member| (member.number, member));
                let caller = Caller { key, me, local: attendance.local.clone() };
                let reports = attendance.reports.clone();
                run = Some(Run { caller, members: Arc::new(members.collect()), reports });
            }
            // Two tasks serve others.
            Some(order) if tasks.len() < TASKS + 2 => {
                if let Some(run) = run.clone() {
                    tasks.spawn(run.carry_out(order));
                }
            }
            Some(_) => tracing::warn!("the coordinator ordered too many tasks at once"),
        }
    }
    tasks.shutdown().await;
    drop(run);
    attendance.leave().await;
    Ok(())
}

/// The sockets for probes, on all addresses.
async fn sockets() -> std::io::Result<(TcpListener, UdpSocket)> {
    let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    match (TcpListener::bind((any[0], 0)).await, UdpSocket::bind((any[0], 0)).await) {
        (Ok(tcp), Ok(udp)) => Ok((tcp, udp)),
        // The kernel has no IPv6.
        _ => Ok((TcpListener::bind((any[1], 0)).await?, UdpSocket::bind((any[1], 0)).await?)),
    }
}

/// The run that this agent takes part in.
#[derive(Clone)]
struct Run {
    caller: Caller,
    members: Arc<BTreeMap<u32, Member>>,
    reports: Reports<Report>,
}

impl Run {
    async fn carry_out(self, order: Order) {
        let unknown = || "the coordinator named no such host".to_owned();
        let member = |to: u32| self.members.get(&to);
        let report = match order {
            Order::Probe { task, to, brief } => {
                let result = match member(to) {
                    Some(member) => self.caller.probe(member, task, brief).await,
                    None => Err(unknown()),
                };
                Report::Probed { task, result }
            }
            Order::Send { task, to, streams, millis, bytes } => {
                let result = match member(to) {
                    Some(member) => send(&self.caller, member, (task, streams), (millis, bytes)).await,
                    None => Err(unknown()),
                };
                Report::Sent { task, result }
            }
            Order::Meet { task, to, millis } => {
                let rate = match member(to) {
                    Some(member) => meet(&self.caller, member, task, millis).await,
                    None => 0,
                };
                Report::Met { task, rate }
            }
            Order::Begin { .. } | Order::Finish => return,
        };
        self.reports.send(report).await;
    }
}
