//! Messages between members. The daemon carries a frame unchanged, on a channel on which TLS has authenticated the
//! sender; a frame is at most [`MAX_FRAME`] bytes.

use foca::{Member, State};

use crate::gossip::MAX_PACKET;
use crate::record::MAX_RECORD;
use crate::{Key, Peer, Record};
use tidecast_identity::bytes::{Reader, put_field};

/// Longest frame, bytes.
pub const MAX_FRAME: usize = 64 << 10;
/// The target size of a frame of records or members.
pub(crate) const FULL: usize = 48 << 10;
const VERSION: u8 = 1;
/// The known kinds of message are numbered from 1 to this.
const KINDS: u8 = 7;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A packet of foca.
    Gossip(Vec<u8>),
    /// Compares the digest of the lists of members. Answered with [`Frame::Members`] if they differ.
    Compare(u64),
    /// Some or all of the members that the sender knows, with their states.
    Members(Vec<Member<Peer>>),
    /// Records to keep.
    Keep(Vec<Record>),
    /// The tags of records that are kept, and records that are newer than those sent.
    Kept(Vec<u64>, Vec<Record>),
    /// Asks for the records of a key.
    Ask(u64, Key),
    /// The answer.
    Answer(u64, Vec<Record>),
}

impl Frame {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match self {
            Self::Gossip(packet) => {
                out.push(1);
                out.extend(packet);
            }
            Self::Compare(digest) => {
                out.push(2);
                out.extend(digest.to_be_bytes());
            }
            Self::Members(members) => {
                out.push(3);
                members.iter().for_each(|m| put_member(&mut out, m));
            }
            Self::Keep(records) => {
                out.push(4);
                put_records(&mut out, records);
            }
            Self::Kept(tags, newer) => {
                out.push(5);
                out.extend((tags.len() as u16).to_be_bytes());
                tags.iter().for_each(|tag| out.extend(tag.to_be_bytes()));
                put_records(&mut out, newer);
            }
            Self::Ask(id, key) => {
                out.push(6);
                out.extend(id.to_be_bytes());
                out.extend(key.0);
            }
            Self::Answer(id, records) => {
                out.push(7);
                out.extend(id.to_be_bytes());
                put_records(&mut out, records);
            }
        }
        debug_assert!(out.len() <= MAX_FRAME);
        out
    }

    /// Whether a newer program may have sent it: then it is ignored, and does not count as misbehaviour.
    pub(crate) fn is_newer(bytes: &[u8]) -> bool {
        matches!(bytes, [VERSION, kind, ..] if *kind > KINDS) || matches!(bytes, [v, ..] if *v > VERSION)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_FRAME {
            return None;
        }
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return None;
        }
        let frame = match r.u8()? {
            1 => {
                let left = r.left();
                Self::Gossip((left <= MAX_PACKET).then(|| r.slice(left)).flatten()?.to_vec())
            }
            2 => Self::Compare(r.u64()?),
            3 => {
                let mut members = Vec::new();
                while r.left() > 0 {
                    members.push(read_member(&mut r)?);
                }
                Self::Members(members)
            }
            4 => Self::Keep(records(&mut r)?),
            5 => {
                let count = usize::from(r.u16()?);
                let tags = (0..count).map(|_| r.u64()).collect::<Option<_>>()?;
                Self::Kept(tags, records(&mut r)?)
            }
            6 => Self::Ask(r.u64()?, Key(r.array()?)),
            7 => Self::Answer(r.u64()?, records(&mut r)?),
            _ => return None,
        };
        // A newer program may have added the remaining bytes.
        Some(frame)
    }
}

/// A member as it is encoded: description, foca's incarnation, state.
pub(crate) fn put_member(out: &mut Vec<u8>, member: &Member<Peer>) {
    out.extend(member.id().bytes());
    out.extend(member.incarnation().to_be_bytes());
    out.push(match member.state() {
        State::Alive => 0,
        State::Suspect => 1,
        State::Down => 2,
    });
}

pub(crate) fn read_member(r: &mut Reader<'_>) -> Option<Member<Peer>> {
    let (peer, incarnation) = (Peer::read(r)?, r.u16()?);
    let state = match r.u8()? {
        0 => State::Alive,
        1 => State::Suspect,
        2 => State::Down,
        _ => return None,
    };
    Some(Member::new(peer, incarnation, state))
}

fn put_records(out: &mut Vec<u8>, records: &[Record]) {
    records.iter().for_each(|record| put_field(out, &record.encode()));
}

fn records(r: &mut Reader<'_>) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    while r.left() > 0 {
        // A record that cannot be decoded may be of a newer kind: the others are still used.
        records.extend(Record::decode(r.field(MAX_RECORD)?));
    }
    Some(records)
}
