//! The server of a tree: takes part in its swarm, and answers the kernel for all mounts of it on this host.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tidecast_event::Stage;
use tidecast_metainfo::Manifest;
use tidecast_mount::{Answer, Arrivals, Ask, Before, Fallback, Held, Keep, Options, Packets, Service};
use tidecast_net::{Demand, Notice, Progress};
use tidecast_node::{Choices, Origin, Part, Rates, Running, Source, Teller, about_peer, progress, right};
use tidecast_store::{DownloadOptions, Durability, Opened, Store};
use tidecast_text::Size;
use tokio::sync::{mpsc, watch};

use super::super::Context;
use super::super::source::{self, Given};
use super::keeper::RESTART;
use super::{Home, TreeArgs, ahead};
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, object, round};
use crate::stop::{Stop, block_on, hangups};
use tidecast_secret as secret;

/// A read waits for its data at most so long, unless the user says otherwise.
const TIMEOUT: Duration = Duration::from_secs(600);
/// A server that nobody gives a mount ends.
const LONELY: Duration = Duration::from_secs(30);
/// A group has so long to be given its plan before files are opened.
const GATHERING: Duration = Duration::from_secs(2);
/// Who connects to the server says what for within this.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a cache that another server is leaving is looked at.
const MOMENT: Duration = Duration::from_millis(20);
/// How often troubles of trackers and the like are looked for.
const LOOK: Duration = Duration::from_millis(500);

/// What ends a server, or may.
enum Event {
    /// This mount is gone.
    Gone(u32),
    /// Somebody who was to bring a mount has brought it, or will not.
    Left,
    /// It was asked to end.
    Stop,
    /// It was asked to end in favour of a new one.
    Restart,
}

pub(crate) fn run(
    named: Option<&str>,
    args: &TreeArgs,
    context: &Context<'_>,
    reporter: &mut Reporter,
) -> Outcome {
    // Its other end is the keeper's.
    let keeper = std::io::stdin().as_fd().try_clone_to_owned().context("the keeper is not there")?;
    let keeper = Arc::new(Packets::inherited(keeper));
    let choices = Choices::new(&args.swarm.options(context)?)?;
    reporter.go_live("mount");
    let source = match secret::inherited()? {
        Some(ticket) => Given::Text(ticket).parse()?,
        None => source::read(named)?,
    };
    let home = Home::of(&source, args, context)?;
    block_on(context.threads(), async {
        let stop = Stop::listen()?;
        let _hangups = hangups()?;
        let (mut running, service, told) =
            begin(args, source, context, &choices, &home, &stop, reporter).await?;
        ahead::begin(named, args, &service, reporter)?;
        let (events, mut heard) = mpsc::channel(64);
        let mounts = Arc::new(Mounts {
            service: service.clone(),
            keeper,
            demand: running.swarm.demand(),
            progress: running.swarm.progress(),
            told,
            began: Instant::now(),
            table: Mutex::default(),
            events,
        });
        mounts.clone().take_over()?;
        let (listener, bound) = Packets::listen(&home.socket())
            .with_context(|| format!("cannot listen at {}", home.socket().display()))?;
        spawn("control", {
            let mounts = mounts.clone();
            move || mounts.listen(&listener)
        })?;
        reporter.started("serving", object(json!({})));
        reporter.about(&object(json!({ "name": running.manifest.name() })));
        let null = OwnedFd::from(std::fs::File::options().write(true).open("/dev/null")?);
        rustix::stdio::dup2_stdout(&null).context("cannot leave standard output")?;
        let end = until_the_end(&mounts, &mut running, &mut heard, &stop, reporter).await;
        if let Some(path) = &args.record {
            save(&service, path);
        }
        if !matches!(end, Event::Restart) {
            // First of all, so that who mounts anew starts a new server.
            bound.remove();
            service.stop();
        }
        running.stop().await?;
        if matches!(end, Event::Restart) {
            std::process::exit(i32::from(RESTART));
        }
        Ok(object(json!({})))
    })
}

