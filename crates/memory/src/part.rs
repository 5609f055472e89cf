//! The work of one rank in one call.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidecast_group::channel::MAX_PAYLOAD;
use tidecast_group::hosts::Host;
use tidecast_group::launch::Launch;
use tidecast_group::{Event, GroupTicket, Options};
use tokio::sync::oneshot;
use tokio::task::{JoinSet, yield_now};

use crate::call::RING;
use crate::error::Error;
use crate::message::{Down, Enter, Part, Role, Up};
use crate::session::Session;
use crate::shared::Shared;

/// A buffer is sent with the messages of the hub if all its copies together are no longer than this, bytes: they arrive
/// before a swarm could start.
const INLINE_LIMIT: u64 = 4 << 20;
/// When no rank is busy any more, the broadcast between hosts may run for this time before it is ended.
const END_WAIT: Duration = Duration::from_secs(2);
/// Bytes after which a writer reports its progress.
const STEP: u64 = RING / 8;
const STEP_BYTES: usize = STEP as usize;

/// A buffer of the caller.
#[derive(Debug)]
pub enum Buffer<'a> {
    /// The root's buffer, which is sent.
    Send(&'a [u8]),
    /// The buffer of another rank, which is filled.
    Receive(&'a mut [u8]),
}

/// State that the calls of a group share.
pub(crate) struct Common {
    pub(crate) shared: Arc<Shared>,
    pub(crate) size: u32,
    pub(crate) plain: bool,
    /// Leaders' workers: they serve other hosts when this one is complete, until the call is over.
    pub(crate) workers: JoinSet<()>,
}

/// A call: its number, root and timeout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallSpec {
    pub(crate) number: u64,
    pub(crate) root: u32,
    pub(crate) patience: Duration,
}

/// Takes part in a call; returns at the root the ranks without the data.
pub(crate) async fn take_part(
    which: CallSpec,
    buffer: Buffer<'_>,
    session: &mut Session,
    common: &mut Common,
) -> Result<Vec<u32>, Error> {
    let number = which.number;
    enter(which, &buffer, session, common.size).await?;
    let done = match (session.next(number).await?, buffer) {
        ((Down::End { missed, .. }, _), Buffer::Send(_)) => return Ok(missed),
        ((Down::Go { part, .. }, payload), buffer) => match (part, buffer) {
            (Part::Source { leaders, capacity }, Buffer::Send(data)) => {
                let sent = source(number, data, &leaders, capacity, session, common).await;
                if sent.is_err() {
                    let _ = std::fs::remove_file(common.shared.file(number));
                }
                sent
            }
            (Part::Inline, Buffer::Receive(buffer)) if payload.len() == buffer.len() => {
                buffer.copy_from_slice(&payload);
                return Ok(Vec::new());
            }
            (Part::Leader, Buffer::Receive(buffer)) => {
                leader(number, buffer, session, common).await.map(|()| Vec::new())
            }
            (Part::Reader { dir, capacity }, Buffer::Receive(buffer)) => {
                reader(number, buffer, (&dir, capacity), session, common).await.map(|()| Vec::new())
            }
            _ => Err(unexpected()),
        },
        _ => Err(unexpected()),
    };
    match &done {
        Ok(_) => {}
        Err(Error::Lost(_)) => return done,
        Err(error) => session.send(Up::Done { call: number, error: Some(error.to_string()) }).await?,
    }
    done
}

fn unexpected() -> Error {
    Error::Failed("unexpected message from rank 0".into())
}

/// Calls without a buffer, so that the other ranks do not wait.
pub(crate) async fn abstain(which: CallSpec, why: String, session: &Session) -> Result<(), Error> {
    let patience = millis(which.patience);
    let enter = Enter { call: which.number, root: which.root, patience, role: Role::Unfit(why) };
    session.send(Up::Enter(enter)).await
}

