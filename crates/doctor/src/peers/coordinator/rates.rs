//! Measures rates: of each path alone or beside others, and of many pairs at once.

use std::collections::BTreeMap;
use std::time::Duration;

use tidecast_swarm::plan::topology::discover::Discovery;
use tokio::time::Instant;

use super::{Event, Job, Measured, Run, STREAMS, Work, best_rates, number, top};
use crate::peers::groups;
use crate::peers::message::Order;

/// Paths below this share of the rate that their hosts reach elsewhere are measured again; and how many of them.
const SLOW: f64 = 0.6;
const AGAIN: usize = 8;
/// Moments in which many pairs send at once: milliseconds, and all of them together.
const MOMENT: u32 = 80;
pub(super) const MOMENTS: Duration = Duration::from_secs(4);
/// With fewer hosts, places are not measured by rate.
const FEWEST: usize = 4;

impl Run<'_> {
    /// The rates of all paths that connect.
    pub(super) async fn measure_rates(&mut self) {
        let full = |(path, measured): (&(usize, usize), &Measured)| {
            matches!(&measured.probed, Some(Ok(_))).then_some(*path)
        };
        let mut paths: Vec<(usize, usize)> = self.results.paths.iter().filter_map(full).collect();
        // The paths of one round of the schedule follow each other, so that few hosts wait.
        let order: BTreeMap<(usize, usize), usize> = self.schedule().into_iter().zip(0..).collect();
        let place = |(a, b): (usize, usize)| order.get(&(a.min(b), a.max(b))).copied();
        // Hosts on one machine share no link.
        paths.retain(|path| place(*path).is_some() && !self.share_machine(path.0, path.1));
        paths.sort_by_key(|path| place(*path));
        (self.tell)(Event::Stage("rates", paths.len().div_ceil(2)), &self.results);
        let job = |streams| {
            move |&(from, to): &(usize, usize)| Job { from, to, work: Work::Send { streams, alone: false } }
        };
        let jobs: Vec<Job> = paths.iter().flat_map(|path| [job(1)(path), job(STREAMS)(path)]).collect();
        self.carry_out(jobs, 1, usize::MAX).await;
        let again = self.slow_paths();
        let alone = |(from, to)| {
            [1, STREAMS].map(|streams| Job { from, to, work: Work::Send { streams, alone: true } })
        };
        self.carry_out(again.into_iter().flat_map(alone), 1, 1).await;
    }

    /// The paths to measure once more: of each slow host one path to its best partner, and the slowest other paths.
    fn slow_paths(&self) -> Vec<(usize, usize)> {
        let best = best_rates(&self.results.paths);
        let median = |of: fn(&(u64, u64)) -> u64| {
            let mut all: Vec<u64> = best.values().map(of).collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied().unwrap_or(0) as f64
        };
        let (sends, receives) = (median(|b| b.0), median(|b| b.1));
        let mut chosen = Vec::new();
        for (&host, &(send, receive)) in &best {
            let partners = || self.results.paths.iter().filter(|(p, m)| p.0 == host && m.one.is_some());
            // Its nearest partner: a link between groups is not the host's fault.
            let near = partners().filter_map(|((_, to), _)| Some((self.rtt(host, *to)?, *to))).min();
            let Some((_, near)) = near else { continue };
            if (send as f64) < SLOW * sends {
                chosen.push((host, near));
            }
            if (receive as f64) < SLOW * receives {
                chosen.push((near, host));
            }
        }
        let share = |path: &(usize, usize), measured: &Measured| {
            let able = best.get(&path.0)?.0.min(best.get(&path.1)?.1).max(1);
            Some(top(measured)? as f64 / able as f64)
        };
        let slow = |(path, measured)| Some((share(path, measured)?, *path));
        let mut slow: Vec<(f64, (usize, usize))> =
            self.results.paths.iter().filter_map(slow).filter(|(share, _)| *share < SLOW).collect();
        slow.sort_by(|a, b| a.0.total_cmp(&b.0));
        chosen.extend(slow.into_iter().map(|(_, path)| path));
        let mut once = Vec::new();
        chosen.retain(|path| {
            let new = !once.contains(path);
            once.push(*path);
            new
        });
        chosen.truncate(AGAIN);
        chosen
    }

    /// Which hosts share a link to the others, by moments in which many pairs send at once.
    pub(super) async fn measure_places(&mut self) {
        let alive = self.alive();
        let shared = |a: &usize| alive.iter().any(|b| a != b && self.share_machine(*a, *b));
        if alive.len() < FEWEST || alive.iter().any(shared) {
            return;
        }
        (self.tell)(Event::Stage("places", alive.len()), &self.results);
        let rate = self.results.paths.values().filter_map(|m| m.one).map(|sent| sent.rate).max().unwrap_or(0);
        let mut discovery = Discovery::new(number(alive.len()), rate, 1);
        let end = Instant::now() + MOMENTS;
        while Instant::now() < end {
            let rounds = discovery.next_rounds();
            if rounds.is_empty() {
                break;
            }
            for round in rounds {
                self.moment(&alive, &round, &mut discovery).await;
            }
        }
        let found = discovery.found();
        let mut by_rate = vec![0; self.results.hosts.len()];
        for (host, place) in alive.iter().zip(&found.places) {
            by_rate.get_mut(*host).into_iter().for_each(|group| *group = *place as usize);
        }
        self.results.groups = groups::both(&self.results.groups, &by_rate);
        self.results.by_rate = true;
    }

    async fn moment(&mut self, alive: &[usize], round: &[(u32, u32)], discovery: &mut Discovery) {
        let mut pairs = Vec::new();
        for &(a, b) in round {
            let ends = (alive.get(a as usize).copied(), alive.get(b as usize).copied());
            let (Some(from), Some(to)) = ends else { continue };
            self.tasks += 1;
            self.met.insert(self.tasks, Vec::new());
            pairs.push((self.tasks, a, b));
            self.agents.order(from, Order::Meet { task: self.tasks, to: number(to), millis: MOMENT });
        }
        let until = Instant::now() + Duration::from_millis(MOMENT.into()) * 4;
        let open = |met: &BTreeMap<u32, Vec<u64>>| met.values().any(|rates| rates.len() < 2);
        while open(&self.met) && Instant::now() < until {
            match tokio::time::timeout_at(until, self.agents.next()).await {
                Ok(heard) => self.hear(heard),
                Err(_) => break,
            }
        }
        for (task, a, b) in pairs {
            let rates = self.met.remove(&task).unwrap_or_default();
            if let [x, y] = rates[..] {
                discovery.saw(a, b, x.min(y));
            }
        }
        self.met.clear();
    }
}
