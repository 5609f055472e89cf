//! The algorithms by the names they have on the command line.

use tidecast_swarm::Policy;

use crate::planned::Knowledge;

/// A way to broadcast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Algorithm {
    /// As on the command line.
    pub name: String,
    /// The algorithm.
    pub method: Method,
}

/// The decision maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Tidecast's engine on its own protocol, by a plan or as a swarm.
    Tidecast(Option<Knowledge>),
    /// The engine as a stock BitTorrent client with these mechanisms.
    Torrent(Policy),
    /// A published schedule.
    Baseline {
        /// Which.
        baseline: Baseline,
        /// Ranks are drawn from the seed (the origin stays first); else they follow the switches.
        shuffled: bool,
    },
}

/// A published schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// The origin sends all to each.
    Flat,
    /// Each sends to the next, in segments.
    Chain,
    /// MPICH's: the whole message to one child after the other.
    Binomial,
    /// Open MPI's: in segments, to all children at once.
    BinomialSegmented,
    /// Two children each, in segments.
    Binary,
    /// Open MPI 4.1's default at 64 ranks: radix 4, the whole message to all children at once.
    Knomial,
    /// Binomial scatter, then an allgather round a ring.
    ScatterAllgather,
    /// Slurm's, with this `--fanout`.
    Sbcast(u32),
}

/// No such algorithm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown algorithm {0:?}; use one of {names}; from flat on, -shuffled may follow", names = Algorithm::NAMES.join(", "))]
pub struct UnknownAlgorithm(pub String);

impl Algorithm {
    /// All names; from `flat` on, `-shuffled` may follow, and a fanout follows `sbcast` (`sbcast-4`).
    pub const NAMES: [&'static str; 19] = [
        "plan",
        "plan-untold",
        "swarm",
        "classic",
        "classic-no-choking",
        "classic-no-distribution",
        "classic-no-endgame",
        "stock",
        "stock-choking",
        "stock-distribution",
        "stock-endgame",
        "flat",
        "chain",
        "binomial",
        "binomial-segmented",
        "binary",
        "knomial",
        "scatter-allgather",
        "sbcast",
    ];

    /// The algorithm of that name.
    ///
    /// # Errors
    /// Unknown names.
    pub fn parse(name: &str) -> Result<Algorithm, UnknownAlgorithm> {
        let way = match name {
            "swarm" => Some(Method::Tidecast(None)),
            "plan" => Some(Method::Tidecast(Some(Knowledge::Topology))),
            "plan-untold" => Some(Method::Tidecast(Some(Knowledge::Nothing))),
            _ => torrent(name).map(Method::Torrent),
        };
        let (plain, shuffled) = match name.strip_suffix("-shuffled") {
            Some(plain) => (plain, true),
            None => (name, false),
        };
        let way = way.or_else(|| baseline(plain).map(|baseline| Method::Baseline { baseline, shuffled }));
        let way = way.ok_or_else(|| UnknownAlgorithm(name.to_owned()))?;
        Ok(Algorithm { name: name.to_owned(), method: way })
    }
}

/// BitTorrent's mechanisms: `classic` has all three (BitLib section V), `stock` none.
fn torrent(name: &str) -> Option<Policy> {
    let (all, none) = (Policy::CLASSIC, Policy::TIDECAST);
    Some(match name {
        "classic" => all,
        "classic-no-choking" => Policy { choking: false, ..all },
        "classic-no-distribution" => Policy { distribution: false, ..all },
        "classic-no-endgame" => Policy { endgame: false, ..all },
        "stock" => none,
        "stock-choking" => Policy { choking: true, ..none },
        "stock-distribution" => Policy { distribution: true, ..none },
        "stock-endgame" => Policy { endgame: true, ..none },
        _ => return None,
    })
}

fn baseline(name: &str) -> Option<Baseline> {
    Some(match name {
        "flat" => Baseline::Flat,
        "chain" => Baseline::Chain,
        "binomial" => Baseline::Binomial,
        "binomial-segmented" => Baseline::BinomialSegmented,
        "binary" => Baseline::Binary,
        "knomial" => Baseline::Knomial,
        "scatter-allgather" => Baseline::ScatterAllgather,
        "sbcast" => Baseline::Sbcast(8),
        _ => Baseline::Sbcast(name.strip_prefix("sbcast-")?.parse().ok().filter(|n| (1..=8).contains(n))?),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_name_is_an_algorithm() {
        for name in Algorithm::NAMES {
            assert_eq!(Algorithm::parse(name).unwrap().name, name);
        }
    }

    #[test]
    fn ranks_are_shuffled_only_where_there_are_ranks() {
        let way = Method::Baseline { baseline: Baseline::Chain, shuffled: true };
        assert_eq!(Algorithm::parse("chain-shuffled").unwrap().method, way);
        let way = Method::Baseline { baseline: Baseline::Sbcast(4), shuffled: true };
        assert_eq!(Algorithm::parse("sbcast-4-shuffled").unwrap().method, way);
        for wrong in ["swarm-shuffled", "classic-shuffled", "sbcast-0", "sbcast-9", "sbcast-", "", "Chain"] {
            let said = Algorithm::parse(wrong).unwrap_err().to_string();
            assert!(said.contains("scatter-allgather"), "{said}");
        }
    }

    #[test]
    fn an_ablation_takes_one_mechanism_away() {
        let Method::Torrent(policy) = Algorithm::parse("classic-no-endgame").unwrap().method else {
            panic!()
        };
        assert!(policy.choking && policy.distribution && !policy.endgame);
        let Method::Torrent(policy) = Algorithm::parse("stock-endgame").unwrap().method else { panic!() };
        assert!(!policy.choking && !policy.distribution && policy.endgame);
    }
}
