//! A swarm of seeds: a fixed set, those that have found something, and fresh ones each time, from the
//! clock. Whatever fails is printed with the command that runs it again.
//!
//! `TIDECAST_SEEDS=a..b` runs those instead.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use tidecast_sim::scenario::Scenario;
use tidecast_sim::soak::{self, Summary};

/// Always the same.
const FIXED: Range<u64> = 0..200;
/// New ones each time.
const FRESH: u64 = 60;
/// Seeds that have found a bug as a swarm, and which. They find it as long as the distributions of scenarios stay as
/// they are; bugs that can be tested directly have tests of their own, too.
const FOUND: [(u64, &str); 19] = [
    (343, "requests to a seed that chokes, each rejected and sent again without a pause"),
    (590, "textbook endgame sent a request for each 16 KiB, more than the other queues"),
    (762, "runs of pieces longer than what the other queues"),
    (1334, "the checker's own count of idle steps went on when nobody could have got anything"),
    (1397, "a piece lost was asked for again and again, and its loser dropped for withholding"),
    (8646, "the checker forgot that cancels do not cross a cut"),
    (64_305_801_459_664_110, "a textbook origin that holds back is called a withholder"),
    (64_305_801_459_668_121, "an origin that everyone asks for everything in the endgame, likewise"),
    (17_768_879_791_014_166, "liars robbed one another in turn, each with its patience anew"),
    (68_644_058_720_909_924, "who rejects everything is above suspicion, and was waited for"),
    (7_200_000_009_964, "a piece lost was served, leaf by leaf, while it came again"),
    (7_300_000_007_436, "the time of a scenario knew nothing of small windows over long links"),
    (68_644_058_720_900_899, "what was stolen in short cells was more than the thief queues"),
    (
        7_400_000_005_161,
        "the silence of one peer was taken for our own slowness, so that nobody took over from it",
    ),
    (
        7_400_000_009_423,
        "so was the way of 47 bytes, and what was taken from the silent went back to them first",
    ),
    (8_300_000_000_715, "a block that took more than a minute was taken back while it came"),
    (8_400_000_007_490, "likewise, from everybody behind the link in turn"),
    (8_600_000_000_004, "likewise, and who sent it was dropped for withholding"),
    (9_300_000_006_245, "a block was given more time by the engine than by the driver"),
];
/// Likewise as broadcasts by a plan.
const PLANNED: [(u64, &str); 20] = [
    (231, "a child was sent what it had before it could say so"),
    (682, "relays that offered what they never got were waited for"),
    (1654, "a piece of which half was there was taken whole"),
    (2831, "an offer that crossed our request was declined, and took the request with it"),
    (2836, "what is pushed filled the queue beyond its limit"),
    (4028, "who loses a piece was not told who else has it"),
    (4405, "the checker's bound forgot what parents send unasked"),
    (68_644_058_720_896_310, "the model told members of their parents only, of whom none could be dialled"),
    (
        68_644_058_720_912_200,
        "the checker took the first piece of each of 16 stripes, leaf by leaf, for idle steps",
    ),
    (7_200_000_004_862, "who could dial nobody for a while forgot all but its parent, who lied"),
    (68_644_058_720_902_710, "the time of a scenario knew nothing of loss"),
    (7_400_000_003_961, "members that withhold were waited for in turn, longer and longer"),
    (
        7_400_000_009_014,
        "what was declined for want of room was fetched, and pushed to those who had fetched it too",
    ),
    (8_200_000_006_126, "a new parent pushed what its child had just asked it for"),
    (8_700_000_001_382, "all that was taken back while it came over a slow link came twice"),
    (9_500_000_004_899, "more was on its way than the parent queues: the rest was declined, and came twice"),
    (9_600_000_000_906, "likewise, among six"),
    (9_820_000_000_170, "at 100 Gbit/s the model's disk was slower than its sockets, which it does not slow"),
    (
        9_820_000_003_835,
        "a parent pushed what its child had fetched meanwhile, and had not told who has it too",
    ),
    (
        9_600_000_001_311,
        "all that may be handed out was with a few slow ones: the others took it for silence",
    ),
];

/// Likewise by a plan on demand.
const OPENED: [(u64, &str); 9] = [
    (8492, "who had wanted nothing did not mind its wishes"),
    (13746, "wishes went round for ever where relays lacked parents"),
    (6867, "what could be wished of nobody was not fetched either"),
    (12243, "what was asked for when an epoch came was awaited, and nobody wished for it"),
    (10469, "who took a piece and sent it to nobody made the source be spared"),
    (11813, "so did two who rejected and withheld in turn"),
    (42619, "a piece lost was awaited, and nobody wished for it"),
    (
        9_500_000_001_866,
        "whose neighbours were silent each and all kept them, and asked the first of them for ever",
    ),
    (141_835_850_515_438, "the checker held who started again to want what it had opened before"),
];

fn run(seeds: Range<u64>) -> Summary {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let said = Mutex::new(BTreeSet::new());
    let summary = soak::run(seeds.clone(), threads, &|all| {
        let mut said = said.lock().unwrap();
        // At once: another run may never end.
        let new = all.failures.iter().filter(|(seed, _)| said.insert(**seed));
        new.for_each(|(_, failure)| eprintln!("{failure}"));
        true
    });
    eprintln!("seeds {}..{}: {summary}", seeds.start, seeds.end);
    summary
}

/// The seeds that the user requested.
fn chosen() -> Option<Range<u64>> {
    let text = std::env::var("TIDECAST_SEEDS").ok()?;
    let (from, to) = text.split_once("..").expect("TIDECAST_SEEDS=from..to");
    Some(from.parse().unwrap()..to.parse().unwrap())
}

#[test]
fn no_seed_breaks_a_rule() {
    if let Some(seeds) = chosen() {
        assert!(run(seeds).failures.is_empty());
        return;
    }
    let fresh = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() * 1000;
    eprintln!("fresh seeds: TIDECAST_SEEDS={fresh}..{}", fresh + FRESH);
    let fixed = run(FIXED);
    let fresh = run(fresh..fresh + FRESH);
    let again = |seed| soak::job(&Scenario::swarm(seed).job).err();
    let found = FOUND.iter().filter_map(|&(seed, what)| Some((what, again(seed)?)));
    let again = |seed| soak::job(&Scenario::planned(seed).job).err();
    let planned = PLANNED.iter().filter_map(|&(seed, what)| Some((what, again(seed)?)));
    let opened = OPENED.iter().filter_map(|&(seed, what)| Some((what, soak::seed(seed).err()?.violation)));
    let again: Vec<String> = found
        .chain(planned)
        .chain(opened)
        .map(|(what, failure)| format!("{what} again?\n{failure}"))
        .collect();
    assert!(fixed.failures.is_empty() && fresh.failures.is_empty() && again.is_empty(), "{again:?}");
    // The fixed set meets everything that can go wrong.
    assert!(fixed.met.len() > 25, "{:?}", fixed.met);
}
