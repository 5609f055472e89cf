//! The caller of a transfer at full rate.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::message::{Member, Sent};
use super::probe::Caller;
use super::serve::{Counted, MOST_TIME, STEP, bounded, exchange, is_pause, per_second, thread_cpu};
use super::wire::{Purpose, Request};

/// Streams of a transfer at most.
pub(super) const MOST_STREAMS: u32 = 8;
/// A write that waits so long is tried again, so that the limit of time holds.
const PAUSE: Duration = Duration::from_millis(100);
/// The wait for the count of the receiver after the time is over: what is on its way at a low rate arrives first.
const LATE: Duration = Duration::from_secs(10);

/// Sends to a member by several streams at once; every stream counts bytes where they arrive.
pub(super) async fn send(
    caller: &Caller,
    to: &Member,
    (task, streams): (u32, u32),
    (millis, bytes): (u32, u64),
) -> Result<Sent, String> {
    let streams = streams.clamp(1, MOST_STREAMS);
    let request = || Request {
        millis,
        bytes: bytes / u64::from(streams),
        ..caller.request(Purpose::Send, task, to.number)
    };
    let mut open = Vec::new();
    for _ in 0..streams {
        let (stream, _) = caller.connect(to, request()).await?;
        // What is not sent when the receiver has counted is discarded: the link is free for the next transfer.
        let stream = stream.set_zero_linger().and_then(|()| stream.into_std());
        open.push(stream.map_err(|e| e.to_string())?);
    }
    let mut running = JoinSet::new();
    for stream in open {
        running.spawn_blocking(move || one(stream, bounded(millis)));
    }
    let mut sum = Sent::default();
    while let Some(ended) = running.join_next().await {
        let (counted, cpu) =
            ended.map_err(|e| e.to_string())?.map_err(|e| format!("the transfer stopped: {e}"))?;
        sum.rate = sum.rate.saturating_add(per_second(counted.bytes, Duration::from_nanos(counted.nanos)));
        sum.bytes = sum.bytes.saturating_add(counted.all);
        sum.receive_cpu = sum.receive_cpu.saturating_add(counted.cpu);
        sum.send_cpu = sum.send_cpu.saturating_add(cpu);
    }
    Ok(sum)
}

/// One stream: what the receiver counted, and the CPU time of the sender.
fn one(stream: TcpStream, time: Duration) -> io::Result<(Counted, u64)> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PAUSE))?;
    stream.set_read_timeout(Some(PAUSE))?;
    let counted = Arc::new(AtomicBool::new(false));
    let until = Instant::now() + time.min(MOST_TIME) + LATE;
    std::thread::scope(|scope| {
        let reading = std::thread::Builder::new().spawn_scoped(scope, || {
            let answer = read_count(&stream, until);
            counted.store(true, Ordering::Relaxed);
            answer
        })?;
        let cpu = thread_cpu();
        // Random bytes, so that no link compresses them.
        let mut data = vec![0; STEP];
        rand::fill(&mut data[..]);
        while !counted.load(Ordering::Relaxed) && Instant::now() < until {
            match (&stream).write(&data) {
                Ok(_) => {}
                Err(error) if is_pause(&error) => {}
                // The reader has the reason, or the count.
                Err(_) => break,
            }
        }
        let cpu = thread_cpu() - cpu;
        let answer = reading.join().map_err(|_| io::Error::other("a thread failed"))??;
        Ok((answer, cpu))
    })
}

fn read_count(mut stream: &TcpStream, until: Instant) -> io::Result<Counted> {
    let (mut bytes, mut read) = ([0; Counted::LENGTH], 0);
    while let Some(rest @ [_, ..]) = bytes.get_mut(read..) {
        match stream.read(rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(some) => read += some,
            Err(error) if is_pause(&error) && Instant::now() < until => {}
            Err(error) if is_pause(&error) => return Err(io::Error::other("no data arrived")),
            Err(error) => return Err(error),
        }
    }
    Ok(Counted::decode(&bytes))
}

/// Sends to a member and receives from it at the same time; the rate received, bits per second.
pub(super) async fn meet(caller: &Caller, to: &Member, task: u32, millis: u32) -> u64 {
    let time = bounded(millis);
    let end = tokio::time::Instant::now() + time;
    let request = Request { millis, ..caller.request(Purpose::Meet, task, to.number) };
    match tokio::time::timeout_at(end, caller.connect(to, request)).await {
        Ok(Ok((stream, _))) => per_second(exchange(stream, end).await, time),
        _ => 0,
    }
}
