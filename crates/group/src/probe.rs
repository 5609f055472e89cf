//! Probes: two hosts send to each other for a moment, as fast as they can, and count the bytes received.
//!
//! From the results of many simultaneous probes the coordinator infers the places of hosts
//! (`broadcast/measure_places.rs`). The
//! caller sends the pass from the coordinator, after the callee has identified itself (see [`reach`](crate::reach)):
//!
//! ```text
//!   ── 1, pass (16 bytes), round, from, to, milliseconds left (4 bytes each) ──▶
//!   ── zeros ──▶ ◀── zeros ──                until the time is over
//! ```
//!
//! The time counts from the round's start, not from the first byte: a path so congested that no data arrives is slow too.

use std::time::Duration;

use tidecast_identity::NodeId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::control::message::{Probe, ProbeResult};
use crate::reach::{STEP, call};

/// The first byte of a probe; a trial begins with another.
pub(crate) const PROBE: u8 = 1;
/// The maximum duration of a probe.
const MAX_DURATION: Duration = Duration::from_secs(1);
/// Results that may wait to be reported.
const QUEUE: usize = 64;

/// Sends the results of probes.
pub(crate) type Results = mpsc::Sender<ProbeResult>;

/// The channel for results of probes.
pub(crate) fn channel() -> (Results, mpsc::Receiver<ProbeResult>) {
    mpsc::channel(QUEUE)
}

/// Runs these probes, at their times from now.
pub(crate) async fn run(probes: Vec<Probe>, tell: Results) {
    let now = Instant::now();
    let mut running = JoinSet::new();
    for probe in probes {
        let tell = tell.clone();
        let start = now + Duration::from_millis(probe.after.into()).min(MAX_DURATION * 10);
        running.spawn(async move {
            sleep_until(start).await;
            let Probe { round, from, to, duration, .. } = probe;
            let time = Duration::from_millis(duration.into()).min(MAX_DURATION);
            let rate = rate(dial(&probe, start + time).await, time);
            let _ = tell.send(ProbeResult { round, from, to, dialled: true, rate }).await;
        });
    }
    while running.join_next().await.is_some() {}
}

/// Bytes received until `end`; 0 if the connection failed.
async fn dial(probe: &Probe, end: Instant) -> u64 {
    let greet = async {
        let (mut stream, id) = call(probe.address).await?;
        if id != NodeId(probe.node) {
            return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
        }
        let left = u32::try_from(end.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(0);
        let mut head = vec![PROBE];
        head.extend(probe.pass);
        for word in [probe.round, probe.from, probe.to, left] {
            head.extend(word.to_be_bytes());
        }
        stream.write_all(&head).await?;
        Ok(stream)
    };
    match timeout_at(end, greet).await {
        Ok(Ok(stream)) => exchange(stream, end).await,
        _ => 0,
    }
}

/// The callee, after the pass was read and is right.
pub(crate) async fn answer(mut stream: TcpStream, tell: &Results) -> std::io::Result<()> {
    let came = Instant::now();
    let (round, from, to) = (stream.read_u32().await?, stream.read_u32().await?, stream.read_u32().await?);
    let time = Duration::from_millis(stream.read_u32().await?.into()).min(MAX_DURATION);
    let rate = rate(exchange(stream, came + time).await, time);
    let _ = tell.send(ProbeResult { round, from, to, dialled: false, rate }).await;
    Ok(())
}

/// Sends and receives until `end`; returns the bytes received.
async fn exchange(mut stream: TcpStream, end: Instant) -> u64 {
    // Unsent data in the socket is discarded.
    let _ = stream.set_zero_linger();
    let (mut from, mut to) = stream.split();
    let (zeros, mut sink) = (vec![0; STEP], vec![0; STEP]);
    let mut came = 0;
    let send = async { while to.write_all(&zeros).await.is_ok() {} };
    let take = async {
        while let Ok(read @ 1..) = from.read(&mut sink).await {
            came += read as u64;
        }
    };
    let _ = timeout_at(end, async { tokio::join!(send, take) }).await;
    came
}

fn rate(bytes: u64, time: Duration) -> u64 {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
    bytes.saturating_mul(8000) / millis
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::reach;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn two_meet_and_both_tell_and_strangers_are_not_met() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, mut told) = channel();
        let answering = tokio::spawn(reach::answer(listener, NodeId([1; 32]), [7; 16], tell.clone()));
        let probe = |round, pass, node| Probe {
            round,
            from: 3,
            to: 4,
            address,
            node: [node; 32],
            pass: [pass; 16],
            after: 0,
            duration: 50,
        };
        run(vec![probe(0, 7, 1)], tell.clone()).await;
        for _ in 0..2 {
            let result = told.recv().await.unwrap();
            assert!((result.round, result.from, result.to) == (0, 3, 4) && result.rate > 0, "{result:?}");
        }
        run(vec![probe(1, 7, 2)], tell.clone()).await;
        assert_eq!(
            told.recv().await.unwrap(),
            ProbeResult { round: 1, from: 3, to: 4, dialled: true, rate: 0 }
        );
        run(vec![probe(2, 8, 1)], tell).await;
        assert_eq!(told.recv().await.unwrap().rate, 0, "the wrong pass");
        answering.abort();
        assert!(told.recv().await.is_none(), "nobody else tells");
    }
}
