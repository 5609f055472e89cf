//! From specifications to faults: names and shares become nodes, lasting faults get their end.

use std::collections::BTreeSet;

use tidecast_swarm::Time;

use super::error::FaultError;
use super::spec::{Item, NodeFault, Selector, Spec, What};
use super::{Fault, Timed};
use crate::job::Job;
use crate::rng::Rng;
use crate::topology::{NodeId, Topology};

impl Spec {
    /// Adds the fault to a job. Shares and pieces that are not named are drawn by the job's seed.
    ///
    /// # Errors
    /// It names a node, switch, link or piece that the job does not have; the job is as it was.
    pub fn apply(&self, job: &mut Job) -> Result<(), FaultError> {
        let before = (job.faults.len() + job.joins.len()) as u64;
        let mut rng = Rng::new(job.seed ^ (before + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93));
        match &self.what {
            What::Reorder(by) => job.jitter = job.jitter.max(*by),
            What::Do(NodeFault::Join, who) => {
                let who = nodes(who, &job.topology, &mut rng)?;
                if who.contains(&NodeId(0)) {
                    return Err(FaultError::OriginJoins);
                }
                job.joins.extend(who.into_iter().map(|node| (Time(self.at), node)));
            }
            What::Link { a, b, rate } => {
                for link in links(a, b, &job.topology)? {
                    let end = self.lasting.map(|_| Fault::LinkHeal { link });
                    self.add(job, Fault::LinkRate { link, rate: rate / 8 }, end);
                }
            }
            What::Partition(groups) => {
                let groups: Result<Vec<_>, _> =
                    groups.iter().map(|g| nodes(g, &job.topology, &mut rng)).collect();
                for nodes in groups? {
                    let end = self.lasting.map(|_| Fault::Heal { nodes: nodes.clone() });
                    self.add(job, Fault::Partition { nodes }, end);
                }
            }
            What::Do(_, who)
            | What::Restart { who, .. }
            | What::Slow { who, .. }
            | What::Clock { who, .. }
            | What::Lost { who, .. } => {
                for node in nodes(who, &job.topology, &mut rng)? {
                    self.add_for_node(job, node, &mut rng)?;
                }
            }
        }
        Ok(())
    }

    /// The fault of one node.
    fn add_for_node(&self, job: &mut Job, node: NodeId, rng: &mut Rng) -> Result<(), FaultError> {
        let lasts = self.lasting.is_some();
        let (fault, end) = match self.what {
            What::Do(NodeFault::Freeze, _) => {
                (Fault::Freeze { node }, lasts.then_some(Fault::Resume { node }))
            }
            What::Do(verb, _) => (verb.fault(node), None),
            What::Restart { disk, .. } if lasts => {
                (Fault::Crash { node }, Some(Fault::Restart { node, disk }))
            }
            What::Restart { disk, .. } => (Fault::Restart { node, disk }, None),
            What::Slow { rate, .. } => {
                let own = job.topology.nodes.get(node.0 as usize).map_or(0, |n| n.rate / 8);
                let end = lasts.then_some(Fault::NodeRate { node, rate: own });
                (Fault::NodeRate { node, rate: rate / 8 }, end)
            }
            What::Clock { by, back: true, .. } => (Fault::ClockBack { node, by }, None),
            What::Clock { by, .. } => (Fault::ClockForward { node, by }, None),
            What::Lost { piece, .. } => {
                let count = u32::try_from(job.lengths.len()).unwrap_or(u32::MAX);
                let piece = piece.unwrap_or_else(|| rng.below(u64::from(count)) as u32);
                if piece >= count {
                    return Err(FaultError::NoPiece { piece, last: count.saturating_sub(1) });
                }
                (Fault::PieceLost { node, piece }, None)
            }
            // These name no node.
            What::Link { .. } | What::Partition(_) | What::Reorder(_) => return Ok(()),
        };
        self.add(job, fault, end);
        Ok(())
    }

    /// The fault at its begin, and the one that ends it.
    fn add(&self, job: &mut Job, fault: Fault, end: Option<Fault>) {
        job.faults.push(Timed { at: Time(self.at), fault });
        if let (Some(fault), Some(lasting)) = (end, self.lasting) {
            job.faults.push(Timed { at: Time(self.at.saturating_add(lasting)), fault });
        }
    }
}

