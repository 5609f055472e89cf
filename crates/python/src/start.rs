//! The functions that begin an operation. The Python package, their only caller, documents the arguments.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use tidecast::settings::Settings;
use tidecast::{
    BroadcastOptions, Copy, GetCacheOptions, GetOptions, Link, NewCache, PublishOptions, RevokeOptions,
    SeedOptions, ShareOptions, SwarmOptions, TicketOptions, TreeOptions, VerifyOptions,
};

use crate::operation::{Answer, Operation, answer};
use crate::swarm::Swarm;
use crate::{refused, settings, usage};

/// Seconds of Python.
fn time(seconds: f64, what: &str) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| usage(format!("{what}: {seconds} is not a number of seconds")))
}

pub(crate) fn times(seconds: Option<f64>, what: &str) -> PyResult<Option<Duration>> {
    seconds.map(|seconds| time(seconds, what)).transpose()
}

/// Where this node keeps its state.
pub(crate) fn place(settings: &Settings, named: Option<PathBuf>) -> PyResult<Option<PathBuf>> {
    settings.state_dir(named.as_deref()).map(Some).map_err(|error| usage(error.in_full()))
}

/// The attributes of `tidecast.Tree`.
#[derive(FromPyObject)]
pub(crate) struct Tree {
    name: Option<String>,
    piece_length: Option<u32>,
    exclude: Vec<String>,
    skip_outside_links: bool,
}

impl From<Tree> for TreeOptions {
    fn from(tree: Tree) -> Self {
        let Tree { name, piece_length, exclude, skip_outside_links } = tree;
        Self { name, piece_length, exclude, skip_outside_links, ..Self::default() }
    }
}

#[pyfunction]
pub(crate) fn publish(
    path: PathBuf,
    output: Option<PathBuf>,
    tree: Tree,
    private: bool,
    trackers: Vec<String>,
    web_seeds: Vec<String>,
    state_dir: Option<PathBuf>,
) -> PyResult<Operation> {
    let (tree, state_dir) = (tree.into(), place(&settings()?, state_dir)?);
    let options =
        PublishOptions { output, tree, private, trackers, web_seeds, state_dir, ..PublishOptions::default() };
    Ok(Operation::new(tidecast::publish(path, options)))
}

#[pyfunction]
pub(crate) fn share(
    path: PathBuf,
    tree: Tree,
    ticket: (Option<f64>, Option<u32>),
    swarm: Swarm,
    state_dir: Option<PathBuf>,
) -> PyResult<Operation> {
    let (ticket, swarm, state_dir) = serving(ticket, swarm, state_dir)?;
    let options = ShareOptions { tree: tree.into(), ticket, swarm, state_dir, ..ShareOptions::default() };
    Ok(Operation::new(tidecast::share(path, options)))
}

#[pyfunction]
pub(crate) fn seed(
    manifest: PathBuf,
    path: PathBuf,
    ticket: (Option<f64>, Option<u32>),
    swarm: Swarm,
    state_dir: Option<PathBuf>,
) -> PyResult<Operation> {
    let (ticket, swarm, state_dir) = serving(ticket, swarm, state_dir)?;
    let options = SeedOptions { ticket, swarm, state_dir, ..SeedOptions::default() };
    Ok(Operation::new(tidecast::seed(manifest, path, options)))
}

/// The common part of [`share`] and [`seed`].
fn serving(
    (expires, uses): (Option<f64>, Option<u32>),
    swarm: Swarm,
    state_dir: Option<PathBuf>,
) -> PyResult<(TicketOptions, SwarmOptions, Option<PathBuf>)> {
    let settings = settings()?;
    let ticket = TicketOptions { expires: times(expires, "expires")?, uses };
    Ok((ticket, swarm.options(&settings)?, place(&settings, state_dir)?))
}

#[pyfunction]
pub(crate) fn revoke(py: Python<'_>, ticket: &str, state_dir: Option<PathBuf>) -> PyResult<Answer> {
    let state_dir = place(&settings()?, state_dir)?;
    Ok(answer(py.detach(|| tidecast::revoke(ticket, RevokeOptions { state_dir }))))
}

/// The attributes of `tidecast._transfer.Fetch`; times in seconds.
#[derive(FromPyObject)]
pub(crate) struct Fetch {
    files: Vec<OsString>,
    seed_for: Option<f64>,
    timeout: Option<f64>,
    force: bool,
    delete: bool,
    base: Vec<PathBuf>,
}

#[pyfunction]
pub(crate) fn get(
    source: &str,
    to: PathBuf,
    fetch: Fetch,
    swarm: Swarm,
    state_dir: Option<PathBuf>,
) -> PyResult<Operation> {
    let settings = settings()?;
    let options = GetOptions {
        files: fetch.files,
        seed_for: times(fetch.seed_for, "seed_for")?,
        timeout: times(fetch.timeout, "timeout")?,
        force: fetch.force,
        delete: fetch.delete,
        base: fetch.base,
        swarm: swarm.options(&settings)?,
        state_dir: place(&settings, state_dir)?,
        ..GetOptions::default()
    };
    let source = tidecast::given_source(Some(source)).map_err(|error| refused(&error))?;
    Ok(Operation::new(tidecast::get(source, to, options)))
}

