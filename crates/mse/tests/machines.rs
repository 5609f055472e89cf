//! The two machines against each other, under every cutting of their bytes, and against hostile ones.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use tidecast_mse::{
    Error, Initiator, KEY, MAX_FIRST, MAX_HELD, MAX_PAD, Offer, Random, Responder, Session, Swarms,
};

fn random() -> impl Strategy<Value = Random> {
    let pad = prop_oneof![Just(0), Just(MAX_PAD), 0..=MAX_PAD];
    let pad = pad.prop_flat_map(|len| proptest::collection::vec(any::<u8>(), len));
    (any::<[u8; 20]>(), pad).prop_map(|(mut secret, pad)| {
        secret[0] |= 1;
        Random { secret, pad }
    })
}

/// Gives `bytes` in pieces of the lengths in `cuts`, round and round, until the machine has ended.
fn feed<F>(bytes: &[u8], cuts: &[usize], mut receive: F) -> Result<(Option<Session>, usize), Error>
where
    F: FnMut(&[u8]) -> Result<Option<Session>, Error>,
{
    let (mut at, mut cuts) = (0, cuts.iter().cycle());
    while at < bytes.len() {
        let end = bytes.len().min(at + cuts.next().copied().unwrap_or(bytes.len()).max(1));
        let session = receive(&bytes[at..end])?;
        at = end;
        if session.is_some() {
            return Ok((session, at));
        }
    }
    Ok((None, at))
}

/// Both ends, with payload behind the opening on both sides.
fn meet(
    (info_hash, offer): ([u8; 20], Offer),
    swarms: &Swarms,
    randoms: [Random; 2],
    first: &[u8],
    cuts: &[usize],
) -> Result<[Session; 2], Error> {
    let [a, b] = randoms;
    let mut to_b = Vec::new();
    let mut initiator = Initiator::new(info_hash, offer, first, &a, &mut to_b);
    let mut responder = Responder::new(b);
    let mut to_a = Vec::new();
    let (none, _) = feed(&to_b, cuts, |bytes| responder.receive(bytes, swarms, &mut to_a))?;
    assert!(none.is_none());
    let mut to_b = Vec::new();
    let (none, _) = feed(&to_a, cuts, |bytes| initiator.receive(bytes, &mut to_b))?;
    assert!(none.is_none());
    let mut to_a = Vec::new();
    let (there, used) = feed(&to_b, cuts, |bytes| responder.receive(bytes, swarms, &mut to_a))?;
    assert_eq!(used, to_b.len(), "the opening has no byte too many");
    let there = there.expect("the responder is done");
    let (here, _) = feed(&to_a, cuts, |bytes| initiator.receive(bytes, &mut Vec::new()))?;
    Ok([here.expect("the initiator is done"), there])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn they_understand_each_other(
        ids in proptest::collection::vec(any::<[u8; 20]>(), 1..4),
        pick in any::<proptest::sample::Index>(),
        (a, b) in (random(), random()),
        first in proptest::collection::vec(any::<u8>(), 0..200),
        cuts in proptest::collection::vec(1..700_usize, 1..5),
        offer in prop_oneof![Just(Offer::Either), Just(Offer::Rc4)],
    ) {
        let id = *pick.get(&ids);
        let [here, there] = meet((id, offer), &Swarms::new(ids), [a, b], &first, &cuts).unwrap();
        prop_assert_eq!((here.info_hash, there.info_hash), (id, id));
        prop_assert_eq!(there.received, first);
        prop_assert!(here.received.is_empty());
        match (offer, here.cipher, there.cipher) {
            (Offer::Either, None, None) => {}
            (Offer::Rc4, Some(mut here), Some(mut there)) => {
                let mut said = *b"from one end to the other";
                here.outgoing.apply(&mut said);
                prop_assert_ne!(&said, b"from one end to the other");
                there.incoming.apply(&mut said);
                there.outgoing.apply(&mut said);
                here.incoming.apply(&mut said);
                prop_assert_eq!(&said, b"from one end to the other");
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    /// Nothing that a stranger sends is held beyond the bound, ends in a session, or makes a machine panic.
    #[test]
    fn noise_is_refused(
        bytes in proptest::collection::vec(any::<u8>(), 0..3000),
        random in random(),
        cuts in proptest::collection::vec(1..700_usize, 1..5),
    ) {
        let swarms = Swarms::new([[7; 20]]);
        let mut responder = Responder::new(random.clone());
        let answer = feed(&bytes, &cuts, |part| responder.receive(part, &swarms, &mut Vec::new()));
        prop_assert!(!matches!(answer, Ok((Some(_), _))));
        if bytes.len() >= KEY + MAX_PAD + 20 {
            prop_assert!(answer.is_err());
        }
        let mut initiator = Initiator::new([7; 20], Offer::Either, b"first", &random, &mut Vec::new());
        let answer = feed(&bytes, &cuts, |part| initiator.receive(part, &mut Vec::new()));
        prop_assert!(!matches!(answer, Ok((Some(_), _))));
        if bytes.len() >= KEY + MAX_PAD + 8 {
            prop_assert!(answer.is_err());
        }
    }
}

fn plainly(n: u8) -> Random {
    Random { secret: [n; 20], pad: vec![n; usize::from(n)] }
}

#[test]
fn a_swarm_that_is_not_served_is_refused() {
    let swarms = Swarms::new([[1; 20], [2; 20]]);
    let met = meet(([3; 20], Offer::Either), &swarms, [plainly(4), plainly(5)], b"", &[]);
    assert_eq!(met.err(), Some(Error::UnknownSwarm));
    assert_eq!(
        meet(([3; 20], Offer::Either), &Swarms::default(), [plainly(4), plainly(5)], b"", &[]).err(),
        Some(Error::UnknownSwarm)
    );
}

/// Payload right behind the opening, in the same segment, is deciphered with it or left as it is.
#[test]
fn payload_behind_the_opening_is_not_lost() {
    for offer in [Offer::Either, Offer::Rc4] {
        let (mut to_b, mut to_a, swarms) = (Vec::new(), Vec::new(), Swarms::new([[1; 20]]));
        let mut initiator = Initiator::new([1; 20], offer, b"first", &plainly(9), &mut to_b);
        let mut responder = Responder::new(plainly(8));
        responder.receive(&to_b, &swarms, &mut to_a).unwrap();
        to_b.clear();
        initiator.receive(&to_a, &mut to_b).unwrap();
        to_a.clear();
        let there = responder.receive(&to_b, &swarms, &mut to_a).unwrap().unwrap();
        let mut payload = *b"second";
        if let Some(mut cipher) = there.cipher {
            cipher.outgoing.apply(&mut payload);
        }
        to_a.extend_from_slice(&payload);
        let here = initiator.receive(&to_a, &mut to_b).unwrap().unwrap();
        assert_eq!(here.received, b"second");
    }
}

#[test]
fn an_ended_machine_stays_ended() {
    let mut responder = Responder::new(plainly(1));
    let swarms = Swarms::new([[1; 20]]);
    assert_eq!(responder.receive(&[0; KEY], &swarms, &mut Vec::new()).err(), Some(Error::Key));
    assert!(responder.receive(&[0; KEY], &swarms, &mut Vec::new()).is_err());
}

/// The bound that the crate promises.
const _: () = assert!(MAX_HELD < 6 << 10 && MAX_FIRST < MAX_HELD);
