//! The short forms, `KIND:COUNTS@RATE,OPTION=VALUE..`, as written on a command line.

use super::text::{LINK_OPTIONS, set};
use super::units::{self, cut};
use super::{Link, Topology, TopologyError, fabrics};

const DEFAULT_RATE: u64 = 100_000_000;

/// Every kind, for error messages.
pub(super) const KINDS: &str = "single, bordeaux, nat, sites, leafspine, fattree, dragonfly";

/// Reads a short form. Counts are bounded at once, validity of the whole is the caller's.
pub(super) fn parse(spec: &str) -> Result<Topology, TopologyError> {
    let (kind, rest) = spec.split_once(':').unwrap_or((spec, ""));
    let build = match kind {
        "single" => single,
        "bordeaux" => bordeaux,
        "nat" => nat,
        "sites" => sites,
        "leafspine" => fabrics::leafspine,
        "fattree" => fabrics::fattree,
        "dragonfly" => fabrics::dragonfly,
        _ => return Err(TopologyError::Unknown(cut(spec))),
    };
    let mut form = Form::read(spec, rest)?;
    let origin = form.take("origin").map(units::rate).transpose()?;
    let mut topology = build(&mut form)?;
    if let Some((option, _)) = form.options.first() {
        return Err(TopologyError::Option { form: cut(spec), option: cut(option) });
    }
    if let (Some(rate), Some(node)) = (origin, topology.nodes.first_mut()) {
        node.rate = rate;
    }
    Ok(topology)
}

/// A short form taken apart; the builder of its kind takes the options that it knows.
pub(super) struct Form<'a> {
    spec: &'a str,
    /// The numbers in front of the `@`, at least one.
    pub(super) counts: Vec<u32>,
    /// Of each node.
    pub(super) rate: u64,
    options: Vec<(&'a str, &'a str)>,
}

impl<'a> Form<'a> {
    fn read(spec: &'a str, rest: &'a str) -> Result<Self, TopologyError> {
        let (head, tail) = rest.split_once('@').unwrap_or((rest, ""));
        let mut form = Form { spec, counts: Vec::new(), rate: DEFAULT_RATE, options: Vec::new() };
        let words = |text: &'a str| text.split(',').filter(|word| !word.is_empty());
        for word in words(head) {
            match word.split_once('=') {
                Some(option) => form.options.push(option),
                None => form.counts.push(
                    units::count(word)
                        .ok_or_else(|| form.wrong("wanted counts of at least 1 after the colon"))?,
                ),
            }
        }
        for (i, word) in words(tail).enumerate() {
            match word.split_once('=') {
                Some(option) => form.options.push(option),
                None if i == 0 => form.rate = units::rate(word)?,
                None => return Err(form.wrong("wanted one rate and then options after the @")),
            }
        }
        if form.counts.is_empty() {
            return Err(form.wrong("wanted counts of at least 1 after the colon"));
        }
        Ok(form)
    }

    /// The value of an option, the last where it is repeated.
    pub(super) fn take(&mut self, key: &str) -> Option<&'a str> {
        let value = self.options.iter().rev().find(|(k, _)| *k == key).map(|(_, value)| *value);
        self.options.retain(|(k, _)| *k != key);
        value
    }

    /// A rate among the options, or the default, which may exceed the limit of links.
    pub(super) fn take_rate(&mut self, key: &str, default: u64) -> Result<u64, TopologyError> {
        self.take(key).map_or(Ok(default.clamp(units::MIN_RATE, units::MAX_RATE)), units::rate)
    }

    /// `link` with the options of links.
    pub(super) fn take_link(&mut self, mut link: Link) -> Result<Link, TopologyError> {
        for key in LINK_OPTIONS {
            if let Some(value) = self.take(key) {
                set(&mut link, key, value)?;
            }
        }
        Ok(link)
    }

    pub(super) fn wrong(&self, wanted: &'static str) -> TopologyError {
        TopologyError::Form { form: cut(self.spec), wanted }
    }
}

/// All nodes on one switch.
fn single(form: &mut Form) -> Result<Topology, TopologyError> {
    let [count] = form.counts[..] else { return Err(form.wrong("wanted single:N@RATE, one switch")) };
    let mut topology = Topology::default();
    let switch = topology.add_switch("s0".to_owned());
    topology.add_nodes(count, switch, form.rate)?;
    Ok(topology)
}

/// Switches in a row; the first link is the bottleneck.
fn bordeaux(form: &mut Form) -> Result<Topology, TopologyError> {
    if form.counts.len() < 2 {
        return Err(form.wrong("wanted two or more switches, for example bordeaux:32,25,7@20mbit"));
    }
    let bottleneck = form.take_rate("bottleneck", form.rate)?;
    let trunk = form.take_rate("trunk", 10 * form.rate)?;
    let mut topology = switches(form)?;
    topology.links.push(form.take_link(Link { a: 0, b: 1, rate: bottleneck, ..Link::default() })?);
    let others = (2..form.counts.len() as u32).map(|b| Link { a: b - 1, b, rate: trunk, ..Link::default() });
    topology.links.extend(others);
    Ok(topology)
}

/// The origin outside, all other nodes behind a NAT.
fn nat(form: &mut Form) -> Result<Topology, TopologyError> {
    let &[count @ 2..=u32::MAX] = form.counts.as_slice() else {
        return Err(form.wrong("wanted nat:N@RATE, N >= 2 (node 0 is outside)"));
    };
    let rate = form.take_rate("bottleneck", form.rate)?;
    form.counts = vec![1, count - 1];
    let mut topology = switches(form)?;
    topology.links.push(form.take_link(Link { a: 1, b: 0, rate, nat: true, ..Link::default() })?);
    Ok(topology)
}

/// A switch a site, each linked to the switch `wan` in the middle.
fn sites(form: &mut Form) -> Result<Topology, TopologyError> {
    if form.counts.len() < 2 {
        return Err(
            form.wrong("wanted two or more sites, for example sites:8,8,8@1gbit,wan=100mbit,delay=10ms")
        );
    }
    let rate = form.take_rate("wan", form.rate)?;
    let mut topology = switches(form)?;
    let b = topology.add_switch("wan".to_owned());
    let link = form.take_link(Link { b, rate, ..Link::default() })?;
    topology.links.extend((0..b).map(|a| Link { a, ..link }));
    Ok(topology)
}

/// Switches `s0`, `s1`.. with their nodes, not linked yet.
fn switches(form: &Form) -> Result<Topology, TopologyError> {
    let mut topology = Topology::default();
    for (i, count) in form.counts.iter().enumerate() {
        let switch = topology.add_switch(format!("s{i}"));
        topology.add_nodes(*count, switch, form.rate)?;
    }
    Ok(topology)
}
