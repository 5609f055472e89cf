//! Waits until a cache is on this host.

use std::time::{Duration, Instant};

use tidecast_text::Span;

use super::{Client, ClientError};
use crate::model::types::{CacheInfo, Get, Got};

/// The daemon is asked again after this long at most, seconds.
const ASK: u64 = 4;
/// A daemon that has gone is looked for again after this long.
const AGAIN: Duration = Duration::from_millis(300);
/// A daemon that is being started again is waited for this long, if the caller sets no limit.
const STARTS_AGAIN: Duration = Duration::from_secs(60);

/// A request for a cache.
#[derive(Clone, Debug, Default)]
pub struct Fetch {
    /// The cache, as [`crate::name::CacheName`] writes it.
    pub name: String,
    /// It is given up after this long; None: never.
    pub wait: Option<Duration>,
    /// It is kept while this process of the caller's user runs; None: as the daemon decides by the caller.
    pub pid: Option<i32>,
    /// The newest version that is here will do.
    pub offline: bool,
    /// The daemon is asked how far it is each second, instead of every 4 s.
    pub often: bool,
}

/// A cache that is here.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The cache.
    pub info: CacheInfo,
    /// Seconds that it took to come.
    pub seconds: f64,
    /// How it came.
    pub method: Option<String>,
    /// Why it is not the newest version, if that is so.
    pub older: Option<String>,
}

/// How far it is.
#[derive(Clone, Debug)]
pub enum Waiting {
    /// The daemon is away, and is looked for again.
    Away(String),
    /// It comes.
    Receiving {
        /// The reason for waiting; may be empty.
        why: String,
        /// Bytes that have come.
        bytes: u64,
        /// Of this many.
        total: u64,
    },
}

/// Why it is not here.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The daemon rejected the request, or does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It took longer than the caller waits.
    #[error("{name} did not arrive within {}: {why}", Span(*.after))]
    Late {
        /// The cache.
        name: String,
        /// How long was waited.
        after: Duration,
        /// The reason for waiting, or why the daemon does not answer.
        why: String,
    },
}

impl Client {
    /// Repeats the request until the cache is on this host.
    ///
    /// # Errors
    /// The daemon rejects the request, or the time is over.
    pub async fn fetch(&self, what: &Fetch, mut tell: impl FnMut(Waiting)) -> Result<Ready, FetchError> {
        let (began, job) = (Instant::now(), super::batch_job::job());
        let late = |why| FetchError::Late { name: what.name.clone(), after: began.elapsed(), why };
        let mut away = Away::new(what.wait);
        let most = if what.often { 1 } else { ASK };
        loop {
            let left = what.wait.map(|wait| wait.saturating_sub(began.elapsed()));
            let is_late = left.is_some_and(|left| left.is_zero());
            let wait = left.map_or(most, |left| left.as_secs().min(most));
            let (name, job) = (what.name.clone(), job.clone());
            let get = Get { name, wait, pid: what.pid, job, offline: what.offline, ..Get::default() };
            let got = match self.post::<Got>("/v1/get", &get, Duration::from_secs(wait)).await {
                Err(error) if away.waits(&error) => {
                    if is_late {
                        return Err(late(error.to_string()));
                    }
                    tell(Waiting::Away(error.to_string()));
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
                other => other?,
            };
            away.heard();
            match got {
                Got::Ready { info, seconds, method, older } => {
                    return Ok(Ready { info: *info, seconds, method: method.map(|m| m.to_string()), older });
                }
                Got::Wait { why, bytes, total } => {
                    tell(Waiting::Receiving { why: why.clone(), bytes, total });
                    if is_late {
                        return Err(late(why));
                    }
                    // Less than a second is left, for which the daemon does not wait.
                    if wait == 0 {
                        tokio::time::sleep(AGAIN.min(left.unwrap_or(AGAIN))).await;
                    }
                }
            }
        }
    }
}

/// A daemon that has answered, and is away: it is being started again, as for an upgrade.
struct Away {
    patience: Duration,
    heard: Instant,
    answered: bool,
}

impl Away {
    /// `wait`: how long the caller waits for the whole.
    fn new(wait: Option<Duration>) -> Self {
        Self { patience: wait.unwrap_or(STARTS_AGAIN), heard: Instant::now(), answered: false }
    }

    /// It has answered.
    fn heard(&mut self) {
        (self.heard, self.answered) = (Instant::now(), true);
    }

    /// Whether to wait for the daemon. Where there has never been one, none is waited for.
    fn waits(&mut self, error: &ClientError) -> bool {
        let was_there = match error {
            ClientError::Broken { .. } => true,
            ClientError::Refused { kind, .. } => kind == "stopping",
            ClientError::NoDaemon { .. } | ClientError::Planted(_) | ClientError::Absent(_) => false,
        };
        self.answered |= was_there;
        let is_gone = matches!(error, ClientError::NoDaemon { .. }) && self.answered;
        (was_there || is_gone) && self.heard.elapsed() <= self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_was_there_is_waited_for() {
        let none = || ClientError::NoDaemon { path: "s".into(), source: std::io::ErrorKind::NotFound.into() };
        let broken = ClientError::Broken { path: "s".into(), why: "it ended".into() };
        let mut away = Away::new(None);
        assert!(!away.waits(&none()), "where there has never been one");
        assert!(away.waits(&broken) && away.waits(&none()), "it was there before its first answer");
        let mut away = Away::new(Some(Duration::ZERO));
        away.heard();
        std::thread::sleep(Duration::from_millis(2));
        assert!(!away.waits(&none()), "for as long as the caller waits");
    }
}
