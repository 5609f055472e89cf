//! Network cards: speed, slot, packet size, queues, interrupts' pace, offloads, pause frames, drops and errors.

use tidecast_text::{Rate, count, grouped, quote};

use super::load::Load;
use super::words::{STREAMS_FAR, ms};
use crate::facts::{Card, Interface};
use crate::model::{self, Packet};
use crate::{Change, Facts, Finding, Goal};

const JUMBO: u32 = 9000;
/// From this rate on packets of 9000 bytes and the card's queues matter.
const FAST: u64 = 10_000_000_000;
/// An interrupt may wait so long for more packets, microseconds.
const WAIT: u32 = 8;
/// A share of packets lost from which on TCP slows down.
const LOSS: f64 = 1e-6;
const NIC: &str = "100 Gbit/s paper, section 6.3; fasterdata.es.net/host-tuning/linux";
const ETHTOOL: &str = "fasterdata.es.net/host-tuning/linux; ethtool(8)";
const BIOS: &str = "100 Gbit/s paper, sections 6 and 6.5 (the PCI bus was the limit)";

pub(super) fn check(facts: &Facts, goal: &Goal) -> Vec<Finding> {
    let mut found = Vec::new();
    // The link is that of the fastest interface: a slower one, such as for administration, is not expected to carry it.
    let fastest = facts.carriers().filter_map(|of| of.speed).max();
    found.extend(match fastest {
        Some(speed) => slow(facts, goal, speed),
        None => Some(unseen(facts, goal)),
    });
    for of in facts.carriers().filter(|of| of.speed == fastest || of.speed.is_none()) {
        let load = Load::of(facts, of);
        found.extend(slot(of, goal));
        found.extend(mtu(of, &load, goal));
        found.extend(counters(of, goal));
        if let Some(card) = &of.card {
            found.extend(settings(of, card, &load, goal));
        }
    }
    found
}

/// The speed of the fastest interface against the link asked for.
fn slow(facts: &Facts, goal: &Goal, speed: u64) -> Option<Finding> {
    let name = &facts.carriers().find(|of| of.speed == Some(speed))?.name;
    let (read, wanted) = (Rate(speed).to_string(), Rate(goal.link).to_string());
    let finding = Finding::new("nic-speed", name, read, wanted, BIOS)
        .because("no host sends faster than its card")
        .costs(
            model::share_lost(speed as f64, goal.link as f64),
            format!("{} of {}", Rate(speed), Rate(goal.link)),
        );
    Some(finding)
}

/// No interface reports a speed.
fn unseen(facts: &Facts, goal: &Goal) -> Finding {
    let why = match facts.carriers().next() {
        Some(_) => "no driver of an interface that is up reports a speed, as is usual in virtual machines",
        None => "no interface that is up can be seen here",
    };
    Finding::new("nic-speed", "", "", Rate(goal.link).to_string(), BIOS).unknown().because(why)
}

/// The PCIe slot.
fn slot(of: &Interface, goal: &Goal) -> Option<Finding> {
    let slot = of.slot.as_ref()?;
    let ((transfers, most), (lanes, most_lanes)) = (slot.transfers?, slot.lanes?);
    let wanted = of.speed.unwrap_or(goal.link).min(goal.link);
    let rate = model::pcie_rate(transfers, lanes);
    let read = format!("{transfers} GT/s x{lanes} (the card can {most} GT/s x{most_lanes})");
    let full = Rate(model::pcie_rate(most, most_lanes) as u64);
    let model = format!(
        "{transfers} GT/s x {} = {} of {}",
        count(lanes.into(), "lane"),
        Rate(rate as u64),
        Rate(wanted)
    );
    let command = format!(
        "# move card {} to a slot of {most} GT/s x{most_lanes}, or correct its speed in the BIOS",
        slot.address
    );
    let finding = Finding::new("pcie-slot", &of.name, read, format!("at least {}", Rate(wanted)), BIOS)
        .because(format!("the slot carries less than the card's {full} if it is slower or has fewer lanes"))
        .costs(model::share_lost(rate, wanted as f64), model)
        .mend([Change::Manual { command }]);
    Some(finding)
}

/// The packet size, by what its packets cost the cores that carry them.
fn mtu(of: &Interface, load: &Load, goal: &Goal) -> Option<Finding> {
    let mtu = of.mtu?;
    let finding = Finding::new("mtu", &of.name, mtu.to_string(), JUMBO.to_string(), NIC);
    if mtu >= JUMBO || goal.link < FAST {
        return Some(finding);
    }
    let (now, then) = (load.capacity(load.packet), load.capacity(Packet { mtu: JUMBO, ..load.packet }));
    let packets = |mtu| grouped(model::packet_rate(goal.link, mtu) as u64);
    let model = format!(
        "{} packets/s, {} {}; with 9000 bytes {} packets/s, {}",
        packets(mtu),
        load.carry(),
        Rate(now as u64),
        packets(JUMBO),
        Rate(then as u64)
    );
    let why = "each packet costs the same time of a core, so small packets make fewer bytes; the switches of the whole path must allow 9000";
    let lost = model::lost_between(now, then, goal.link);
    let mended = finding.costs(lost, model).because(why);
    let mended = if lost > 0.0 { mended } else { mended.note() };
    Some(mended.mend([Change::Mtu { interface: of.name.clone(), bytes: JUMBO }]))
}

