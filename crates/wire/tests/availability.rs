//! Availability: any set described is the set read, in as few bytes as either form takes, within the bounds.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeSet;
use std::ops::Range;
use std::slice::from_ref;

use common::{decode_one, encoded, ranges, session};
use proptest::prelude::*;
use tidecast_wire::ext::{self, Availability, MAX_RANGES, Mode, describe};
use tidecast_wire::{Frame, Message};

/// The receiver's state after these messages, one piece at a time.
fn apply(known: &mut BTreeSet<u32>, message: &ext::Message) {
    let (mode, pieces): (_, Vec<Range<u32>>) = match message {
        ext::Message::Availability(m) => (m.mode, m.pieces().collect()),
        ext::Message::AvailabilityBits(m) => (m.mode, m.pieces().collect()),
        other => panic!("{other:?}"),
    };
    if mode == Mode::Reset {
        known.clear();
    }
    for piece in pieces.into_iter().flatten() {
        if mode == Mode::Remove {
            known.remove(&piece)
        } else {
            known.insert(piece)
        };
    }
}

fn pieces(ranges: &[Range<u32>]) -> BTreeSet<u32> {
    ranges.iter().cloned().flatten().collect()
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Reset), Just(Mode::Add), Just(Mode::Remove)]
}

proptest! {
    #[test]
    fn described_and_read(held in ranges(300), before in ranges(20), mode in mode()) {
        let mut known = pieces(&before);
        let messages = describe(9, mode, &held);
        for message in &messages {
            let message = Message::Tidecast(message.clone());
            let frame = decode_one(&mut session(), &encoded(&message)).unwrap();
            prop_assert_eq!(frame, Frame::Message(message));
        }
        for message in &messages {
            apply(&mut known, message);
        }
        let (before, held) = (pieces(&before), pieces(&held));
        let want: BTreeSet<u32> = match mode {
            Mode::Reset => held,
            Mode::Add => before.union(&held).copied().collect(),
            Mode::Remove => before.difference(&held).copied().collect(),
        };
        prop_assert_eq!(known, want);
    }

    /// The rule itself: below the watermark and no exception, or an exception above it.
    #[test]
    fn watermark_and_exceptions(exceptions in ranges(20), watermark in 0..500_u32) {
        let exceptions: Vec<_> = exceptions.into_iter().filter(|r| r.start >= watermark || r.end <= watermark).collect();
        let excepted = pieces(&exceptions);
        let set = Availability { channel: 0, mode: Mode::Reset, watermark, exceptions };
        let want: BTreeSet<u32> = (0..3000).filter(|p| (*p < watermark) != excepted.contains(p)).collect();
        prop_assert_eq!(pieces(&set.pieces().collect::<Vec<_>>()), want);
    }
}

/// All, none, and all but one are one short message, for any number of pieces.
#[test]
fn common_cases_are_short() {
    let len = |held: &[Range<u32>]| {
        let messages = describe(0, Mode::Reset, held);
        assert_eq!(messages.len(), 1, "{held:?}");
        encoded(&Message::Tidecast(messages[0].clone())).len()
    };
    assert_eq!(len(from_ref(&(0..2_000_000))), 14);
    assert_eq!(len(&[]), 14);
    assert_eq!(len(&[0..1_000_000, 1_000_001..2_000_000]), 22);
    assert_eq!(len(from_ref(&(7..8))), 22);
}

/// A set in shreds goes as bits; wide apart, as ranges in several messages. Only the first of them resets.
#[test]
fn shreds() {
    let every_other: Vec<_> = (0..1_000_000).map(|i| 2 * i..2 * i + 1).collect();
    let bits = describe(0, Mode::Reset, &every_other);
    assert_eq!(bits.len(), 4);
    let bytes: usize = bits.iter().map(|m| encoded(&Message::Tidecast(m.clone())).len()).sum();
    assert!(bytes < 251_000, "{bytes} bytes for 2,000,000 pieces");
    let far: Vec<_> = (0..2 * MAX_RANGES as u32 + 5).map(|i| 1000 * i..1000 * i + 1).collect();
    let ranges = describe(0, Mode::Reset, &far);
    let modes = |messages: &[ext::Message]| -> Vec<Mode> {
        let mode = |m: &ext::Message| match m {
            ext::Message::Availability(m) => m.mode,
            ext::Message::AvailabilityBits(m) => m.mode,
            other => panic!("{other:?}"),
        };
        messages.iter().map(mode).collect()
    };
    assert_eq!(modes(&ranges), [Mode::Reset, Mode::Add, Mode::Add]);
    assert_eq!(modes(&bits), [Mode::Reset, Mode::Add, Mode::Add, Mode::Add]);
    for (messages, held) in [(bits, every_other), (ranges, far)] {
        let mut known = BTreeSet::new();
        messages.iter().for_each(|message| apply(&mut known, message));
        assert_eq!(known, pieces(&held));
    }
}
