//! Rules that say at which place a host is, by its name or its address.

use std::net::IpAddr;

use tidecast_text::Host;

use super::super::epoch::{MAX_LEVELS, MAX_PLACES, Place};
use super::{Map, TopologyError, Wrong, hostlist, lines, rate};

/// Whom a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Names that fit, `*` being any run of characters.
    Pattern(String),
    /// Addresses whose first `bits` are those of `net`.
    Subnet { net: IpAddr, bits: u32 },
}

impl Rule {
    pub(super) fn fits(&self, host: &str, address: Option<IpAddr>) -> bool {
        match (self, address) {
            (Rule::Pattern(pattern), _) => fits(pattern, host),
            (&Rule::Subnet { net, bits }, Some(address)) => match (net, address.to_canonical()) {
                (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= bits,
                (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= bits,
                _ => false,
            },
            (Rule::Subnet { .. }, None) => false,
        }
    }
}

/// Whether a name fits a pattern: its parts between stars occur in order, the ends at the ends.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return name.ends_with(part);
        }
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    false
}

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
            map.places[place as usize].rate = rate(speed)?;
        } else if word.contains('/') || word.contains('*') {
            if map.rules.len() >= MAX_PLACES {
                return Err(Wrong::Many);
            }
            let rule = if word.contains('/') { subnet(word)? } else { Rule::Pattern((*word).to_owned()) };
            map.rules.push((rule, place));
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

/// The place of a path; those above it are made where they are missing.
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
    let bits = super::number_of(bits).filter(|&b| !bits.is_empty() && b <= most).ok_or(Wrong::Subnet)?;
    Ok(Rule::Subnet { net, bits: bits as u32 })
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn stars() {
        for (pattern, name, fit) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*", "a", true),
            ("a*b", "ab", true),
            ("ab*b", "ab", false),
            ("n*-ib*", "n12-ib0", true),
            ("*x*y", "axbxcy", true),
            ("*x*y", "axbxc", false),
        ] {
            assert_eq!(fits(pattern, name), fit, "{pattern} {name}");
        }
    }
}