/// The swarm, and the service over it.
async fn begin(
    args: &TreeArgs,
    source: Source,
    context: &Context<'_>,
    choices: &Choices,
    home: &Home,
    stop: &Stop,
    reporter: &mut Reporter,
) -> Result<(Running, Arc<Service>, Vec<SocketAddr>), Failure> {
    let timeout = args.timeout.or(context.settings.timeout).map_or(TIMEOUT, |t| t.0);
    let state_dir = context.own_state_dir()?;
    let (security, again) = (right::of_source(&source, &state_dir)?, right::of_source(&source, &state_dir)?);
    let (with_ticket, plain) = (source.private_ticket().is_some(), choices.plain || source.is_plain());
    let teller = Teller::new(&*reporter);
    let kept = if matches!(source, Source::File(_)) { None } else { home.manifest() };
    let Origin { manifest, peers, finders } = match kept {
        Some(manifest) => source.with(manifest, choices, &teller).await?,
        None => {
            let origin =
                source.manifest(choices, Arc::new(security), Some(timeout), &stop.shared(), &teller).await?;
            home.keep(&origin.manifest)?;
            origin
        }
    };
    let security = if with_ticket {
        again
    } else {
        right::of_manifest(&manifest, choices.ssl.as_ref(), plain, &state_dir)?
    };
    let manifest = Arc::new(manifest);
    let opened = cache(&manifest, &home.data(&manifest)?).await?;
    let arrivals = Arrivals::default();
    let group = args.group && has_room(&opened, reporter);
    let mut running = Running::start(opened, security, choices, Part::OnDemand(arrivals.hook(), group))?;
    let alone = running.swarm.progress();
    let fallback = args
        .fallback
        .as_ref()
        .map(|dir| Fallback { dir: dir.clone(), alone: Box::new(move || alone.borrow().peers == 0) });
    let connected = running.swarm.progress();
    let options = Options {
        timeout,
        connected: Box::new(move || connected.borrow().peers),
        fallback,
        bulk: args.mode == "bulk",
        record: args.record.is_some(),
        owner: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
    };
    let (store, demand) = (running.swarm.store().clone(), running.swarm.demand());
    let service =
        tokio::task::spawn_blocking(move || Service::start(store, demand, &arrivals, options)).await;
    let service = service.context("a thread of Tidecast failed")??;
    let service = Arc::new(service);
    let told = peers.iter().flatten().copied().collect();
    for peer in peers {
        running.swarm.add_peer(peer, true).await;
    }
    running.go_on_finding(finders, choices, &teller).await;
    if group {
        // What is wanted before would be asked of the origin by each node for itself.
        let mut progress = running.swarm.progress();
        let _ = tokio::time::timeout(GATHERING, progress.wait_for(|now| now.planned)).await;
    }
    Ok((running, service, told))
}

/// What is here of the tree; the server before this one may need a moment to leave it.
async fn cache(manifest: &Arc<Manifest>, at: &Path) -> Result<Opened, Failure> {
    let until = Instant::now() + PATIENCE;
    loop {
        let options = DownloadOptions { durability: Durability::None, on_demand: true, ..Default::default() };
        match open(manifest.clone(), at.to_owned(), options).await {
            Err(failure) if Instant::now() < until && is_busy(&failure) => tokio::time::sleep(MOMENT).await,
            opened => return opened,
        }
    }
}

async fn open(manifest: Arc<Manifest>, at: PathBuf, options: DownloadOptions) -> Result<Opened, Failure> {
    let open = tokio::task::spawn_blocking(move || Store::download(manifest, &at, &options)).await;
    Ok(open.context("a thread of Tidecast failed")??)
}

fn is_busy(failure: &Failure) -> bool {
    matches!(failure.error.downcast_ref(), Some(tidecast_store::Error::Busy { .. }))
}

