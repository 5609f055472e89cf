//! Broadcasts that are too long to simulate message by message.
//!
//! A pipeline of segments, once it runs, repeats itself: each further segment takes as long as the one
//! before; the same holds for a plan or a swarm without events. So a beginning and half of it are simulated,
//! and each node's time is extrapolated along the line through both. Where flows of one chain share links
//! (ranks in shuffled order) the beginning is long enough to fill the chain, since only then do all of them
//! run at once.

use tidecast_swarm::Time;

use super::Baseline;
use crate::outcome::Outcome;

/// Messages that are simulated in some ten seconds.
const SOON: u64 = 1_000_000;
/// Parts of a beginning, at least: past the ramp-up of TCP.
const LEAST: u64 = 64;

/// Parts of the beginning that stands for `parts` of them; `None` where all are to be simulated.
pub(super) fn beginning(baseline: Baseline, shuffled: bool, ranks: u64, parts: u64) -> Option<u64> {
    let repeats = matches!(
        baseline,
        Baseline::Chain | Baseline::BinomialSegmented | Baseline::Binary | Baseline::Sbcast(_)
    );
    let fill = if shuffled { 2 * ranks } else { 0 };
    let some = (SOON / ranks).max(LEAST).max(fill) / 2 * 2;
    (repeats && some < parts).then_some(some)
}

/// The outcome of `size` bytes from those of a beginning, `long`, and of half of it.
#[must_use]
pub fn extend(half: &Outcome, mut long: Outcome, size: u64) -> Outcome {
    let begun = u128::from(long.size.max(2));
    let more = u128::from(size.saturating_sub(long.size));
    let line = |long: u64, half: u64| {
        let grows = u128::from(long.saturating_sub(half)) * more / (begun / 2);
        long.saturating_add(u64::try_from(grows).unwrap_or(u64::MAX))
    };
    for (long, half) in long.finished.iter_mut().zip(&half.finished) {
        *long = long.zip(*half).map(|(long, half)| Time(line(long.0, half.0)));
    }
    let ended = Time(line(long.ended.0, half.ended.0));
    for (at, used) in &mut long.samples {
        at.0 = (u128::from(at.0) * u128::from(ended.0) / u128::from(long.ended.0.max(1))) as u64;
        used.iter_mut().for_each(|bytes| *bytes = (u128::from(*bytes) * u128::from(size) / begun) as u64);
    }
    for (port, half) in long.ports.iter_mut().zip(&half.ports) {
        port.bytes = line(port.bytes, half.bytes);
    }
    Outcome {
        size,
        origin_sent: line(long.origin_sent, half.origin_sent),
        control: line(long.control, half.control),
        duplicate: line(long.duplicate, half.duplicate),
        events: long.events + half.events,
        ended,
        ..long
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::run::{Broadcast, Mpi, simulate};
    use super::*;
    use crate::network::Model;
    use crate::progress::Progress;
    use crate::topology::Topology;

    const PART: u64 = 128 << 10;

    fn of(baseline: Baseline, shuffled: bool, parts: u32) -> Outcome {
        let topology = &Topology::parse("bordeaux:10,8,6@1gbit,delay=200us").unwrap();
        let (model, mpi, size) = (Model::default(), Mpi::default(), PART * u64::from(parts));
        let until = Time(u64::MAX / 2);
        let job = Broadcast { topology, model, size, segment: PART, mpi, seed: 4, until };
        simulate(baseline, shuffled, &job, PART, parts, &Progress::new())
    }

    #[test]
    fn a_beginning_and_all_of_it_agree() {
        for (baseline, shuffled) in
            [(Baseline::Chain, false), (Baseline::Chain, true), (Baseline::Binary, false)]
        {
            let whole = of(baseline, shuffled, 1000);
            let drawn = extend(&of(baseline, shuffled, 64), of(baseline, shuffled, 128), 1000 * PART);
            let near = |a: u64, b: u64| a.abs_diff(b) * 50 < a;
            for (whole, drawn) in whole.finished.iter().zip(&drawn.finished) {
                assert!(near(whole.unwrap().0, drawn.unwrap().0), "{baseline:?} {whole:?} {drawn:?}");
            }
            assert!(near(whole.ended.0, drawn.ended.0));
            assert_eq!(whole.origin_sent, drawn.origin_sent);
            assert!(
                whole.ports.iter().zip(&drawn.ports).all(|(a, b)| a.bytes < PART || near(a.bytes, b.bytes))
            );
            assert_eq!(drawn.samples.last().unwrap().0, drawn.ended);
        }
    }

    #[test]
    fn only_what_repeats_itself_goes_on() {
        assert_eq!(beginning(Baseline::Chain, false, 64, 1000), None);
        assert_eq!(beginning(Baseline::Chain, false, 4000, 819_200), Some(250));
        assert_eq!(beginning(Baseline::Chain, true, 4000, 819_200), Some(8000));
        assert_eq!(beginning(Baseline::ScatterAllgather, false, 4000, 4000), None);
    }
}
