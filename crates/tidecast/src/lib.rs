//! Tidecast puts the same bytes on every node of a cluster, at the speed of the network card. This is its Rust API.
//!
//! A file or directory is described by a *manifest*, which is a standard .torrent file. A node that has the bytes
//! *seeds*; a node that wants them *gets*, and serves others meanwhile. Every piece is verified before it counts.
//!
//! | call | what it does |
//! |---|---|
//! | [`share()`] | describes a file or directory and serves it, privately; gives a [`Ticket`] for the other nodes |
//! | [`get()`] | fetches the data of a ticket, a magnet link or a manifest |
//! | [`publish()`] | makes the manifest alone |
//! | [`seed()`], [`seed_many`] | serve the data of manifests |
//! | [`serve_tracker`] | nodes find each other through it |
//! | [`open()`] | reads parts of it, which are fetched when they are read |
//! | [`mount()`], [`unmount`], [`mounts`] | show a tree as a file system whose files are fetched when they are opened |
//! | [`RunCommand`] | runs a command that sees a tree where it was built |
//! | [`doctor()`] | checks whether this host is fit for its network, and what each setting costs |
//! | [`verify()`] | compares files with their manifest |
//! | [`show()`], [`show_ticket`] | describe a manifest, a ticket |
//! | [`revoke()`] | makes a ticket worthless |
//! | [`broadcast`], [`worker`] | put the same bytes at the same path on many hosts |
//! | [`create_cache`], [`get_cache`], [`Caches`] | keep named data on this host, by its daemon |
//! | [`daemon::DaemonOptions`], [`daemon::OnDemand`] | the daemon itself; a daemon for a user without one |
//! | [`ca`] | a small site's certificate authority |
//! | [`memory`] | broadcasts from memory to memory |
//! | [`copy()`], [`serve_copies`] | copy any mix of files from host to host; serve a directory to copies |
//! | [`field::send()`], [`field::receive()`] | time steps of a 3-D field, into the shared memory of another host |
//! | [`sim::simulate`] | simulates a broadcast on a modelled cluster |
//! | [`log`] | a log for a program without its own |
//! | [`status`] | the status of this user's processes, as they report it |
//! | [`settings`] | settings of users for all programs: a file, and the environment |
//!
//! All have one shape: they take a subject and options (structs with defaults), and return an [`Operation`],
//! which has typed [events](Event), and methods to wait and to stop; async on any runtime, or blocking. A
//! failure is an [`Error`] whose [`Kind`] names the party that has to act, and which has the partial result.
//! ([`revoke()`], [`unmount`] and [`mounts`] return at once.)
//!
//! ```
//! use tidecast::{Event, GetOptions, ShareOptions, Source, SwarmOptions, get, share};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # std::env::set_current_dir(dir.path())?;
//! # std::fs::create_dir("genomes")?;
//! # std::fs::write("genomes/a.fa", "ACGT")?;
//! # let state_dir = Some(dir.path().join("state"));
//! // On one node:
//! let options = ShareOptions { swarm: SwarmOptions::loopback(), state_dir, ..Default::default() };
//! let sharing = share("genomes", options);
//! let ticket = sharing.ready_blocking()?.ticket.unwrap_or_default();
//!
//! // On the others:
//! # let state_dir = Some(dir.path().join("other"));
//! let options = GetOptions { swarm: SwarmOptions::loopback(), state_dir, ..Default::default() };
//! let mut getting = get(Source::read(&ticket)?, "scratch", options);
//! while let Some(event) = getting.next_blocking() {
//!     match event {
//!         Event::Progress(now) => println!("{} of {} bytes", now.bytes, now.total),
//!         Event::Warning(warning) => eprintln!("{}", warning.message),
//!         _ => {}
//!     }
//! }
//! let done = getting.wait_blocking()?;
//! assert_eq!(done.path, std::path::Path::new("scratch/genomes"));
//!
//! sharing.stop();
//! assert_eq!(sharing.wait_blocking()?.totals.sent, 4);
//! # Ok(())
//! # }
//! ```
//!
//! Sizes are in bytes and rates in bytes per second, unless a field states another unit. Events serialize to
//! the lines that the program prints with `--json`.

mod bcast;
pub mod ca;
mod caches;
mod copy;
pub mod daemon;
mod describe;
mod doctor;
mod feed;
pub mod field;
mod get;
mod given;
pub mod log;
mod mount;
mod open;
mod operation;
mod peers;
mod publish;
mod revoke;
mod seed;
pub mod settings;
mod share;
mod show;
pub mod sim;
mod state;
pub mod status;
mod tracker;
mod verify;

