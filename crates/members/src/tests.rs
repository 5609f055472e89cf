//! The limits of a hostile member; the bytes of frames.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use tidecast_identity::{NodeId, NodeKey};

use crate::frame::Frame;
use crate::record_store::{RecordStore, Verdict};
use crate::{Claim, Describe, Event, Key, Keys, Limits, Members, Peer, Record, Rng};

const NOW: u64 = 1_800_000_000_000;
const HOUR: u64 = 3_600_000;

fn key() -> NodeKey {
    NodeKey::generate().unwrap()
}

fn member(key: &NodeKey, limits: Limits) -> Members<NodeKey> {
    let describe =
        Describe { incarnation: NOW, card: [0; 32], addresses: vec!["10.0.0.1:7".parse().unwrap()] };
    Members::new(key.clone(), describe, limits, 1, NOW)
}

fn holder(key: &NodeKey, cache: u8, seq: u64, withdrawn: bool) -> Record {
    let claim = Claim::Holder { cache: [cache; 32], complete: true };
    Record::sign(key, claim, seq, NOW + HOUR, withdrawn).unwrap()
}

/// A record that was changed after it was signed.
fn forge(record: &Record, change: impl Fn(&mut Record)) -> Record {
    let mut forged = record.clone();
    change(&mut forged);
    forged
}

/// Carries messages between two until there are none.
fn talk(a: &mut Members<NodeKey>, b: &mut Members<NodeKey>) {
    let (ida, idb) = (a.me().node(), b.me().node());
    for _ in 0..20 {
        a.take_messages().iter().for_each(|(_, bytes)| b.receive(ida, bytes, NOW));
        b.take_messages().iter().for_each(|(_, bytes)| a.receive(idb, bytes, NOW));
    }
}

#[test]
fn nobody_speaks_for_another() {
    let (ka, kb, kc) = (key(), key(), key());
    let (mut a, mut b) = (member(&ka, Limits::default()), member(&kb, Limits::default()));
    a.join(kb.id(), NOW);
    talk(&mut a, &mut b);
    assert!(a.member(kb.id()).is_some() && b.member(ka.id()).is_some());
    // A packet of b that another node sends as its own is rejected.
    b.join(ka.id(), NOW);
    let packet = b.take_messages().remove(0).1;
    a.take_events();
    a.receive(kc.id(), &packet, NOW);
    assert_eq!(a.take_events(), [Event::Misbehaved(kc.id())]);
    // A description that was changed in transit is rejected: one byte of the incarnation, of the address.
    for at in [2 + 32, 2 + 32 + 8 + 32 + 3] {
        let mut forged = packet.clone();
        forged[at] ^= 1;
        a.receive(kb.id(), &forged, NOW);
        assert_eq!(a.take_events(), [Event::Misbehaved(kb.id())], "byte {at}");
    }
    assert_eq!(a.member(kb.id()).unwrap().incarnation(), NOW);
}

#[test]
fn an_earlier_life_is_outbid() {
    let (ka, kb) = (key(), key());
    let (mut a, mut b) = (member(&ka, Limits::default()), member(&kb, Limits::default()));
    a.join(kb.id(), NOW);
    talk(&mut a, &mut b);
    a.describe([9; 32], Vec::new(), NOW + 5_000);
    talk(&mut a, &mut b);
    assert_eq!(b.member(ka.id()).unwrap().card(), [9; 32]);
    // It has forgotten all of that, and its clock went back.
    let mut again = member(&ka, Limits::default());
    again.join(kb.id(), NOW);
    talk(&mut again, &mut b);
    let seen = b.member(ka.id()).map(Peer::incarnation);
    assert_eq!(seen, Some(again.me().incarnation()));
    assert!(again.me().incarnation() > NOW + 5_000);
}

#[test]
fn an_older_record_never_replaces_a_newer_one() {
    let (k, limits) = (key(), Limits::default());
    let (old, new, gone) = (holder(&k, 1, 5, false), holder(&k, 1, 6, false), holder(&k, 1, 7, true));
    let mut kept = RecordStore::default();
    let mut offer = |record: &Record| kept.offer(k.id(), record, &k, &limits, NOW);
    assert_eq!(offer(&new), Verdict::Kept);
    assert_eq!(offer(&old), Verdict::Newer(Box::new(new.clone())));
    assert_eq!(offer(&gone), Verdict::Kept);
    assert_eq!(offer(&new), Verdict::Newer(Box::new(gone.clone())));
    // Forged: another's words, a higher sequence, a longer life.
    for forged in [
        forge(&new, |r| r.seq = 8),
        forge(&new, |r| (r.seq, r.expires) = (9, NOW + 2 * HOUR)),
        forge(&gone, |r| (r.seq, r.withdrawn) = (10, false)),
    ] {
        assert_eq!(offer(&forged), Verdict::Refused);
    }
    let kept = kept.find(&gone.slot().key, &limits, &mut Rng(1), NOW);
    assert_eq!(kept, [gone]);
}

