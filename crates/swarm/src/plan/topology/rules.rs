//! The text of rules: a path, and its hosts, by name or address.

use std::net::IpAddr;

use tidecast_text::Host;

use super::super::epoch::{MAX_LEVELS, Place};
use super::error::{TopologyError, Wrong};
use super::hostlist;
use super::line::{lines, number_of, rate};
use super::map::Map;
use super::rule::Rule;

pub(super) fn read(text: &str) -> Result<Map, TopologyError> {
    let mut map = Map::empty(text)?;
    for (line, words) in lines(text) {
        read_line(&mut map, &words).map_err(|why| TopologyError::Line { line, why })?;
    }
    Ok(map)
}

fn read_line(map: &mut Map, words: &[&str]) -> Result<(), Wrong> {
    let place = path(map, words[0])?;
    for word in &words[1..] {
        if let Some(speed) = word.strip_prefix("rate=") {
            map.set_rate(place, rate(speed)?);
        } else if word.contains('/') || word.contains('*') {
            let rule = if word.contains('/') { subnet(word)? } else { Rule::Pattern((*word).to_owned()) };
            map.add_rule(rule, place)?;
        } else {
            for host in hostlist::expand(word)? {
                let named =
                    host.parse::<Host>().is_ok_and(|host| host.user().is_none() && host.port().is_none());
                if !named {
                    return Err(Wrong::Name);
                }
                map.add_host(host, place)?;
            }
        }
    }
    Ok(())
}

/// The place of a path; missing places above it are created.
fn path(map: &mut Map, path: &str) -> Result<u32, Wrong> {
    if path.contains(|c: char| !c.is_ascii_alphanumeric() && !"._-/+".contains(c)) {
        return Err(Wrong::Name);
    }
    let mut above = 0;
    let ends = path.match_indices('/').map(|(i, _)| i).chain([path.len()]);
    for (level, end) in ends.enumerate() {
        let name = &path[..end];
        if name.is_empty() || name.ends_with('/') || level + 1 >= usize::from(MAX_LEVELS) {
            return Err(Wrong::Form);
        }
        above = match map.named(name) {
            Some(place) => place,
            None => map.add_place(name, Place { above: Some(above), rate: 0 })?,
        };
    }
    Ok(above)
}

fn subnet(word: &str) -> Result<Rule, Wrong> {
    let (net, bits) = word.split_once('/').ok_or(Wrong::Subnet)?;
    let net: IpAddr = net.parse().map_err(|_| Wrong::Subnet)?;
    let most = if net.is_ipv4() { 32 } else { 128 };
    let bits = number_of(bits).filter(|&b| !bits.is_empty() && b <= most).ok_or(Wrong::Subnet)?;
    Ok(Rule::Subnet { net, bits: bits as u32 })
}