fn millis(patience: Duration) -> u64 {
    u64::try_from(patience.as_millis()).unwrap_or(u64::MAX)
}

async fn enter(which: CallSpec, buffer: &Buffer<'_>, session: &Session, size: u32) -> Result<(), Error> {
    let (role, payload) = match buffer {
        Buffer::Send(data) => {
            let len = data.len() as u64;
            let copies = len.saturating_mul(u64::from(size.saturating_sub(1)));
            let inline = data.len() <= MAX_PAYLOAD && copies <= INLINE_LIMIT;
            let payload = if inline { Bytes::copy_from_slice(data) } else { Bytes::new() };
            (Role::Offer { len, inline }, payload)
        }
        Buffer::Receive(buffer) => (Role::Want { len: buffer.len() as u64 }, Bytes::new()),
    };
    let enter = Enter { call: which.number, root: which.root, patience: millis(which.patience), role };
    session.send_with_payload(Up::Enter(enter), payload).await
}

/// The root: writes the buffer to shared memory, and broadcasts it to other hosts.
async fn source(
    number: u64,
    data: &[u8],
    leaders: &[String],
    capacity: u64,
    session: &mut Session,
    common: &Common,
) -> Result<Vec<u32>, Error> {
    let ring = common.shared.create(number, capacity)?;
    let (mut at, mut room) = (0usize, capacity);
    while at < data.len() {
        let step = (room - at as u64).min(STEP);
        let rest = data.get(at..).unwrap_or_default();
        let now = rest.get(..usize::try_from(step).unwrap_or(usize::MAX)).unwrap_or(rest);
        if now.is_empty() {
            match session.next(number).await?.0 {
                Down::Room { bytes, .. } => room = room.max(bytes),
                // All readers are lost.
                Down::End { missed, .. } => return Ok(missed),
                _ => {}
            }
            continue;
        }
        ring.write(now, at as u64)?;
        at += now.len();
        session.send(Up::Ready { call: number, bytes: at as u64 }).await?;
    }
    let missed = if leaders.is_empty() { None } else { broadcast(number, leaders, session, common).await? };
    match missed {
        Some(missed) => Ok(missed),
        None => ended(number, session).await,
    }
}

/// Waits for the end of a call; returns the ranks without the data.
async fn ended(number: u64, session: &mut Session) -> Result<Vec<u32>, Error> {
    loop {
        if let (Down::End { missed, .. }, _) = session.next(number).await? {
            return Ok(missed);
        }
    }
}

/// Broadcasts the file to the leaders of the other hosts. Returns the ranks without the data if they are known by then.
async fn broadcast(
    number: u64,
    leaders: &[String],
    session: &mut Session,
    common: &Common,
) -> Result<Option<Vec<u32>>, Error> {
    let up = session.up.clone();
    let mut tell = move |event| {
        if let Event::Ticket(ticket) = event {
            // If this fails the connection to the hub is lost, and the session reports why.
            let _ = up.try_send((Up::Ticket { call: number, ticket: ticket.to_string() }, Bytes::new()));
        }
    };
    let options = options(number, leaders, common);
    let mut run = std::pin::pin!(tidecast_group::run(options, std::future::pending(), &mut tell));
    let mut missed = None;
    loop {
        tokio::select! {
            ran = &mut run => {
                ran.map_err(|e| Error::Failed(e.to_string()))?;
                return Ok(missed);
            }
            next = session.next(number), if missed.is_none() => match next {
                Ok((Down::End { missed: who, .. }, _)) => missed = Some(who),
                Ok(_) => {}
                Err(error) => {
                    // Without rank 0 the others can still complete.
                    let _ = run.await;
                    return Err(error);
                }
            },
            // All ranks have completed or failed: do not wait for a host that never joined the broadcast.
            () = tokio::time::sleep(END_WAIT), if missed.is_some() => return Ok(missed),
        }
    }
}