#[test]
fn a_record_has_an_end() {
    let (k, limits) = (key(), Limits { longest_life: HOUR, ..Limits::default() });
    let record = holder(&k, 1, 5, false);
    let mut kept = RecordStore::default();
    assert_eq!(kept.offer(k.id(), &record, &k, &limits, NOW - 1), Verdict::Refused, "too long");
    assert_eq!(kept.offer(k.id(), &record, &k, &limits, NOW), Verdict::Kept);
    assert!(kept.find(&record.slot().key, &limits, &mut Rng(1), NOW + HOUR).is_empty());
    kept.expire(NOW + HOUR);
    assert_eq!(kept.len(), 0);
    assert_eq!(kept.offer(k.id(), &record, &k, &limits, NOW + HOUR), Verdict::Refused, "over");
}

#[test]
fn nobody_takes_the_room_of_others() {
    let limits = Limits { records: 100, records_per_peer: 80, records_per_key: 320, ..Limits::default() };
    let (hostile, honest) = (key(), key());
    let mut kept = RecordStore::default();
    let of = |k: &NodeKey, i: u8| holder(k, i, 1, false);
    // Under one name or under many, it counts against the member that sends it.
    let brought = (0..=255).filter(|i| {
        let signer = key();
        kept.offer(hostile.id(), &of(&signer, *i), &signer, &limits, NOW) == Verdict::Kept
    });
    assert_eq!(brought.count(), 80);
    let first =
        (0..20).filter(|i| kept.offer(honest.id(), &of(&honest, *i), &honest, &limits, NOW) == Verdict::Kept);
    assert_eq!(first.count(), 20);
    assert_eq!(kept.len(), 100);
    // Full: the member with the most records gives way, until all have the same.
    let more = (20..100)
        .filter(|i| kept.offer(honest.id(), &of(&honest, *i), &honest, &limits, NOW) == Verdict::Kept);
    assert!((28..=31).contains(&more.count()));
    assert_eq!(kept.len(), 100);
    // One name cannot be buried either: a 32nd of its room for each.
    let mut kept = RecordStore::default();
    let buried = (0..50).filter(|_| {
        let signer = key();
        kept.offer(hostile.id(), &of(&signer, 1), &signer, &limits, NOW) == Verdict::Kept
    });
    assert_eq!(buried.count(), 10);
}

#[test]
fn a_flood_is_slowed_and_not_kept() {
    let limits = Limits { records_per_second: 10, ..Limits::default() };
    let (ka, kb) = (key(), key());
    let mut a = member(&ka, limits);
    for i in 0..100u8 {
        a.receive(kb.id(), &Frame::Keep(vec![holder(&kb, i, 1, false)]).encode(), NOW);
    }
    assert_eq!(a.record_counts().1, 20);
    a.receive(kb.id(), &Frame::Keep(vec![holder(&kb, 200, 1, false)]).encode(), NOW + 200);
    assert_eq!(a.record_counts().1, 21);
    // Only the holder itself may announce a holder record.
    a.receive(kb.id(), &Frame::Keep(vec![holder(&key(), 201, 1, false)]).encode(), NOW + HOUR);
    assert_eq!(a.record_counts().1, 21);
}

#[test]
fn hearsay_fills_no_memory() {
    let limits = Limits { members: 20, ..Limits::default() };
    let (ka, kb) = (key(), key());
    let (mut a, mut b) = (member(&ka, limits.clone()), member(&kb, limits));
    a.join(kb.id(), NOW);
    talk(&mut a, &mut b);
    // b's list has a hundred members that do not exist.
    let made_up = |_| foca::Member::alive(Peer::sign(&key(), NOW, [0; 32], &[]));
    a.receive(kb.id(), &Frame::Members((0..100).map(made_up).collect()).encode(), NOW);
    assert!(a.alive().count() <= 22, "{}", a.alive().count());
    // A member that connects itself is admitted nevertheless.
    let kc = key();
    let mut c = member(&kc, Limits::default());
    c.join(ka.id(), NOW);
    talk(&mut c, &mut a);
    assert!(a.member(kc.id()).is_some());
}

#[test]
fn a_lookup_ends_and_believes_no_forgery() {
    let (ka, kb) = (key(), key());
    let (mut a, mut b) = (member(&ka, Limits::default()), member(&kb, Limits::default()));
    a.join(kb.id(), NOW);
    talk(&mut a, &mut b);
    let wanted = Key::holders(&[1; 32]);
    let id = a.lookup(wanted, NOW);
    let forged = forge(&holder(&kb, 1, 1, false), |r| r.seq = 9);
    a.take_events();
    a.receive(kb.id(), &Frame::Answer(id, vec![forged, holder(&kb, 1, 3, false)]).encode(), NOW);
    let events = a.take_events();
    let found =
        events.iter().find_map(|e| if let Event::Found(f) = e { Some(f.clone()) } else { None }).unwrap();
    assert_eq!(found.records, [holder(&kb, 1, 3, false)]);
    assert!(events.contains(&Event::Misbehaved(kb.id())));
    // No member answers.
    a.lookup(wanted, NOW);
    a.tick(NOW + 10_000);
    a.tick(NOW + 20_000);
    assert!(a.take_events().iter().any(|e| matches!(e, Event::Found(f) if f.records.is_empty())));
}

