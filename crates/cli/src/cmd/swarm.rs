//! Taking part in a swarm, with everything around it: what `seed`, `share` and `get` have in common.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};
use serde_json::{Map, Value, json};
use tidecast_discovery::announcer::Trackers;
use tidecast_group::RateSource;
use tidecast_metainfo::Manifest;
use tidecast_net::{
    Caps, Connected, Group, Network, Notice, OnVerified, Port, Progress, Security, Stage, Summary, Swarm,
    SwarmOptions, Throttle, WebReport,
};
use tidecast_store::Opened;
use tidecast_swarm::Policy;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Context;
use super::find::Finders;
use super::unreachable::Unreachable;
use crate::cli::SwarmArgs;
use crate::failure::Failure;
use crate::report::{Reporter, Snapshot, object, round};
use crate::units::Rate;

/// The ports that are tried when the user names none.
const PORTS: std::ops::Range<u16> = 6881..6890;
/// Damaged pieces that are told one by one.
const TOLD: u64 = 8;
/// Different warnings that are given; a crowd of hostile peers must not flood the log.
const WARNINGS: usize = 100;

/// The user's choices for a swarm, flags over settings.
pub(crate) struct Choices {
    pub(crate) listen: SocketAddr,
    /// Keeps the port from other processes of Tidecast until this one ends.
    _reserved: Option<UdpSocket>,
    pub(crate) network: Option<Network>,
    pub(crate) trackers: Vec<String>,
    pub(crate) peers: Vec<String>,
    pub(crate) plain: bool,
    pub(crate) policy: Policy,
    pub(crate) link_rate: Option<Rate>,
    /// The port of several swarms; none: `listen` is one's own.
    pub(crate) port: Option<Arc<Port>>,
    /// What holds this process to its limits, if it has any.
    pub(crate) throttle: Option<Arc<Throttle>>,
    pub(crate) dht: bool,
    pub(crate) lsd: bool,
    pub(crate) web_seeds: bool,
}

impl Choices {
    /// # Errors
    /// Usage errors: what does not parse.
    pub(crate) fn new(args: &SwarmArgs, context: &Context<'_>) -> Result<Self, Failure> {
        let settings = context.settings;
        let network = args.net.as_ref().or(settings.net.as_ref()).map(|n| n.parse::<Network>());
        let network = network.transpose().map_err(|e| Failure::usage(anyhow!("--net: {e}")))?;
        let policy = match args.policy.as_deref().or(settings.policy.as_deref()) {
            None | Some("tidecast") => Policy::TIDECAST,
            Some("classic") => Policy::CLASSIC,
            Some(other) => {
                return Err(Failure::usage(anyhow!("policy is {other:?}: write tidecast or classic")));
            }
        };
        let listen = args.listen.or(settings.listen);
        let (listen, reserved) = free_port(listen.and_then(|l| l.ip), listen.map_or(0, |l| l.port));
        Ok(Self {
            listen,
            _reserved: reserved,
            network,
            trackers: super::publish::trackers(&args.tracker, context)?,
            peers: if args.peer.is_empty() { settings.peer.clone() } else { args.peer.clone() },
            plain: args.plain || settings.plain == Some(true),
            policy,
            link_rate: args.link_rate.or(settings.link_rate),
            port: None,
            throttle: throttle(
                args.upload_limit.or(settings.upload_limit),
                args.download_limit.or(settings.download_limit),
            )?,
            dht: args.dht || settings.dht == Some(true),
            lsd: !args.no_lsd && settings.lsd != Some(false),
            web_seeds: !args.no_web_seeds,
        })
    }

    /// Trackers of the manifest and of the user.
    pub(crate) fn all_trackers(&self, manifest: &[Vec<String>]) -> Trackers {
        Trackers { named: self.trackers.clone(), tiers: manifest.to_vec() }
    }
}

