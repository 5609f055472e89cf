//! Which cores handle interrupts, and whether they, the process and its memory are near the card.

use std::collections::BTreeMap;

use tidecast_text::{Rate, count};

use super::load::Load;
use super::words::ranges;
use crate::facts::Interface;
use crate::model;
use crate::{Change, Facts, Finding, Goal};

const PAPER: &str =
    "100 Gbit/s paper, section 6.2; fasterdata.es.net/host-tuning/linux/100g-tuning/interrupt-binding";
const SCALING: &str = "kernel: networking/scaling.rst";
const FAST: u64 = 10_000_000_000;
/// Interrupts are told to be uneven only after so many.
const ENOUGH: u64 = 10_000;

pub(super) fn check(facts: &Facts, goal: &Goal) -> Vec<Finding> {
    let mut found = Vec::new();
    if goal.link < FAST {
        return found;
    }
    let fastest = facts.carriers().filter_map(|of| of.speed).max();
    for of in facts.carriers().filter(|of| of.speed == fastest || of.speed.is_none()) {
        let load = Load::of(facts, of);
        found.extend(distribution(facts, goal, of, &load));
        found.extend(near(facts, goal, of, &load));
        found.extend(spreading(facts, goal, of, &load));
        found.extend(sending(facts, of));
    }
    found.push(balancer(facts));
    found
}

/// Whether one core handles most interrupts of a card with several queues.
fn distribution(facts: &Facts, goal: &Goal, of: &Interface, load: &Load) -> Option<Finding> {
    let rows: Vec<_> = facts.interrupts.of_cards.iter().filter(|row| row.interface == of.name).collect();
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for (cpu, times) in rows.iter().flat_map(|row| &row.counts) {
        let sum = sums.entry(*cpu).or_default();
        *sum = sum.saturating_add(*times);
    }
    let all: u64 = sums.values().fold(0, |sum, times| sum.saturating_add(*times));
    let (busiest, most) = sums.iter().max_by_key(|(_, times)| **times)?;
    let share = *most as f64 / all.max(1) as f64;
    let mut allowed: Vec<u32> = rows.iter().flat_map(|row| row.allowed.iter().copied()).collect();
    allowed.sort_unstable();
    allowed.dedup();
    let read = format!(
        "{} on {}, {:.0}% on CPU {busiest}",
        count(rows.len() as u64, "interrupt"),
        cpus(&allowed),
        share * 100.0
    );
    let wanted = format!("spread over {}", load.cores());
    let finding = Finding::new("irq-distribution", &of.name, read, wanted, PAPER);
    let queues = of.receive_queues.len();
    // With two cores or few interrupts so far an even spread cannot be told.
    let alone = allowed.len() == 1 && queues > 1;
    if queues < 2 || !(alone || (all >= ENOUGH && share > 0.5 && queues > 2)) {
        return Some(finding);
    }
    let (now, then) = (load.packet.core_rate() / share.max(1.0 / queues as f64), load.capacity(load.packet));
    let now = if alone { load.packet.core_rate() } else { now };
    let model = format!(
        "CPU {busiest} has {:.0}% of the work: {} instead of {}",
        share * 100.0,
        Rate(now as u64),
        Rate(then as u64)
    );
    let lost = model::lost_between(now, then, goal.link);
    let finding = finding.because("no card receives more than its busiest core handles").costs(lost, model);
    let finding = if lost > 0.0 { finding } else { finding.note() };
    let near = near_cpus(facts, of);
    let changes = rows.iter().zip(near.iter().cycle()).map(|(row, cpu)| Change::Manual {
        command: format!("echo {cpu} > /proc/irq/{}/smp_affinity_list", row.number),
    });
    Some(finding.mend(changes))
}

/// The CPUs of the card's node, or all.
fn near_cpus(facts: &Facts, of: &Interface) -> Vec<u32> {
    let near = of.slot.as_ref().map(|slot| slot.cpus.clone()).filter(|cpus| !cpus.is_empty());
    near.unwrap_or_else(|| facts.cpus.online.clone())
}

