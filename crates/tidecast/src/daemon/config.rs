//! How to keep caches: options, and the daemon's settings from these and the defaults.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidecast_daemon::api::types::Method;
use tidecast_daemon::site::SiteDir;
use tidecast_daemon::{Config, PORT, Serves};
use tidecast_event::{Context as _, Error};
use tidecast_identity::Identity;

use super::socket::{host_uid, serves, usual};
use crate::mount::Program;
use crate::settings::{Listen, Requirements, Table, Text};

/// The share of its caps that a daemon takes while a job uses a cache.
const BUSY: f64 = 0.06;
/// Bytes of blocks in memory.
const MEMORY: u64 = 256 << 20;
pub(super) const ANY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

/// How to keep caches; the default does so for the user who runs it, or for all users of the host if that is root.
#[derive(Debug, Clone, Default)]
pub struct DaemonOptions {
    /// Its settings in the configuration.
    pub table: Table,
    /// Where users ask. Default: [`socket`](super::socket()).
    pub socket: Option<PathBuf>,
    /// It ends after this time without a request, if no job uses a cache. Default: it does not end.
    pub idle: Option<Duration>,
    /// The program that serves a directory as another user (`serve_as`).
    pub program: Program,
    /// Where this node keeps its state; caches are below it unless the table names another directory, or all
    /// users are served. Default: [`default_state_dir`](crate::default_state_dir).
    pub state_dir: Option<PathBuf>,
    /// Threads. Default: one for each core.
    pub threads: Option<usize>,
}

/// Half of the available cores.
fn usual_cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |all| all.get() as f64 / 2.0)
}

pub(super) fn config(options: &DaemonOptions) -> Result<Config, Error> {
    let mut table = options.table.clone();
    let serves = serves(table.system);
    refuse_service(options)?;
    let dir = directory(&table, serves, options.state_dir.as_deref())?;
    add_site(&mut table, &dir)?;
    let (name, user) = names(table.name, serves)?;
    let listen = table.listen.map(|Text(listen)| address(listen));
    let usual_limits = tidecast_depot::Config::default();
    let size = |bytes: u64| tidecast_depot::Size { bytes, inodes: u64::MAX };
    Ok(Config {
        socket: options.socket.clone().unwrap_or_else(|| usual(&dir, serves)),
        dir,
        listen: listen.or(table.trust.is_some().then_some(SocketAddr::new(ANY, PORT))),
        name,
        user,
        serves,
        host_uid: host_uid(),
        machine: table.machine.unwrap_or_else(machine),
        peers: table.peer,
        local_discovery: table.local_discovery.unwrap_or(true),
        dht: table.dht,
        admins: table.admins,
        catalogue: table.catalogue.map(|catalogue| catalogue.0),
        trust: table.trust,
        certificate: table.certificate,
        depot: tidecast_depot::Config {
            max_bytes: table.capacity.map(|capacity| capacity.0.0),
            quota: table.quota.map(|q| size(q.0.0)),
            quotas: table.quotas.into_iter().map(|(owner, q)| (owner, size(q.0.0))).collect(),
            lease: table.lease.map_or(usual_limits.lease, |l| l.0.0.as_secs()),
            lease_cap: table.lease_cap.map_or(usual_limits.lease_cap, |l| l.0.0.as_secs()),
            ..usual_limits
        },
        methods: if table.methods.is_empty() { vec![Method::Swarm, Method::Direct] } else { table.methods },
        requirements: table.requirements.map(|Text(Requirements(text))| text),
        owners: table.owners,
        transfers: table.transfers.unwrap_or(4).max(1),
        per_source: table.per_source.unwrap_or(2).max(1),
        caps: tidecast_net::Caps {
            upload: table.upload.map(|rate| rate.0.0),
            download: table.download.map(|rate| rate.0.0),
            disk: table.disk_rate.map(|rate| rate.0.0),
            cores: Some(table.cores.unwrap_or_else(usual_cores)).filter(|cores| *cores > 0.0),
            spare_cache: false,
        },
        idle: options.idle,
        busy: table.busy.unwrap_or(BUSY).clamp(0.0, 1.0),
        confined: String::new(),
        without: Vec::new(),
        memory: table.memory.map_or(MEMORY, |memory| memory.0.0),
    })
}

