//! The hosts of a broadcast: which entries of the list are the same host, which are this host, and on which a worker runs.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use tidecast_net::own_addresses;

use super::Options;
use crate::control::message::Hello;
use crate::error::{Error, system};
use crate::hosts::Host;
use crate::hosts::roster::{Address, Addresses, Identity, Told, find, hosts};
use crate::launch::Launch;
use crate::resolve::resolve;
use crate::source_identity::boot;

/// The hosts of a broadcast, each once.
pub(crate) struct Roster {
    entries: Vec<(Host, Identity)>,
    /// Other names of each host in the list.
    pub(crate) aliases: Vec<Vec<String>>,
    machine: Option<String>,
}

impl Roster {
    /// Finds out which entries of the list are the same host. With a user's launch command, or with workers that are
    /// started by the caller, addresses do not identify hosts; if each name has its own path, each name is served.
    pub(super) async fn of(options: &Options) -> Result<Self, Error> {
        Self::find(&options.hosts, &options.launch, names_its_host(&options.dest)).await
    }

    /// As [`Roster::of`]; `each_name`: entries with the same address stay apart.
    pub(crate) async fn find(listed: &[Host], launch: &Launch, each_name: bool) -> Result<Self, Error> {
        let by_address = !matches!(launch, Launch::Template(_) | Launch::ByCaller);
        let own: Addresses = own_addresses()
            .map_err(system("list this host's networks"))?
            .into_iter()
            .map(Into::into)
            .collect();
        let names = listed.iter().map(|host| host.login().1.to_owned());
        let found = match by_address {
            true => resolve(names.collect()).await,
            false => names.map(|name| name.parse::<IpAddr>().into_iter().map(Into::into).collect()).collect(),
        };
        let identify = |(host, found): (&Host, &Addresses)| (host.clone(), Identity::of(host, found, &own));
        let entries: Vec<_> = listed.iter().zip(&found).map(identify).collect();
        let groups = match by_address && !each_name {
            true => hosts(&entries),
            false => (0..entries.len()).map(|place| vec![place]).collect(),
        };
        let aliases = groups.iter().map(|group| others(group, &entries)).collect();
        let firsts: BTreeSet<usize> = groups.iter().filter_map(|group| group.first().copied()).collect();
        let once = entries.into_iter().enumerate().filter(|(place, _)| firsts.contains(place));
        Ok(Self { entries: once.map(|(_, entry)| entry).collect(), aliases, machine: machine() })
    }

    /// Each host once.
    pub(crate) fn hosts(&self) -> Vec<Host> {
        self.entries.iter().map(|(host, _)| host.clone()).collect()
    }

    /// The hosts that are this machine, for this user. A host with a port may be a container.
    pub(crate) fn here(&self) -> BTreeSet<usize> {
        let here = |(host, identity): &(Host, Identity)| {
            *identity == Identity::Here && host.login().0.is_none() && host.port.is_none()
        };
        self.entries.iter().enumerate().filter(|(_, entry)| here(entry)).map(|(place, _)| place).collect()
    }

    /// The host on which a worker runs.
    pub(super) fn place(&self, hello: &Hello, free: impl Fn(usize) -> bool) -> Option<usize> {
        let addresses = hello.addresses.iter().map(|a| a.ip).collect();
        match &hello.host {
            Some(name) => self.named(name),
            None => self.told(
                hello.scheduled.as_deref(),
                &hello.hostname,
                addresses,
                hello.machine.as_deref(),
                free,
            ),
        }
    }

    /// The host of this name.
    pub(crate) fn named(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|(host, _)| host.name == name)
    }

    /// The host on which a process runs that was not given its name, by what the process reports of it.
    pub(crate) fn told(
        &self,
        scheduled: Option<&str>,
        hostname: &str,
        addresses: Vec<IpAddr>,
        machine: Option<&str>,
        free: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let told = Told {
            scheduled,
            hostname,
            addresses: addresses.into_iter().map(Address::from).collect(),
            here: machine.is_some() && self.machine.as_deref() == machine,
        };
        find(&self.entries, &told, free)
    }
}

/// The names in a group except the first.
fn others(group: &[usize], entries: &[(Host, Identity)]) -> Vec<String> {
    let names = group.iter().skip(1).filter_map(|place| entries.get(*place));
    names.map(|(host, _)| host.name.clone()).collect()
}

/// Whether each host has its own path.
fn names_its_host(dest: &Path) -> bool {
    dest.as_os_str().as_bytes().windows(b"{host}".len()).any(|word| word == b"{host}")
}

/// An identifier of this machine: the kernel's boot id, and the network namespace. Names in files of an image (host name,
/// machine id) would be the same on its clones.
pub(crate) fn machine() -> Option<String> {
    let boot = boot()?;
    let network = std::fs::read_link("/proc/self/ns/net").ok()?;
    Some(format!("{boot} {}", network.display()))
}

/// The error for a worker whose host is not in the list.
pub(super) fn stranger(hello: &Hello) -> String {
    let name = hello.scheduled.as_ref().unwrap_or(&hello.hostname);
    let addresses: Vec<IpAddr> = hello.addresses.iter().filter(|a| !a.loopback).map(|a| a.ip).collect();
    unlisted(name, &addresses)
}

/// The error for a host that is not in the list.
pub(crate) fn unlisted(name: &str, addresses: &[IpAddr]) -> String {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!(
        "no host of the list has an address of {name} ({}); give it as NAME=ADDRESS with --hosts",
        addresses.join(" ")
    )
}
