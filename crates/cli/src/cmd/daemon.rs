//! `tidecast daemon`: keeps caches on this host, and replicates them between hosts.

mod serve;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;
use tidecast_daemon::api::types::Method;
use tidecast_daemon::{CatalogueAt, Config, Daemon, PORT, Serves};

use self::serve::Directory;
use super::Context;
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, object};
use crate::settings::daemon::Requirements;
use crate::settings::{Listen, Text};
use crate::stop::{Stop, block_on, hangups};
use tidecast_confine::Confinement;
use tidecast_text::{Size, Span};

const AFTER: &str = "\
Examples:
  # Alone: users of this host keep and share caches
  tidecast daemon

  # One of a site: believed by its CA, connected to the others
  tidecast daemon --trust /etc/tidecast/trust.toml \\
      --certificate /etc/tidecast/host.pem --peer head --peer node01

In the configuration file all of it stands in the table [daemon], and more:
  dir, listen, name, machine, peer (list), catalogue, trust,
  certificate, capacity, quota,
  quotas = { alice = \"2TB\" }, lease, lease_cap, methods = [\"swarm\", \"direct\"],
  requirements, owners (list), transfers, per_source,
  upload, download, disk_rate (bytes a second), cores = 2.0, memory = \"256MiB\",
  busy = 0.06 (the share of these while a job uses a cache), nice = 10,
  system = true (serve all users of the host, without being root),
  confine = true (to its own files, where the kernel has Landlock),
  on_demand = true (`tidecast cache` starts a daemon for a user who has none),
  local_discovery (true), dht (nodes of the site's own DHT to begin with),
  admins (hosts whose administrators it obeys; any of the site if there are none),
  serve, serve_listen = \":6870\", serve_read_only, serve_as = \"USER\", serve_as_root,
  serve_trust_metadata (a directory for `tidecast copy`; root must say as whom)

With --system, or run by root, it keeps caches for all users of the host, in /var/lib/tidecast; else for
the user who runs it, in ~/.local/state/tidecast/daemon. Everything is in that one directory, and survives a kill or a power
cut at any instant. Ctrl-C or SIGTERM ends it in good order.";

/// Keep caches on this host, and replicate them between hosts
///
/// Users reach it over a unix socket with `tidecast cache`, HTCondor jobs by `tidecast_plugin`; it knows from the
/// kernel who asks. Other daemons reach it over mutual TLS, and each decides for itself what it takes.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// Serve all users of this host, as an ordinary user such as tidecast; default: only if root runs it
    #[arg(long)]
    system: bool,
    /// Where everything is kept [default: /var/lib/tidecast with --system or for root]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where local users ask [default: /run/tidecast/daemon.sock with --system or for root]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Where other daemons connect [default: any address, port 6980, if there is someone to trust]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<Listen>,
    /// What this host is called by others: the origin of its caches [default: the host's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Another daemon: HOST[:PORT] or NAME=HOST[:PORT]; may be repeated
    #[arg(long, value_name = "HOST")]
    peer: Vec<String>,
    /// Where else others are found: condor, etcd://HOST:PORT[,HOST:PORT..] or file:/PATH (a peer a line)
    #[arg(long, value_name = "WHERE")]
    catalogue: Option<CatalogueAt>,
    /// Whom to believe (TOML; see docs/trust.md)
    #[arg(long, value_name = "FILE")]
    trust: Option<PathBuf>,
    /// This host's certificate and its key (PEM)
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Daemons share caches with those that say the same here, on one machine [default: the machine]
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
    /// End when nobody has asked for anything for so long and no job uses a cache
    #[arg(long, value_name = "DURATION")]
    idle: Option<Span>,
    /// Serve this directory to `tidecast copy` as well, as `tidecast copy-server` does: as the user who runs the daemon; root says
    /// as whom by serve_as or serve_as_root in the configuration
    #[arg(long, value_name = "DIR")]
    serve: Option<PathBuf>,
    /// Most that caches may occupy [default: what the file system has, less 1 GiB]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
}

/// The share of its caps that a daemon takes while a job uses a cache.
const BUSY: f64 = 0.06;
/// Bytes of blocks in memory.
const MEMORY: u64 = 256 << 20;
/// Others go first.
const NICE: i32 = 10;

/// Half of what there is.
fn usual_cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |all| all.get() as f64 / 2.0)
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let mut config = config(args, context)?;
    // Threads inherit it; so does the kernel's order of their reads and writes.
    let nice = context.settings.daemon.as_ref().and_then(|table| table.nice).unwrap_or(NICE);
    if let Err(error) = rustix::process::setpriority_process(None, nice) {
        config.without.push(format!("nice {nice} ({error})"));
    }
    if !config.without.is_empty() {
        reporter.note(&format!("runs without {}", config.without.join(", ")));
    }
    config.confined = confine(args, context, &config)?;
    block_on(context.threads(), async {
        let (stop, hangups) = (Stop::listen()?, hangups()?);
        let served = serve(args, context, &config.dir)?;
        let ready = |status: &tidecast_daemon::api::types::Status| {
            let listen: Vec<String> = status.addresses.iter().map(ToString::to_string).collect();
            let socket = config.socket.display();
            let others = if listen.is_empty() {
                "no other daemon can connect (there is nobody to trust)".into()
            } else {
                format!("other daemons connect to {}", listen.join(", "))
            };
            reporter.started(
                "daemon",
                object(json!({
                    "name": status.name, "node": status.node, "socket": config.socket, "listen": listen,
                    "caches": status.caches, "bytes": status.bytes, "capacity": status.capacity,
                    "serves": served.as_ref().map(Directory::url), "confined": config.confined,
                })),
            );
            reporter.result(&format!(
                "{}: {} caches, {} of {}; users ask at {socket}; {others}",
                status.name,
                status.caches,
                Size(status.bytes),
                Size(status.capacity)
            ));
            if let Some(url) = served.as_ref().map(Directory::url) {
                reporter.result(&format!("tidecast copy reaches its directory at {url}"));
            }
        };
        Daemon::run(config.clone(), ready, stop.wait(), hangups).await.context("the daemon cannot run")?;
        // For a daemon, being told to stop is the normal end.
        Ok(object(json!({})))
    })
}