fn claims() -> impl Strategy<Value = Claim> {
    let holder =
        (any::<[u8; 32]>(), any::<bool>()).prop_map(|(cache, complete)| Claim::Holder { cache, complete });
    let name = (
        "[a-z.]{1,40}",
        "[a-zé/]{1,40}",
        any::<u32>(),
        any::<[u8; 32]>(),
        prop::collection::vec(any::<u8>(), 0..300),
    );
    let name = name.prop_map(|(origin, name, version, manifest, ad)| Claim::Name {
        origin,
        name,
        version,
        manifest,
        ad,
    });
    prop_oneof![holder, name]
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let k = key();
    let record = (claims(), any::<u64>(), any::<u64>(), any::<bool>());
    let record =
        record.prop_map(move |(claim, seq, end, gone)| Record::sign(&k, claim, seq, end, gone).unwrap());
    prop::collection::vec(record, 0..5)
}

proptest! {
    #[test]
    fn frames_are_read_as_they_were_written(records in records(), id in any::<u64>(), tags in prop::collection::vec(any::<u64>(), 0..20)) {
        let k = key();
        let peer = Peer::sign(&k, id, [3; 32], &["[::1]:5".parse().unwrap(), "1.2.3.4:5".parse().unwrap()]);
        prop_assert!(records.iter().all(|r| r.is_signed(&k as &dyn Keys)));
        for frame in [
            Frame::Gossip(vec![1, 2, 3]),
            Frame::Compare(id),
            Frame::Members(vec![foca::Member::new(peer, 3, foca::State::Suspect)]),
            Frame::Keep(records.clone()),
            Frame::Kept(tags, records.clone()),
            Frame::Ask(id, Key([1; 32])),
            Frame::Answer(id, records),
        ] {
            let bytes = frame.encode();
            prop_assert_eq!(Frame::decode(&bytes), Some(frame));
            if !matches!(bytes[1], 1 | 3 | 4) {
                prop_assert_eq!(Frame::decode(&bytes[..bytes.len() - 1]), None);
            }
        }
    }

    #[test]
    fn what_a_newer_program_adds_is_passed_over_and_passed_on(claims in prop::collection::vec(claims(), 0..5), more in prop::collection::vec(any::<u8>(), 0..100)) {
        let k = key();
        let records: Vec<_> = claims.into_iter().map(|claim| Record::sign(&k, claim, 1, 2, false).unwrap()).collect();
        let mut newer: Vec<Vec<u8>> = Vec::new();
        for record in &records {
            // A record with a field behind the claim, signed as a newer program would.
            let text = record.encode();
            let (text, _) = text.split_last_chunk::<64>().unwrap();
            let text = [text, &more].concat();
            let signature = k.sign(&[b"tidecast record 1\0".as_slice(), &text].concat());
            newer.push([text.as_slice(), &signature].concat());
        }
        for (bytes, record) in newer.iter().zip(&records) {
            let read = Record::decode(bytes).unwrap();
            prop_assert!(read.is_signed(&k as &dyn Keys));
            prop_assert_eq!(&read.encode(), bytes);
            prop_assert_eq!((read.slot(), &read.claim), (record.slot(), &record.claim));
        }
        // Among others, one of a kind that is not known.
        let mut frame = vec![1, 4];
        newer.insert(0, [[7; 49].as_slice(), &[9, 9, 9], &[0; 64]].concat());
        newer.iter().for_each(|bytes| tidecast_identity::bytes::put_field(&mut frame, bytes));
        prop_assert!(matches!(Frame::decode(&frame), Some(Frame::Keep(all)) if all.len() == records.len()));
        let mut a = member(&key(), Limits::default());
        a.receive(NodeId([1; 32]), &[1, 8, 3], NOW);
        a.receive(NodeId([1; 32]), &[2, 1], NOW);
        prop_assert!(a.take_events().is_empty());
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..600), kind in 0u8..9) {
        let mut a = member(&key(), Limits::default());
        a.receive(NodeId([1; 32]), &bytes, NOW);
        let bytes = [&[1, kind], bytes.as_slice()].concat();
        a.receive(NodeId([1; 32]), &bytes, NOW);
        if let Some(frame) = Frame::decode(&bytes) {
            prop_assert_eq!(Frame::decode(&frame.encode()), Some(frame));
        }
        prop_assert_eq!(a.alive().count(), 1);
    }
}
