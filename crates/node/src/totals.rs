//! Totals of a swarm for events.

use std::time::Duration;

use tidecast_event::get::{Efficiency, LinkRateFrom};
use tidecast_event::{Connected, CpuSeconds, Peer, Progress, Stage, Totals, Traffic, WebSeed, round};
use tidecast_net::{PeerReport, Stage as Spent, Summary};

use crate::settings::SwarmSettings;

/// How far a swarm is. While pieces are still to be checked, that is the stage. Neither the time nor rates are in it.
#[must_use]
pub fn progress(stage: Stage, now: &tidecast_net::Progress) -> Progress {
    let stage = if now.unchecked_pieces > 0 { Stage::Check } else { stage };
    // A seed has no end, and so no total.
    let total = if stage == Stage::Seed { 0 } else { now.wanted_bytes };
    Progress {
        stage,
        bytes: now.verified_bytes,
        total,
        pieces: now.verified_pieces.into(),
        pieces_total: now.pieces.into(),
        traffic: Some(Traffic {
            peers: now.peers,
            received: now.received_bytes,
            sent: now.sent_bytes,
            connected: now.connected.iter().map(connected).collect(),
            ..Traffic::default()
        }),
        ..Progress::default()
    }
}

/// A connected peer, as events have it.
#[must_use]
pub fn connected(peer: &tidecast_net::Connected) -> Connected {
    let quiet_seconds = peer.quiet.map(|quiet| round(quiet.as_secs_f64()));
    Connected { peer: peer_of(&peer.report), quiet_seconds }
}

fn peer_of(report: &PeerReport) -> Peer {
    Peer {
        addr: report.addr,
        node: report.node.map(|node| node.to_string()),
        client: report.client.clone(),
        received: report.received_bytes,
        sent: report.sent_bytes,
    }
}

/// CPU seconds of this process since it began, all threads.
fn process_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    round(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

/// Totals of a node in a swarm.
#[must_use]
pub fn totals(summary: &Summary) -> Totals {
    let now = &summary.progress;
    let web_seed = |seed: &tidecast_net::WebReport| WebSeed {
        url: seed.url.clone(),
        received: seed.received_bytes,
        error: seed.error.clone(),
    };
    let cpu = |on| round(summary.cpu.get(on).as_secs_f64());
    Totals {
        bytes: now.verified_bytes,
        total: now.wanted_bytes,
        pieces: now.verified_pieces,
        pieces_total: now.pieces,
        received: now.received_bytes,
        sent: now.sent_bytes,
        duplicate: now.duplicate_bytes,
        corrupt: now.corrupt_bytes,
        swarm_seconds: round(summary.elapsed.as_secs_f64()),
        peers: summary.peers.iter().map(peer_of).collect(),
        web_seeds: summary.web_seeds.iter().map(web_seed).collect(),
        cpu_seconds: Some(CpuSeconds {
            socket: cpu(Spent::Socket),
            tls: cpu(Spent::Tls),
            hash: cpu(Spent::Hash),
            disk: cpu(Spent::Disk),
            engine: cpu(Spent::Engine),
            process: process_seconds(),
        }),
    }
}

/// The data that the link could have transferred in `seconds`, if its rate is known: given, or by the driver of the
/// fastest interface. Peers on this host do not use links.
#[must_use]
pub fn efficiency(summary: &Summary, settings: &SwarmSettings, seconds: f64) -> Option<Efficiency> {
    let bytes = summary.progress.received_bytes;
    let outside =
        summary.peers.iter().any(|p| p.received_bytes > 0 && !p.addr.ip().to_canonical().is_loopback());
    let driver = || {
        let all = tidecast_net::local_addresses().ok()?;
        let on = all.iter().filter(|a| !a.loopback && settings.network.as_ref().is_none_or(|n| n.holds(a)));
        on.map(|a| a.speed).max().filter(|_| outside)
    };
    let told = settings.link_rate.map(|rate| (rate, LinkRateFrom::Told));
    let known = told.or_else(|| driver().map(|rate| (rate, LinkRateFrom::Driver)));
    let (rate, link_rate_from) = known.filter(|(rate, _)| *rate > 0 && bytes > 0)?;
    let bound = Duration::from_secs_f64(bytes as f64 * 8.0 / rate as f64).as_secs_f64();
    Some(Efficiency { link_rate_from, bound_seconds: round(bound), efficiency: round(bound / seconds) })
}
