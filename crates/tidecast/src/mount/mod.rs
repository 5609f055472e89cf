//! `mount`: a published tree appears at once, and arrives as it is opened.

mod arguments;
mod options;
mod run;
mod server;

use std::future::pending;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use tidecast_event::mount::{Mounted, Unmounted};
use tidecast_event::{Context as _, Error, Fault as _};
use tidecast_metainfo::{Manifest, Warning};
use tidecast_mount::launch::{self, Start};
use tidecast_mount::{Ask, Chosen, Guard, Home, How, Packets, Place, clean, find, mounted_at};
use tidecast_node::{MessageSender, Source};
use tidecast_paths::Root;

use crate::operation::{Operation, Work, start};

pub use options::{MountOptions, Program, RunOptions};
pub use run::{Ran, RunCommand};
pub use server::{ServeMount, serve_mount};

/// How often it is looked whether a mount is still there.
const LOOK: Duration = Duration::from_millis(300);
/// A shared file system that does not answer within this time is not waited for.
const HANGS: Duration = Duration::from_secs(2);

/// The operation of [`mount`].
pub type Mount = Operation<Mounted, Mounted>;
type Doing = Work<Mounted, Mounted>;

/// Mounts the tree that `source` leads to at the directory `at`, which is made if need be. All names are there at once; files
/// come from peers when they are opened, verified.
///
/// A process of the program `tidecast` serves all mounts of a tree on this host, and another one keeps their devices, so that
/// the mounts outlive the caller, and a server that crashes. The caller's own process never answers the kernel.
///
/// ```no_run
/// use tidecast::{MountOptions, Source, UnmountOptions, mount, unmount};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mounted = mount(Source::read("env.torrent")?, "/opt/env", MountOptions::default()).wait_blocking()?;
/// println!("mounted at {}", mounted.path.display());
/// unmount("/opt/env", UnmountOptions::default())?;
/// # Ok(())
/// # }
/// ```
pub fn mount(source: Source, at: impl AsRef<Path>, options: MountOptions) -> Mount {
    let at = at.as_ref().to_owned();
    // One thread notes that it is to stop while another waits for the server.
    start(1, async move |work| run(&source, &at, &options, work).await)
}

async fn run(source: &Source, at: &Path, options: &MountOptions, work: &Doing) -> Result<Mounted, Error> {
    if let Some(dir) = &options.serve.fallback {
        check_fallback(dir).with_context(|| format!("cannot use the fallback {}", dir.display()))?;
    }
    let home = Home::of(source, options.serve.cache.as_deref())?;
    let place = place(at, &Guard::of_user(&[home.path().to_owned()]))?;
    let (at, socket) = (place.path().to_owned(), home.socket());
    let messages = MessageSender::new(work);
    let server = connect(&home, source, &at, options, (work, &messages))?;
    let how = How { source: socket.clone(), allow_other: options.allow_other };
    {
        // Another process may have mounted at the same place since it was looked at.
        let _alone = place.lock();
        refuse_mounted(place.path())?;
        launch::attach(&server, &place, &how, false)?;
    }
    drop(server);
    let mounted = Mounted { path: at.clone(), socket, mount_seconds: work.seconds() };
    if options.serve.fallback.is_none() {
        let silence = launch::silence(&mounted.socket, || work.stop.is_asked());
        silence.into_iter().for_each(|why| messages.warning(why));
    }
    if let Some(manifest) = home.manifest() {
        warn(&manifest, &at, &messages);
    }
    if work.stop.is_asked() && !options.foreground {
        tidecast_mount::unmount(&at, true)?;
        return Err(Error::interrupted("interrupted"));
    }
    work.started(mounted.clone());
    if options.foreground {
        stay(&at, work).await?;
    }
    Ok(mounted)
}

/// The mount point: a directory that may be hidden, made if need be, and no mount of ours yet.
fn place(at: &Path, guard: &Guard) -> Result<Place, Error> {
    let absolute = std::path::absolute(at).with_context(|| format!("cannot mount at {}", at.display()))?;
    remove_dead(&absolute)?;
    if mounted_at(&absolute).is_none() {
        find(at, guard, Chosen::ByCaller).map_err(Error::usage)?;
        let made = Root::make(&absolute);
        made.with_context(|| format!("cannot create the mount point {}", at.display()))?;
    }
    let open = || Place::open(at, guard, Chosen::ByCaller).map_err(Error::usage);
    let mut place = open()?;
    // The mount table has paths without links, so a dead mount may be found only by this one.
    if remove_dead(place.path())? {
        place = open()?;
    }
    refuse_mounted(place.path())?;
    Ok(place)
}

/// Lists the directory, on a thread of its own: a shared file system that hangs passes the check.
fn check_fallback(dir: &Path) -> io::Result<()> {
    let (dir, (sender, receiver)) = (dir.to_owned(), mpsc::channel());
    std::thread::spawn(move || sender.send(std::fs::read_dir(dir).map(drop)));
    receiver.recv_timeout(HANGS).unwrap_or(Ok(()))
}