/// The directory that is served to `tidecast copy`, if there is one. It is served as long as the answer lasts.
fn serve(args: &Args, context: &Context<'_>, dir: &Path) -> anyhow::Result<Option<Directory>> {
    let table = context.settings.daemon.clone().unwrap_or_default();
    let root = args.serve.clone().or(table.serve.clone());
    root.map(|root| Directory::start(root, table, dir)).transpose()
}

fn config(args: &Args, context: &Context<'_>) -> Result<Config, Failure> {
    let table = context.settings.daemon.clone().unwrap_or_default();
    let serves = if args.system || table.system || rustix::process::geteuid().is_root() {
        Serves::Everyone
    } else {
        Serves::Owner
    };
    let (name, user) = names(args.name.clone().or(table.name), serves)?;
    let trust = args.trust.clone().or(table.trust);
    let listen = args.listen.or(table.listen.map(|l| l.0));
    let listen =
        listen.map(|l| SocketAddr::new(l.ip.unwrap_or(ANY), if l.port == 0 { PORT } else { l.port }));
    let usual = tidecast_depot::Config::default();
    let size = |bytes: u64| tidecast_depot::Size { bytes, inodes: u64::MAX };
    let dir = match args.dir.clone().or(table.dir) {
        Some(dir) => dir,
        None if serves == Serves::Everyone => PathBuf::from("/var/lib/tidecast"),
        None => context.state_dir()?.join("daemon"),
    };
    Ok(Config {
        socket: args.socket.clone().unwrap_or_else(|| socket(context, &dir, serves)),
        dir,
        listen: listen.or(trust.is_some().then_some(SocketAddr::new(ANY, PORT))),
        name,
        user,
        serves,
        host_uid: host_uid(),
        machine: args.machine.clone().or(table.machine).unwrap_or_else(machine),
        peers: if args.peer.is_empty() { table.peer } else { args.peer.clone() },
        local_discovery: table.local_discovery.unwrap_or(true),
        dht: table.dht,
        admins: table.admins,
        catalogue: args.catalogue.clone().or(table.catalogue.map(|c| c.0)),
        trust,
        certificate: args.certificate.clone().or(table.certificate),
        depot: tidecast_depot::Config {
            max_bytes: args.capacity.or(table.capacity.map(|c| c.0)).map(|c| c.0),
            quota: table.quota.map(|q| size(q.0.0)),
            quotas: table.quotas.into_iter().map(|(owner, q)| (owner, size(q.0.0))).collect(),
            lease: table.lease.map_or(usual.lease, |l| l.0.0.as_secs()),
            lease_cap: table.lease_cap.map_or(usual.lease_cap, |l| l.0.0.as_secs()),
            ..usual
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
        idle: args.idle.map(|idle| idle.0),
        busy: table.busy.unwrap_or(BUSY).clamp(0.0, 1.0),
        confined: String::new(),
        without: Vec::new(),
        memory: table.memory.map_or(MEMORY, |memory| memory.0.0),
    })
}

/// Confines this process to its store, its socket and the files that its settings name. To be called before there are threads.
fn confine(args: &Args, context: &Context<'_>, config: &Config) -> Result<String, Failure> {
    let table = context.settings.daemon.clone().unwrap_or_default();
    let made =
        |dir: &Path| std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()));
    made(&config.dir)?;
    let socket = config.socket.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    made(socket)?;
    if !table.confine.unwrap_or(true) {
        return Ok("not confined: the settings say so".into());
    }
    if config.has_elder_with_links() {
        return Ok("not confined: takes links from another daemon of its user on this machine".into());
    }
    let mut confinement = Confinement::new().writes(&config.dir).writes(socket);
    for file in config.trust.iter().chain(&config.certificate) {
        confinement = confinement.reads_file(file);
    }
    for file in config.trust.iter().flat_map(|trust| named_in(trust)) {
        confinement = confinement.reads_file(&file);
    }
    confinement = match &config.catalogue {
        Some(CatalogueAt::Condor) => confinement.runs_programs(),
        Some(CatalogueAt::File(file)) => confinement.reads_file(file),
        Some(CatalogueAt::Etcd(_)) | None => confinement,
    };
    if let Some(root) = args.serve.as_ref().or(table.serve.as_ref()) {
        confinement = if table.serve_read_only { confinement.reads(root) } else { confinement.writes(root) };
        if table.serve_as.is_some() {
            confinement = confinement.runs_itself();
        }
    }
    Ok(confinement.apply())
}

