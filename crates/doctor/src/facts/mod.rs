//! What a host has, read once. A value that the host does not show is `None`.

mod cpus;
mod interfaces;
mod interrupts;
mod kernel;
mod limits;
mod memory;
pub mod parse;
mod ports;
mod sockets;
mod storage;

use std::path::PathBuf;

pub use cpus::Cpus;
pub use interfaces::{Counted, Interface, Slot};
pub use interrupts::{CardInterrupt, Interrupts};
pub use kernel::Kernel;
pub use limits::Limits;
pub use memory::Memory;
pub use ports::Ports;
pub use sockets::Sockets;
pub use storage::{Directory, Disk, Storage};

pub use crate::netlink::Card;

use crate::System;

/// All facts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// Parameters and counters of sockets.
    pub sockets: Sockets,
    /// Network interfaces without the loopback.
    pub interfaces: Vec<Interface>,
    /// Interrupts of network cards.
    pub interrupts: Interrupts,
    /// Processors.
    pub cpus: Cpus,
    /// Memory.
    pub memory: Memory,
    /// Limits of processes and users.
    pub limits: Limits,
    /// The kernel, and what it runs in.
    pub kernel: Kernel,
    /// File systems and directories.
    pub storage: Storage,
    /// Ports in use.
    pub ports: Ports,
    /// Whether this process is root's.
    pub root: bool,
}

impl Facts {
    /// Reads all; `dirs` are directories of stores and caches to look at.
    #[must_use]
    pub fn read(system: &System, dirs: &[PathBuf]) -> Self {
        let interfaces = Interface::read_all(system);
        // Large, and slow to make for the kernel: read once.
        let cpuinfo = system.text("/proc/cpuinfo").unwrap_or_default();
        Self {
            sockets: Sockets::read(system),
            interrupts: Interrupts::read(system, &interfaces),
            interfaces,
            cpus: Cpus::read(system, &cpuinfo),
            memory: Memory::read(system),
            limits: Limits::read(system),
            kernel: Kernel::read(system, &cpuinfo),
            storage: Storage::read(system, dirs),
            ports: Ports::read(system),
            root: rustix::process::geteuid().is_root(),
        }
    }

    /// Bits per second of the fastest interface that is up and says its speed.
    #[must_use]
    pub fn fastest_link(&self) -> Option<u64> {
        self.interfaces.iter().filter(|of| of.up).filter_map(|of| of.speed).max()
    }

    /// The interfaces that carry data to other hosts: those that are up and have a device, or all that are up if none has.
    pub fn carriers(&self) -> impl Iterator<Item = &Interface> {
        let any = self.interfaces.iter().any(|of| of.up && of.physical);
        self.interfaces.iter().filter(move |of| of.up && (of.physical || !any))
    }
}