impl NodeFault {
    fn fault(self, node: NodeId) -> Fault {
        match self {
            NodeFault::Crash => Fault::Crash { node },
            NodeFault::Die => Fault::Die { node },
            NodeFault::Freeze => Fault::Freeze { node },
            // A join is not a fault; `apply` has handled it.
            NodeFault::Leave | NodeFault::Join => Fault::Leave { node },
            NodeFault::DiskFull => Fault::DiskFull { node },
            NodeFault::Corrupt => Fault::Corrupt { node },
            NodeFault::Lie => Fault::Lie { node },
            NodeFault::Withhold => Fault::Withhold { node },
            NodeFault::Refuse => Fault::Refuse { node },
            NodeFault::Closed => Fault::Closed { node },
            NodeFault::Reset => Fault::Reset { node },
        }
    }
}

/// The selected nodes, in order, each once.
fn nodes(who: &Selector, topology: &Topology, rng: &mut Rng) -> Result<Vec<NodeId>, FaultError> {
    let count = u32::try_from(topology.nodes.len()).unwrap_or(u32::MAX);
    let items = match who {
        Selector::Share(ppm) => return Ok(share(*ppm, count, rng)),
        Selector::Named(items) => items,
    };
    let mut found = BTreeSet::new();
    for item in items {
        match item {
            Item::Nodes(range) if *range.end() >= count => {
                return Err(FaultError::NoNode { node: *range.end(), last: count.saturating_sub(1) });
            }
            Item::Nodes(range) => found.extend(range.clone().map(NodeId)),
            Item::Switch(name) => {
                let switch = switch(name, topology)?;
                let on = (0..count).zip(&topology.nodes).filter(|(_, n)| n.switch == switch);
                found.extend(on.map(|(n, _)| NodeId(n)));
            }
        }
    }
    Ok(found.into_iter().collect())
}

/// This many receivers in a million, rounded up.
fn share(ppm: u32, count: u32, rng: &mut Rng) -> Vec<NodeId> {
    let mut receivers: Vec<NodeId> = (1..count).map(NodeId).collect();
    let wanted = (receivers.len() as u64 * u64::from(ppm)).div_ceil(1_000_000) as usize;
    for i in 0..wanted {
        let other = i + rng.below((receivers.len() - i) as u64) as usize;
        receivers.swap(i, other);
    }
    receivers.truncate(wanted);
    receivers.sort_unstable();
    receivers
}

fn switch(name: &str, topology: &Topology) -> Result<u32, FaultError> {
    let found = (0_u32..).zip(&topology.switches).find(|(_, s)| *s == name);
    found.map(|(at, _)| at).ok_or_else(|| FaultError::NoSwitch {
        name: name.to_owned(),
        all: some(topology.switches.iter().cloned()),
    })
}

/// All links between two switches.
fn links(a: &str, b: &str, topology: &Topology) -> Result<Vec<u32>, FaultError> {
    let (from, to) = (switch(a, topology)?, switch(b, topology)?);
    let joins = |l: &crate::topology::Link| (l.a, l.b) == (from, to) || (l.a, l.b) == (to, from);
    let found: Vec<u32> =
        (0_u32..).zip(&topology.links).filter(|(_, l)| joins(l)).map(|(at, _)| at).collect();
    if found.is_empty() {
        let name = |s: u32| topology.switches.get(s as usize).map_or("?", String::as_str);
        let all = some(topology.links.iter().map(|l| format!("{}-{}", name(l.a), name(l.b))));
        return Err(FaultError::NoLink { a: a.to_owned(), b: b.to_owned(), all });
    }
    Ok(found)
}