/// Whether all that the others may open fits into the cache: a plan brings it, wanted here or not, and would leave no
/// room for what is.
fn has_room(opened: &Opened, reporter: &Reporter) -> bool {
    let manifest = opened.store.manifest();
    let here = opened.have.iter().chain(&opened.to_check).flat_map(|pieces| pieces.clone());
    let here: u64 = here.map(|piece| u64::from(manifest.piece_len(piece))).sum();
    let missing = manifest.total_len().saturating_sub(here);
    let path = opened.store.path();
    let dir = path.ancestors().find(|dir| dir.is_dir()).unwrap_or(&path);
    let free = rustix::fs::statvfs(dir).map_or(u64::MAX, |of| of.f_bavail.saturating_mul(of.f_frsize));
    if missing > free {
        reporter.warning(&format!(
            "the cache has room for {} and not for all {} that the others may open: this node goes without --group, \
             and fetches only what it opens itself",
            Size(free),
            Size(missing)
        ));
    }
    missing <= free
}

/// Until nothing is mounted any more, or somebody ends it.
async fn until_the_end(
    mounts: &Arc<Mounts>,
    running: &mut Running,
    heard: &mut mpsc::Receiver<Event>,
    stop: &Stop,
    reporter: &Reporter,
) -> Event {
    let (teller, mut rates) = (Teller::new(reporter), Rates::default());
    let lonely = tokio::time::sleep(LONELY);
    tokio::pin!(lonely);
    loop {
        tokio::select! {
            event = heard.recv() => match event {
                Some(Event::Gone(number)) => if mounts.gone(number) { return Event::Stop },
                Some(Event::Left) => if mounts.close(true) { return Event::Stop },
                Some(end) => {
                    mounts.close(false);
                    return end;
                }
                None => return Event::Stop,
            },
            notice = running.notice() => {
                // Of addresses that do not answer, only where no other does.
                let vain = matches!(notice, Notice::Unreachable { .. }) && running.swarm.progress().borrow().peers > 0;
                if let Some(why) = about_peer(&notice).filter(|_| !vain) {
                    mounts.service.heard_of_peer(why);
                }
                if let Some(error) = running.tell(notice, &teller) {
                    let cache = running.swarm.store().path();
                    mounts.service.fail_all(format!("the cache {} does not take data: {error}", cache.display()));
                    running.warn(format!("{error}; reads are tried again"), &teller);
                }
            }
            () = stop.wait() => {
                mounts.close(false);
                mounts.unmount_all();
                return Event::Stop;
            }
            () = &mut lonely, if !lonely.is_elapsed() => if mounts.close(true) { return Event::Stop },
            () = tokio::time::sleep(LOOK) => {
                let now = running.swarm.progress().borrow().clone();
                let mut now = progress(Stage::Mount, &now);
                rates.note(Instant::now(), &mut now);
                reporter.publish(&now);
                running.tell_troubles(&teller);
            }
        }
    }
}

fn save(service: &Service, path: &Path) {
    let manifest = service.tree().manifest().hash_v2().map(|hash| data_encoding::HEXLOWER.encode(&hash));
    match service.save_record(path, manifest.unwrap_or_default()) {
        Ok(0) => tracing::info!(path = %path.display(), "what was read is written down"),
        Ok(left_out) => {
            tracing::warn!(path = %path.display(), left_out, "more was read than a list may hold");
        }
        Err(error) => tracing::error!(path = %path.display(), %error, "what was read cannot be written down"),
    }
}

pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).context("cannot start a thread")?;
    Ok(())
}

/// A mount that is served here.
struct Mounted {
    at: PathBuf,
    /// Its directory, if that was made for it.
    held: Option<Held>,
}

impl Mounted {
    fn new(at: PathBuf, made: bool) -> Self {
        // Where this process sees a mount of its own, looking at it would wait for itself.
        let made = made && tidecast_mount::mounted_at(&at).is_none();
        let held = made.then(|| Held::find(&at).ok().flatten()).flatten();
        Self { at, held }
    }
}

#[derive(Default)]
struct Table {
    next: u32,
    devices: BTreeMap<u32, Mounted>,
    /// How many are about to bring one.
    expected: usize,
    /// This process ends: no more of them.
    closed: bool,
}