/// The limits of this process, if there are any.
fn throttle(upload: Option<Rate>, download: Option<Rate>) -> Result<Option<Arc<Throttle>>, Failure> {
    let bytes = |limit: Option<Rate>, flag: &str| match limit.map(|rate| rate.0 / 8) {
        Some(0) => Err(Failure::usage(anyhow!(
            "{flag} of less than 1 byte a second lets nothing through; leave it out for no limit"
        ))),
        limit => Ok(limit),
    };
    let upload = bytes(upload, "--upload-limit")?;
    let download = bytes(download, "--download-limit")?;
    let limited = upload.is_some() || download.is_some();
    let caps = Caps { upload, download, ..Caps::default() };
    Ok(limited.then(|| Arc::new(Throttle::new(caps, None))))
}

/// Where to listen: as told, else at the first free of the usual ports, else at any. Several processes that start
/// at once on one host must not choose the same: each reserves its port by the UDP port of that number, which
/// nothing else uses.
fn free_port(ip: Option<IpAddr>, port: u16) -> (SocketAddr, Option<UdpSocket>) {
    let any = match ip {
        Some(ip) => ip,
        None if TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok() => Ipv6Addr::UNSPECIFIED.into(),
        None => Ipv4Addr::UNSPECIFIED.into(),
    };
    if port != 0 {
        return (SocketAddr::new(any, port), None);
    }
    let free = |port: u16| {
        let reserved = UdpSocket::bind((any, port)).ok()?;
        let port = reserved.local_addr().ok()?.port();
        TcpListener::bind((any, port)).ok()?;
        Some((SocketAddr::new(any, port), Some(reserved)))
    };
    PORTS.chain([0; 8]).find_map(free).unwrap_or((SocketAddr::new(any, 0), None))
}

/// What this node does in a swarm, besides serving what it has.
pub(crate) enum Part {
    /// Nothing: it has everything.
    Seed,
    /// It fetches everything.
    Get,
    /// It fetches what is asked for; who hears of what has come, and whether it joins a plan.
    OnDemand(OnVerified, bool),
}

/// A swarm that runs, and those who find its peers.
pub(crate) struct Running {
    pub(crate) swarm: Swarm,
    pub(crate) manifest: Arc<Manifest>,
    notices: Option<mpsc::Receiver<Notice>>,
    finders: Option<Finders>,
    forwarding: Option<JoinHandle<()>>,
    damaged: u64,
    /// Warnings that were given; the same one is not given twice.
    said: HashSet<String>,
    /// What was told of the last peer that no longer has what it offered.
    withdrawn: Option<String>,
    unreachable: Unreachable,
    seeds: bool,
    /// Addresses that the user or a ticket has named.
    pub(crate) told: Vec<SocketAddr>,
}

impl Running {
    /// Opens the sockets and starts.
    ///
    /// # Errors
    /// Those of [`Swarm::start`].
    pub(crate) fn start(opened: Opened, security: Security, choices: &Choices, part: Part) -> Result<Self> {
        let manifest = opened.store.manifest().clone();
        // Who joins a plan gets what its maker gives.
        let web_seeds = choices.web_seeds && matches!(part, Part::Get | Part::OnDemand(_, false));
        let seeds = matches!(part, Part::Seed);
        let mut swarm = Swarm::start(SwarmOptions {
            opened,
            listen: if choices.port.is_some() { Vec::new() } else { vec![choices.listen] },
            listeners: Vec::new(),
            door: None,
            port: choices.port.clone(),
            network: choices.network.clone(),
            security,
            policy: choices.policy,
            seed_only: matches!(part, Part::Seed),
            group: match part {
                Part::Seed => Group::Make,
                Part::OnDemand(_, true) => Group::Join,
                _ => Group::None,
            },
            on_demand: if let Part::OnDemand(verified, _) = part { Some(verified) } else { None },
            planned: false,
            roots: None,
            web_seeds,
            throttle: choices.throttle.clone(),
        })?;
        let notices = swarm.notices();
        Ok(Self {
            swarm,
            manifest,
            notices,
            finders: None,
            forwarding: None,
            damaged: 0,
            said: HashSet::new(),
            withdrawn: None,
            unreachable: Unreachable::default(),
            seeds,
            told: Vec::new(),
        })
    }

    /// The port that others are told.
    pub(crate) fn port(&self) -> u16 {
        self.swarm.listen_addrs().first().map_or(0, SocketAddr::port)
    }