/// What was dropped and damaged, which TCP takes for a full path.
fn counters(of: &Interface, goal: &Goal) -> Vec<Finding> {
    let counted = of.counted;
    let rtt = goal.longest_rtt();
    let one = |check, lost: u64, all: u64, what: &str, why: &'static str| {
        let share = lost as f64 / all.saturating_add(lost).max(1) as f64;
        let read = format!("{} of {} {what}", grouped(lost), grouped(all));
        let finding = Finding::new(check, &of.name, read, "0", ETHTOOL).because(why);
        if share <= LOSS {
            return finding;
        }
        let rate = model::mathis_rate(of.mtu.unwrap_or(1500), rtt, share) * f64::from(STREAMS_FAR);
        let model = format!(
            "a loss of {share:.1e} over {}: {} in {STREAMS_FAR} streams (Mathis)",
            ms(rtt),
            Rate(rate as u64)
        );
        finding.costs(model::share_lost(rate, goal.link as f64), model)
    };
    let ring =
        "the card had no free descriptor when a packet came: the ring is too small, or its core too busy";
    let cable = "damaged packets point to a cable, an optic or a switch port";
    let mut found = vec![
        one("nic-drops", counted.missed, counted.received, "received packets dropped by the card", ring),
        one(
            "nic-errors",
            counted.errors,
            counted.received.saturating_add(counted.sent),
            "packets damaged",
            cable,
        ),
    ];
    if let (Some(dropped), Some((now, most))) =
        (found.first_mut(), of.card.as_ref().and_then(|card| card.receive_ring))
    {
        let command = format!("ethtool -G {} rx {most}", quote(&of.name));
        *dropped = dropped.clone().mend((now < most).then_some(Change::Manual { command }));
    }
    found
}

/// What ethtool shows.
fn settings(of: &Interface, card: &Card, load: &Load, goal: &Goal) -> Vec<Finding> {
    let mut found = Vec::new();
    if goal.link < FAST {
        return found;
    }
    found.extend(card.receive_ring.map(|ring| rings(of, "nic-receive-ring", "rx", ring, goal)));
    found.extend(card.send_ring.map(|ring| rings(of, "nic-send-ring", "tx", ring, goal)));
    found.extend(channels(of, card, load, goal));
    found.extend(coalescing(of, card, load, goal));
    found.extend(offloads(of, card, load, goal));
    found.extend(card.pause.map(|pause| pauses(of, pause)));
    found
}

fn rings(of: &Interface, check: &'static str, word: &str, (now, most): (u32, u32), goal: &Goal) -> Finding {
    let read = format!("{now} descriptors");
    let finding = Finding::new(check, &of.name, read, format!("{most}, the most of this card"), ETHTOOL);
    // Virtual cards have no ring of their own that could overflow on the wire.
    if now >= most || !of.physical || of.slot.as_ref().is_none_or(|slot| slot.transfers.is_none()) {
        return finding;
    }
    let packets = model::packet_rate(goal.link, of.mtu.unwrap_or(1500));
    let time = f64::from(now) * load_queues(of) / packets * 1e6;
    let mut finding =
        finding.note().because("a burst that comes while the core is busy has to fit into the ring");
    finding.model = format!("at {} packets/s the rings are full after {time:.0} us", grouped(packets as u64));
    finding.mend([Change::Manual { command: format!("ethtool -G {} {word} {most}", quote(&of.name)) }])
}

fn load_queues(of: &Interface) -> f64 {
    of.receive_queues.len().max(1) as f64
}

fn channels(of: &Interface, card: &Card, load: &Load, goal: &Goal) -> Option<Finding> {
    let (now, most) = card.channels?;
    let wanted = (load.cpus).min(most);
    let read = count(now.into(), "queue");
    let finding =
        Finding::new("nic-queues", &of.name, read, wanted.to_string(), "kernel: networking/scaling.rst");
    if now >= wanted {
        return Some(finding);
    }
    let (here, there) = (load.capacity(load.packet), load.packet.core_rate() * f64::from(wanted));
    let model = format!("{} {}, {wanted} carry {}", load.carry(), Rate(here as u64), Rate(there as u64));
    let finding = finding
        .because("each queue is served by one core, so fewer queues than cores leave cores idle")
        .costs(model::lost_between(here, there, goal.link), model)
        .mend([Change::Manual { command: format!("ethtool -L {} combined {wanted}", quote(&of.name)) }]);
    Some(finding)
}

