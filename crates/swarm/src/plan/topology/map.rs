//! Places and their hosts: the result of reading any topology text.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::super::epoch::{MAX_MEMBERS, MAX_PLACES, Place};
use super::super::places::Tree;
use super::error::{MAX_TEXT, TopologyError, Wrong};
use super::rule::Rule;

/// Places and their hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    places: Vec<Place>,
    names: BTreeMap<String, u32>,
    hosts: BTreeMap<String, u32>,
    rules: Vec<(Rule, u32)>,
    /// The first host or switch that hangs on a second switch, and how many do.
    repeated: Option<(String, usize)>,
}

impl Map {
    /// Hosts by name, those of each list at one place below the first; a host named twice is where it is
    /// named first.
    #[must_use]
    pub fn of(places: &[Vec<String>]) -> Map {
        let mut map = Map { places: vec![Place::default()], ..Map::default() };
        for hosts in places.iter().take(MAX_PLACES - 1) {
            let place = map.places.len() as u32;
            map.places.push(Place { above: Some(0), rate: 0 });
            map.names.insert(format!("place{place}"), place);
            for host in hosts {
                map.hosts.entry(host.clone()).or_insert(place);
            }
        }
        map
    }

    /// The places: number 0 is above all others.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The number of the place of this name: a switch, a block, or the path of a rule.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<u32> {
        self.names.get(name).copied()
    }

    /// Each host that is named itself, not by a pattern or subnet, and its place: by place, and numbers as they count.
    #[must_use]
    pub fn listed(&self) -> Vec<(&str, u32)> {
        let mut all: Vec<(&str, u32)> =
            self.hosts.iter().map(|(name, place)| (name.as_str(), *place)).collect();
        all.sort_by_key(|(name, place)| (*place, name.len(), *name));
        all
    }

    /// Names of places, with their numbers.
    pub fn names(&self) -> impl Iterator<Item = (&str, u32)> {
        self.names.iter().map(|(name, place)| (name.as_str(), *place))
    }

    /// The first host or switch that a text of Slurm's hangs on a second switch, and how many it does: each counts below
    /// the first.
    #[must_use]
    pub fn repeated(&self) -> Option<(&str, usize)> {
        self.repeated.as_ref().map(|(first, count)| (first.as_str(), *count))
    }

    pub(super) fn repeat(&mut self, name: &str) {
        self.repeated.get_or_insert_with(|| (name.to_owned(), 0)).1 += 1;
    }

    /// Whether a host may be known by its address alone.
    #[must_use]
    pub fn has_subnets(&self) -> bool {
        self.rules.iter().any(|(rule, _)| matches!(rule, Rule::Subnet { .. }))
    }

    /// The place of a host; 0 if the text does not name it. A full name is known by its first label too.
    #[must_use]
    pub fn place(&self, host: &str, address: Option<IpAddr>) -> u32 {
        let short = host.split('.').next().unwrap_or(host);
        let listed = self.hosts.get(host).or_else(|| self.hosts.get(short));
        let ruled =
            || self.rules.iter().find(|(r, _)| r.fits(host, address) || r.fits(short, None)).map(|r| &r.1);
        listed.or_else(ruled).copied().unwrap_or(0)
    }

    /// One place that holds all hosts.
    pub(super) fn empty(text: &str) -> Result<Map, TopologyError> {
        if text.len() > MAX_TEXT {
            return Err(TopologyError::Long(text.len()));
        }
        Ok(Map::of(&[]))
    }

    /// Itself, where its places are a tree.
    pub(super) fn checked(self) -> Result<Map, TopologyError> {
        Tree::new(&self.places).map_err(TopologyError::Tree)?;
        Ok(self)
    }

    pub(super) fn add_place(&mut self, name: &str, place: Place) -> Result<u32, Wrong> {
        if self.places.len() >= MAX_PLACES {
            return Err(Wrong::Many);
        }
        let number = self.places.len() as u32;
        if self.names.insert(name.to_owned(), number).is_some() {
            return Err(Wrong::Twice);
        }
        self.places.push(place);
        Ok(number)
    }

    /// Bytes per second of the link from a place upwards.
    pub(super) fn set_rate(&mut self, place: u32, rate: u64) {
        if let Some(place) = self.places.get_mut(place as usize) {
            place.rate = rate;
        }
    }

    /// A place hangs on this one.
    pub(super) fn hang(&mut self, place: u32, above: u32) {
        if let Some(place) = self.places.get_mut(place as usize) {
            place.above = Some(above);
        }
    }

    pub(super) fn add_rule(&mut self, rule: Rule, place: u32) -> Result<(), Wrong> {
        if self.rules.len() >= MAX_PLACES {
            return Err(Wrong::Many);
        }
        self.rules.push((rule, place));
        Ok(())
    }

    /// The place of a host that is named itself.
    pub(super) fn host(&self, name: &str) -> Option<u32> {
        self.hosts.get(name).copied()
    }

    /// Hosts that are named themselves.
    pub(super) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    pub(super) fn add_host(&mut self, name: String, place: u32) -> Result<(), Wrong> {
        if self.hosts.len() >= MAX_MEMBERS {
            return Err(Wrong::Many);
        }
        if self.hosts.insert(name, place).is_some() { Err(Wrong::Twice) } else { Ok(()) }
    }
}