    /// Takes what the finders find from now on.
    pub(crate) fn find(&mut self, finders: Finders, mut finds: mpsc::Receiver<tidecast_discovery::Found>) {
        let sink = self.swarm.finder();
        self.finders = Some(finders);
        self.forwarding = Some(tokio::spawn(async move {
            while let Some(found) = finds.recv().await {
                for addr in found.peers {
                    if !sink.found(addr).await {
                        return;
                    }
                }
            }
        }));
    }

    /// The next thing to tell; waits for ever when there will be none.
    pub(crate) async fn notice(&mut self) -> Notice {
        match &mut self.notices {
            Some(notices) => match notices.recv().await {
                Some(notice) => notice,
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// The next thing to tell, if there is any now.
    pub(crate) fn notice_now(&mut self) -> Option<Notice> {
        self.notices.as_mut()?.try_recv().ok()
    }

    /// Tells a notice. An error of the store ends a download, so it is handed back.
    pub(crate) fn tell(&mut self, notice: Notice, reporter: &Reporter) -> Option<Arc<tidecast_store::Error>> {
        let who = |addr: SocketAddr, node: Option<tidecast_identity::NodeId>| match node {
            Some(node) => format!("{addr} (node {})", node.short()),
            None => addr.to_string(),
        };
        match notice {
            Notice::Banned { addr, node, why } => {
                reporter.warning(&format!(
                    "peer {} is banned: {}",
                    who(addr, node),
                    super::show::plain(&why)
                ));
            }
            Notice::Refused { addr, why } => {
                reporter.warning(&format!("peer {addr}: {}", super::show::plain(&why)));
            }
            // By its host alone: each try comes from another port.
            Notice::TurnedAway { addr, why } => {
                self.warn(format!("a node at {} was refused: {why}", addr.ip().to_canonical()), reporter);
            }
            Notice::Withdrew { addr } => {
                // By its host alone: it may come back from another port.
                let text = withdrew(addr);
                self.withdrawn = Some(text.clone());
                self.warn(text, reporter);
            }
            Notice::WebSeed { url, why } => {
                let text = web_seed(&url, &why);
                self.withdrawn = Some(text.clone());
                self.warn(text, reporter);
            }
            Notice::Damaged { piece } => self.tell_damage(piece, reporter),
            // A seed waits for others to come: of addresses that it was not told, many may be dead.
            Notice::Unreachable { addr, why, told } if told || !self.seeds => {
                self.unreachable.failed(addr, &why, told);
            }
            Notice::Unreachable { .. } => {}
            Notice::Stalled { addrs, silent, sending } => {
                let fields =
                    object(json!({ "peers": addrs, "silent_seconds": silent.as_secs(), "sending": sending }));
                reporter.silence(&stalled(&addrs, silent, sending), fields);
            }
            Notice::Resumed { silent, sending } => {
                reporter.well();
                let way = if sending { "taken" } else { "received" };
                reporter.note(&format!("bytes are {way} again, after {} s", silent.as_secs()));
                let fields = json!({ "silent_seconds": silent.as_secs(), "sending": sending });
                reporter.happened("resumed", object(fields));
            }
            Notice::Store { error } => return Some(error),
        }
        None
    }

    /// A warning, once, and not too many.
    pub(crate) fn warn(&mut self, text: String, reporter: &Reporter) {
        if self.said.len() >= WARNINGS || self.said.contains(&text) {
            return;
        }
        reporter.warning(&text);
        self.said.insert(text);
        if self.said.len() == WARNINGS {
            reporter.warning("no more warnings are shown");
        }
    }

    fn tell_damage(&mut self, piece: u32, reporter: &Reporter) {
        self.damaged += 1;
        if self.damaged <= TOLD {
            let files: Vec<String> = self
                .manifest
                .spans(piece, 0, self.manifest.piece_len(piece))
                .filter_map(|span| self.manifest.file(span.file))
                .map(|file| file.path().to_string())
                .take(4)
                .collect();
            reporter.warning(&format!("piece {piece} does not match the manifest, in {}", files.join(", ")));
        } else if self.damaged == TOLD + 1 {
            reporter.warning("more pieces do not match the manifest; `tidecast verify` lists the files");
        }
    }

    /// The last peer that no longer has what it offered, if there was one.
    pub(crate) fn withdrawn(&self) -> Option<&str> {
        self.withdrawn.as_deref()
    }

    /// Pieces of the source that do not match the manifest.
    pub(crate) fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Shows the state, and tells the trackers. False while there is none yet.
    pub(crate) fn show(&self, stage: &'static str, reporter: &mut Reporter) -> bool {
        let now = self.look(stage);
        now.as_ref().inspect(|now| reporter.progress(now)).is_some()
    }

    /// The state, if there is one yet; the trackers are told.
    pub(crate) fn look(&self, stage: &'static str) -> Option<Snapshot> {
        let now = self.swarm.progress().borrow().clone();
        if now.pieces == 0 && self.manifest.piece_count() > 0 {
            return None;
        }
        if let Some(finders) = &self.finders {
            let left = now.wanted_bytes.saturating_sub(now.verified_bytes);
            finders.progress(now.received_bytes, now.sent_bytes, left);
        }
        Some(snapshot(stage, &now))
    }

    /// Tells of trackers and peers that do not answer.
    pub(crate) fn tell_troubles(&mut self, reporter: &Reporter) {
        let connected = {
            let progress = self.swarm.progress();
            let now = progress.borrow();
            now.peers + now.web_seeds > 0
        };
        self.unreachable.tell(connected, reporter);
        for trouble in self.finders.as_ref().map(Finders::troubles).unwrap_or_default() {
            self.warn(trouble, reporter);
        }
    }

    /// Ends everything cleanly.
    ///
    /// # Errors
    /// When the swarm had ended by itself.
    pub(crate) async fn stop(self) -> Result<Summary> {
        if let Some(forwarding) = self.forwarding {
            forwarding.abort();
        }
        let now = self.swarm.progress().borrow().clone();
        let goodbye = async {
            if let Some(finders) = self.finders {
                // Trackers learn that all is there also when it came between two looks.
                let left = now.wanted_bytes.saturating_sub(now.verified_bytes);
                finders.progress(now.received_bytes, now.sent_bytes, left);
                finders.stop().await;
            }
        };
        let (summary, ()) = tokio::join!(self.swarm.stop(), goodbye);
        summary.context("the swarm ended by itself")
    }
}

/// Why a peer gives nothing, if that is what the notice says.
pub(crate) fn about_peer(notice: &Notice) -> Option<String> {
    match notice {
        Notice::Banned { addr, why, .. } => Some(format!("peer {addr} is banned: {why}")),
        Notice::Refused { addr, why } => Some(format!("peer {addr} refused this node: {why}")),
        Notice::TurnedAway { addr, why } => Some(format!("peer {addr} was refused: {why}")),
        Notice::Withdrew { addr } => Some(withdrew(*addr)),
        Notice::WebSeed { url, why } => Some(web_seed(url, why)),
        Notice::Unreachable { addr, why, .. } => Some(format!("peer {addr}: {why}")),
        Notice::Stalled { addrs, silent, sending: false } => Some(stalled(addrs, *silent, false)),
        _ => None,
    }
}

fn web_seed(url: &str, why: &str) -> String {
    format!("web seed {}: {}", super::show::plain(url), super::show::plain(why))
}

/// Peers are connected, and nothing moves.
fn stalled(addrs: &[SocketAddr], silent: Duration, sending: bool) -> String {
    let since = SystemTime::now().checked_sub(silent).map(clock).unwrap_or_default();
    let addrs = addrs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let seconds = silent.as_secs();
    match sending {
        true => format!("peer {addrs} has taken no byte for {seconds} s, since {since}"),
        false => format!("no byte has come for {seconds} s, since {since}, from {addrs}"),
    }
}

/// The time of day.
fn clock(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()) % 86_400;
    format!("{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn withdrew(addr: SocketAddr) -> String {
    let host = addr.ip().to_canonical();
    format!("peer {host} no longer has all that it offered: its copy has changed or cannot be read")
}

/// What the reporter shows of the swarm's state. While pieces are still to be checked, that is the stage.
pub(crate) fn snapshot(stage: &'static str, now: &Progress) -> Snapshot {
    let stage = if now.unchecked_pieces > 0 { "check" } else { stage };
    // A seed has no end, and so no total.
    let total = if stage == "seed" { 0 } else { now.wanted_bytes };
    Snapshot {
        stage,
        bytes: now.verified_bytes,
        total,
        pieces: now.verified_pieces.into(),
        pieces_total: now.pieces.into(),
        peers: Some(now.peers),
        received: now.received_bytes,
        sent: now.sent_bytes,
        connected: now.connected.iter().map(connected).collect(),
        ..Snapshot::default()
    }
}

fn connected(peer: &Connected) -> Value {
    let of = &peer.report;
    json!({
        "addr": of.addr.to_string(), "node": of.node.map(|n| n.to_string()), "client": of.client,
        "received": of.received_bytes, "sent": of.sent_bytes,
        "quiet_seconds": peer.quiet.map(|quiet| round(quiet.as_secs_f64())),
    })
}

/// CPU seconds of this process since it began, all threads.
fn process_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    round(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

/// The totals of a run for the last JSON event.
pub(crate) fn totals(summary: &Summary) -> Map<String, Value> {
    let now = &summary.progress;
    let peers: Vec<Value> = summary
        .peers
        .iter()
        .map(|p| {
            json!({
                "addr": p.addr.to_string(), "node": p.node.map(|n| n.to_string()), "client": p.client,
                "received": p.received_bytes, "sent": p.sent_bytes,
            })
        })
        .collect();
    let seed = |s: &WebReport| json!({ "url": s.url, "received": s.received_bytes, "error": s.error });
    let web_seeds: Vec<Value> = summary.web_seeds.iter().map(seed).collect();
    let cpu = |stage| round(summary.cpu.get(stage).as_secs_f64());
    object(json!({
        "bytes": now.verified_bytes,
        "total": now.wanted_bytes,
        "pieces": now.verified_pieces,
        "pieces_total": now.pieces,
        "received": now.received_bytes,
        "sent": now.sent_bytes,
        "duplicate": now.duplicate_bytes,
        "corrupt": now.corrupt_bytes,
        "swarm_seconds": round(summary.elapsed.as_secs_f64()),
        "peers": peers,
        "web_seeds": web_seeds,
        "cpu_seconds": {
            "socket": cpu(Stage::Socket), "tls": cpu(Stage::Tls), "hash": cpu(Stage::Hash),
            "disk": cpu(Stage::Disk), "engine": cpu(Stage::Engine), "process": process_seconds(),
        },
    }))
}

/// Seconds that `bytes` take at the rate of this node's link, if that is known, and who says so: the user, or the driver
/// of the fastest interface. Peers on this host are no matter of links.
pub(crate) fn bound(bytes: u64, summary: &Summary, choices: &Choices) -> Option<(Duration, RateSource)> {
    let outside =
        summary.peers.iter().any(|p| p.received_bytes > 0 && !p.addr.ip().to_canonical().is_loopback());
    let driver = || {
        let all = tidecast_net::local_addresses().ok()?;
        let on = all.iter().filter(|a| !a.loopback && choices.network.as_ref().is_none_or(|n| n.holds(a)));
        on.map(|a| a.speed).max().filter(|_| outside)
    };
    let told = choices.link_rate.map(|rate| (rate.0, RateSource::Told));
    let known = told.or_else(|| driver().map(|rate| (rate, RateSource::Driver)));
    let (rate, from) = known.filter(|(rate, _)| *rate > 0)?;
    Some((Duration::from_secs_f64(bytes as f64 * 8.0 / rate as f64), from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_start_at_once_get_ports_of_their_own() {
        let here = Some(Ipv4Addr::LOCALHOST.into());
        let all: Vec<_> = (0..12).map(|_| free_port(here, 0)).collect();
        let ports: HashSet<u16> = all.iter().map(|(addr, _)| addr.port()).collect();
        assert_eq!(ports.len(), all.len(), "{ports:?}");
        let (told, reserved) = free_port(here, 7);
        assert!(told.port() == 7 && reserved.is_none(), "what the user says is taken as said");
    }
}