/// Files with absolute paths that a file of trust names.
fn named_in(trust: &Path) -> Vec<PathBuf> {
    fn add(value: &toml::Value, paths: &mut Vec<PathBuf>) {
        match value {
            toml::Value::String(text) if text.starts_with('/') => paths.push(text.into()),
            toml::Value::Array(all) => all.iter().for_each(|value| add(value, paths)),
            toml::Value::Table(all) => all.values().for_each(|value| add(value, paths)),
            _ => {}
        }
    }
    let mut paths = Vec::new();
    // What is wrong with it is said by who reads it.
    let text = std::fs::read_to_string(trust).unwrap_or_default();
    if let Ok(table) = text.parse::<toml::Table>() {
        add(&toml::Value::Table(table), &mut paths);
    }
    paths
}

const ANY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

/// What the daemon is called, and whose it is: a user's daemon is USER.HOST.
fn names(name: Option<String>, serves: Serves) -> Result<(String, Option<String>), Failure> {
    let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let user = match serves {
        Serves::Everyone => None,
        Serves::Owner => Some(tidecast_daemon::user().context("cannot find out who you are")?),
    };
    let name = name.unwrap_or_else(|| match &user {
        Some(user) => tidecast_daemon::name::of_daemon(user, &host()),
        None => host(),
    });
    if tidecast_daemon::name::is_name(&name) {
        return Ok((name, user));
    }
    Err(Failure::usage(anyhow::anyhow!("{name:?} cannot be the name of a daemon: choose one by --name")))
}

