//! Measures the places of hosts if no topology is given: before the first epoch, pairs of hosts send to each other for a
//! moment, all pairs at the same time; the rates show which hosts share a bottleneck (`swarm::plan::topology::discover`,
//! which is pure).
//!
//! It is done only if it can pay: for a transfer that takes some time, at the rate measured with the first workers, to
//! several hosts other than this one. On a single switch the cost is two rounds.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tidecast_event::bcast::News;
use tidecast_net::Network;
use tidecast_swarm::plan::topology::Map;
use tidecast_swarm::plan::topology::discover::Discovery;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Event, Group, Input};
use crate::control::message::{Probe, ProbeResult, ToWorker};
use crate::error::{Error, system};
use crate::node::Node;
use crate::{probe, reach};

/// With fewer hosts than this, without the origin, places are not measured.
const MIN_HOSTS: usize = 3;
/// A shorter transfer would end before places are measured.
const MIN_DURATION: Duration = Duration::from_millis(1500);
/// The same in bytes, if no rate is known.
const MIN_BYTES: u64 = 16 << 20;
/// The duration of a round, and the pause between rounds, in which data in transit arrives.
const ROUND_DURATION: Duration = Duration::from_millis(60);
const PAUSE: Duration = Duration::from_millis(10);
/// The wait for results after the last round. A lost result costs little.
const RESULT_TIMEOUT: Duration = Duration::from_millis(500);
/// The maximum duration of all rounds together.
const MAX_DURATION: Duration = Duration::from_secs(2);

/// A measurement in progress.
pub(super) struct PlaceMeasurement {
    discovery: Discovery,
    /// Hosts by their number in the discovery minus one: the origin is number 0.
    hosts: Vec<usize>,
    began: Instant,
    rounds: u32,
    /// Open results, by round, caller and callee; and the result of one of the two.
    open: BTreeMap<(u32, u32, u32), Option<u64>>,
    until: Instant,
}

impl PlaceMeasurement {
    /// Closes open results; the result of one side is used if the other is missing.
    fn close_open(&mut self) {
        for ((_, from, to), rate) in std::mem::take(&mut self.open) {
            rate.into_iter().for_each(|rate| self.discovery.saw(from, to, rate));
        }
    }
}

/// The origin's own listener for probes.
pub(super) struct ProbeListener {
    port: u16,
    pass: [u8; 16],
    tell: probe::Results,
}

impl Group {
    /// Opens the origin's listener for probes.
    pub(super) fn open_probe_listener(&mut self) -> Result<(), Error> {
        let listener = reach::listener()?;
        let port = listener.local_addr().map_err(system("listen"))?.port();
        let listener = tokio::net::TcpListener::from_std(listener).map_err(system("listen"))?;
        let pass = rand::random();
        let (tell, mut told): (_, mpsc::Receiver<ProbeResult>) = probe::channel();
        self.tasks.spawn(reach::answer(listener, self.key.id(), pass, tell.clone()));
        let inbox = self.inbox.clone();
        self.tasks.spawn(async move {
            while let Some(result) = told.recv().await {
                if inbox.send(Input::ProbeResult(result)).await.is_err() {
                    return;
                }
            }
        });
        self.probe_listener = Some(ProbeListener { port, pass, tell });
        Ok(())
    }

    /// Whether places are to be measured: no topology is given, and the algorithm uses a plan.
    pub(super) fn places_wanted(&self) -> bool {
        let elsewhere = self.nodes.iter().filter(|node| node.open() && !self.is_here(node)).count();
        self.options.topology.is_none() && self.options.algorithm.shape().is_some() && elsewhere >= MIN_HOSTS
    }

    /// Whether all of a worker's addresses are this host's; false for a worker that is not connected yet.
    fn is_here(&self, node: &Node) -> bool {
        let addresses = node.place().addresses;
        let ours = |ip| self.local.iter().any(|own| own.ip == ip);
        !addresses.is_empty() && addresses.iter().all(|a| a.loopback || ours(a.ip))
    }

    /// The address of a worker to measure its rate while no other host sends.
    pub(super) fn unshared_address(&self, node: &Node) -> Option<std::net::IpAddr> {
        let place = node.place();
        let wanted = |network: &Network, ip| place.addresses.iter().any(|a| a.ip == ip && network.holds(a));
        let fits = |ip| self.options.network.as_ref().is_none_or(|network| wanted(network, ip));
        let reached = place.reached.iter().map(|r| r.ip).find(|ip| !ip.is_loopback() && fits(*ip));
        reached.filter(|_| self.places_wanted() && !self.is_here(node))
    }

    /// Begins to measure places, if that can pay.
    pub(super) fn begin_measurement(&mut self) {
        let bytes = self.source.as_ref().map_or(0, |s| s.manifest.total_len());
        let alone = self.nodes.iter().flat_map(|n| &n.reached).filter_map(|r| r.rate).max().unwrap_or(0);
        let long = match alone {
            0 => bytes >= MIN_BYTES,
            rate => u128::from(bytes) * 8000 / u128::from(rate) >= MIN_DURATION.as_millis(),
        };
        if !long || !self.places_wanted() {
            return;
        }
        let there = |(place, node): (usize, &Node)| node.takes_part().then_some(place);
        let hosts: Vec<usize> = self.nodes.iter().enumerate().filter_map(there).collect();
        let discovery = Discovery::new(hosts.len() as u32 + 1, alone, rand::random());
        let now = Instant::now();
        self.measurement = Some(PlaceMeasurement {
            discovery,
            hosts,
            began: now,
            rounds: 0,
            open: BTreeMap::new(),
            until: now,
        });
    }