/// Somebody who is about to bring a mount, for whom the server stays.
struct Guest<'a>(&'a Mounts);

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.0.table.lock().expected -= 1;
        let _ = self.0.events.blocking_send(Event::Left);
    }
}

/// The mounts that this process serves, and who asks about them.
struct Mounts {
    service: Arc<Service>,
    keeper: Arc<Packets>,
    demand: Demand,
    progress: watch::Receiver<Progress>,
    /// Addresses that the ticket or the user named: the origin's.
    told: Vec<SocketAddr>,
    began: Instant,
    table: Mutex<Table>,
    events: mpsc::Sender<Event>,
}

impl Mounts {
    /// Goes on with the mounts that the keeper has kept.
    fn take_over(self: Arc<Self>) -> Result<(), Failure> {
        let mut backings = BTreeMap::<u32, Vec<(u64, u32)>>::new();
        let mut opens = BTreeMap::<u32, OwnedFd>::new();
        loop {
            let (message, fd) = self.keeper.receive::<Keep>(Some(PATIENCE)).context("the keeper is gone")?;
            match (message, fd) {
                (Keep::Device { number, at, made }, Some(device)) => {
                    let mounted = Mounted::new(at, made);
                    let mut table = self.table.lock();
                    table.next = table.next.max(number + 1);
                    table.devices.insert(number, mounted);
                    drop(table);
                    let before = Before { backings: backings.remove(&number).unwrap_or_default() };
                    let opens = opens.remove(&number).context("the keeper does not know what is open")?;
                    self.clone().serve(number, device, Some(before), opens)?;
                }
                (Keep::Opens { number }, Some(fd)) => drop(opens.insert(number, fd)),
                (Keep::Backing { number, ino, id }, _) => backings.entry(number).or_default().push((ino, id)),
                (Keep::Begin, _) => return Ok(()),
                _ => return Err(anyhow!("the keeper speaks of something else").into()),
            }
        }
    }

    /// Serves a mount; `before`: as another process has left it, if one has.
    fn serve(
        self: Arc<Self>,
        number: u32,
        device: OwnedFd,
        before: Option<Before>,
        opens: OwnedFd,
    ) -> Result<(), Failure> {
        spawn(&format!("mount-{number}"), move || {
            let keeper = self.keeper.clone();
            let tell = move |ino, id| {
                let _ = keeper.send(&Keep::Backing { number, ino, id }, None);
            };
            if let Err(error) = self.service.serve(device, before, opens, Box::new(tell)) {
                tracing::error!(%error, "a mount has ended");
            }
            let _ = self.events.blocking_send(Event::Gone(number));
        })
    }

    /// A mount is gone; whether it was the last.
    fn gone(&self, number: u32) -> bool {
        let _ = self.keeper.send(&Keep::Gone { number }, None);
        let mounted = self.table.lock().devices.remove(&number);
        if let Some(held) = mounted.and_then(|mounted| mounted.held) {
            held.release().tidy();
        }
        self.close(true)
    }

    /// Takes no more mounts; `idle`: only if there are none and none is about to come. Whether it is so now.
    fn close(&self, idle: bool) -> bool {
        let mut table = self.table.lock();
        table.closed |= !idle || (table.devices.is_empty() && table.expected == 0);
        table.closed
    }

