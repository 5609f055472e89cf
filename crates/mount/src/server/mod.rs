//! The server of a tree: takes part in its swarm, and answers the kernel for all mounts of it on this host.

mod mounts;
mod prefetch;
mod thread;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidecast_event::mount::Serving;
use tidecast_event::{Context as _, Error, Fault as _, Progress, Stage};
use tidecast_metainfo::Manifest;
use tidecast_node::{MessageSender, MessageSink, Running, Source, Stop, SwarmSettings, progress};
use tidecast_store::Store;
use tokio::sync::mpsc;

use self::mounts::{Event, Mounts};
use self::thread::spawn;
use crate::error;
use crate::home::Home;
use crate::join;
use crate::options::ServeOptions;
use crate::packets::Packets;
use crate::service::Service;

/// A server to which no mount is given ends.
const UNUSED_TIMEOUT: Duration = Duration::from_secs(30);
/// A server has this long to find peers by its ticket before another one is tried.
const TRIAL: Duration = Duration::from_secs(60);
/// How often troubles of trackers and the like are looked for.
const LOOK: Duration = Duration::from_millis(500);

/// The callbacks of a running server.
#[derive(Clone, Copy)]
pub struct ServerContext<'a> {
    /// Receives warnings.
    pub tell: &'a dyn MessageSink,
    /// Called when it serves.
    pub started: &'a dyn Fn(Serving),
    /// Receives its progress, without rates.
    pub progress: &'a dyn Fn(Progress),
    /// Ends it, and all mounts.
    pub stop: &'a Stop,
}

/// How a server has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nothing is mounted any more, or it was asked to end.
    Stopped,
    /// It is to be replaced by a new one: the program ends with [`RESTART`](crate::keeper::RESTART).
    Restart,
}

/// Runs as the [server](crate::Role::Server) of a tree until no mount is left. `keeper`: the connection to
/// the process that has started it, its standard input. `state_dir`: where this node keeps its key.
///
/// # Errors
/// The options are wrong; no manifest, no right to take part, no room.
pub async fn serve(
    source: Source,
    options: &ServeOptions,
    state_dir: &Path,
    keeper: Packets,
    context: ServerContext<'_>,
) -> Result<End, Error> {
    let settings = SwarmSettings::new(&options.swarm)?;
    let own = if let Source::Ticket(ticket) = &source { Some(ticket.to_string()) } else { None };
    let home = Home::of(&source, options.cache.as_deref())?;
    let messages = MessageSender::new(context.tell);
    let open = async |manifest: &Arc<Manifest>| {
        let (manifest, root) = (manifest.clone(), Arc::new(home.data(manifest)?));
        let open = move || {
            let again = root.again().map_err(error::home("open", root.path()))?;
            Store::download_beneath(again, manifest.clone(), &join::on_demand()).fault()
        };
        join::opened(open).await
    };
    let begun = join::begin(source, options, (state_dir, &home), &settings, (&messages, context.stop), open);
    let (mut running, service, told) = begun.await?;
    prefetch::begin(options, &service, &messages)?;
    let (events, mut heard) = mpsc::channel(64);
    let swarm = (running.swarm.demand(), running.swarm.progress());
    let mounts = Mounts::new(service.clone(), keeper, swarm, told, events);
    let mut spare = Spare { own, there: mounts.clone().take_over()?, due: Instant::now() + TRIAL };
    home.verify()?;
    let (listener, bound) = Packets::listen(&home.socket())
        .with_context(|| format!("cannot listen at {}", home.socket().display()))?;
    spawn("control", {
        let mounts = mounts.clone();
        move || mounts.listen(&listener)
    })?;
    (context.started)(Serving { command: "serving", name: running.manifest.name().into_owned() });
    let end = until_the_end(&mounts, &mut running, &mut heard, &mut spare, context, &messages).await;
    if let Some(path) = &options.record {
        save(&service, path);
    }
    if end == End::Stopped {
        // First of all, so that a new mount starts a new server.
        bound.remove();
        service.stop();
    }
    running.stop().await?;
    Ok(end)
}

/// Until nothing is mounted any more, or it is asked to end.
async fn until_the_end(
    mounts: &Arc<Mounts>,
    running: &mut Running,
    heard: &mut mpsc::Receiver<Event>,
    spare: &mut Spare,
    context: ServerContext<'_>,
    messages: &MessageSender<'_>,
) -> End {
    let unused = tokio::time::sleep(UNUSED_TIMEOUT);
    tokio::pin!(unused);
    loop {
        if spare.there && Instant::now() >= spare.due && mounts.exchange() {
            return End::Restart;
        }
        tokio::select! {
            event = heard.recv() => match event {
                Some(Event::Gone(number)) => if mounts.gone(number) { return End::Stopped },
                Some(Event::Left) => if mounts.close(true) { return End::Stopped },
                Some(Event::Ticket(ticket)) => spare.take(ticket, mounts),
                Some(Event::Stop) => {
                    mounts.close(false);
                    return End::Stopped;
                }
                Some(Event::Restart) => {
                    mounts.close(false);
                    return End::Restart;
                }
                None => return End::Stopped,
            },
            notice = running.notice() => join::handle_notice(notice, &mounts.service, running, messages),
            () = context.stop.wait() => {
                mounts.close(false);
                mounts.unmount_all();
                return End::Stopped;
            }
            () = &mut unused, if !unused.is_elapsed() => if mounts.close(true) { return End::Stopped },
            () = tokio::time::sleep(LOOK) => {
                let now = running.swarm.progress().borrow().clone();
                (context.progress)(progress(Stage::Mount, &now));
                running.report_finder_errors(messages);
            }
        }
    }
}

/// Another ticket of the same tree, with which a further mount has come: it takes the place of this server's own when no peer accepts
/// that, and may have to give it back.
struct Spare {
    /// The ticket of this server, if it has one.
    own: Option<String>,
    /// The keeper has another one.
    there: bool,
    /// It is not tried before.
    due: Instant,
}

impl Spare {
    fn take(&mut self, ticket: String, mounts: &Mounts) {
        if self.own.as_ref().is_some_and(|own| *own != ticket) {
            (self.there, self.due) = (mounts.keep_ticket(ticket), Instant::now());
        }
    }
}

fn save(service: &Service, path: &Path) {
    let manifest = service.tree().manifest().hash_v2().map(|hash| data_encoding::HEXLOWER.encode(&hash));
    match service.save_record(path, manifest.unwrap_or_default()) {
        Ok(0) => tracing::info!(path = %path.display(), "recorded the read ranges"),
        Ok(left_out) => {
            tracing::warn!(path = %path.display(), left_out, "recorded the read ranges; some did not fit into the list");
        }
        Err(error) => tracing::error!(path = %path.display(), %error, "cannot record the read ranges"),
    }
}
