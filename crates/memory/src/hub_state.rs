//! The state and decisions of the hub: the members of the group, their hosts, and their roles in each call.
//!
//! Pure: messages, losses and the time go in; messages come out ([`HubState::take`]). Any process with the secret may be a
//! rank, and may be hostile; a rank that breaks the protocol is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use crate::call::{Call, Outgoing, Running};
use crate::message::{Down, Enter, Hello, Role, Up};

/// The state of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MemberState {
    Awaited,
    Joined,
    Lost(String),
}

/// A rank.
#[derive(Debug)]
struct Member {
    state: MemberState,
    hello: Option<Hello>,
    /// The anchor of its host, once it is known.
    host: Option<u32>,
    /// The number of anchors that it was asked about.
    asked: usize,
    /// The number of its next call.
    next: u64,
}

/// The hub's whole state.
#[derive(Debug)]
pub(crate) struct HubState {
    members: Vec<Member>,
    /// The first rank of each host: later ranks look for its directory.
    anchors: Vec<u32>,
    /// Open calls, by number: at most one is running, later ones gather.
    calls: BTreeMap<u64, Call>,
    outgoing: Vec<Outgoing>,
}

impl HubState {
    pub(crate) fn new(size: u32) -> Self {
        let member = |_| Member { state: MemberState::Awaited, hello: None, host: None, asked: 0, next: 0 };
        let members = (0..size).map(member).collect();
        Self { members, anchors: Vec::new(), calls: BTreeMap::new(), outgoing: Vec::new() }
    }