    /// Continues the measurement; returns whether it is still in progress.
    pub(super) fn measure_places(&mut self, tell: &mut (dyn FnMut(Event) + Send)) -> bool {
        let now = Instant::now();
        let Some(mut measurement) = self.measurement.take() else { return false };
        if !measurement.open.is_empty() && now < measurement.until {
            self.measurement = Some(measurement);
            return true;
        }
        measurement.close_open();
        let over = now - measurement.began >= MAX_DURATION;
        let rounds = if over { Vec::new() } else { measurement.discovery.next_rounds() };
        if rounds.is_empty() {
            self.apply_places(&measurement, tell);
            return false;
        }
        let (mut lists, mut after) = (BTreeMap::new(), PAUSE);
        for round in rounds {
            for (a, b) in round {
                self.add_probe(&mut measurement, (a, b), after, &mut lists);
            }
            measurement.rounds += 1;
            after += ROUND_DURATION + PAUSE;
        }
        measurement.until = now + after + RESULT_TIMEOUT;
        for (host, probes) in lists {
            match host {
                0 => {
                    let tell = self.probe_listener.as_ref().map(|probe_listener| probe_listener.tell.clone());
                    drop(tell.map(|tell| self.tasks.spawn(probe::run(probes, tell))));
                }
                _ => {
                    let place = measurement.hosts.get(host as usize - 1);
                    let node = place.and_then(|place| self.nodes.get_mut(*place));
                    node.into_iter().for_each(|node| node.send(ToWorker::Probe(probes.clone())));
                }
            }
        }
        self.measurement = Some(measurement);
        true
    }

    /// Lets one of two hosts connect to the other, if the other is reachable.
    fn add_probe(
        &self,
        measurement: &mut PlaceMeasurement,
        (a, b): (u32, u32),
        after: Duration,
        lists: &mut BTreeMap<u32, Vec<Probe>>,
    ) {
        let turn = |from, to| Some((from, to, self.probe_target(measurement, to)?));
        let Some((from, to, (address, node, pass))) = turn(a, b).or_else(|| turn(b, a)) else { return };
        let round = measurement.rounds;
        let millis = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let (after, duration) = (millis(after), millis(ROUND_DURATION));
        let probe = Probe { round, from, to, address, node, pass, after, duration };
        lists.entry(from).or_default().push(probe);
        measurement.open.insert((round, from, to), None);
    }

    /// The listener of a host for probes: address, key, pass.
    fn probe_target(
        &self,
        measurement: &PlaceMeasurement,
        host: u32,
    ) -> Option<(SocketAddr, [u8; 32], [u8; 16])> {
        let choice = self.choice.as_ref()?;
        let Some(place) = host.checked_sub(1) else {
            let probe_listener = self.probe_listener.as_ref()?;
            return Some((
                (*choice.origin.first()?, probe_listener.port).into(),
                self.key.id().0,
                probe_listener.pass,
            ));
        };
        let place = *measurement.hosts.get(place as usize)?;
        let (id, hello) = self.nodes.get(place)?.who.as_ref()?;
        Some(((*choice.nodes.get(place)?.first()?, hello.answers).into(), id.0, hello.pass))
    }

    /// The result of a probe from one of its two hosts; `by`: the node that reports it, `None` for the origin.
    pub(super) fn probe_result(&mut self, by: Option<usize>, result: ProbeResult) {
        let Some(measurement) = &mut self.measurement else { return };
        let key = (result.round, result.from, result.to);
        let says = if result.dialled { result.from } else { result.to };
        let right = by == says.checked_sub(1).and_then(|h| measurement.hosts.get(h as usize).copied());
        let Some(before) = measurement.open.get_mut(&key).filter(|_| right) else { return };
        // The second result, or the only one: after a failed connection the other side has no result.
        if before.is_some() || result.dialled && result.rate == 0 {
            let rate = result.rate.min(before.unwrap_or(result.rate));
            measurement.open.remove(&key);
            measurement.discovery.saw(result.from, result.to, rate);
        } else {
            *before = Some(result.rate);
        }
    }

    /// Makes a topology of the results.
    fn apply_places(&mut self, measurement: &PlaceMeasurement, tell: &mut (dyn FnMut(Event) + Send)) {
        let found = measurement.discovery.found();
        let took = measurement.began.elapsed();
        tracing::debug!(?found, rounds = measurement.rounds, ?took, "places");
        let slow = found.slow.iter().filter(|slow| **slow).count();
        let mut places = vec![Vec::new(); found.count() as usize];
        for (host, place) in (0_usize..).zip(&found.places) {
            let node = host
                .checked_sub(1)
                .and_then(|h| measurement.hosts.get(h))
                .and_then(|p| self.nodes.get_mut(*p));
            let name = match node {
                Some(node) => {
                    // If many hosts are slow, being slow is normal and not an exception.
                    node.slow = slow * 4 <= measurement.hosts.len() && found.slow.get(host) == Some(&true);
                    node.host.name.clone()
                }
                None => self.own_name(),
            };
            places
                .get_mut(*place as usize)
                .into_iter()
                .for_each(|names: &mut Vec<String>| names.push(name.clone()));
        }
        if places.len() > 1 {
            self.options.topology = Some(Map::of(&places));
            tell(Event::News(News::Places(places.clone())));
        }
        self.places = Some(places);
    }
}
