//! Settings that are checked where they are read, so that an error names their line or variable. Flags of the same name
//! are read by the same functions.

use std::path::{Path, PathBuf};

use tidecast_discovery::{TrackerUrl, peers};
use tidecast_metainfo::{Version, is_new_piece_length};
use tidecast_net::Network;
use tidecast_node::Policy;
use tidecast_publish::{Exclude, Format};
use tidecast_store::Durability;
use tidecast_text::{Rate, Size};

use crate::state::home;

/// The most threads that a command may be told to use.
pub const MAX_THREADS: usize = 1024;

/// The engine's policy by its name.
///
/// # Errors
/// No policy has this name.
pub fn policy(text: &str) -> Result<Policy, String> {
    match text {
        "tidecast" => Ok(Policy::Tidecast),
        "classic" => Ok(Policy::Classic),
        _ => Err(format!("invalid policy {text:?}; use tidecast or classic")),
    }
}

/// The version of new manifests by its name.
///
/// # Errors
/// No version has this name.
pub fn format(text: &str) -> Result<Format, String> {
    match text {
        "auto" => Ok(Format::Auto),
        "v1" => Ok(Format::Exactly(Version::V1)),
        "v2" => Ok(Format::Exactly(Version::V2)),
        "hybrid" => Ok(Format::Exactly(Version::Hybrid)),
        _ => Err(format!("invalid format {text:?}; use auto, v2, hybrid or v1")),
    }
}

/// How downloads are made durable, by its name.
///
/// # Errors
/// It has no such name.
pub fn durability(text: &str) -> Result<Durability, String> {
    match text {
        "batched" => Ok(Durability::Batched),
        "none" => Ok(Durability::None),
        _ => Err(format!("invalid durability {text:?}; use batched or none")),
    }
}

/// The piece size of new manifests.
///
/// # Errors
/// It is not a size, or not one that manifests may have.
pub fn piece_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match is_new_piece_length(size.0) {
        true => Ok(size),
        false => Err(format!("{text} is not a piece size; use a power of two from 16KiB to 512MiB")),
    }
}

/// A limit of the rate of all peers together.
pub(super) fn limit(text: &str) -> Result<Rate, String> {
    let rate: Rate = text.parse()?;
    match rate.0 >= 8 {
        true => Ok(rate),
        false => Err(format!("{text} is less than 1 byte/s; leave the limit out for no limit")),
    }
}

pub(super) fn net(text: &str) -> Result<String, String> {
    text.parse::<Network>().map(|_| text.to_owned())
}

pub(super) fn log(text: &str) -> Result<String, String> {
    crate::log::check(text).map(|()| text.to_owned())
}

pub(super) fn tracker(text: &str) -> Result<(), String> {
    TrackerUrl::parse(text).map(drop).map_err(|error| error.to_string())
}

pub(super) fn peer(text: &str) -> Result<(), String> {
    peers::parse(text).map(drop).map_err(|error| error.to_string())
}

pub(super) fn exclude(text: &str) -> Result<(), String> {
    Exclude::new(&[text.to_owned()]).map(drop).map_err(|error| error.to_string())
}

/// A path, in which `~/` at the start means the home directory.
pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    below(text, home().as_deref())
}

fn below(text: &str, home: Option<&Path>) -> Result<PathBuf, String> {
    let Some(rest) = text.strip_prefix('~') else { return Ok(text.into()) };
    if !(rest.is_empty() || rest.starts_with('/')) {
        return Err(format!("{text:?} names the home directory of a user; write the whole path"));
    }
    let home = home.ok_or_else(|| format!("{text:?} needs HOME, which is not set; write the whole path"))?;
    let rest = rest.trim_start_matches('/');
    Ok(if rest.is_empty() { home.to_owned() } else { home.join(rest) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_tilde_is_the_home_directory() {
        let home = Some(Path::new("/home/ada"));
        for (text, whole) in [
            ("~/tc", "/home/ada/tc"),
            ("~//tc", "/home/ada/tc"),
            ("~", "/home/ada"),
            ("~/", "/home/ada"),
            ("/a/~/b", "/a/~/b"),
            ("a/~", "a/~"),
        ] {
            assert_eq!(below(text, home).unwrap(), Path::new(whole), "{text}");
        }
        assert!(below("~ada/tc", home).unwrap_err().contains("write the whole path"));
        assert!(below("~/tc", None).unwrap_err().contains("HOME"));
        assert_eq!(below("tc", None).unwrap(), Path::new("tc"));
    }

    #[test]
    fn piece_sizes_have_one_limit() {
        assert_eq!(piece_size("512MiB").unwrap(), Size(512 << 20));
        assert_eq!(piece_size("16KiB").unwrap(), Size(16 << 10));
        for text in ["1GiB", "8KiB", "64KB", "0"] {
            assert!(piece_size(text).unwrap_err().contains("16KiB to 512MiB"), "{text}");
        }
    }
}