fn coalescing(of: &Interface, card: &Card, load: &Load, goal: &Goal) -> Option<Finding> {
    let wait = card.receive_wait?;
    let adaptive = card.adaptive.unwrap_or(false);
    let read = if adaptive { "adaptive".to_owned() } else { format!("an interrupt after {wait} us") };
    let finding = Finding::new("nic-coalescing", &of.name, read, "adaptive", NIC);
    let is_real = of.slot.as_ref().is_some_and(|slot| slot.transfers.is_some());
    if adaptive || wait >= WAIT || !is_real {
        return Some(finding);
    }
    let packets = model::packet_rate(goal.link, of.mtu.unwrap_or(1500)) / f64::from(load.cores);
    let each = (packets * f64::from(wait) * 1e-6)
        .max(1.0)
        .min(f64::from(card.receive_frames.filter(|n| *n > 0).unwrap_or(u32::MAX)));
    let (now, then) =
        (load.capacity(Packet { per_interrupt: each, ..load.packet }), load.capacity(load.packet));
    let model = format!(
        "{} interrupts/s a core, {each:.0} packets each: {} {} instead of {}",
        grouped((packets / each) as u64),
        load.carry(),
        Rate(now as u64),
        Rate(then as u64)
    );
    let lost = model::lost_between(now, then, goal.link);
    let finding =
        finding.because("an interrupt for each packet takes more time than the packet").costs(lost, model);
    let finding = if lost > 0.0 { finding } else { finding.note() };
    Some(finding.mend([Change::Manual {
        command: format!("ethtool -C {} adaptive-rx on adaptive-tx on", quote(&of.name)),
    }]))
}

/// Offloads that should be on: the kernel's name, ethtool's, and what a packet costs without it.
fn offloads(of: &Interface, card: &Card, load: &Load, goal: &Goal) -> Vec<Finding> {
    type Without = fn(Packet) -> Packet;
    let lone: Without = |packet| Packet { merged: false, ..packet };
    let summed: Without = |packet| Packet { checksums: false, ..packet };
    let all: [(&str, &str, &str, Without); 5] = [
        ("rx-gro", "gro", "received packets go through the stack one by one", lone),
        ("tx-tcp-segmentation", "tso", "packets to send go through the stack one by one", lone),
        ("tx-generic-segmentation", "gso", "packets to send go through the stack one by one", lone),
        ("rx-checksum", "rx", "the kernel computes checksums of received packets", summed),
        ("tx-checksum-ip-generic", "tx", "the kernel computes checksums of packets to send", summed),
    ];
    let is_on = |name: &str| card.active.iter().any(|known| known == name);
    let can = |name: &str| card.changeable.iter().any(|known| known == name);
    if card.active.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (name, short, why, without) in all {
        let finding = Finding::new("nic-offload", format!("{} {name}", of.name), "on", "on", ETHTOOL);
        if is_on(name) {
            found.push(finding);
        } else if can(name) {
            let (now, then) = (load.capacity(without(load.packet)), load.capacity(load.packet));
            let model = format!("{} {} instead of {}", load.carry(), Rate(now as u64), Rate(then as u64));
            let lost = model::lost_between(now, then, goal.link);
            let finding = Finding { read: "off".into(), ..finding }.because(why).costs(lost, model);
            let finding = if lost > 0.0 { finding } else { finding.note() };
            let command = format!("ethtool -K {} {short} on", quote(&of.name));
            found.push(finding.mend([Change::Manual { command }]));
        }
    }
    if is_on("rx-lro") {
        let command = format!("ethtool -K {} lro off", quote(&of.name));
        found.push(
            Finding::new("nic-offload", format!("{} rx-lro", of.name), "on", "off", ETHTOOL)
                .note()
                .because(
                    "LRO merges packets so that they cannot be taken apart again; GRO merges them and can",
                )
                .mend([Change::Manual { command }]),
        );
    }
    found
}

fn pauses(of: &Interface, (obeys, sends): (bool, bool)) -> Finding {
    let word = |on| if on { "on" } else { "off" };
    let read = format!("receive {}, send {}", word(obeys), word(sends));
    let finding = Finding::new("nic-pause", &of.name, read, "both on", ETHTOOL);
    if obeys && sends {
        return finding;
    }
    finding
        .note()
        .because("a switch port with small buffers drops packets that a pause frame would have delayed")
        .mend([Change::Manual { command: format!("ethtool -A {} rx on tx on", quote(&of.name)) }])
}
