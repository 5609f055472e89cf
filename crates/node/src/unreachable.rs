//! Reports of peers that do not answer: each address and reason once, then counted, and only while no other peer is
//! connected.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::messages::MessageSender;
use crate::plain;

/// Another address may answer within this time.
const GRACE: Duration = Duration::from_millis(700);
/// Addresses that are listed: of those that the user or a ticket has named, and of others.
const TOLD: usize = 64;
const FOUND: usize = 8;

/// Addresses that failed.
#[derive(Default)]
pub(crate) struct Unreachable {
    tries: Vec<Tried>,
    /// Others that are not named.
    others: bool,
    others_said: bool,
    since: Option<Instant>,
}

struct Tried {
    addr: SocketAddr,
    why: String,
    /// Tries that were not reported.
    untold: u32,
    told: bool,
}

impl Unreachable {
    /// A try failed. `told`: the address was named by the user or a ticket.
    pub(crate) fn failed(&mut self, addr: SocketAddr, why: &str, told: bool) {
        self.since.get_or_insert_with(Instant::now);
        if let Some(known) = self.tries.iter_mut().find(|tried| tried.addr == addr && tried.why == why) {
            known.untold += 1;
            return;
        }
        let room = if told { TOLD } else { FOUND };
        if self.tries.iter().filter(|tried| tried.told == told).count() < room {
            self.tries.push(Tried { addr, why: why.to_owned(), untold: 1, told });
        } else {
            self.others = true;
        }
    }

    /// Reports new failures, unless a peer is connected.
    pub(crate) fn report(&mut self, connected: bool, messages: &MessageSender<'_>) {
        if connected {
            self.tries.iter_mut().for_each(|tried| tried.untold = 0);
            if self.since.take().is_some() {
                messages.clear_silence();
            }
            return;
        }
        if self.since.is_none_or(|since| since.elapsed() < GRACE) {
            return;
        }
        for tried in &mut self.tries {
            for _ in 0..std::mem::take(&mut tried.untold) {
                messages.unanswered(&tried.addr.to_string(), &plain(&tried.why));
            }
        }
        if self.others && !std::mem::replace(&mut self.others_said, true) {
            messages.warning("more addresses did not answer; they are not listed");
        }
    }
}
