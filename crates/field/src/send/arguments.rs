//! Command-line values: receivers, steps, a rate, a share of parity.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use tidecast_text::Rate;

/// Why a receiver or a controller's sender has no address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoAddress {
    /// Not `HOST:PORT`, or an unknown host.
    #[error("cannot resolve {name} (expected HOST:PORT): {error}")]
    Unknown {
        /// The given name.
        name: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// A host without one.
    #[error("{0} has no address")]
    None(String),
    /// Port 0.
    #[error("{0}: port 0 is not valid; use the port that the receiver or controller printed")]
    Port(String),
}

/// Where `HOST:PORT` are; of a host's addresses the first.
///
/// # Errors
/// One has no address, or port 0.
pub fn addresses(names: &[String]) -> Result<Vec<SocketAddr>, NoAddress> {
    let address = |name: &String| {
        let unknown = |error| NoAddress::Unknown { name: name.clone(), error };
        let found = name.to_socket_addrs().map_err(unknown)?.next();
        let found = found.ok_or_else(|| NoAddress::None(name.clone()))?;
        if found.port() == 0 { Err(NoAddress::Port(name.clone())) } else { Ok(found) }
    };
    names.iter().map(address).collect()
}

/// `A:B`, `A:`, `:B`: steps from `begin` up to `end`, without `end`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steps {
    /// The first step.
    pub begin: u64,
    /// The step after the last; None: all.
    pub end: Option<u64>,
}

impl Steps {
    /// How many they are.
    ///
    /// # Errors
    /// The range is empty.
    pub fn count(self) -> Result<Option<u64>, String> {
        match self.end.map(|end| end.saturating_sub(self.begin)) {
            Some(0) => {
                Err(format!("--steps {}:{} is an empty range", self.begin, self.end.unwrap_or_default()))
            }
            count => Ok(count),
        }
    }
}

impl FromStr for Steps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad =
            || format!("invalid range of steps {text:?}; write A:B (from A up to, but not including, B)");
        let (begin, end) = text.split_once(':').ok_or_else(bad)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| bad());
        let begin = if begin.is_empty() { 0 } else { number(begin)? };
        let end = if end.is_empty() { None } else { Some(number(end)?) };
        Ok(Self { begin, end })
    }
}

/// A rate in bits per second, or none: it finds itself.
#[derive(Debug, Clone, Copy)]
pub struct Pace(pub Option<u64>);

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self(None)),
            _ => match text.parse()? {
                Rate(0) => Err("the rate must be above 0".into()),
                Rate(rate) => Ok(Self(Some(rate))),
            },
        }
    }
}

/// A share of one: `5%`, `0`.
///
/// # Errors
/// It is not a valid share.
pub fn share(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) && (text.ends_with('%') || percent == 0.0) => {
            Ok(percent / 100.0)
        }
        _ => Err(format!("invalid share {text:?}; write for example 5%, or 0 for none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_read() {
        let steps = |text: &str| text.parse::<Steps>().map(|steps| (steps.begin, steps.end));
        assert_eq!(steps("3:9"), Ok((3, Some(9))));
        assert_eq!(steps(":"), Ok((0, None)));
        assert_eq!(steps(":4"), Ok((0, Some(4))));
        assert_eq!(steps("4:"), Ok((4, None)));
        for wrong in ["", "3", "a:b", "1:2:3", "-1:2"] {
            assert!(steps(wrong).is_err(), "{wrong}");
        }
        assert!(Steps { begin: 4, end: Some(4) }.count().is_err());
        assert_eq!((share("5%"), share("0")), (Ok(0.05), Ok(0.0)));
        assert!(share("5").is_err() && share("101%").is_err());
        assert!(addresses(&["127.0.0.1:7500".into()]).is_ok());
        for wrong in ["127.0.0.1", "127.0.0.1:0"] {
            assert!(addresses(&[wrong.into()]).is_err(), "{wrong}");
        }
    }
}