    /// The messages to send since the last call of this function.
    pub(crate) fn take(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.outgoing)
    }

    /// Whether no call is open.
    pub(crate) fn idle(&self) -> bool {
        self.calls.is_empty()
    }

    /// A rank has connected.
    ///
    /// # Errors
    /// Why it is rejected.
    pub(crate) fn joined(&mut self, hello: Hello) -> Result<(), String> {
        let (rank, size) = (hello.rank, self.members.len());
        if hello.size as usize != size {
            return Err(format!("rank 0 opened a group of {size}, this rank a group of {}", hello.size));
        }
        let Some(member) = self.members.get_mut(rank as usize) else {
            return Err(format!("a group of {size} has no rank {rank}"));
        };
        match &member.state {
            MemberState::Awaited => {}
            MemberState::Joined => return Err(format!("another process is already rank {rank}")),
            MemberState::Lost(why) => return Err(format!("rank {rank} was removed from the group: {why}")),
        }
        member.state = MemberState::Joined;
        member.hello = Some(hello);
        self.ask(rank);
        Ok(())
    }

    /// Asks a rank which of the anchors it shares memory with; without any, it becomes an anchor.
    fn ask(&mut self, rank: u32) {
        let all = self.anchors.len();
        let Some(member) = self.members.get(rank as usize) else { return };
        let place = member.hello.as_ref().map(|h| &h.place);
        let known = self.anchors.iter().enumerate().skip(member.asked);
        let alike = known.filter_map(|(number, anchor)| {
            let hello = self.members.get(*anchor as usize)?.hello.as_ref()?;
            (Some(&hello.place) == place).then(|| (number as u32, hello.dir.clone()))
        });
        let alike: Vec<_> = alike.collect();
        let none = alike.is_empty();
        if let Some(member) = self.members.get_mut(rank as usize) {
            member.asked = all;
        }
        if none {
            self.anchors.push(rank);
            self.admit(rank, all as u32);
        } else {
            self.send(rank, Down::Anchors(alike));
        }
    }

    fn admit(&mut self, rank: u32, host: u32) {
        if let Some(member) = self.members.get_mut(rank as usize) {
            member.host = Some(host);
        }
        self.send(rank, Down::Admitted);
    }

    /// A message from a rank.
    pub(crate) fn handle(&mut self, rank: u32, up: Up, payload: Bytes, now: Duration) {
        match up {
            Up::Hello(_) => self.lost(rank, "it broke the protocol", now),
            Up::Alive => {}
            Up::Bye => self.lost(rank, "it has left the group", now),
            Up::Shares(anchor) => match anchor {
                Some(number) if (number as usize) < self.anchors.len() => self.admit(rank, number),
                Some(_) => self.lost(rank, "it broke the protocol", now),
                None => self.ask(rank),
            },
            Up::Enter(enter) => self.enter(rank, enter, payload, now),
            Up::Ready { call, bytes } => self.running(call, now, |r, out| r.ready(rank, bytes, out)),
            Up::Taken { call, bytes } => self.running(call, now, |r, out| r.taken(rank, bytes, out)),
            Up::Ticket { call, ticket } => self.running(call, now, |r, out| r.ticket(rank, &ticket, out)),
            Up::Done { call, error } => self.running(call, now, |r, out| r.done(rank, error, out)),
        }
    }

    /// Applies `act` to the running call, and ends it when no rank is busy.
    fn running(&mut self, number: u64, now: Duration, act: impl FnOnce(&mut Running, &mut Vec<Outgoing>)) {
        let Some(running) = self.calls.get_mut(&number).and_then(|c| c.running.as_mut()) else { return };
        act(running, &mut self.outgoing);
        if running.over(&mut self.outgoing) {
            self.end(number, now);
        }
    }

    /// A call is over; the wait of the next call begins now.
    fn end(&mut self, number: u64, now: Duration) {
        self.calls.remove(&number);
        self.calls.values_mut().for_each(|call| call.began = now);
    }

    fn enter(&mut self, rank: u32, enter: Enter, payload: Bytes, now: Duration) {
        let number = enter.call;
        let Some(member) = self.members.get_mut(rank as usize) else { return };
        let rightly = member.state == MemberState::Joined && member.host.is_some() && member.next == number;
        let length = match enter.role {
            Role::Offer { len, inline: true } => len,
            _ => 0,
        };
        let offers = matches!(enter.role, Role::Offer { .. });
        let own = enter.root == rank || !offers;
        if !rightly || !own || length != payload.len() as u64 {
            return self.lost(rank, "it broke the protocol", now);
        }
        member.next += 1;
        let patience = Duration::from_millis(enter.patience);
        let call = self.calls.entry(number).or_insert_with(|| Call::new(now, patience));
        if call.enter(rank, enter, payload) {
            self.advance(number, now);
        } else {
            self.send(
                rank,
                Down::Failed {
                    call: number,
                    why: "this rank called after the timeout of the other ranks".into(),
                },
            );
        }
    }

    /// Begins a call when all ranks have called.
    fn advance(&mut self, number: u64, now: Duration) {
        let Some(call) = self.calls.get_mut(&number).filter(|c| c.running.is_none()) else { return };
        let gone = |m: &Member| matches!(m.state, MemberState::Lost(_));
        let mut ranks = (0u32..).zip(&self.members);
        if !ranks.all(|(rank, member)| gone(member) || call.entered.contains_key(&rank)) {
            return;
        }
        let lost: BTreeMap<u32, &str> = (0u32..)
            .zip(&self.members)
            .filter_map(|(rank, member)| match &member.state {
                MemberState::Lost(why) if !call.entered.contains_key(&rank) => Some((rank, why.as_str())),
                _ => None,
            })
            .collect();
        let placement = |rank: u32| {
            let member = self.members.get(rank as usize)?;
            Some((member.host?, member.hello.as_ref()?))
        };
        if call.begin(number, &lost, &placement, &mut self.outgoing) {
            self.end(number, now);
        }
    }

    /// A rank has disconnected, or is removed.
    pub(crate) fn lost(&mut self, rank: u32, why: &str, now: Duration) {
        let Some(member) = self.members.get_mut(rank as usize) else { return };
        if matches!(member.state, MemberState::Lost(_)) {
            return;
        }
        let was_here = member.state == MemberState::Joined;
        member.state = MemberState::Lost(why.to_owned());
        if was_here {
            self.send(rank, Down::Lost(format!("this rank was removed from the group: {why}")));
        }
        let numbers: BTreeSet<u64> = self.calls.keys().copied().collect();
        for number in numbers {
            let why = why.to_owned();
            self.running(number, now, |running, out| running.lost(rank, &why, out));
            if let Some(call) = self.calls.get_mut(&number).filter(|c| c.running.is_none()) {
                call.entered.remove(&rank);
                self.advance(number, now);
            }
        }
    }

    /// Removes ranks that did not call within the timeout.
    pub(crate) fn tick(&mut self, now: Duration) {
        let Some((_, call)) = self.calls.first_key_value().filter(|(_, c)| c.running.is_none()) else {
            return;
        };
        if now.saturating_sub(call.began) < call.patience {
            return;
        }
        let seconds = call.patience.as_secs_f32();
        let missing = |rank: &u32| !call.entered.contains_key(rank);
        let missing: Vec<u32> = (0..self.members.len() as u32).filter(missing).collect();
        for rank in missing {
            self.lost(rank, &format!("it did not call within {seconds} s"), now);
        }
    }

    fn send(&mut self, rank: u32, down: Down) {
        self.outgoing.push((rank, down, Bytes::new()));
    }
}

#[cfg(test)]
mod tests;
