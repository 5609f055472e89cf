//! Rules that assign hosts to places, by name or address.

use std::net::IpAddr;

/// The hosts to which a rule applies.
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
