//! The addresses of many names, as the host's resolver returns them (`ssh` uses the same).
//!
//! A resolver that does not answer must not delay a broadcast: after a timeout a name counts as unknown, and its thread,
//! which cannot be interrupted, is abandoned.

use std::net::ToSocketAddrs as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::hosts::roster::Addresses;

/// Names that are looked up at the same time.
const THREADS: usize = 64;
/// The maximum wait for all answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// The addresses of each name; empty if it has none, or they are not known in time.
pub(crate) async fn resolve(names: Vec<String>) -> Vec<Addresses> {
    let mut found = vec![Addresses::new(); names.len()];
    let (tell, mut told) = mpsc::channel(THREADS);
    let threads = names.len().min(THREADS);
    let names = Arc::new(Mutex::new(names.into_iter().enumerate()));
    for _ in 0..threads {
        let (names, tell) = (names.clone(), tell.clone());
        let look_up = move || {
            loop {
                let Some((place, name)) = names.lock().next() else { return };
                let addresses = (name.as_str(), 0).to_socket_addrs();
                let addresses: Addresses = addresses.into_iter().flatten().map(Into::into).collect();
                if tell.blocking_send((place, addresses)).is_err() {
                    return;
                }
            }
        };
        if std::thread::Builder::new().name("resolve".into()).spawn(look_up).is_err() {
            break;
        }
    }
    drop(tell);
    let until = Instant::now() + PATIENCE;
    while let Ok(Some((place, addresses))) = timeout_at(until, told.recv()).await {
        found.get_mut(place).into_iter().for_each(|slot| slot.clone_from(&addresses));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_name_gets_its_own_addresses() {
        let names = ["127.0.0.1", "no such name", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1"];
        let found = resolve(names.map(str::to_owned).to_vec()).await;
        assert_eq!(found.iter().map(Addresses::len).collect::<Vec<_>>(), [1, 0, 1, 1, 1]);
        assert_eq!(found.get(2), found.get(3));
        assert_eq!(found.first(), found.get(4));
    }
}
