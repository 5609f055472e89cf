//! What a broadcast is asked for, found out: which hosts, where they are, which path.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use tidecast_swarm::plan::topology::Map;
use tidecast_text::{Size, count, with_causes};

use crate::hosts::{Host, job, parse, printed, without};

/// No file of hosts is longer (bytes).
const MAX_FILE: u64 = 64 << 20;

/// What such a file has.
const LIST: &str = "list of hosts";

/// Why it cannot be found out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// What is asked for is none.
    #[error("{0}")]
    Refused(String),
    /// This host does not have what is needed.
    #[error("{0}")]
    Here(String),
}

fn refused(why: impl Into<String>) -> ChoiceError {
    ChoiceError::Refused(why.into())
}

/// Those of the user, else those of the job, without those that are left out.
///
/// # Errors
/// A list is none or cannot be read; there is neither a list nor a job.
pub fn choose(list: Option<&str>, exclude: Option<&str>) -> Result<Vec<Host>, ChoiceError> {
    let hosts = match list {
        Some(list) => {
            let (text, from) = list_text(list, "--hosts")?;
            parse(&text).map_err(|e| refused(format!("{from}: {}", with_causes(&e))))?
        }
        None => {
            let ask = job::Ask {
                variable: |name: &str| std::env::var(name).ok(),
                // Of the error the cause alone: the job names the file.
                file: |path: &Path| {
                    contents(path, LIST).map_err(|why| std::io::Error::other(why.to_string()))
                },
                program: printed,
            };
            let none =
                || refused("no hosts given and no batch job detected; use --hosts LIST or --hosts @FILE");
            job::find(&ask).map_err(|e| refused(with_causes(&e)))?.ok_or_else(none)?.hosts
        }
    };
    let Some(list) = exclude else { return Ok(hosts) };
    let (text, from) = list_text(list, "--exclude")?;
    without(hosts, &text).map_err(|e| refused(format!("{from}: {}", with_causes(&e))))
}

/// Where hosts are, of which the file must know some; what else it does not know comes back as warnings.
///
/// # Errors
/// It cannot be read, is none, or is of other hosts.
pub fn topology(
    path: &Path,
    origin: Option<&str>,
    hosts: &[Host],
) -> Result<(Map, Vec<String>), ChoiceError> {
    let shown = path.display();
    let usage = |why: String| Err(refused(format!("--topology {shown}: {why}")));
    let map = Map::read(&read(path, "topology")?);
    let map = map.map_err(|e| refused(format!("--topology {shown}: {}", with_causes(&e))))?;
    let known = |name: &str, at: &str| map.place(name, at.parse().ok()) != 0;
    let unknown: Vec<&str> = hosts
        .iter()
        .filter(|host| !known(&host.name, host.login().1))
        .map(|host| host.name.as_str())
        .collect();
    let few = |names: &[&str]| {
        let more = if names.len() > 3 { ", ..." } else { "" };
        names.iter().take(3).copied().collect::<Vec<_>>().join(", ") + more
    };
    if let Some(name) = origin.filter(|name| !known(name, name) && !map.has_subnets()) {
        return usage(format!("it does not name {name} (--origin)"));
    }
    let mut told = Vec::new();
    if let Some((first, count)) = map.repeated() {
        let more = if count > 1 { format!(" and {} more hang", count - 1) } else { " hangs".to_owned() };
        told.push(format!("{shown}: {first}{more} on several switches; the first counts"));
    }
    match unknown.len() {
        // An address may be known later, when the name is resolved.
        0 => {}
        _ if map.has_subnets() => {}
        all if all == hosts.len() => {
            return usage(format!(
                "it names none of the hosts ({}); is it of another cluster?",
                few(&unknown)
            ));
        }
        some => told.push(format!(
            "{shown} does not name {some} of {} ({}); they count as far from all others",
            count(hosts.len() as u64, "host"),
            few(&unknown)
        )),
    };
    Ok((map, told))
}

/// An absolute path; one that ends with a slash is a directory to put it into by its own name.
///
/// # Errors
/// There is no such path, or no such source.
pub fn destination(to: &Path, source: &Path) -> Result<PathBuf, ChoiceError> {
    let here = std::env::current_dir()
        .map_err(|e| ChoiceError::Here(format!("cannot find out where we are: {e}")))?;
    let whole = here.join(to);
    if to.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Ok(whole.join(name(source)?));
    }
    match whole.file_name() {
        Some(_) => Ok(whole),
        None => Err(refused(format!("--to {}: that is no path for a copy", to.display()))),
    }
}

/// The name that was given, of a link too; `.` and `..` have that of their directory.
fn name(source: &Path) -> Result<OsString, ChoiceError> {
    let named = |path: &Path| match path.components().next_back() {
        Some(Component::Normal(name)) => Some(name.to_owned()),
        _ => None,
    };
    // Path leaves out a `.` at the end.
    let given = source.as_os_str().as_encoded_bytes();
    let here = given.ends_with(b"/.") || given.ends_with(b"/./");
    if let Some(name) = named(source).filter(|_| !here) {
        return Ok(name);
    }
    let real = std::fs::canonicalize(source)
        .map_err(|e| ChoiceError::Here(format!("cannot find {}: {e}", source.display())))?;
    named(&real).ok_or_else(|| ChoiceError::Here(format!("{} has no name", source.display())))
}

/// The text of `LIST` or `@FILE`, and what to call it.
fn list_text(list: &str, flag: &str) -> Result<(String, String), ChoiceError> {
    let file = |at: &str| read(Path::new(at), LIST);
    match list.strip_prefix('@') {
        Some("-") => Ok((file("/dev/stdin")?, format!("{flag}: in standard input"))),
        Some(at) => Ok((file(at)?, format!("{flag}: in {at}"))),
        // No host has a slash in its name.
        None if list.contains('/') && Path::new(list).is_file() => {
            Err(refused(format!("{flag}: {list} is a file; write {flag} @{list}")))
        }
        None => Ok((list.to_owned(), flag.to_owned())),
    }
}

/// Why a file gives no text.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    TooLong(String),
}

fn read(path: &Path, what: &str) -> Result<String, ChoiceError> {
    contents(path, what).map_err(|why| match why {
        Unreadable::Io(e) => refused(format!("cannot read {}: {e}", path.display())),
        Unreadable::TooLong(why) => refused(why),
    })
}

/// What a file or pipe has, of a bounded length.
fn contents(path: &Path, what: &str) -> Result<String, Unreadable> {
    let mut text = String::new();
    let read = std::fs::File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_FILE {
        let (shown, limit) = (path.display(), Size(MAX_FILE));
        return Err(Unreadable::TooLong(format!("{shown} is too long for a {what} (limit {limit})")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn destinations() {
        let source = Path::new("/etc/hostname");
        let to = |to: &str| destination(Path::new(to), source).map(|d| d.display().to_string());
        assert_eq!(to("/tmp/x").unwrap(), "/tmp/x");
        assert_eq!(to("/tmp/").unwrap(), "/tmp/hostname");
        assert!(to("x").unwrap().ends_with("/x"));
        assert!(matches!(to(".."), Err(ChoiceError::Refused(_))));
    }
}