/// Root cannot listen in the directory of the installed service, which is the service's user's.
fn refuse_service(options: &DaemonOptions) -> Result<(), Error> {
    let user = host_uid().filter(|user| *user != 0 && rustix::process::geteuid().is_root());
    let Some(user) = user.filter(|_| options.socket.is_none() && options.table.dir.is_none()) else {
        return Ok(());
    };
    let user = nix::unistd::User::from_uid(user.into()).ok().flatten().map_or(user.to_string(), |u| u.name);
    Err(Error::usage(format!(
        "the daemon of this host runs as the user {user}: start it with `systemctl start tidecast`, or without systemd \
         with `runuser -u {user} -- tidecast daemon --system`"
    )))
}

/// The address that a setting names; any address and the usual port where it leaves one out.
pub(super) fn address(listen: Listen) -> SocketAddr {
    SocketAddr::new(listen.ip.unwrap_or(ANY), if listen.port == 0 { PORT } else { listen.port })
}

/// Where the daemon keeps everything.
pub(super) fn directory(table: &Table, serves: Serves, state_dir: Option<&Path>) -> Result<PathBuf, Error> {
    Ok(match &table.dir {
        Some(dir) => dir.clone(),
        None if serves == Serves::Everyone => PathBuf::from("/var/lib/tidecast"),
        None => crate::state::named(state_dir)?.join("daemon"),
    })
}

/// The files that a host got when it joined a site (`tidecast daemon init`), unless the settings name others.
fn add_site(table: &mut Table, dir: &Path) -> Result<(), Error> {
    if table.trust.is_some() || table.certificate.is_some() {
        return Ok(());
    }
    let site = SiteDir::of(dir);
    let Some((identity, authority)) =
        site.joined().context("cannot use the site that this host has joined")?
    else {
        return Ok(());
    };
    (table.trust, table.certificate) = (Some(site.trust()), Some(site.certificate()));
    table.peer.extend(authority.map(|addr| addr.to_string()));
    if let (Identity::Host(host), None) = (identity, &table.name) {
        table.name = Some(host);
    }
    Ok(())
}

/// The name and the owner of the daemon: a user's daemon is USER.HOST.
pub(super) fn names(name: Option<String>, serves: Serves) -> Result<(String, Option<String>), Error> {
    let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let user = match serves {
        Serves::Everyone => None,
        Serves::Owner => Some(tidecast_daemon::user().context("cannot determine the name of the user")?),
    };
    let name = name.unwrap_or_else(|| match &user {
        Some(user) => tidecast_daemon::name::of_daemon(user, &host()),
        None => host(),
    });
    if tidecast_daemon::name::is_name(&name) {
        return Ok((name, user));
    }
    Err(Error::usage(format!("{name:?} is not a valid name of a daemon: choose one with --name")))
}

/// The same for all daemons of one machine, and no other.
fn machine() -> String {
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("{}-{}", id.trim(), boot.trim())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(table: Table) -> Result<Config, Error> {
        config(&DaemonOptions { table, state_dir: Some("/state".into()), ..DaemonOptions::default() })
    }

    #[test]
    fn what_the_table_leaves_out_is_usual() {
        let config = of(Table { system: true, ..Table::default() }).unwrap();
        assert_eq!((config.serves, config.user, config.listen), (Serves::Everyone, None, None));
        assert_eq!(config.dir, std::path::Path::new("/var/lib/tidecast"));
        assert_eq!((config.transfers, config.per_source, config.memory), (4, 2, MEMORY));
        assert_eq!(config.methods, [Method::Swarm, Method::Direct]);
    }

    #[test]
    fn who_trusts_others_listens_for_them() {
        let trust = Some(PathBuf::from("/trust.toml"));
        let any = SocketAddr::new(ANY, PORT);
        assert_eq!(of(Table { trust, ..Table::default() }).unwrap().listen, Some(any));
        let listen = Some(Text("10.0.0.1".parse().unwrap()));
        let config = of(Table { listen, ..Table::default() }).unwrap();
        assert_eq!(config.listen.map(|at| at.to_string()), Some(format!("10.0.0.1:{PORT}")));
    }

    #[test]
    fn a_name_that_no_daemon_can_have_is_a_mistake_of_the_caller() {
        let error = of(Table { name: Some("a/b".into()), ..Table::default() }).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Usage);
    }
}
