//! What members say to each other. The daemon carries a frame as it is, on a channel on which TLS has proven who
//! speaks; a frame is at most [`MAX_FRAME`] bytes.

use foca::{Member, State};

use crate::gossip::MAX_PACKET;
use crate::record::MAX_RECORD;
use crate::{Key, Peer, Record};
use tidecast_identity::bytes::{Reader, put_field};

/// Longest frame, bytes.
pub const MAX_FRAME: usize = 64 << 10;
/// How full a frame of records or members is made.
pub(crate) const FULL: usize = 48 << 10;
const VERSION: u8 = 1;
/// The kinds of message that this program knows are numbered from 1 to this.
const KINDS: u8 = 7;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A packet of foca.
    Gossip(Vec<u8>),
    /// "Is your list of members the same?" Answered with [`Frame::Members`] if not.
    Compare(u64),
    /// Some or all of the members that the sender knows, with their states.
    Members(Vec<Member<Peer>>),
    /// Records to keep.
    Keep(Vec<Record>),
    /// These are kept (by tag); and these are newer than what was sent.
    Kept(Vec<u64>, Vec<Record>),
    /// What do you have of this?
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

    /// Whether a program after this one may have sent it: then it is passed over, and nobody is blamed.
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
        // What is left, a newer program has added.
        Some(frame)
    }
}

/// A member with what is said of it, as it travels: description, foca's incarnation, state.
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
        // One that cannot be read may be of a kind that a newer program knows: the others count all the same.
        records.extend(Record::decode(r.field(MAX_RECORD)?));
    }
    Some(records)
}
