//! Dials the addresses of one node at short intervals (as RFC 8305): a dead one costs no more than the interval.
//!
//! Connections are made in parallel, handshakes in turn: a node that receives two handshakes at once could reject
//! both, each as the duplicate of the other. A turn ends when its handshake fails or is slow.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidecast_control::ConnectAttempts;
use tidecast_swarm::Candidate;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::dial::dial_by;
use crate::error::ConnError;
use crate::handshake::Established;
use crate::handshake_turn::HandshakeTurn;
use crate::input::Input;
use crate::report::Notice;
use crate::shared::Shared;

/// The next address is dialled when this one has taken this long (RFC 8305: Connection Attempt Delay); of many sooner, so that
/// the last is begun within [`ALL`].
const NEXT: Duration = Duration::from_millis(250);
const ALL: Duration = Duration::from_millis(1500);

/// Dials a candidate in the background; the driver gets the result.
pub(crate) fn spawn(shared: &Arc<Shared>, candidate: Candidate, addresses: Vec<SocketAddr>) {
    let shared = shared.clone();
    shared.runtime.clone().spawn(async move {
        let attempts = shared.clone();
        let dial = move |addr, turns: Arc<Semaphore>| {
            let shared = attempts.clone();
            async move {
                let dialled = dial_one(&shared, addr, &turns).await;
                if let Err(error) = &dialled {
                    tell(&shared, addr, error).await;
                }
                dialled
            }
        };
        match dial_all(addresses, dial).await {
            Ok((addr, established)) => crate::conn::run(shared, established, addr, Some(candidate)).await,
            Err(last) => drop(shared.inbox.send(Input::DialFailed { candidate, last }).await),
        }
    });
}

/// The first of these addresses that can be dialled; or why the last one failed, a refusal before all else.
async fn dial_all<T: Send + 'static, F: Future<Output = Result<T, ConnError>> + Send + 'static>(
    addresses: Vec<SocketAddr>,
    dial: impl Fn(SocketAddr, Arc<Semaphore>) -> F,
) -> Result<(SocketAddr, T), Option<(SocketAddr, ConnError)>> {
    let pause = NEXT.min(ALL / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1));
    let turns = Arc::new(Semaphore::new(1));
    let mut last: Option<(SocketAddr, ConnError)> = None;
    let mut attempts = ConnectAttempts::new(addresses, |addr| dial(addr, turns.clone()));
    while let Some((addr, dialled)) = attempts.next(|| next_may_start(&turns, pause)).await {
        match dialled {
            Ok(established) => return Ok((addr, established)),
            Err(error) if error.is_refusal() || !last.as_ref().is_some_and(|(_, e)| e.is_refusal()) => {
                last = Some((addr, error));
            }
            Err(_) => {}
        }
    }
    Err(last)
}

/// Waits until the next address may be dialled in parallel: after the pause, and while no handshake is in progress.
async fn next_may_start(turns: &Semaphore, pause: Duration) {
    sleep(pause).await;
    let _ = turns.acquire().await;
}

/// Dials one address, and waits for its turn before the handshake.
async fn dial_one(shared: &Shared, addr: SocketAddr, turns: &Semaphore) -> Result<Established, ConnError> {
    let (source, local) = (shared.source_for(addr.ip()), shared.local());
    // An inbox that is full is that of an engine with peers enough.
    let unanswered = |why| drop(shared.inbox.try_send(unreachable(addr, why)));
    let turn = HandshakeTurn::new(turns);
    let (of, at) = ((&local, &shared.security), (addr, source));
    let mut attempts =
        std::pin::pin!(dial_by(of, at, &shared.handshake_kinds, &shared.cpu, &unanswered, Some(&turn)));
    tokio::select! {
        done = &mut attempts => return done,
        () = turn.over() => {}
    }
    attempts.await
}

async fn tell(shared: &Shared, addr: SocketAddr, error: &ConnError) {
    if let Some(why) = error.unreachable() {
        let _ = shared.inbox.send(unreachable(addr, why)).await;
    }
    if let ConnError::Denied(why) = error {
        let notice = Notice::Refused { addr, why: why.clone() };
        let _ = shared.inbox.send(Input::Notice(notice)).await;
    }
}

fn unreachable(addr: SocketAddr, why: String) -> Input {
    Input::Notice(Notice::Unreachable { addr, why, told: false })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use parking_lot::Mutex;
    use tokio::time::Instant;

    use super::*;
    use crate::handshake_turn::MAX_TURN;

    fn addresses(number: u16) -> Vec<SocketAddr> {
        (1..=number).map(|port| SocketAddr::from(([10, 0, 0, 1], port))).collect()
    }

    /// The time of each dial, and the result, if addresses with ports in `live` answer.
    async fn begun(number: u16, live: &'static [u16]) -> (Vec<Duration>, Option<u16>) {
        let (start, times) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
        let noted = times.clone();
        let dial = move |addr: SocketAddr, _| {
            noted.lock().push(start.elapsed());
            async move {
                sleep(Duration::from_secs(if live.contains(&addr.port()) { 0 } else { 5 })).await;
                if live.contains(&addr.port()) { Ok(()) } else { Err(ConnError::Closed) }
            }
        };
        let came = dial_all(addresses(number), dial).await;
        let times = times.lock().clone();
        (times, came.ok().map(|(addr, ())| addr.port()))
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_address_does_not_wait_for_a_dead_one() {
        let (times, came) = begun(4, &[3]).await;
        assert_eq!((times, came), (vec![Duration::ZERO, NEXT, 2 * NEXT], Some(3)));
        let (times, came) = begun(2, &[]).await;
        assert_eq!((times, came), (vec![Duration::ZERO, NEXT], None));
        let (times, _) = begun(64, &[]).await;
        // Each pause ends with a whole millisecond.
        let most = ALL + 64 * Duration::from_millis(1);
        assert!(times.len() == 64 && times.iter().all(|time| *time <= most), "{times:?}");
        assert!(dial_all(Vec::new(), |_, _| async { Ok::<(), _>(()) }).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_at_once_makes_room_at_once_and_a_refusal_is_what_counts() {
        let start = Instant::now();
        let dial = |addr: SocketAddr, _| async move {
            match addr.port() {
                1 => Err(ConnError::Denied("no".into())),
                2 => Err(ConnError::Closed),
                _ => Ok(()),
            }
        };
        assert_eq!(dial_all(addresses(3), dial).await.unwrap().0.port(), 3);
        assert!(start.elapsed() < NEXT);
        let (addr, why) = dial_all(addresses(2), dial).await.unwrap_err().unwrap();
        assert!(addr.port() == 1 && why.is_refusal(), "{addr} {why}");
    }

    #[tokio::test(start_paused = true)]
    async fn handshakes_take_turns_until_one_takes_long() {
        let turns = Semaphore::new(1);
        let (first, second) = (HandshakeTurn::new(&turns), HandshakeTurn::new(&turns));
        let start = Instant::now();
        first.take().await;
        tokio::join!(first.over(), async {
            second.take().await;
            assert_eq!(start.elapsed(), MAX_TURN);
        });
        drop(second);
        HandshakeTurn::new(&turns).take().await;
        assert_eq!(start.elapsed(), MAX_TURN, "a handshake that has ended gives up its turn at once");
    }
}