pub use bcast::{Broadcast, Worker, WorkerOptions, broadcast, worker};
pub use caches::{CreateCache, GetCache, GetCacheOptions, create_cache, get_cache, refusal};
pub use copy::{CopyServer, Copying, ServeCopiesOptions, copy, copy_to_memory, serve_copies};
pub use describe::TreeOptions;
pub use doctor::{Doctor, DoctorOptions, DoctorPurpose, DoctorWork, doctor};
pub use get::{Get, GetOptions, get};
pub use given::given_source;
pub use mount::{
    Mount, MountOptions, Program, Ran, RunCommand, RunOptions, ServeMount, UnmountOptions, find_mount, mount,
    serve_mount, unmount,
};
pub use open::{Closed, Entry, EntryKind, Fetching, Open, OpenOptions, Opened, ReadFrom, Reader, open};
pub use operation::Operation;
pub use peers::{Agent, DoctorPeers, PeersOptions, agent, doctor_peers, estimate_peers, peers_topology};
pub use publish::{Publish, PublishOptions, publish};
pub use revoke::{RevokeOptions, revoke};
pub use seed::many::{SeedMany, data_below, seed_many};
pub use seed::{Seed, SeedOptions, TicketOptions, seed};
pub use share::{ShareOptions, share};
pub use show::{manifest_lines, show, show_ticket, ticket_lines};
pub use state::default_state_dir;
pub use tracker::{TrackerServer, serve_tracker};
pub use verify::{Verify, VerifyOptions, verify};

/// A cache that is to be made.
pub use tidecast_daemon::api::types::Create as NewCache;
/// Limits of a daemon that an administrator changes.
pub use tidecast_daemon::api::types::Limit as DaemonLimits;
/// The caches of this host, by the socket of their daemon: to list, keep, share and remove them.
pub use tidecast_daemon::client::Client as Caches;
/// The error of [`Caches`] when the daemon refuses or fails.
pub use tidecast_daemon::client::ClientError as CachesError;
/// An administrator's orders to daemons, for [`Caches::order`] and [`Caches::order_site`].
pub use tidecast_daemon::client::admin::Order;
pub use tidecast_daemon::client::hand_out::Link;
pub use tidecast_daemon::name::CacheName;
/// The events and results of operations, each command in a module of its own.
pub use tidecast_event as event;
pub use tidecast_event::{Error, Event, Kind, PartialResult};
pub use tidecast_group::agents::AgentTicket;
/// The hosts of a list or of the job, with exclusions; the destination of a source on each.
pub use tidecast_group::choose::{choose as choose_hosts, destination as broadcast_destination};
/// The ticket that `tidecast bcast` passes to a worker, or `tidecast doctor --peers` to an agent.
pub use tidecast_group::launch::worker_ticket;
pub use tidecast_group::launch::{Handed, Launch, NoTicketReceived};
/// The data of a broadcast, its hosts, and its options.
pub use tidecast_group::{Algorithm as BroadcastAlgorithm, Options as BroadcastOptions};
pub use tidecast_group::{GroupTicket, hosts};
pub use tidecast_identity::Ticket;
/// Broadcasts from memory to memory: the same bytes into a buffer of every process of a group.
pub use tidecast_memory as memory;
pub use tidecast_metainfo::{Magnet, Manifest};
pub use tidecast_mount::{Mode, Mounted, Prefetch, ServeOptions, list_beside, mounts};
/// Cores by number, of a NUMA node, or next to a network card.
pub use tidecast_mover::Cpus;
/// A pattern of names that a copy leaves out, or takes.
pub use tidecast_mover::filter::Rule as CopyRule;
/// What to copy, from where to where, and how.
pub use tidecast_mover::session::{Consumer, Copy};
pub use tidecast_net::{Network, block_on};
pub use tidecast_node::{Policy, Source, SslFiles, Stopper, SwarmOptions};
pub use tidecast_publish::Format;
pub use tidecast_store::Durability;

/// The first event of a member of a swarm.
fn begun(
    command: &'static str,
    running: &tidecast_node::Running,
    ticket: Option<String>,
    open: bool,
) -> event::get::Started {
    event::get::Started {
        command,
        name: running.manifest.name().into_owned(),
        listen: running.swarm.listen_addrs().to_vec(),
        total: running.manifest.total_len(),
        magnet: tidecast_node::magnet(&running.manifest),
        ticket,
        manifest: None,
        open,
    }
}