/// Where the daemon of this user, or of the host, listens: as told, else the host's if it is there, else the user's.
fn socket(context: &Context<'_>, dir: &Path, serves: Serves) -> PathBuf {
    if let Some(path) = &context.settings.socket {
        return path.clone();
    }
    if serves == Serves::Everyone {
        return PathBuf::from(HOST_SOCKET);
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    runtime.map_or_else(|| dir.join("daemon.sock"), |dir| dir.join("tidecast/daemon.sock"))
}

/// Where users reach a daemon.
pub(crate) fn to_ask(context: &Context<'_>) -> Result<PathBuf, Failure> {
    let host = PathBuf::from(HOST_SOCKET);
    if context.settings.socket.is_none() && host.exists() {
        return Ok(host);
    }
    let serves = if rustix::process::geteuid().is_root() { Serves::Everyone } else { Serves::Owner };
    Ok(socket(context, &context.state_dir()?.join("daemon"), serves))
}

/// Where users reach a daemon; one of the user's own is started if there is none, unless the settings name another place or
/// say no. It ends by itself.
pub(crate) fn to_ask_or_start(context: &Context<'_>) -> Result<PathBuf, Failure> {
    let path = to_ask(context)?;
    let wanted = context.settings.daemon.as_ref().and_then(|table| table.on_demand).unwrap_or(true);
    let answers = || tidecast_daemon::socket::answers(&path);
    if !wanted || context.settings.socket.is_some() || rustix::process::geteuid().is_root() || answers() {
        return Ok(path);
    }
    let dir = context.state_dir()?.join("daemon");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let log = dir.join("daemon.log");
    let mut child = start(context, &log).with_context(|| "cannot start a daemon of your own")?;
    let mut until = std::time::Instant::now() + STARTS;
    let mut ended = false;
    while !answers() {
        let now = std::time::Instant::now();
        if now > until {
            let last = if ended { last_line(&log) } else { None };
            let why = last.map_or_else(|| "does not answer".into(), |line| format!("has ended: {line}"));
            let log = log.display();
            return Err(anyhow::anyhow!("the daemon that was started for you {why}; its log is {log}").into());
        }
        // One that was started at the same time may have been faster: then ours has ended, and that one answers.
        if !ended && matches!(child.try_wait(), Ok(Some(_))) {
            (ended, until) = (true, until.min(now + OTHER_STARTS));
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Ok(path)
}

/// The last line of a log, of its last 4 KiB.
fn last_line(log: &Path) -> Option<String> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = std::fs::File::open(log).ok()?;
    let from = file.metadata().ok()?.len().saturating_sub(4096);
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut tail = Vec::new();
    file.take(4096).read_to_end(&mut tail).ok()?;
    let line = tail.trim_ascii_end().rsplit(|b| *b == b'\n').next().filter(|line| !line.is_empty())?;
    Some(tidecast_text::escaped_bytes(line).to_string())
}

fn start(context: &Context<'_>, log: &Path) -> std::io::Result<std::process::Child> {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    let log = std::fs::File::options().create(true).append(true).open(log)?;
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(dir) = &context.global.state_dir {
        command.arg("--state-dir").arg(dir);
    }
    if let Some(file) = &context.global.config {
        command.arg("--config").arg(file);
    }
    command.args(["daemon", "--idle", IDLE]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // Not with this command when a terminal interrupts it.
    command.process_group(0).spawn()
}

/// A daemon that was started on demand answers within this time, and ends after so long without work.
const STARTS: std::time::Duration = std::time::Duration::from_secs(20);
/// When it has ended, another one that was started at the same time answers within this time.
const OTHER_STARTS: std::time::Duration = std::time::Duration::from_secs(2);
const IDLE: &str = "15m";

const HOST_SOCKET: &str = "/run/tidecast/daemon.sock";

/// Who runs the host's daemon: the owner of the directory of its socket, which only root can make.
fn host_uid() -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let dir = Path::new(HOST_SOCKET).parent()?;
    let (made, above) = (dir.symlink_metadata().ok()?, dir.parent()?.symlink_metadata().ok()?);
    let is_roots = above.is_dir() && above.uid() == 0 && above.mode() & 0o022 == 0;
    (is_roots && made.is_dir()).then(|| made.uid())
}

/// The same for all daemons of one machine, and no other.
fn machine() -> String {
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("{}-{}", id.trim(), boot.trim())
}