fn refuse_mounted(at: &Path) -> Result<(), Error> {
    if mounted_at(at).is_some() {
        let at = at.display();
        return Err(Error::fault(format!("{at} is already mounted; unmount it first: tidecast umount {at}")));
    }
    Ok(())
}

/// Removes a mount at this path that no process serves; whether there was one.
fn remove_dead(at: &Path) -> Result<bool, Error> {
    let removed = clean(at)?;
    if removed {
        tracing::info!(at = %at.display(), "removed a mount that no process served");
    }
    Ok(removed)
}

/// A connection to the server of the tree, which is started if none runs. A stop ends a server that is being
/// started.
fn connect(
    home: &Home,
    source: &Source,
    at: &Path,
    options: &MountOptions,
    (work, messages): (&Doing, &MessageSender<'_>),
) -> Result<Packets, Error> {
    let (interrupts, mut interrupt) = std::io::pipe().context("cannot create a pipe")?;
    let stop = work.stop.clone();
    let telling = tokio::spawn(async move {
        stop.wait().await;
        let _ = interrupt.write_all(b".");
        pending::<()>().await;
    });
    let mut is_new = false;
    let server = launch::server(home, source, || {
        is_new = true;
        let interrupts = Box::new(&interrupts);
        let Program::Named(program) = &options.program else {
            return Start::again(source, interrupts, messages);
        };
        let mut manifest = None;
        if let Source::File(file) = source {
            home.keep(file)?;
            manifest = Some(home.manifest_path());
        }
        let arguments = arguments::of(options, manifest.as_deref(), at);
        Ok(Start {
            program: program.clone(),
            arguments,
            secret: launch::secret(source),
            interrupts,
            messages,
        })
    });
    telling.abort();
    let server = server?;
    if let Some(record) = options.serve.record.as_ref().filter(|_| !is_new) {
        messages.warning(format!(
            "{} is not written: the tree is mounted already, and only the first mount of a tree records",
            record.display()
        ));
    }
    Ok(server)
}

/// Warns of unusual properties of the manifest. Links to the place that the tree was built for are correct if
/// it is mounted there.
fn warn(manifest: &Manifest, at: &Path, messages: &MessageSender<'_>) {
    let in_its_place = manifest.prefix() == Some(at.as_os_str().as_bytes());
    let told = |warning: &Warning| match warning {
        Warning::OutsideLinks { .. } => true,
        Warning::LinksToPrefix { .. } => !in_its_place,
        _ => false,
    };
    manifest
        .warnings()
        .iter()
        .filter(|warning| told(warning))
        .for_each(|one| messages.warning(one.to_string()));
}

/// Runs until the mount is removed; a stop unmounts it.
async fn stay(at: &Path, work: &Doing) -> Result<(), Error> {
    while mounted_at(at).is_some() {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = work.stop.wait() => return Ok(tidecast_mount::unmount(at, true)?),
        }
    }
    Ok(())
}

/// The mount of Tidecast at this path, or at one that leads there by symbolic links. It need not answer: a dead mount is
/// found too.
///
/// # Errors
/// No mount of Tidecast is there.
pub fn find_mount(at: impl AsRef<Path>) -> Result<tidecast_mount::Mounted, Error> {
    let at = std::path::absolute(at.as_ref()).fault()?;
    // The mount table has paths without links. The first tries do not look at the mount itself.
    let by_parent = || Some(at.parent()?.canonicalize().ok()?.join(at.file_name()?));
    let found = mounted_at(&at)
        .or_else(|| mounted_at(&by_parent()?))
        .or_else(|| mounted_at(&at.canonicalize().ok()?));
    found.with_context(|| {
        format!("{} is not a tidecast mount; `tidecast status` lists the mounts", at.display())
    })
}

/// How to unmount.
#[derive(Debug, Clone, Copy, Default)]
pub struct UnmountOptions {
    /// Even while it is in use: the mount is out of sight at once, and gone when no process uses it any more.
    pub lazy: bool,
    /// End the process that serves it too: reads that wait for data fail. All mounts of the tree on this host are dead then.
    pub abort: bool,
}

/// Ends a mount of this process, or of another process on this host.
///
/// # Errors
/// It is not a mount of Tidecast, is in use, or belongs to another user.
pub fn unmount(at: impl AsRef<Path>, options: UnmountOptions) -> Result<Unmounted, Error> {
    let mounted = find_mount(at)?;
    if options.abort {
        launch::ask(&mounted.source, mounted.user, &Ask::Stop)?;
    }
    tidecast_mount::unmount(&mounted.at, options.lazy || options.abort)?;
    Ok(Unmounted { path: mounted.at })
}