fn options(number: u64, leaders: &[String], common: &Common) -> Options {
    // A leader's name is the path of its directory.
    let (dest, hosts) = (format!("{{host}}/{number}"), leaders.iter().map(|dir| Host::named(dir)).collect());
    Options {
        launch: Launch::ByCaller,
        plain: common.plain,
        // The manifest of a single file is never that long.
        manifest_limit: usize::MAX,
        ..Options::new(common.shared.file(number), dest, hosts)
    }
}

/// The rank that receives for its host.
async fn leader(
    number: u64,
    buffer: &mut [u8],
    session: &mut Session,
    common: &mut Common,
) -> Result<(), Error> {
    let len = buffer.len() as u64;
    let ticket = loop {
        if let (Down::Ticket { ticket, .. }, _) = session.next(number).await? {
            break ticket.parse::<GroupTicket>().map_err(|e| Error::Failed(e.to_string()))?;
        }
    };
    common.shared.room(len)?;
    let (sender, mut placed) = oneshot::channel();
    let (failing, failed) = oneshot::channel();
    let host = common.shared.path().to_string_lossy().into_owned();
    let mut over = session.over.clone();
    let worker = common.workers.spawn(async move {
        let tell = Box::new(move || {
            let _ = sender.send(());
        });
        let ended =
            tidecast_group::work(&ticket, Some(host), Ok(None), Some(tell), std::future::pending()).await;
        let why = ended.err().map_or("the broadcast ended without this host".into(), |e| e.to_string());
        let _ = failing.send(why);
        // Until the call is over other ranks of this host may still have to open the file.
        let _ = over.wait_for(|last| *last >= Some(number)).await;
    });
    let mut listening = true;
    loop {
        tokio::select! {
            here = &mut placed => match here {
                Ok(()) => break,
                Err(_) => return Err(Error::Failed(failed.await.unwrap_or_else(|_| "a thread failed".into()))),
            },
            next = session.next(number), if listening => match next {
                Err(error @ Error::Failed(_)) => {
                    worker.abort();
                    return Err(error);
                }
                // Without rank 0 the transfer may still succeed.
                Err(_) => listening = false,
                Ok(_) => {}
            },
        }
    }
    let ring = common.shared.open(common.shared.name(), number, len)?;
    // The other ranks of this host copy at the same time.
    let sent = session.send(Up::Ready { call: number, bytes: len }).await;
    for (step, part) in (0u64..).zip(buffer.chunks_mut(STEP_BYTES)) {
        ring.read(part, step * STEP)?;
        // The caller may want to break it off.
        yield_now().await;
    }
    if sent.is_ok() {
        let _ = session.send(Up::Done { call: number, error: None }).await;
    }
    Ok(())
}

/// Reads the data from the shared memory of this host, as it arrives.
async fn reader(
    number: u64,
    buffer: &mut [u8],
    (dir, capacity): (&str, u64),
    session: &mut Session,
    common: &Common,
) -> Result<(), Error> {
    let len = buffer.len() as u64;
    let (mut at, mut ring) = (0u64, None);
    while at < len {
        let (Down::Ready { bytes, .. }, _) = session.next(number).await? else { continue };
        let open = || common.shared.open(dir, number, capacity);
        let ring = match &mut ring {
            Some(ring) => ring,
            none => none.insert(open()?),
        };
        let end = bytes.min(len);
        while at < end {
            let to = end.min(at + STEP);
            let range = usize::try_from(at).unwrap_or(usize::MAX)..usize::try_from(to).unwrap_or(usize::MAX);
            ring.read(buffer.get_mut(range).unwrap_or_default(), at)?;
            at = to;
            if capacity < len && at < len {
                session.send(Up::Taken { call: number, bytes: at }).await?;
            }
        }
    }
    // The data is complete, even if the hub can no longer be notified.
    let _ = session.send(Up::Done { call: number, error: None }).await;
    Ok(())
}