    /// Stays for somebody, unless this process ends.
    fn expect(&self) -> Option<Guest<'_>> {
        let mut table = self.table.lock();
        table.expected += usize::from(!table.closed);
        (!table.closed).then_some(Guest(self))
    }

    fn unmount_all(&self) {
        let all: Vec<PathBuf> = self.table.lock().devices.values().map(|m| m.at.clone()).collect();
        for at in all {
            if let Err(error) = tidecast_mount::unmount(&at, true) {
                tracing::error!(%error, "a mount stays, and is dead");
            }
        }
    }

    fn listen(self: Arc<Self>, listener: &Packets) {
        let own = rustix::process::geteuid().as_raw();
        loop {
            let Ok((asking, user)) = listener.accept() else {
                // Out of descriptors or the like: it may pass.
                std::thread::sleep(LOOK);
                continue;
            };
            if user != own && user != 0 {
                continue;
            }
            let mounts = self.clone();
            let _ = spawn("asked", move || mounts.talk(&asking));
        }
    }

    fn talk(self: Arc<Self>, asking: &Packets) {
        let Ok((mut ask, mut device)) = asking.receive::<Ask>(Some(PATIENCE)) else { return };
        let guest = if matches!(ask, Ask::Expect) { self.expect() } else { None };
        if guest.is_some() {
            let _ = asking.send(&Answer::Done, None);
            let Ok(next) = asking.receive::<Ask>(Some(PATIENCE)) else { return };
            (ask, device) = next;
        }
        let (answer, event) = match (ask, device) {
            (Ask::Expect, _) => (Answer::Ending, None),
            (Ask::Status, _) => (Answer::Status(Box::new(self.status())), None),
            (Ask::Serve { at, made }, Some(device)) => match self.clone().add(at, made, device) {
                Ok(()) => (Answer::Done, None),
                Err(failure) => (Answer::Failed(failure.error.to_string()), None),
            },
            (Ask::Serve { .. }, None) => (Answer::Failed("there is no device with it".to_owned()), None),
            (Ask::Stop, _) => (Answer::Done, Some(Event::Stop)),
            (Ask::Restart, _) => (Answer::Done, Some(Event::Restart)),
        };
        let _ = asking.send(&answer, None);
        if let Some(event) = event {
            let _ = self.events.blocking_send(event);
        }
    }

    /// Serves one more mount, and has the keeper keep it.
    fn add(self: Arc<Self>, at: PathBuf, made: bool, device: OwnedFd) -> Result<(), Failure> {
        let opens = tidecast_mount::opens().context("cannot note what is open")?;
        let mounted = Mounted::new(at.clone(), made);
        let number = {
            let mut table = self.table.lock();
            if table.closed {
                return Err(anyhow!("the server of this tree ends").into());
            }
            table.next += 1;
            let number = table.next;
            table.devices.insert(number, mounted);
            number
        };
        let kept = self.keeper.send(&Keep::Device { number, at, made }, Some(device.as_fd()));
        if kept.and_then(|()| self.keeper.send(&Keep::Opens { number }, Some(opens.as_fd()))).is_err() {
            tracing::warn!("the keeper is gone: mounts end with this process");
        }
        self.serve(number, device, None, opens)
    }

    fn status(&self) -> Value {
        let mut fields = object(serde_json::to_value(self.service.status()).unwrap_or_default());
        let peers = self.demand.peers().unwrap_or_default();
        let is_origin = |addr: &SocketAddr| self.told.contains(addr);
        let from = |origin: bool| -> u64 {
            peers.iter().filter(|p| is_origin(&p.addr) == origin).map(|p| p.received_bytes).sum()
        };
        let of_peer = |p: &tidecast_net::PeerReport| {
            json!({
                "addr": p.addr.to_string(), "origin": is_origin(&p.addr), "client": p.client,
                "received": p.received_bytes, "sent": p.sent_bytes,
            })
        };
        let now = self.progress.borrow().clone();
        fields.extend(object(json!({
            "from_origin": from(true),
            "from_peers": from(false),
            "sent": now.sent_bytes,
            "duplicate": now.duplicate_bytes,
            "corrupt": now.corrupt_bytes,
            "connections": now.peers,
            "served_seconds": round(self.began.elapsed().as_secs_f64()),
            "pid": std::process::id(),
            "mounted": self.table.lock().devices.values().map(|m| m.at.clone()).collect::<Vec<_>>(),
            "peers": peers.iter().take(200).map(of_peer).collect::<Vec<_>>(),
            "has_origin": !self.told.is_empty(),
            "heard": self.service.heard(),
        })));
        Value::Object(fields)
    }
}