/// Interrupts, process and memory against the node of the card.
fn near(facts: &Facts, goal: &Goal, of: &Interface, load: &Load) -> Vec<Finding> {
    let Some(node) = of.slot.as_ref().and_then(|slot| slot.node).filter(|_| facts.cpus.nodes.len() > 1)
    else {
        return Vec::new();
    };
    let is_near = |cpu: &u32| facts.cpus.node_of(*cpu) == Some(node);
    let rows = facts.interrupts.of_cards.iter().filter(|row| row.interface == of.name);
    let far = rows.clone().filter(|row| !row.allowed.is_empty() && !row.allowed.iter().any(is_near)).count();
    let (then, now) = (load.capacity(load.packet), load.capacity(load.packet) / model::PLACED);
    let lost = model::lost_between(now, then, goal.link);
    let model =
        format!("{} {} instead of {} (figure 15: 20%)", load.carry(), Rate(now as u64), Rate(then as u64));
    let judge = |finding: Finding, is_far: bool, why: &str| match (is_far, lost > 0.0) {
        (false, _) => finding,
        (true, true) => finding.costs(lost, model.clone()).because(why),
        (true, false) => Finding { model: model.clone(), ..finding.note() }.because(why),
    };
    let wanted = format!("on node {node}");
    let read = format!(
        "{far} of {} on another node than the card's",
        count(rows.clone().count() as u64, "interrupt")
    );
    let interrupts = Finding::new("irq-numa", &of.name, read, &wanted, PAPER);
    let interrupts =
        judge(interrupts, far > 0, "packets cross the link between the processors before they are looked at");
    let changes = rows.zip(near_cpus(facts, of).into_iter().cycle()).map(|(row, cpu)| Change::Manual {
        command: format!("echo {cpu} > /proc/irq/{}/smp_affinity_list", row.number),
    });
    let read = format!("may run on {}", cpus(&facts.cpus.allowed));
    let process = Finding::new("process-numa", &of.name, read, &wanted, PAPER);
    let is_far = !facts.cpus.allowed.is_empty() && !facts.cpus.allowed.iter().any(is_near);
    let why = "data is copied between the processors where interrupts and threads are on different nodes";
    let bind = format!("numactl --cpunodebind={node} --membind={node} tidecast ...");
    let process = judge(process, is_far, why).mend([Change::Manual { command: bind.clone() }]);
    let read = format!("memory of {}", nodes(&facts.cpus.memories));
    let memory = Finding::new("memory-numa", &of.name, read, wanted, PAPER);
    let is_far = !facts.cpus.memories.is_empty() && !facts.cpus.memories.contains(&node);
    let memory = judge(memory, is_far, "each byte crosses the link between the processors")
        .mend([Change::Manual { command: bind }]);
    vec![interrupts.mend(changes), process, memory]
}

/// A card with one queue, whose packets one core handles.
fn spreading(facts: &Facts, goal: &Goal, of: &Interface, load: &Load) -> Option<Finding> {
    let queues = of.receive_queues.len();
    let spread = of.receive_queues.iter().filter(|cpus| !cpus.is_empty()).count();
    let read = format!("{}, {spread} of them spread", count(queues as u64, "receive queue"));
    let finding = Finding::new("rps", &of.name, read, "one queue a core, or spread (RPS)", SCALING);
    if queues != 1 || spread > 0 || load.cpus < 2 {
        return (queues > 0).then_some(finding);
    }
    let (now, then) = (load.packet.core_rate(), load.packet.core_rate() * f64::from(load.cpus));
    let model = format!(
        "1 core carries {}, {} {}",
        Rate(now as u64),
        count(load.cpus.into(), "core"),
        Rate(then as u64)
    );
    let lost = model::lost_between(now, then, goal.link);
    let finding = finding.because("one core handles all packets of the only queue").costs(lost, model);
    let mask = mask(&facts.cpus.online);
    let path = format!("class/net/{}/queues/rx-0/rps_cpus", of.name);
    Some(finding.mend([Change::Sysfs { path, value: mask }]))
}

/// Which core uses which queue to send.
fn sending(facts: &Facts, of: &Interface) -> Option<Finding> {
    let queues = of.send_queues.len();
    let set = of.send_queues.iter().filter(|cpus| !cpus.is_empty()).count();
    let read = format!("{}, {set} of them with cores", count(queues as u64, "send queue"));
    let finding = Finding::new("xps", &of.name, read, "a set of cores for each queue (XPS)", SCALING);
    if queues < 2 || set > 0 || facts.cpus.nodes.len() < 2 {
        return (queues > 0).then_some(finding);
    }
    Some(
        finding
            .note()
            .because("cores of both nodes send by the same queues, and wait for each other's locks"),
    )
}

fn balancer(facts: &Facts) -> Finding {
    let finding = Finding::new("irqbalance", "", "does not run", "stopped once interrupts are bound", PAPER);
    if facts.interrupts.balanced {
        let why = "it moves interrupts away from cores that they were bound to; for 4 streams binding them brought TCP 20% and UDP 38%";
        let command = "systemctl disable --now irqbalance".to_owned();
        let finding = Finding { read: "runs".into(), ..finding }.note().because(why);
        return finding.mend([Change::Manual { command }]);
    }
    if !facts.interrupts.seen {
        return Finding { read: String::new(), ..finding }
            .unknown()
            .because("processes of the host cannot be seen from here");
    }
    finding
}

fn cpus(list: &[u32]) -> String {
    match list {
        [] => "no known CPU".to_owned(),
        [one] => format!("CPU {one}"),
        _ => format!("CPUs {}", ranges(list)),
    }
}

fn nodes(list: &[u32]) -> String {
    let names: Vec<String> = list.iter().map(u32::to_string).collect();
    format!("{} {}", if list.len() == 1 { "node" } else { "nodes" }, names.join(", "))
}

/// A set of CPUs as /sys takes it.
fn mask(cpus: &[u32]) -> String {
    let groups = cpus.iter().max().map_or(1, |most| most / 32 + 1);
    let bits = |group: u32| {
        cpus.iter().filter(|cpu| *cpu / 32 == group).fold(0u32, |bits, cpu| bits | 1 << (cpu % 32))
    };
    let words: Vec<String> = (0..groups).rev().map(|group| format!("{:08x}", bits(group))).collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_written_as_they_are_read() {
        let all: Vec<u32> = (0..40).collect();
        assert_eq!(crate::facts::parse::mask(&mask(&all)), Some(all.clone()));
        // As the kernel prints it, so that what is read back is the same.
        assert_eq!(mask(&[0, 32]), "00000001,00000001");
        assert_eq!(cpus(&all), "CPUs 0-39");
        assert_eq!(cpus(&[3]), "CPU 3");
    }
}