#[pyfunction]
pub(crate) fn verify(manifest: PathBuf, path: PathBuf) -> Operation {
    Operation::new(tidecast::verify(manifest, path, VerifyOptions::default()))
}

/// The attributes of `tidecast._transfer.Copying`; `limit` in bytes a second.
#[derive(FromPyObject)]
pub(crate) struct Copying {
    delete: bool,
    update: bool,
    checksum: bool,
    dry_run: bool,
    exclude: Vec<String>,
    key: Option<String>,
    plain: bool,
    streams: Option<usize>,
    limit: Option<u64>,
}

#[pyfunction]
pub(crate) fn copy(sources: Vec<OsString>, to: OsString, how: Copying) -> PyResult<Operation> {
    let mut job = Copy::new(&sources, &to).map_err(usage)?;
    for pattern in &how.exclude {
        for rules in [&mut job.send.filter, &mut job.receive.filter] {
            tidecast::CopyRule::add(rules, pattern.as_bytes(), false).map_err(usage)?;
        }
    }
    (job.send.checksum, job.receive.checksum) = (how.checksum, how.checksum);
    (job.receive.delete, job.receive.update) = (how.delete, how.update);
    job.receive.dry_run = how.dry_run;
    job.reach.plain = how.plain;
    job.reach.key =
        how.key.map(|key| key.parse()).transpose().map_err(|error| usage(format!("key: {error}")))?;
    (job.options.streams, job.options.rate) = (how.streams, how.limit);
    Ok(Operation::new(tidecast::copy(job)))
}

/// The attributes of `tidecast._transfer.Broadcast`.
#[derive(FromPyObject)]
pub(crate) struct Broadcasting {
    hosts: Option<String>,
    exclude: Option<String>,
    launch: String,
    program: String,
    plain: bool,
    durable: bool,
    force: bool,
    delete: bool,
    base: Vec<PathBuf>,
}

#[pyfunction]
pub(crate) fn broadcast(source: PathBuf, to: PathBuf, how: Broadcasting) -> PyResult<Operation> {
    let hosts = tidecast::choose_hosts(how.hosts.as_deref(), how.exclude.as_deref()).map_err(usage)?;
    let dest = tidecast::broadcast_destination(&to, &source).map_err(usage)?;
    let options = BroadcastOptions {
        launch: how.launch.parse().map_err(|error| usage(format!("launch: {error}")))?,
        program: how.program.into(),
        plain: how.plain,
        durable: how.durable,
        force: how.force,
        delete: how.delete,
        bases: how.base,
        ..BroadcastOptions::new(source, dest, hosts)
    };
    Ok(Operation::new(tidecast::broadcast(options)))
}

/// The attributes of `tidecast._caches.New`.
#[derive(FromPyObject)]
pub(crate) struct New {
    name: String,
    lease: Option<u64>,
    policy: Option<String>,
    requirements: Option<String>,
    private: bool,
    replicas: u32,
    mode: Option<u32>,
    group: Option<String>,
}

#[pyfunction]
pub(crate) fn create_cache(
    socket: PathBuf,
    paths: Vec<PathBuf>,
    new: New,
    wait: Option<f64>,
) -> PyResult<Operation> {
    let New { name, lease, policy, requirements, private, replicas, mode, group } = new;
    let new =
        NewCache { name, lease, policy, requirements, private, replicas, mode, group, ..NewCache::default() };
    Ok(Operation::new(tidecast::create_cache(socket, paths, new, times(wait, "wait")?)))
}

#[pyfunction]
pub(crate) fn get_cache(
    socket: PathBuf,
    name: &str,
    to: Option<PathBuf>,
    link: &str,
    force: bool,
    wait: Option<f64>,
    offline: bool,
) -> PyResult<Operation> {
    let options = GetCacheOptions {
        to,
        link: link_of(link)?,
        force,
        wait: times(wait, "wait")?,
        offline,
        pid: i32::try_from(std::process::id()).ok(),
        ..GetCacheOptions::default()
    };
    let name = name.parse().map_err(|error| usage(format!("{name:?}: {error}")))?;
    Ok(Operation::new(tidecast::get_cache(socket, name, options)))
}

fn link_of(word: &str) -> PyResult<Link> {
    Ok(match word {
        "symlink" => Link::Symlink,
        "hardlink" => Link::Hardlink,
        "reflink" => Link::Reflink,
        "bind" => Link::Bind,
        "copy" => Link::Copy,
        _ => return Err(usage(format!("link: {word:?}: write symlink, hardlink, reflink, bind or copy"))),
    })
}