/// The first names, for an error.
fn some(names: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN: usize = 20;
    let more = names.len().saturating_sub(SHOWN);
    let mut all: Vec<String> = names.take(SHOWN).collect();
    if more > 0 {
        all.push(format!("{more} more"));
    }
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::topology::{Link, Node};

    /// Two switches of 10 nodes each, 1 Gbit/s, one link.
    fn job(seed: u64) -> Job {
        let node = |switch| Node { switch, rate: 1_000_000_000 };
        let link =
            Link { a: 0, b: 1, rate: 8_000_000, delay: 0, loss: 0, dup: 0, reorder: 0, queue: 0, nat: false };
        let topology = Topology {
            switches: vec!["s0".into(), "s1".into()],
            nodes: (0..20).map(|n| node(n / 10)).collect(),
            links: vec![link],
        };
        Job { seed, ..Job::plain(topology, vec![16_384; 40]) }
    }

    fn applied(text: &str) -> Job {
        let mut job = job(7);
        text.parse::<Spec>().unwrap().apply(&mut job).unwrap();
        job
    }

    fn faults(text: &str) -> Vec<Timed> {
        applied(text).faults
    }

    const S: u64 = 1_000_000_000;

    #[test]
    fn what_lasts_ends() {
        let node = NodeId(3);
        let at = |s: u64, fault| Timed { at: Time(s * S), fault };
        assert_eq!(faults("freeze:3@1s+2s"), [at(1, Fault::Freeze { node }), at(3, Fault::Resume { node })]);
        let slow = [125_000, 125_000_000].map(|rate| Fault::NodeRate { node, rate });
        let [down, up] = slow;
        assert_eq!(faults("slow:3=1mbit@1s+2s"), [at(1, down), at(3, up)]);
        assert_eq!(
            faults("cut:s1-s0@1s+2s"),
            [at(1, Fault::LinkRate { link: 0, rate: 0 }), at(3, Fault::LinkHeal { link: 0 })]
        );
        assert_eq!(
            faults("restart:3,nodisk@1s+2s"),
            [at(1, Fault::Crash { node }), at(3, Fault::Restart { node, disk: false })]
        );
        assert_eq!(faults("restart:3@1s"), [at(1, Fault::Restart { node, disk: true })]);
        assert_eq!(faults("partition:0-4|s1@1s+2s").len(), 4);
    }

    #[test]
    fn a_share_is_drawn_by_the_seed_among_the_receivers() {
        let drawn = |seed, text: &str| {
            let mut job = job(seed);
            text.parse::<Spec>().unwrap().apply(&mut job).unwrap();
            job.faults.iter().filter_map(|t| t.fault.node()).collect::<Vec<_>>()
        };
        assert_eq!(drawn(1, "die:30%").len(), 6, "19 receivers, rounded up");
        assert_eq!(drawn(1, "die:0.01%").len(), 1);
        assert_eq!(drawn(1, "die:100%"), (1..20).map(NodeId).collect::<Vec<_>>());
        assert_eq!(drawn(1, "die:30%"), drawn(1, "die:30%"));
        assert!((2..20).any(|seed| drawn(seed, "die:30%") != drawn(1, "die:30%")));
        assert_eq!(drawn(1, "die:s1"), (10..20).map(NodeId).collect::<Vec<_>>());
        assert_eq!(drawn(1, "die:3,2-4").len(), 3, "each once");
    }

    #[test]
    fn what_is_no_fault_changes_the_job() {
        assert_eq!(applied("join:19@5s").joins, [(Time(5 * S), NodeId(19))]);
        assert_eq!(applied("reorder=5ms").jitter, 5_000_000);
    }

    #[test]
    fn what_the_cluster_has_not_is_refused_with_what_it_has() {
        let says = |text: &str, word: &str| {
            let mut job = job(7);
            let error = text.parse::<Spec>().unwrap().apply(&mut job).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
            assert!(job.faults.is_empty() && job.joins.is_empty());
        };
        says("crash:20", "0 (the origin) to 19");
        says("crash:0-4000000000", "0 (the origin) to 19");
        says("crash:rack9", "s0, s1");
        says("cut:s0-s0", "s0-s1");
        says("lost:3=40", "0 to 39");
        says("join:0-3@1s", "origin");
    }

    #[test]
    fn every_fault_has_a_name_of_its_own_for_the_tally() {
        let texts = ["crash:1", "die:1", "freeze:1@1s+1s", "restart:1", "restart:1,nodisk", "slow:1=1mbit"];
        let more =
            ["cut:s0-s1@1s+1s", "link:s0-s1=1mbit", "partition:s0@1s+1s", "corrupt:1", "lie:1", "withhold:1"];
        let rest = [
            "refuse:1",
            "closed:1",
            "reset:1",
            "clock:1+1s",
            "clock:1-1s",
            "diskfull:1",
            "leave:1",
            "lost:1",
        ];
        let all = texts.iter().chain(&more).chain(&rest).flat_map(|t| faults(t));
        let names: BTreeSet<&str> = all.map(|t| t.fault.kind()).collect();
        assert_eq!(names.len(), 23);
    }
}
