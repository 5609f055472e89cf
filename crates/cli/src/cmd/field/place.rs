//! What the sending commands have in common: receivers and steps on the command line, and the end by a signal.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use anyhow::{Context as _, Result, ensure};

use crate::failure::Failure;
use crate::stop::{Stop, block_on, hangups};

/// Where `HOST:PORT` are; of a host's addresses the first.
pub(super) fn places(names: &[String]) -> Result<Vec<SocketAddr>> {
    let place = |name: &String| {
        let mut found =
            name.to_socket_addrs().with_context(|| format!("cannot find {name} (HOST:PORT is meant)"))?;
        let place = found.next().with_context(|| format!("{name} has no address"))?;
        ensure!(
            place.port() > 0,
            "{name}: nobody can be reached at port 0; name the port that the other side has printed"
        );
        Ok(place)
    };
    names.iter().map(place).collect()
}

/// `A:B`, `A:`, `:B`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) begin: u64,
    pub(super) end: Option<u64>,
}

impl FromStr for Steps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a range of steps: write A:B, which ends before B");
        let (begin, end) = text.split_once(':').ok_or_else(bad)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| bad());
        let begin = if begin.is_empty() { 0 } else { number(begin)? };
        let end = if end.is_empty() { None } else { Some(number(end)?) };
        Ok(Self { begin, end })
    }
}

/// Listens for Ctrl-C, from when it returns on; what is answered says whether it came.
pub(super) fn until_stopped() -> Result<impl Fn() -> bool> {
    let stopped = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&stopped);
    let (listens, listening) = mpsc::channel::<()>();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let _ = block_on(1, async {
            let _hangups = hangups()?;
            let stop = Stop::listen()?;
            drop(listens);
            stop.wait().await;
            heard.store(true, Ordering::Relaxed);
            // The second signal is heard too.
            std::future::pending::<Result<(), Failure>>().await
        });
    })?;
    // Closed as soon as it listens, or cannot.
    let _ = listening.recv();
    Ok(move || stopped.load(Ordering::Relaxed))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_steps() {
        let steps = |text: &str| text.parse::<Steps>().map(|steps| (steps.begin, steps.end));
        assert_eq!(steps("3:9"), Ok((3, Some(9))));
        assert_eq!(steps(":"), Ok((0, None)));
        assert_eq!(steps(":4"), Ok((0, Some(4))));
        assert_eq!(steps("4:"), Ok((4, None)));
        for wrong in ["", "3", "a:b", "1:2:3", "-1:2"] {
            assert!(steps(wrong).is_err(), "{wrong}");
        }
        assert!(places(&["127.0.0.1:7500".into()]).is_ok());
        assert!(places(&["127.0.0.1".into()]).is_err() && places(&["127.0.0.1:0".into()]).is_err());
    }
}
