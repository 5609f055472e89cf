//! The keeper: it holds the devices of all mounts of a tree, so that they outlive the server, and starts a new server
//! when one has died. It does nothing else, so that nothing else can end it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::error::{Error, system};
use crate::launch;
use crate::messages::{Keep, Role};
use crate::packets::Packets;

/// The exit code of a server that is to be replaced.
pub const RESTART: u8 = 75;
/// Servers that may die within a minute; then the mounts are given up.
const DEATHS: usize = 5;
const MINUTE: Duration = Duration::from_secs(60);

/// A mount: its path, the record of its open files, and the files that are registered with the kernel, by
/// inode and number.
struct Held {
    at: PathBuf,
    hold: bool,
    device: OwnedFd,
    opens: Option<OwnedFd>,
    backings: Vec<(u64, u32)>,
}

/// The ticket that servers get, and another one that a mount was given.
struct Tickets {
    now: Option<String>,
    other: Option<String>,
}

/// The mounts by their numbers.
type Devices = BTreeMap<u32, Held>;

/// Runs as the [keeper](Role::Keeper), with servers that are this program with the same arguments, until the last one has
/// ended.
///
/// # Errors
/// An error of the system.
pub fn keep() -> Result<ExitStatus, Error> {
    // No terminal that closes, no Ctrl-C is meant for us.
    rustix::process::setsid().map_err(system("cannot leave the session"))?;
    // The process that starts us may have blocked them, to pass them on.
    launch::interrupts().thread_unblock().map_err(system("cannot unblock signals"))?;
    let program = std::env::current_exe().map_err(system("cannot find this program"))?;
    let mut tickets = Tickets { now: tidecast_secret::inherited()?, other: None };
    let mut devices = Devices::new();
    let mut deaths: Vec<Instant> = Vec::new();
    loop {
        let (server, socket) = spawn(&program, tickets.now.as_deref())?;
        // Only the server's output is for the process that waits for it.
        leave_stdout()?;
        let status = hold(server, &socket, &mut devices, &mut tickets)?;
        if status.code() != Some(i32::from(RESTART)) {
            if status.success() || devices.is_empty() {
                return Ok(status);
            }
            deaths.retain(|at| at.elapsed() < MINUTE);
            deaths.push(Instant::now());
            tracing::error!(%status, "the server of a mount failed");
            if deaths.len() > DEATHS {
                tracing::error!("the server of the mounts failed too often; giving up");
                return Ok(status);
            }
        }
    }
}

/// Closes standard output, which ends the wait of the process that reads it.
///
/// # Errors
/// An error of the system.
pub fn leave_stdout() -> Result<(), Error> {
    let null = File::options().write(true).open("/dev/null").map_err(system("cannot open /dev/null"))?;
    rustix::stdio::dup2_stdout(&null).map_err(system("cannot redirect standard output"))
}

/// A server, which is handed the ticket, and a connection to its standard input.
fn spawn(program: &Path, ticket: Option<&str>) -> Result<(Child, Packets), Error> {
    let (ours, theirs) = Packets::pair().map_err(system("cannot create a socket"))?;
    let mut server = Command::new(program);
    Role::Server.give(server.args(tidecast_secret::words().into_iter().skip(1))).stdin(OwnedFd::from(theirs));
    let passed = ticket.map(|ticket| tidecast_secret::pass(&mut server, ticket)).transpose()?;
    let server = server.spawn().map_err(system("cannot start a process"))?;
    drop(passed);
    Ok((server, ours))
}

/// Hands over the devices, and keeps those that come, and tickets, until the server has ended.
fn hold(
    mut server: Child,
    socket: &Packets,
    devices: &mut Devices,
    tickets: &mut Tickets,
) -> Result<ExitStatus, Error> {
    for (&number, held) in devices.iter() {
        // A server that ends meanwhile shows below.
        for &(ino, id) in &held.backings {
            let _ = socket.send(&Keep::Backing { number, ino, id }, None);
        }
        if let Some(opens) = &held.opens {
            let _ = socket.send(&Keep::Opens { number }, Some(opens.as_fd()));
        }
        let message = Keep::Device { number, at: held.at.clone(), hold: held.hold };
        let _ = socket.send(&message, Some(held.device.as_fd()));
    }
    if let Some(other) = &tickets.other {
        let _ = socket.send(&Keep::Ticket(other.clone()), None);
    }
    let _ = socket.send(&Keep::Begin, None);
    while let Ok((message, device)) = socket.receive::<Keep>(None) {
        match (message, device) {
            (Keep::Device { number, at, hold }, Some(device)) => {
                devices.insert(number, Held { at, hold, device, opens: None, backings: Vec::new() });
            }
            (Keep::Opens { number }, opens) => {
                if let Some(held) = devices.get_mut(&number) {
                    held.opens = opens;
                }
            }
            (Keep::Backing { number, ino, id }, _) => {
                if let Some(held) = devices.get_mut(&number) {
                    held.backings.push((ino, id));
                }
            }
            (Keep::Ticket(other), _) => tickets.other = Some(other),
            (Keep::Exchange, _) => std::mem::swap(&mut tickets.now, &mut tickets.other),
            (Keep::Gone { number }, _) => {
                devices.remove(&number);
            }
            _ => {}
        }
    }
    server.wait().map_err(system("cannot wait for the server"))
}
