//! Which CPUs handle the interrupts of network cards, and what distributes them.

use super::interfaces::Interface;
use super::parse;
use crate::System;

/// Most processes whose name is looked at.
const PROCESSES: usize = 1 << 15;

/// The interrupts of network cards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// Those that carry packets.
    pub of_cards: Vec<CardInterrupt>,
    /// Whether irqbalance moves interrupts.
    pub balanced: bool,
    /// Whether the processes of this host can be seen, and so irqbalance.
    pub seen: bool,
}

/// One interrupt of a network card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CardInterrupt {
    /// The interface.
    pub interface: String,
    /// Its number.
    pub number: u32,
    /// The CPUs that may handle it.
    pub allowed: Vec<u32>,
    /// How often each CPU has handled it.
    pub counts: Vec<(u32, u64)>,
}

impl Interrupts {
    pub(super) fn read(system: &System, interfaces: &[Interface]) -> Self {
        let table = system.text("/proc/interrupts").unwrap_or_default();
        let (cpus, rows) = parse::interrupts(&table);
        let owner = |row: &parse::Interrupt| interfaces.iter().find(|of| is_of(row, of));
        let of_card = |row: &parse::Interrupt| {
            let interface = owner(row)?.name.clone();
            let at = format!("/proc/irq/{}", row.number);
            let list = |file: &str| system.text(&format!("{at}/{file}")).and_then(|text| parse::list(&text));
            let allowed = list("effective_affinity_list").filter(|cpus| !cpus.is_empty());
            let allowed = allowed.or_else(|| list("smp_affinity_list")).unwrap_or_default();
            let counts = cpus.iter().copied().zip(row.counts.iter().copied());
            Some(CardInterrupt { interface, number: row.number, allowed, counts: counts.collect() })
        };
        let (balanced, seen) = is_balanced(system);
        Self { of_cards: rows.iter().filter_map(of_card).collect(), balanced, seen }
    }
}

/// Whether an interrupt carries packets of this interface: drivers name it by interface, slot or device.
fn is_of(row: &parse::Interrupt, interface: &Interface) -> bool {
    // What a card tells about its link or its own state comes seldom, and counts no packet.
    let seldom = ["config", "async", "ctrl", "cmd", "mgmt", "event", "misc", "adminq"];
    if seldom.iter().any(|word| row.name.contains(word)) {
        return false;
    }
    let parts = || row.name.split(['-', '@', ':', '.', '_']);
    if parts().any(|part| part == interface.name) || row.name.contains(&format!("{}-", interface.name)) {
        return true;
    }
    let Some(slot) = &interface.slot else { return false };
    slot.interrupts.contains(&row.number)
        || (slot.address.len() > 4 && row.name.ends_with(&slot.address))
        || (slot.address.starts_with("virtio") && row.name.starts_with(&format!("{}-", slot.address)))
}

/// Whether irqbalance runs, and whether processes of the host are seen at all.
fn is_balanced(system: &System) -> (bool, bool) {
    let pids = system.names("/proc").into_iter().filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
    let mut seen = false;
    for pid in pids.take(PROCESSES) {
        match system.text(&format!("/proc/{pid}/comm")).as_deref() {
            Some("irqbalance") => return (true, true),
            // A kernel thread: these are processes of the host, not of a container.
            Some("kthreadd") => seen = true,
            _ => {}
        }
    }
    (false, seen)
}
