//! Network interfaces: their speed, slot, queues and counters.

use super::parse;
use crate::System;
use crate::netlink::{self, Card, Ethtool};

/// Most interfaces that are looked at, those with a device first: a host of containers has many without.
const MOST: usize = 256;
/// Most queues of an interface.
const QUEUES: usize = 1024;

/// One network interface.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Whether it can carry data now.
    pub up: bool,
    /// Whether a device is behind it: not a bridge, tunnel or veth.
    pub physical: bool,
    /// Bits per second; `None`: the driver does not say, as of most virtual ones.
    pub speed: Option<u64>,
    /// Bytes of its largest IP packet.
    pub mtu: Option<u32>,
    /// Name of its driver.
    pub driver: Option<String>,
    /// Version of its driver, where it has one of its own.
    pub driver_version: Option<String>,
    /// Its slot.
    pub slot: Option<Slot>,
    /// Receive queues, each with the CPUs that packets are spread over (RPS).
    pub receive_queues: Vec<Vec<u32>>,
    /// Send queues, each with the CPUs that use it (XPS).
    pub send_queues: Vec<Vec<u32>>,
    /// What it counted since it exists.
    pub counted: Counted,
    /// The queueing disciplines of its queues. `None`: the kernel does not say.
    pub qdiscs: Option<Vec<String>>,
    /// What ethtool shows. `None`: nothing.
    pub card: Option<Card>,
}

/// The PCI slot of an interface.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Slot {
    /// Its address: `0000:81:00.0`.
    pub address: String,
    /// Gigatransfers per second of a lane, now and at most.
    pub transfers: Option<(f64, f64)>,
    /// Lanes, now and at most.
    pub lanes: Option<(u32, u32)>,
    /// The NUMA node that it belongs to.
    pub node: Option<u32>,
    /// The CPUs near it.
    pub cpus: Vec<u32>,
    /// Its interrupts (MSI-X).
    pub interrupts: Vec<u32>,
}

/// Counters of an interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets received.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
    /// Received packets that were dropped for lack of room.
    pub receive_dropped: u64,
    /// Received packets that the card had no descriptor for.
    pub missed: u64,
    /// Packets to send that were dropped.
    pub send_dropped: u64,
    /// Damaged packets.
    pub errors: u64,
    /// Times that the link went down.
    pub carrier_lost: u64,
}

impl Interface {
    /// All but the loopback interface.
    pub(super) fn read_all(system: &System) -> Vec<Self> {
        let mut names = system.names("/sys/class/net");
        names.retain(|name| name != "lo");
        names.sort_by_cached_key(|name| !system.exists(&format!("/sys/class/net/{name}/device")));
        let names = names.into_iter().take(MOST);
        let mut found: Vec<Self> = names.filter_map(|name| Self::read(system, name)).collect();
        if system.is_host() {
            let qdiscs = netlink::qdiscs().ok();
            let ethtool = Ethtool::open().ok();
            for of in &mut found {
                of.qdiscs = qdiscs.as_ref().and_then(|all| all.get(&of.index)).cloned();
                of.card = ethtool.as_ref().map(|ethtool| ethtool.card(&of.name));
            }
        }
        found
    }

    fn read(system: &System, name: String) -> Option<Self> {
        let at = format!("/sys/class/net/{name}");
        let number = |file: &str| system.number::<i64>(&format!("{at}/{file}"));
        // A file such as bonding_masters is no interface.
        let mtu = number("mtu")?;
        let device = format!("{at}/device");
        let driver = system.link(&format!("{device}/driver"));
        let version = driver.as_ref().and_then(|name| system.text(&format!("/sys/module/{name}/version")));
        let queues = |kind: &str, file: &str| -> Vec<Vec<u32>> {
            let names =
                system.names(&format!("{at}/queues")).into_iter().filter(|name| name.starts_with(kind));
            let path = |name: &str| format!("{at}/queues/{name}/{file}");
            let read = |name: String| system.text(&path(&name)).and_then(|text| parse::mask(&text));
            names.take(QUEUES).map(|name| read(name).unwrap_or_default()).collect()
        };
        let state = system.text(&format!("{at}/operstate")).unwrap_or_default();
        Some(Self {
            up: state == "up" || (state == "unknown" && number("carrier") == Some(1)),
            physical: system.exists(&device),
            speed: number("speed").filter(|mbit| *mbit > 0).map(|mbit| mbit.unsigned_abs() * 1_000_000),
            index: number("ifindex").and_then(|index| u32::try_from(index).ok()).unwrap_or(0),
            mtu: u32::try_from(mtu).ok(),
            driver,
            driver_version: version,
            slot: Slot::read(system, &device),
            receive_queues: queues("rx-", "rps_cpus"),
            send_queues: queues("tx-", "xps_cpus"),
            counted: Counted::read(system, &at),
            qdiscs: None,
            card: None,
            name,
        })
    }
}

impl Slot {
    fn read(system: &System, device: &str) -> Option<Self> {
        let text = |file: &str| system.text(&format!("{device}/{file}"));
        let lanes = |file: &str| text(file)?.parse().ok().filter(|lanes| *lanes > 0);
        let transfers = |file: &str| parse::gigatransfers(&text(file)?);
        let interrupts = system.names(&format!("{device}/msi_irqs"));
        let slot = Self {
            address: system.link(device)?,
            transfers: transfers("current_link_speed").zip(transfers("max_link_speed")),
            lanes: lanes("current_link_width").zip(lanes("max_link_width")),
            node: text("numa_node").and_then(|node| node.parse().ok()),
            cpus: text("local_cpulist").and_then(|cpus| parse::list(&cpus)).unwrap_or_default(),
            interrupts: interrupts.iter().filter_map(|name| name.parse().ok()).take(QUEUES).collect(),
        };
        (slot.transfers.is_some() || slot.node.is_some() || !slot.interrupts.is_empty()).then_some(slot)
    }
}

impl Counted {
    fn read(system: &System, at: &str) -> Self {
        let of = |name: &str| system.number::<u64>(&format!("{at}/statistics/{name}")).unwrap_or(0);
        Self {
            received: of("rx_packets"),
            sent: of("tx_packets"),
            receive_dropped: of("rx_dropped"),
            missed: of("rx_missed_errors").saturating_add(of("rx_fifo_errors")),
            send_dropped: of("tx_dropped"),
            errors: of("rx_crc_errors").saturating_add(of("rx_frame_errors")).saturating_add(of("tx_errors")),
            carrier_lost: system.number(&format!("{at}/carrier_down_count")).unwrap_or(0),
        }
    }
}
